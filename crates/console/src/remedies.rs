//! Remedies of rejections: for each reason code the change that lets the task or job pass.

use std::collections::BTreeSet;

use crate::{CommandError, output};
use pumice_protocol::v1 as pb;

/// Remedies by reason code.
const REMEDIES: &[(&str, &str)] = &[
    (
        "NodeNotReady",
        "repair the node; a node that is not ready takes no task",
    ),
    ("NodeUnschedulable", "uncordon the node (`kubectl uncordon NODE`)"),
    (
        "NodeInvalid",
        "send the node again with the field corrected that `pumice state show nodes` names",
    ),
    ("NodeNotFound", "name a node that `pumice state show nodes` lists"),
    ("NoCandidates", "allow more nodes with --nodes, or exclude fewer"),
    (
        "InsufficientResource",
        "wait until tasks end, request less, or add nodes",
    ),
    (
        "NodeGroupLabelMissing",
        "label the node with volcano.sh/nodegroup-name, or set `strict` of nodegroup to false",
    ),
    (
        "NodeGroupAffinityMissing",
        "give the queue `spec.affinity` with groups of nodes",
    ),
    (
        "NodeGroupMismatch",
        "add the group of the node to `spec.affinity` of the queue, or use another node",
    ),
    (
        "ProportionalReserve",
        "use another node, or change `proportional` in the policy; preemption does not help",
    ),
    (
        "TooFewOfRole",
        "place tasks of every role and group of the job together, or lower its minimums",
    ),
    (
        "TooFewOfGroup",
        "place all tasks of the group together, or lower `subGroupSize`",
    ),
    (
        "NodeAffinityMismatch",
        "correct the node selector or node affinity of the pod, or label nodes",
    ),
    (
        "NodeAffinityConflict",
        "correct the required terms of the node affinity: they name no node in common",
    ),
    (
        "UntoleratedTaint",
        "add a toleration to the pod, or remove the taint from nodes",
    ),
    (
        "HostPortTaken",
        "wait until the pod that takes the port ends, or use another host port",
    ),
    (
        "TooManyPods",
        "wait until pods end, or let nodes run more pods (`maxPods` of the kubelet)",
    ),
    (
        "PodAffinityMismatch",
        "start a pod that the pod affinity asks for, or correct its terms",
    ),
    (
        "PodAntiAffinity",
        "wait until the pods that the anti-affinity names end, or add nodes in other topology domains",
    ),
    (
        "ExistingPodAntiAffinity",
        "wait until the pods whose anti-affinity names this pod end, or add nodes in other topology domains",
    ),
    (
        "MissingTopologyLabel",
        "label nodes with the topology keys of the spread constraints",
    ),
    (
        "TopologySpread",
        "add nodes in the topology domains with the fewest pods, or raise `maxSkew`",
    ),
    (
        "EquivalenceCache",
        "switch `predicate.CacheEnable` off: pods of one template differ",
    ),
    (
        "TooFewTasks",
        "give at least as many tasks as must start together, or lower the minimum",
    ),
    ("QueueNotOpen", "open the queue, or use another one"),
    ("QueueInvalid", "send the queue again with the named field corrected"),
    (
        "InsufficientCPUQuota",
        "wait until jobs of the queue end, request less cpu, or raise `spec.capability.cpu` of the queue",
    ),
    (
        "InsufficientMemoryQuota",
        "wait until jobs of the queue end, request less memory, or raise `spec.capability.memory` of the queue",
    ),
    (
        "InsufficientScalarQuota",
        "wait until jobs of the queue end, request fewer cards, accept more kinds of cards (`volcano.sh/card.name: A|B`), \
         or raise the annotation `volcano.sh/card.quota` of the queue",
    ),
    (
        "ResourceOveruse",
        "wait until jobs end, request less in `spec.minResources`, add nodes, or raise `overcommit-factor` in the policy",
    ),
    (
        "CardNotOnNode",
        "use a node with one of the task's cards, or accept more kinds of cards (`volcano.sh/card.name: A|B`)",
    ),
    (
        "QueueOverDeserved",
        "wait until jobs of the queue end, or raise the weight or `spec.guarantee` of the queue",
    ),
    (
        "QueueOverCapability",
        "wait until jobs of the queue end, request less, or raise `spec.capability` of the queue",
    ),
    (
        "NoDevices",
        "choose nodes with devices, or send the devices of the node (`Node.devices`)",
    ),
    (
        "AddedNodeAffinityMismatch",
        "label nodes, or correct `addedAffinity` of the profile",
    ),
    ("DeviceModel", "wait, or name more models of devices"),
    ("DeviceTaken", "place the task again"),
    (
        "DevicesInUse",
        "wait until tasks end, or ask for fewer devices or a smaller share",
    ),
    ("QueueNotALeaf", "use a queue that has no queues below it"),
    (
        "QueueTreeNotReady",
        "correct `spec.parent` of the queue that the message names, or move the jobs of inner queues to leaves",
    ),
    (
        "QueuePathInvalid",
        "correct `spec.parent` of the queue, so that its parents lead to the root",
    ),
    (
        "EmptyQueueCapability",
        "give the queue `spec.capability` or the annotation `volcano.sh/card.quota`",
    ),
    (
        "GetTaskRequestResourceFailed",
        "correct the card annotations (`volcano.sh/card.name`, `volcano.sh/card.request`) so that they name cards of the \
         cluster that the pods request",
    ),
    ("ReservationReleased", "ask again with a higher `attempt`"),
];

/// Remedy where a plugin gives a reason that has none of its own.
const OTHER: &str = "change the request, or the setting of the plugin that the reason names";

/// Remedy of a reason code, as a clause for people.
pub fn of_code(code: &str) -> &'static str {
    let found = REMEDIES.iter().find(|(own, _)| *own == code);
    found.map_or(OTHER, |(_, remedy)| remedy)
}

/// Prints the remedies of rejections, each once, in the order of the rejections.
pub fn print<'r>(rejections: impl IntoIterator<Item = &'r pb::Rejection>) -> Result<(), CommandError> {
    let mut printed = BTreeSet::new();
    let reasons = rejections.into_iter().filter_map(|rejection| rejection.reason.as_ref());
    for reason in reasons.filter(|reason| !reason.code.is_empty()) {
        if printed.insert(&reason.code) {
            output::paragraph(&format!("  → {}: {}", reason.code, of_code(&reason.code)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_code_of_the_pages_has_a_remedy() {
        let page = include_str!("../../../docs/troubleshooting.md");
        let (_, section) = page.split_once("| Code | By |").unwrap();
        let rows = section.lines().skip(2).take_while(|line| line.starts_with('|'));
        let codes: Vec<&str> = rows
            .flat_map(|row| row.split('|').nth(1).unwrap().split(','))
            .map(|code| code.trim().trim_matches('`'))
            .collect();
        assert!(codes.len() > 15, "{codes:?}");
        for code in codes {
            assert_ne!(of_code(code), OTHER, "{code}");
        }
    }
}
