//! RPC labels of metrics of calls.

/// Label of all other RPCs.
pub(super) const OTHER_RPC: &str = "other";

/// RPCs whose responses are streams. Reflection and health checks are among the others.
pub(super) const STREAMS: &[&str] = &["Sync", OTHER_RPC];

/// Number of RPCs with their own label.
pub(super) const RPC_COUNT: usize = 30;

/// All RPCs with their own label. Callers must not be able to create labels.
/// A list in one place of memory, so that a label of it is found by its address.
pub(super) static RPCS: [&str; RPC_COUNT] = [
    "Filter",
    "Score",
    "Place",
    "Admit",
    "Order",
    "SelectVictims",
    "OpenSession",
    "CloseSession",
    "ListSessions",
    "CommitSession",
    "Apply",
    "Sync",
    "ForgetSource",
    "ForgetResource",
    "DeletePolicy",
    "GetNodeTable",
    "GetServerInfo",
    "WhoAmI",
    "ListNodes",
    "ListQueues",
    "ListJobs",
    "ListTasks",
    "ListNamespaces",
    "ListReservations",
    "ReleaseReservation",
    "ReleaseAssumptions",
    "ReloadPolicy",
    "RollbackPolicy",
    "GetPolicy",
    "ListPolicies",
];

/// Label of the RPC at this path.
pub(super) fn rpc_of(path: &str) -> &'static str {
    let own = path.strip_prefix("/pumice.v1.").and_then(|path| path.split_once('/'));
    let known = own.and_then(|(_, rpc)| RPCS.iter().find(|known| **known == rpc));
    known.copied().unwrap_or(OTHER_RPC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::pb;

    #[test]
    fn every_rpc_of_the_protocol_is_counted_by_name() {
        let pool = prost_reflect::DescriptorPool::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
        let own = pool.services().filter(|service| service.package_name() == "pumice.v1");
        let methods: Vec<_> = own.flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        for method in &methods {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            assert_eq!(rpc_of(&path), method.name());
            let streams = method.is_client_streaming() || method.is_server_streaming();
            assert_eq!(STREAMS.contains(&method.name()), streams, "{path}");
        }
        assert_eq!(methods.len(), RPCS.len(), "no other");
        assert_eq!(rpc_of("/pumice.v1.StateService/Invented"), OTHER_RPC);
    }
}
