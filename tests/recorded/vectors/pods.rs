//! Family `pods`: the amounts that each consumer counts for a pod.
//!
//! A block whose recorded amounts upstream got wrong (overflow, a negative or digitless quantity) must be an error.
//! Whether it must be one is decided here from the pod's own texts, by a second, naive reading.

use std::collections::BTreeMap;

use pumice::server::pb;
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::{AmountUnit, ResourceKind, amount_in};
use pumice_kubernetes::derive::card::CardError;
use pumice_kubernetes::derive::kubernetes::KubernetesAmounts;
use pumice_kubernetes::derive::pod::ResourceQuantities;
use pumice_kubernetes::derive::volcano::VolcanoAmounts;
use pumice_kubernetes::derive::{
    Pod, PodError, PodRules, card_amounts, fit_plus_amounts, kubernetes_amounts, volcano_task,
};
use serde_json::{Map, Value, json};

use super::cluster;
use super::quantities::{exact, is_rejected};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

/// Judges one case: the derivations themselves, then the pod as the server lists it after it came as an object.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let pod = Pod::read(&case["pod"]);
    let rules = PodRules::from(cluster::followed(case));
    let amounts = texts(&case["pod"]);
    let unreadable = amounts
        .iter()
        .any(|(_, text)| is_rejected(text) || text.starts_with('-'));
    let mut judge = PodComparison {
        is_rounded: case["release"].is_string(),
        unreadable,
        amounts,
        differences: VectorDifferences::default(),
    };
    for (block, expect) in case["expect"].as_object().into_iter().flatten() {
        let got = pod
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|pod| served(block, pod, rules));
        judge.block(block, expect, got);
    }
    judge.over_the_wire(bench, case);
    judge.differences.verdict()
}

/// Pod of a case as the server lists it, by the rules of a scheduler; `Err`: the server refuses it, or does not evaluate its amounts.
pub(super) fn listed_task(bench: &VectorHarness, case: &Value, rules: pb::PodRules) -> Result<pb::Task, String> {
    let mut object = case["pod"].clone();
    (object["apiVersion"], object["kind"]) = (json!("v1"), json!("Pod"));
    let cluster = pb::Cluster {
        objects: vec![object.to_string().into_bytes()],
        pod_rules: rules.into(),
        ..pb::Cluster::default()
    };
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster),
        policy_document: cluster::document(case, "[{plugins: [{name: binpack}]}]"),
        ..pb::InlineSnapshot::default()
    };
    let request = pb::ListTasksRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
            ..pb::EvaluationRef::default()
        }),
        ..pb::ListTasksRequest::default()
    };
    let listed = bench
        .wire()
        .list_tasks(request)
        .map_err(|status| status.message().to_owned())?;
    let first = listed.tasks.into_iter().next().and_then(|stored| stored.task);
    let task = first.ok_or_else(|| "the server lists no task".to_owned())?;
    let is_evaluated = !task.unevaluated_fields.iter().any(|field| field == "resources");
    is_evaluated
        .then_some(task)
        .ok_or_else(|| "its amounts are not evaluated".to_owned())
}

/// True if the API server would add no request to the pod: then what was recorded is what the server counts.
fn has_all_requests(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned().unwrap_or_default());
    let mut containers = lists.iter().flatten();
    containers.all(|container| {
        let names = |list: &str| container["resources"][list].as_object().cloned().unwrap_or_default();
        let requested = names("requests");
        names("limits").keys().all(|name| requested.contains_key(name))
    })
}

/// Pumice's value of a block, in the form of the recording.
fn served(block: &str, pod: &Pod, rules: PodRules) -> Result<Value, String> {
    let text = |error: PodError| error.to_string();
    match block {
        "kubernetes" => kubernetes_amounts(pod, rules)
            .map(|amounts| kubernetes_block(&amounts))
            .map_err(text),
        "kubernetes_1_35" => {
            let of_1_35 = PodRules {
                resizes_pod_level: false,
                ..rules
            };
            kubernetes_amounts(pod, of_1_35)
                .map(|amounts| kubernetes_block(&amounts))
                .map_err(text)
        }
        "volcano" => volcano_block(pod, rules).map_err(text),
        "koordinator" => fit_plus_amounts(pod)
            .map(|amounts| json!({ "names": amounts.keys().collect::<Vec<_>>(), "amounts": amounts }))
            .map_err(text),
        "card" => card_block(pod),
        other => Err(format!("unknown block `{other}`")),
    }
}

fn kubernetes_block(amounts: &KubernetesAmounts) -> Value {
    let whole = |name: &str| amounts.counted.get(name).copied().unwrap_or(0);
    let scalars: BTreeMap<_, _> = amounts
        .counted
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage"))
        .collect();
    json!({
        "requests": canonical(&amounts.requests),
        "limits": canonical(&amounts.limits),
        "counted": {
            "cpu_milli": whole("cpu"),
            "memory": whole("memory"),
            "ephemeral_storage": whole("ephemeral-storage"),
            "scalars": scalars,
        },
        "nonzero": { "cpu_milli": amounts.nonzero.cpu_milli, "memory": amounts.nonzero.memory },
    })
}

