//! Records of dumps as a Volcano user makes them: what a load says of them, and what it makes of Jobs beside their pods.

use super::load_warnings::file;
use super::{ends, pumice};
use crate::support::EmbeddedServer;

/// Nodes and queues with amounts that cannot hold or that schedulers do not count.
const QUOTAS: &str = "
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: case}, spec: {capability: {Cpu: 4}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: flat}, spec: {guarantee: {cpu: 4}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: high}, spec: {guarantee: {resource: {cpu: 4}}, capability: {cpu: 1}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: much}, spec: {guarantee: {resource: {cpu: 100}}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: word}, spec: {capability: {cpu: 10 cores}}}
";

#[test]
fn each_warning_names_its_record_and_the_field_in_it() {
    let server = EmbeddedServer::start();
    let quotas = file("quotas.yaml", QUOTAS);
    let said = ends(Some(&server), &["state", "load", quotas.to_str().unwrap()], 1);
    for expected in [
        "capability.items[Cpu]: `Cpu` is not a resource that schedulers count; it is dropped: queue case (RESOURCE_NOT_COUNTED)",
        "field `spec.guarantee.cpu` is not read: no such field is known: Queue flat (FIELD_NOT_READ)",
        "the `guarantee` of queue `high` is 4 of cpu, and its `capability` is 1 of cpu",
        "the `guarantee` of all queues is 104 of cpu together, and the cluster has 16 of cpu",
        ": queue much (QUOTA_IMPOSSIBLE)",
        "refused: queue word: capability.items[cpu]: `10 cores` is not a quantity",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    assert!(!said.contains("batch."), "{said}");
}

/// A running gang with the Job that its controller made it of, as `kubectl get` lists them.
const JOB_BESIDE_ITS_PODS: &str = "
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: tf, namespace: x, uid: u-1}, spec: {minAvailable: 2, schedulerName: volcano,
 tasks: [{name: w, replicas: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}}]}, status: {state: {phase: Running}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: tf-u-1, namespace: x}, spec: {minMember: 2, queue: default}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: tf-w-0, namespace: x, annotations: {scheduling.k8s.io/group-name: tf-u-1}},
 spec: {schedulerName: volcano, nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 2}}}]}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: tf-w-1, namespace: x, annotations: {scheduling.k8s.io/group-name: tf-u-1}},
 spec: {schedulerName: volcano, nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 2}}}]}, status: {phase: Running}}
";

#[test]
fn a_job_beside_its_pods_adds_nothing_in_any_order() {
    let documents: Vec<&str> = JOB_BESIDE_ITS_PODS.split("---").collect();
    let reversed: Vec<&str> = documents.iter().rev().copied().collect();
    for (name, documents) in [("forward.yaml", documents), ("reversed.yaml", reversed)] {
        let server = EmbeddedServer::start();
        let dump = file(name, &documents.join("---"));
        let said = ends(Some(&server), &["state", "load", dump.to_str().unwrap()], 0);
        assert!(said.contains("sent 1 node, 1 queue, 1 job, 2 tasks"), "{said}");
        assert!(!said.contains("warning"), "{said}");
        let nodes = super::out(&pumice(Some(&server), &["state", "show", "nodes"]));
        assert!(nodes.contains("cpu: 4 / 16"), "{nodes}");
        assert!(nodes.contains("pods: 2 / 110"), "{nodes}");
    }
}
