//! Cases in which the derivations differ, and pods that they reject. The vectors have the recorded pods.

use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    Pod::read(&json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": spec })).unwrap()
}

fn requesting(requests: &Value) -> Value {
    json!({ "resources": { "requests": requests } })
}

fn error_text(spec: &Value) -> String {
    Pod::read(&json!({ "spec": spec })).unwrap_err().to_string()
}

fn texts<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

fn listed<const N: usize>(entries: [(&str, &str); N]) -> pb::ResourceList {
    let items = texts(entries);
    pb::ResourceList { items }
}

#[test]
fn volcano_rounds_each_container_and_kubernetes_the_pod() {
    let tiny = requesting(&json!({ "cpu": "0.1m", "nvidia.com/gpu": "500m" }));
    let pod = pod(&json!({ "containers": [tiny, tiny, tiny] }));
    let kubernetes = effective_task(&pod, RequestDerivation::Kubernetes, PodRules::default()).unwrap();
    assert_eq!(
        kubernetes.requests,
        Some(listed([("cpu", "1m"), ("nvidia.com/gpu", "2")]))
    );
    let volcano = effective_task(&pod, RequestDerivation::Volcano, PodRules::default()).unwrap();
    assert_eq!(
        volcano.requests,
        Some(listed([("cpu", "3m"), ("nvidia.com/gpu", "1500m")]))
    );
    assert_eq!(
        volcano.counted_requests,
        Some(listed([("cpu", "3m"), ("nvidia.com/gpu", "3")]))
    );
}

#[test]
fn the_pod_itself_is_left_out() {
    let pod = pod(&json!({ "containers": [requesting(&json!({ "cpu": "1", "pods": "5" }))] }));
    let volcano = volcano_task(&pod, PodRules::default()).unwrap();
    assert_eq!(volcano.resreq().get("pods").exact, 6);
    let effective = effective_task(&pod, RequestDerivation::Volcano, PodRules::default()).unwrap();
    assert_eq!(effective.requests, Some(listed([("cpu", "1"), ("pods", "5")])));
    assert_eq!(
        effective.nonzero_requests,
        Some(listed([("cpu", "1"), ("memory", "200Mi")]))
    );
}

#[test]
fn the_scheduler_chooses_the_derivation() {
    for (name, derivation) in [
        (json!(null), RequestDerivation::Kubernetes),
        (json!(""), RequestDerivation::Kubernetes),
        (json!("default-scheduler"), RequestDerivation::Kubernetes),
        (json!("koord-scheduler"), RequestDerivation::Kubernetes),
        (json!("volcano"), RequestDerivation::Volcano),
        (json!("my-scheduler"), RequestDerivation::Volcano),
    ] {
        assert_eq!(
            RequestDerivation::of(&pod(&json!({ "schedulerName": name }))),
            derivation,
            "{name}"
        );
    }
    for name in RequestDerivation::NAMES {
        assert!(RequestDerivation::from_name(name).is_some(), "{name}");
    }
}

#[test]
fn bare_numbers_are_read_by_their_text() {
    let text = r#"{"spec":{"containers":[{"resources":{"requests":
        {"cpu":0.10,"memory":1e+3,"nvidia.com/gpu":2,"ephemeral-storage":1000000000.0,"hugepages-2Mi":null}}}]}}"#;
    let pod = Pod::read(&serde_json::from_str(text).unwrap()).unwrap();
    let amounts = kubernetes_amounts(&pod, PodRules::default()).unwrap();
    let canonical: BTreeMap<_, _> = amounts
        .requests
        .iter()
        .map(|(name, quantity)| (name.clone(), quantity.canonical()))
        .collect();
    let expected = [
        ("cpu", "100m"),
        ("memory", "1e+3"),
        ("nvidia.com/gpu", "2"),
        ("ephemeral-storage", "1G"),
        ("hugepages-2Mi", "0"),
    ];
    assert_eq!(canonical, texts(expected));
}

#[test]
fn errors_name_their_path() {
    let wrong = json!({ "containers": [{}, requesting(&json!({ "nvidia.com/gpu": "one" }))] });
    assert!(error_text(&wrong).starts_with(r#"spec.containers[1].resources.requests["nvidia.com/gpu"]: `one` is not"#));
    let negative = json!({ "overhead": { "cpu": "-1" } });
    assert_eq!(error_text(&negative), r#"spec.overhead["cpu"]: `-1` is negative"#);
    assert_eq!(error_text(&json!({ "containers": {} })), "spec.containers: not a list");
    assert_eq!(
        error_text(&json!({ "containers": [1] })),
        "spec.containers[0]: not an object"
    );
    assert_eq!(
        error_text(&json!({ "priority": 3_000_000_000_i64 })),
        "spec.priority: not a 32-bit integer"
    );
    assert_eq!(
        error_text(&json!({ "overhead": { "cpu": true } })),
        r#"spec.overhead["cpu"]: not a quantity"#
    );
    assert_eq!(Pod::read(&json!([])).unwrap_err().to_string(), "the pod: not an object");
    for field in ["metadata", "spec", "status"] {
        let error = Pod::read(&json!({ field: 1 })).unwrap_err();
        assert_eq!(error.to_string(), format!("{field}: not an object"));
    }
}

#[test]
fn amounts_that_do_not_fit_are_rejected() {
    let one = |requests: &Value| pod(&json!({ "containers": [requesting(requests)] }));
    let memory = one(&json!({ "memory": "10E" }));
    let message = "`10E` of `memory` is too large: the limit is 9223372036854775807";
    assert_eq!(
        kubernetes_amounts(&memory, PodRules::default())
            .unwrap_err()
            .to_string(),
        message
    );
    assert_eq!(
        volcano_task(&memory, PodRules::default()).unwrap_err().to_string(),
        message
    );
    assert!(fit_plus_amounts(&memory).is_err() && card_amounts(&memory).is_err());
    let storage = one(&json!({ "ephemeral-storage": "10P" }));
    assert!(
        kubernetes_amounts(&storage, PodRules::default()).is_ok(),
        "whole bytes fit"
    );
    assert!(
        volcano_task(&storage, PodRules::default()).is_err(),
        "thousandths of bytes do not"
    );
    let half = requesting(&json!({ "memory": "5Ei" }));
    let pod = pod(&json!({ "containers": [half, half] }));
    assert!(
        effective_task(&pod, RequestDerivation::Volcano, PodRules::default()).is_err(),
        "the sum does not"
    );
}

#[test]
fn a_status_without_requests_in_the_spec_counts() {
    let pod = Pod::read(&json!({
        "spec": { "containers": [{ "name": "c" }] },
        "status": { "containerStatuses": [{ "name": "c", "resources": { "requests": { "nvidia.com/gpu": "2" } } }] },
    }));
    let card = card_amounts(&pod.unwrap()).unwrap();
    assert_eq!(card.cards_milli("nvidia.com/gpu"), Ok(2000));
    assert!(
        card.best_effort,
        "the task's request of that commit leaves the status out"
    );
    assert!(card.cards_milli("example.com/gpu").is_err());
}
