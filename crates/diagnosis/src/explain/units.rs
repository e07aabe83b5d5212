//! Amounts of the protocol in units for people, and amounts for people as quantities of records.

use pumice_engine::plugin::Measurement;
use pumice_protocol::v1 as pb;

/// Amount in units for people.
pub(super) fn to_measurement(amount: &pb::Amount) -> Measurement {
    Measurement::of_resource("", &amount.resource, amount.value)
}

/// Unit of a resource in an account, for example `cores` for cpu and `bytes` for memory and storage. Devices and other
/// resources without a unit of their own are `cards`.
pub(super) fn account_unit(resource: &str) -> &'static str {
    match Measurement::of_resource("", resource, 0.0).unit {
        "" if resource != "pods" => "cards",
        unit => unit,
    }
}

/// Amount in units for people as a quantity of a record: `1500m` of cpu, `64` of another resource. The amount is rounded up.
pub(super) fn to_quantity(resource: &str, value: f64) -> String {
    if resource == "cpu" {
        format!("{:.0}m", (value * 1000.0).ceil())
    } else {
        format!("{:.0}", value.ceil())
    }
}
