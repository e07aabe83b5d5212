//! `WhoAmI`: who the server takes the caller for.
#![expect(clippy::unused_async, reason = "all methods of the protocol are called alike")]

use std::sync::Arc;

use tonic::{Extensions, Request};

use super::ServerContext;
use super::access_layer::access_of;
use super::connection::CallerConnection;
use super::pb;
use super::status::RpcResult;
use super::transport_facts::TransportKind;
use crate::access::{CallerAccess, CallerKind, KnownCaller, Role, RoleSet};

impl ServerContext {
    /// Identity of the caller.
    pub(super) async fn who_am_i(self: Arc<Self>, rpc: Request<pb::WhoAmIRequest>) -> RpcResult<pb::WhoAmIResponse> {
        Ok(identity_of(rpc.extensions()))
    }
}

fn identity_of(extensions: &Extensions) -> pb::WhoAmIResponse {
    let access = access_of(extensions);
    let known = access.as_ref().map(CallerAccess::known);
    let roles = known.as_ref().map_or(RoleSet::ALL, KnownCaller::roles);
    let kind = known.as_ref().map_or(CallerKind::Unrestricted, |known| known.kind);
    let identity = known.and_then(|known| known.identity);
    let sources = match (&identity, kind) {
        (Some(identity), _) => identity.sources.iter().map(ToString::to_string).collect(),
        (None, CallerKind::Unrestricted) => vec!["*".to_owned()],
        (None, _) => Vec::new(),
    };
    let transport = access.as_ref().and_then(CallerAccess::transport);
    pb::WhoAmIResponse {
        identity: identity.map_or_else(String::new, |identity| identity.name.to_string()),
        kind: kind.name().to_owned(),
        roles: roles.iter().map(Role::name).map(str::to_owned).collect(),
        sources,
        address: access
            .as_ref()
            .and_then(CallerAccess::address)
            .map_or_else(String::new, |address| address.to_string()),
        transport: transport.map_or("", TransportKind::name).to_owned(),
        certificate_names: certificate_names(extensions),
    }
}

fn certificate_names(extensions: &Extensions) -> Vec<String> {
    let connection = extensions
        .get::<Option<Arc<CallerConnection>>>()
        .and_then(Option::as_ref);
    let facts = connection.and_then(|connection| connection.facts.get());
    let names = facts.and_then(|facts| facts.certificate.as_ref());
    names.map_or_else(Vec::new, |names| names.iter().map(ToString::to_string).collect())
}
