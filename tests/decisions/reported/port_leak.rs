//! A pod with a host port that waits for its place beside it: the port is free again when the place is given up.

use serde_json::json;

use super::simulated;

#[test]
fn a_port_is_given_back_when_its_task_loses_its_place() {
    for policy in ["policy.yaml", "corrected.yaml"] {
        let outcome = simulated("port-leak", "cluster.yaml", policy);
        let ends = ["placed", "waiting"].map(|field| outcome["tasks"][field].clone());
        assert_eq!(json!(ends), json!([1, 0]), "{policy}");
    }
}