fn canonical(quantities: &ResourceQuantities) -> Value {
    quantities
        .iter()
        .map(|(name, quantity)| (name.clone(), quantity.canonical()))
        .collect()
}

fn volcano_block(pod: &Pod, rules: PodRules) -> Result<Value, PodError> {
    let task = volcano_task(pod, rules)?;
    let without_init = Pod {
        init_containers: Vec::new(),
        ..pod.clone()
    };
    Ok(json!({
        "resreq": vector(&task.resreq()),
        "without_init": vector(&volcano_task(&without_init, rules)?.requests),
        "limit": vector(&task.limit),
        "best_effort": task.best_effort,
        "has_sidecar": task.has_sidecar,
        "scheduling_gated": task.scheduling_gated,
        "status": format!("{:?}", task.status),
        "node": task.node,
        "priority": task.priority,
        "preemptable": task.preemptable,
        "revocable_zone": task.revocable_zone,
    }))
}

/// Amounts as recorded; a scalar of 0 equals a missing one.
fn vector(amounts: &VolcanoAmounts) -> Value {
    let scalars: BTreeMap<_, _> = amounts
        .0
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
        .map(|(name, amount)| (name, amount.float))
        .collect();
    json!({ "cpu": amounts.get("cpu").float, "memory": amounts.get("memory").float, "scalars": scalars })
}

fn card_block(pod: &Pod) -> Result<Value, String> {
    let amounts = card_amounts(pod).map_err(|error| error.to_string())?;
    let cards = match amounts.cards_milli("nvidia.com/gpu") {
        Ok(milli) => json!({ "milli": milli as f64 }),
        Err(CardError::Missing { .. }) => json!({ "error": true }),
        Err(error @ CardError::Amount(_)) => return Err(error.to_string()),
    };
    Ok(json!({
        "requests": canonical(&amounts.requests),
        "limits": canonical(&amounts.limits),
        "card_gpu": cards,
        "resreq": vector(&amounts.resreq),
        "best_effort": amounts.best_effort,
    }))
}

struct PodComparison {
    /// True if the recording has all numbers as floats, and zeros like any other number.
    is_rounded: bool,
    /// True if the pod has a text that is not an amount.
    unreadable: bool,
    /// Resource names and quantity texts of the pod.
    amounts: Vec<(String, String)>,
    differences: VectorDifferences,
}

impl PodComparison {
    /// Compares the amounts that the server lists with those that were recorded.
    fn over_the_wire(&mut self, bench: &VectorHarness, case: &Value) {
        if case["pod"]["metadata"]["name"].as_str().is_none_or(str::is_empty) || !has_all_requests(&case["pod"]) {
            return;
        }
        let milli = |name: &str, text: &str| {
            let quantity = Quantity::parse(text).unwrap();
            amount_in(ResourceKind::of(name).unit(), name, &quantity).unwrap()
        };
        // The recorded amounts of Volcano are doubles.
        let amounts = |list: Option<pb::ResourceList>| -> BTreeMap<String, f64> {
            let items = list.unwrap_or_default().items.into_iter();
            let amounts = items.map(|(name, text)| (name.clone(), milli(&name, &text) as f64));
            amounts.filter(|(_, amount)| *amount != 0.0).collect()
        };
        for (rules, block) in [
            (pb::PodRules::Volcano, "volcano"),
            (pb::PodRules::Kubernetes, "kubernetes"),
        ] {
            let expect = &case["expect"][block];
            let task = match listed_task(bench, case, rules) {
                Ok(task) => task,
                Err(_)
                    if self.unreadable
                        || ["kubernetes", "volcano"]
                            .iter()
                            .any(|one| self.too_large(one, &case["expect"][*one])) =>
                {
                    return;
                }
                Err(error) => {
                    return self
                        .differences
                        .differ(&format!("{block} over the wire"), expect, &error);
                }
            };
            let recorded = recorded_requests(block, expect);
            // Of requests of Kubernetes, Volcano drops `count/…`: they have a list of their own then.
            let listed = match task.kubernetes_requests {
                Some(counted) if block == "kubernetes" => Some(*counted),
                _ => task.requests,
            };
            self.differences
                .same(&format!("{block} over the wire"), &recorded, &amounts(listed));
            if block == "volcano" && expect["priority"].is_i64() {
                self.differences.same(
                    "priority over the wire",
                    &expect["priority"].as_i64(),
                    &Some(task.priority.into()),
                );
            }
        }
    }

    fn block(&mut self, block: &str, expect: &Value, got: Result<Value, String>) {
        match got {
            Ok(got) => self.compare(block, expect, &got),
            Err(_) if self.unreadable || self.too_large(block, expect) => {}
            Err(error) => self.differences.differ(block, expect, &error),
        }
    }

