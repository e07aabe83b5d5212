//! Groups of a job's tasks: the first policy of the pod group whose labels a pod has (Volcano ed72c7c81,
//! `pkg/scheduler/api/sub_job_info.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{FieldError, get, integer, list, text, texts};
use pumice_protocol::v1 as pb;

type LabelMap = BTreeMap<String, String>;

/// Most bytes of a group's values; longer ones are cut to a hash.
const MAX_VALUE_BYTES: usize = 128;

/// Policies of the pod groups, and labels of the pods: a pod group may stand behind its pods.
#[derive(Debug, Default)]
pub(super) struct SubGroups {
    /// Policies by job, for jobs that have some.
    jobs: BTreeMap<String, Vec<GroupMatcher>>,
    /// Labels by task.
    tasks: BTreeMap<String, LabelMap>,
}

/// Pods that a policy is about.
#[derive(Debug)]
struct GroupMatcher {
    name: String,
    /// `matchLabels` and `matchExpressions`, as expressions.
    selector: Vec<LabelExpression>,
    match_label_keys: Vec<String>,
}

/// Demand on a label.
#[derive(Debug)]
struct LabelExpression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl LabelExpression {
    fn holds(&self, labels: &LabelMap) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // A selector that the reference cannot read matches nothing.
            _ => false,
        }
    }
}

impl GroupMatcher {
    /// Name of a pod's group; `None`: the policy is not about the pod.
    fn group_of(&self, labels: &LabelMap) -> Option<String> {
        if self.match_label_keys.is_empty() || !self.selector.iter().all(|expression| expression.holds(labels)) {
            return None;
        }
        let value = |key: &String| labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let values: Option<Vec<&str>> = self.match_label_keys.iter().map(value).collect();
        let mut values = values?.join("-");
        if values.len() > MAX_VALUE_BYTES {
            values = format!("{:08x}", fnv32a(&values));
        }
        Some(format!("{}/{values}", self.name))
    }
}

/// Hash of a text by FNV-1a.
fn fnv32a(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

impl SubGroups {
    /// Notes the labels of a pod.
    pub(super) fn add_task(&mut self, object: &Value, task: &pb::Task) -> Result<(), FieldError> {
        let labels = texts(object, "metadata.labels")?;
        if labels.is_empty() {
            self.tasks.remove(&task.name);
        } else {
            self.tasks.insert(task.name.clone(), labels);
        }
        Ok(())
    }

    /// Notes the policies of a pod group and returns them as its record has them.
    pub(super) fn add_job(&mut self, object: &Value, job: &str) -> Result<Vec<pb::SubGroupPolicy>, FieldError> {
        let (mut matchers, mut policies) = (Vec::new(), Vec::new());
        for policy in list(object, "spec.subGroupPolicy")? {
            let name = text(policy, "name")?;
            policies.push(pb::SubGroupPolicy {
                name: name.clone(),
                size: integer(policy, "subGroupSize")?,
                min_groups: integer(policy, "minSubGroups")?,
            });
            matchers.push(GroupMatcher {
                name,
                selector: selector(policy)?,
                match_label_keys: strings(policy, "matchLabelKeys")?,
            });
        }
        if matchers.is_empty() {
            self.jobs.remove(job);
        } else {
            self.jobs.insert(job.to_owned(), matchers);
        }
        Ok(policies)
    }

    /// Puts the groups into the records of the tasks.
    pub(super) fn apply(&self, tasks: &mut BTreeMap<String, pb::Task>) {
        let none = LabelMap::new();
        for task in tasks.values_mut() {
            let Some(matchers) = self.jobs.get(&task.job) else {
                continue;
            };
            let labels = self.tasks.get(&task.name).unwrap_or(&none);
            task.sub_group = matchers
                .iter()
                .find_map(|matcher| matcher.group_of(labels))
                .unwrap_or_default();
        }
    }
}

fn selector(policy: &Value) -> Result<Vec<LabelExpression>, FieldError> {
    let Some(selector) = get(policy, "labelSelector") else {
        return Ok(Vec::new());
    };
    let equal = texts(selector, "matchLabels")?.into_iter();
    let mut expressions: Vec<LabelExpression> = equal
        .map(|(key, value)| LabelExpression {
            key,
            operator: "In".to_owned(),
            values: vec![value],
        })
        .collect();
    for expression in list(selector, "matchExpressions")? {
        expressions.push(LabelExpression {
            key: text(expression, "key")?,
            operator: text(expression, "operator")?,
            values: strings(expression, "values")?,
        });
    }
    Ok(expressions)
}

fn strings(object: &Value, field: &str) -> Result<Vec<String>, FieldError> {
    let read = |item: &Value| item.as_str().map(str::to_owned);
    let items: Option<Vec<String>> = list(object, field)?.iter().map(read).collect();
    items.ok_or_else(|| FieldError::new(field, "is not a list of texts"))
}
