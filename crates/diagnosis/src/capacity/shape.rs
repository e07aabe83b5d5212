//! Shapes: a number of equal pods, and the request of each.

use std::collections::BTreeMap;

use pumice_console::{CommandError, resource_key};
use pumice_engine::cards::CARD_NAME_ANNOTATION;
use pumice_engine::model::quantity::Quantity;
use pumice_protocol::v1 as pb;

/// A gang of equal pods.
#[derive(Debug, Clone, PartialEq)]
pub struct GangShape {
    /// Number of pods; at least 1.
    pub pods: u32,
    /// Request and annotations of each pod.
    pub pod: pb::Task,
}

/// Amount of a resource in a list, in whole units; 0: none.
pub(super) fn listed_amount(list: Option<&pb::ResourceList>, resource: &str) -> f64 {
    let text = list.and_then(|list| list.items.get(resource));
    let amount = text.and_then(|text| Quantity::parse(text).ok());
    amount.map_or(0.0, |amount| amount.approx_f64())
}

fn invalid_shape(text: &str, why: &str) -> CommandError {
    CommandError::Usage(format!(
        "error: `{text}` is no shape: {why}; write \"8 x 1 gpu\" or \"2 x 4 cpu + 16Gi memory\""
    ))
}

impl GangShape {
    /// Reads `8 x 1 gpu + 4 cpu`. A text without `N x` is one pod.
    pub fn parse(text: &str) -> Result<Self, CommandError> {
        let (pods, each) = match text.split_once(" x ") {
            Some((pods, each)) => (pods.trim().parse().ok().filter(|pods| *pods > 0), each),
            None => (Some(1), text),
        };
        let pods = pods.ok_or_else(|| invalid_shape(text, "how many pods?"))?;
        let mut items = BTreeMap::new();
        for part in each.split('+') {
            let mut words = part.split_whitespace();
            let (Some(amount), Some(name), None) = (words.next(), words.next(), words.next()) else {
                return Err(invalid_shape(
                    text,
                    "each part is an amount and a resource, such as `4 cpu`",
                ));
            };
            if Quantity::parse(amount).is_err() {
                return Err(invalid_shape(text, &format!("`{amount}` is no quantity")));
            }
            let name = resource_key::full_name(name).map_err(|error| invalid_shape(text, &error))?;
            if items.insert(name.clone(), amount.to_owned()).is_some() {
                return Err(invalid_shape(text, &format!("`{name}` occurs twice")));
            }
        }
        let pod = pb::Task {
            requests: Some(pb::ResourceList { items }),
            ..pb::Task::default()
        };
        Ok(Self { pods, pod })
    }

    /// Shape of the equal pods of a file.
    pub fn from_pods(tasks: Vec<pb::Task>) -> Result<Self, CommandError> {
        let mut pods = tasks.into_iter().map(|task| pb::Task {
            annotations: task.annotations,
            requests: task.requests,
            limits: task.limits,
            nonzero_requests: task.nonzero_requests,
            counted_requests: task.counted_requests,
            container_nonzero_requests: task.container_nonzero_requests,
            container_requests: task.container_requests,
            kubernetes_requests: task.kubernetes_requests,
            unevaluated_fields: task.unevaluated_fields,
            labels: task.labels,
            constraints: task.constraints,
            ..pb::Task::default()
        });
        let first = pods.next().unwrap_or_default();
        let (mut count, mut all_equal) = (1_u32, true);
        for pod in pods {
            count = count.saturating_add(1);
            all_equal &= pod == first;
        }
        if !all_equal {
            let message = "error: the pods of the file differ; a shape is of equal pods";
            return Err(CommandError::message(message.to_owned()));
        }
        Ok(Self {
            pods: count,
            pod: first,
        })
    }

    /// The shape with these constraints of each pod.
    #[must_use]
    pub fn constrained(mut self, constraints: Option<Box<pb::PodConstraints>>) -> Self {
        self.pod.constraints = constraints;
        self
    }

    /// Hypothetical job of the shape, as if its queue had enqueued it.
    pub fn job(&self, name: &str, queue: &str) -> pb::Job {
        pb::Job {
            name: name.to_owned(),
            queue: queue.to_owned(),
            min_member: i32::try_from(self.pods).unwrap_or(i32::MAX),
            phase: pb::JobPhase::Inqueue.into(),
            ..pb::Job::default()
        }
    }

    /// Group of such pods, which accept a card.
    pub fn group(&self, count: u32, card: Option<&str>) -> pb::TaskGroup {
        let mut pod = self.pod.clone();
        if let Some(card) = card {
            pod.annotations.insert(CARD_NAME_ANNOTATION.to_owned(), card.to_owned());
        }
        pb::TaskGroup {
            task: Some(pod),
            count: Some(count),
            ..pb::TaskGroup::default()
        }
    }

    /// True if a pod requests this resource.
    pub fn requests_resource(&self, resource: &str) -> bool {
        let lists = self.pod.requests.iter().chain(&self.pod.limits);
        lists.flat_map(|list| &list.items).any(|(name, _)| name == resource)
    }

    /// Request of a pod for one resource, in whole units; 0: none.
    pub fn request_per_pod(&self, resource: &str) -> f64 {
        listed_amount(self.pod.requests.as_ref(), resource)
    }

    /// Cards that the pods accept, as they name them. `None`: they name none.
    pub fn card(&self) -> Option<String> {
        self.pod.annotations.get(CARD_NAME_ANNOTATION).cloned()
    }

    /// Text such as `8 x 1 nvidia.com/gpu`, which reads back to the shape.
    pub fn description(&self) -> String {
        let items = self.pod.requests.iter().flat_map(|list| &list.items);
        let parts: Vec<String> = items.map(|(name, amount)| format!("{amount} {name}")).collect();
        format!("{} x {}", self.pods, parts.join(" + "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_console::resource_key::GPU;

    #[test]
    fn shapes_are_parsed() {
        let shape = GangShape::parse("8 x 1 gpu + 4 cpu").unwrap();
        assert_eq!(
            (shape.pods, shape.description().as_str()),
            (8, "8 x 4 cpu + 1 nvidia.com/gpu")
        );
        assert_eq!(
            (
                shape.request_per_pod("cpu"),
                shape.request_per_pod(GPU),
                shape.request_per_pod("memory")
            ),
            (4.0, 1.0, 0.0)
        );
        assert_eq!(GangShape::parse("500m cpu").unwrap().pods, 1);
        for wrong in [
            "",
            "8 x",
            "0 x 1 gpu",
            "x x 1 gpu",
            "8 x much gpu",
            "8 gpus",
            "8 x 1 gpu + 2 gpu",
            "1",
        ] {
            assert_eq!(GangShape::parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
