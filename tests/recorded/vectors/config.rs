//! Effective form of a policy document, from a dry run.

use pumice::server::pb;
use serde_json::Value;

use super::cluster::members;
use super::query::QueryError;
use crate::support::wire::BlockingClients;
use crate::support::yaml;

/// Effective document of a dry run.
///
/// # Errors
/// The document was rejected, or its effective form cannot be read.
pub(crate) fn effective(wire: &BlockingClients, document: &str) -> Result<Value, QueryError> {
    let reply = wire.reload_policy(pb::ReloadPolicyRequest {
        document: document.to_owned(),
        dry_run: true,
        ..pb::ReloadPolicyRequest::default()
    });
    let policy = reply.map_err(super::query::query_error)?.policy.unwrap_or_default();
    yaml::read(&policy.effective_document).map_err(QueryError::Other)
}

/// Arguments of the first plugin of that name.
pub(crate) fn arguments(effective: &Value, plugin: &str) -> Value {
    let tiers = members(&effective["tiers"]).iter();
    let plugins = tiers.flat_map(|tier| members(&tier["plugins"]));
    let mut named = plugins.filter(|entry| entry["name"] == plugin);
    named.next().map_or(Value::Null, |entry| entry["arguments"].clone())
}

/// Names of a comma-separated list.
pub(crate) fn listed(list: &Value) -> Vec<String> {
    let names = list.as_str().unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
