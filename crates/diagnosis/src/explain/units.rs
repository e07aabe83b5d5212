//! Amounts of the protocol in units for people.

use pumice_engine::plugin::Measurement;
use pumice_protocol::v1 as pb;

/// Amount in units for people.
pub(super) fn to_measurement(amount: &pb::Amount) -> Measurement {
    Measurement::of_resource("", &amount.resource, amount.value)
}

/// Unit of a resource in an account, for example `cores` for cpu. The unit of every resource except cpu, memory and
/// pods is `cards`.
pub(super) fn account_unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" => "bytes",
        "pods" => "",
        _ => "cards",
    }
}