    /// Compares the values that were recorded; a helper that panicked recorded less.
    fn compare(&mut self, block: &str, expect: &Value, got: &Value) {
        for (field, expected) in expect.as_object().into_iter().flatten() {
            if matches!(field.as_str(), "panic" | "upstream_panics") {
                continue;
            }
            let (mut expected, mut got) = (simplified(expected), simplified(got.get(field).unwrap_or(&Value::Null)));
            if self.is_rounded {
                (expected, got) = (rounded(&expected), rounded(&got));
            }
            self.differences.same(&format!("{block}.{field}"), &expected, &got);
        }
    }

    /// True if an amount of the pod, or of the block's sums, does not fit in 64 bits in the unit of the block.
    fn too_large(&self, block: &str, expect: &Value) -> bool {
        let sums = [&expect["requests"], &expect["limits"]];
        let sums = sums.into_iter().filter_map(Value::as_object).flatten();
        let sums = sums.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
        let volcano = matches!(block, "volcano" | "card");
        self.amounts.iter().cloned().chain(sums).any(|(name, text)| {
            let kind = ResourceKind::of(&name);
            let unit = if volcano { kind.unit() } else { kind.kubernetes_unit() };
            let places = if unit == AmountUnit::Milli { 3 } else { 0 };
            exact(&text, places).is_none_or(|amount| amount > i64::MAX.into())
        })
    }
}

/// Recorded requests in the engine's unit, without the pod itself and without zeros.
fn recorded_requests(block: &str, expect: &Value) -> BTreeMap<String, f64> {
    let mut amounts = BTreeMap::new();
    let mut put = |name: &str, amount: f64| {
        // The pod itself was counted in what was recorded.
        let amount = if name == "pods" { amount - 1.0 } else { amount };
        if amount != 0.0 {
            amounts.insert(name.to_owned(), amount);
        }
    };
    if block == "volcano" {
        let resreq = &expect["resreq"];
        put("cpu", resreq["cpu"].as_f64().unwrap_or_default());
        put("memory", resreq["memory"].as_f64().unwrap_or_default());
        for (name, amount) in resreq["scalars"].as_object().into_iter().flatten() {
            put(name, amount.as_f64().unwrap_or_default());
        }
        return amounts;
    }
    let counted = &expect["counted"];
    put("cpu", counted["cpu_milli"].as_f64().unwrap_or_default());
    put("memory", counted["memory"].as_f64().unwrap_or_default());
    let whole = |amount: &Value| amount.as_f64().unwrap_or_default() * 1000.0;
    put("ephemeral-storage", whole(&counted["ephemeral_storage"]));
    for (name, amount) in counted["scalars"].as_object().into_iter().flatten() {
        put(name, whole(amount));
    }
    amounts
}

/// Value with numbers by value, scalars without zeros, and without the text of an error.
fn simplified(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(integer) => json!(integer.to_string()),
            None => json!(number.as_f64().unwrap_or(f64::NAN).to_string()),
        },
        Value::Array(items) => items.iter().map(simplified).collect(),
        Value::Object(fields) => {
            let mut simple = Map::new();
            for (name, field) in fields {
                let field = match name.as_str() {
                    "error" => json!(true),
                    "scalars" => without_zeros(field),
                    _ => simplified(field),
                };
                simple.insert(name.clone(), field);
            }
            Value::Object(simple)
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Scalars without zeros: of doubles a missing one is 0, of integers a requested 0 is present.
/// The same with all numbers as floats, and without those that are 0.
fn rounded(value: &Value) -> Value {
    let number = |text: &str| text.parse::<f64>().ok();
    match value {
        Value::String(text) => number(text).map_or_else(|| value.clone(), |number| json!(number)),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), rounded(field)));
            fields.filter(|(_, field)| field.as_f64() != Some(0.0)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.clone(),
    }
}

fn without_zeros(scalars: &Value) -> Value {
    let entries = scalars.as_object().into_iter().flatten();
    let nonzero = entries.filter(|(_, amount)| amount.is_i64() || amount.as_f64() != Some(0.0));
    nonzero
        .map(|(name, amount)| (name.clone(), simplified(amount)))
        .collect()
}

/// Entries of every resource list in the pod.
fn texts(value: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if matches!(name.as_str(), "requests" | "limits" | "overhead" | "allocatedResources") {
                    found.extend(field.as_object().into_iter().flatten().filter_map(|(name, amount)| {
                        let text = match amount {
                            Value::String(text) => text.trim().to_owned(),
                            Value::Number(number) => number.to_string(),
                            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
                        };
                        Some((name.clone(), text))
                    }));
                } else {
                    found.extend(texts(field));
                }
            }
        }
        Value::Array(items) => found.extend(items.iter().flat_map(texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}
