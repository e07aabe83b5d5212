//! Who a caller is at this moment, and what he may do.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::identities::{Identity, IdentityTable, TokenDigest, digest};
use super::keeper::AccessKeeper;
use super::methods::{MethodAccess, access_of};
use super::roles::{Role, RoleSet};
use crate::audit::{AuditAction, AuditEntry, AuditOutcome};
use crate::server::{PendingFacts, TransportKind};

/// How a caller is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerKind {
    /// The server has no identities: whoever can connect has all roles.
    Unrestricted,
    /// By the certificate of the connection.
    Certificate,
    /// By a bearer token.
    Token,
    /// Without credentials, on loopback or on the Unix socket.
    Local,
    /// Without credentials.
    Anonymous,
}

impl CallerKind {
    /// Name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unrestricted => "unrestricted",
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::Local => "local",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Rejection of a call: who was refused what, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRejection {
    /// True if the server does not know the caller; false if it knows him, and he may not.
    pub unknown: bool,
    /// What is refused to whom, and what it takes.
    pub message: String,
    /// Roles of which one is needed.
    pub needed: RoleSet,
}

/// Token of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ShownToken {
    None,
    /// The header is no bearer token.
    Malformed,
    Digest(TokenDigest),
}

/// What a caller showed, and the identities that it is compared with.
#[derive(Clone)]
pub struct CallerAccess {
    keeper: Arc<AccessKeeper>,
    facts: PendingFacts,
    address: Option<IpAddr>,
    token: ShownToken,
}

/// Who a caller is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCaller {
    /// How the caller is known.
    pub kind: CallerKind,
    /// Name for people: of the identity, or of what was shown.
    pub name: String,
    /// Identity of the caller; `None`: he has none.
    pub identity: Option<Arc<Identity>>,
    /// True if what the caller showed is not known.
    pub unknown_token: bool,
}

impl fmt::Debug for CallerAccess {
    /// Shows no token, not even its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerAccess")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl KnownCaller {
    fn new(kind: CallerKind, name: impl Into<String>, identity: Option<&Arc<Identity>>) -> Self {
        Self {
            kind,
            name: name.into(),
            identity: identity.map(Arc::clone),
            unknown_token: false,
        }
    }

    /// Roles of the caller.
    pub fn roles(&self) -> RoleSet {
        match (&self.identity, self.kind) {
            (Some(identity), _) => identity.roles,
            (None, CallerKind::Unrestricted) => RoleSet::ALL,
            (None, _) => RoleSet::default(),
        }
    }

    fn describe(&self) -> String {
        match (&self.identity, self.kind) {
            (Some(identity), kind) => format!("`{}` (by {}) has {}", identity.name, kind.name(), identity.roles),
            (None, CallerKind::Certificate) => format!("no identity of the server has the certificate `{}`", self.name),
            (None, _) if self.unknown_token => "the token is none that the server knows".to_owned(),
            (None, _) => "neither a token nor a certificate was shown".to_owned(),
        }
    }
}

impl CallerAccess {
    /// What the caller of a request showed.
    pub(crate) fn new(
        keeper: Arc<AccessKeeper>,
        facts: PendingFacts,
        address: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Self {
        // Without identities nobody is compared with anything.
        let token = if keeper.is_restricted() {
            shown_token(headers)
        } else {
            ShownToken::None
        };
        Self {
            keeper,
            facts,
            address,
            token,
        }
    }

    /// Who the caller is taken for now.
    pub fn known(&self) -> KnownCaller {
        match self.keeper.table().as_deref() {
            None => KnownCaller::new(CallerKind::Unrestricted, "anybody", None),
            Some(table) => self.known_by(table),
        }
    }

    fn known_by(&self, table: &IdentityTable) -> KnownCaller {
        match &self.token {
            ShownToken::None => {}
            ShownToken::Malformed => return unknown_token(),
            ShownToken::Digest(shown) => {
                return match table.by_token.get(shown) {
                    Some(identity) => KnownCaller::new(CallerKind::Token, &*identity.name, Some(identity)),
                    None => unknown_token(),
                };
            }
        }
        let facts = self.facts.get();
        if let Some(names) = facts.and_then(|facts| facts.certificate.as_ref()) {
            let found = names.iter().find_map(|name| table.by_certificate.get(name));
            let name = match found {
                Some(identity) => identity.name.to_string(),
                None => names
                    .iter()
                    .next()
                    .map_or_else(|| "without a name".to_owned(), ToString::to_string),
            };
            return KnownCaller::new(CallerKind::Certificate, name, found);
        }
        let is_socket = facts.is_some_and(|facts| facts.kind == TransportKind::Socket);
        if let Some(local) = &table.local
            && (is_socket || self.address.is_some_and(|address| address.is_loopback()))
        {
            return KnownCaller::new(CallerKind::Local, "local", Some(local));
        }
        KnownCaller::new(CallerKind::Anonymous, "anonymous", table.anonymous.as_ref())
    }

    /// Checks whether the caller may call the method at a path.
    ///
    /// # Errors
    /// He may not.
    pub fn check(&self, path: &str) -> Result<(), AccessRejection> {
        let Some(table) = self.keeper.table() else {
            return Ok(());
        };
        let needed = match access_of(path) {
            Some(MethodAccess::Open) => return Ok(()),
            Some(MethodAccess::Probe) if table.probes_open => return Ok(()),
            Some(MethodAccess::Probe) => RoleSet::ALL,
            Some(MethodAccess::Roles(roles)) => roles,
            // There is no such method; should there be one that nobody listed, few may call it.
            None => RoleSet::of(&[Role::Admin]),
        };
        self.check_roles(&table, path.trim_start_matches('/'), needed)
    }

    /// Checks whether the caller may read the page of metrics.
    ///
    /// # Errors
    /// He may not.
    pub fn check_page(&self, is_metrics: bool) -> Result<(), AccessRejection> {
        match self.keeper.table() {
            Some(table) if is_metrics && !table.metrics_open => {
                self.check_roles(&table, "/metrics", RoleSet::of(&[Role::Read, Role::Admin]))
            }
            Some(table) if !is_metrics && !table.probes_open => self.check_roles(&table, "probes", RoleSet::ALL),
            _ => Ok(()),
        }
    }

    /// Checks whether the caller may ask by an extender protocol, which decides and holds pods as a scheduler does.
    ///
    /// # Errors
    /// He may not.
    pub fn check_extender(&self, path: &str) -> Result<(), AccessRejection> {
        match self.keeper.table() {
            Some(table) => self.check_roles(&table, path, RoleSet::of(&[Role::Decide])),
            None => Ok(()),
        }
    }

    fn check_roles(&self, table: &IdentityTable, what: &str, needed: RoleSet) -> Result<(), AccessRejection> {
        let known = self.known_by(table);
        if known.roles().intersects(needed) {
            return Ok(());
        }
        let unknown = known.identity.is_none() && known.kind != CallerKind::Certificate;
        Err(AccessRejection {
            unknown,
            message: format!("{what} needs the role {}; {}", either(needed), known.describe()),
            needed,
        })
    }

    /// Checks whether the caller may send records of a source.
    ///
    /// # Errors
    /// He may not.
    pub fn check_source(&self, source: &str) -> Result<(), AccessRejection> {
        let Some(table) = self.keeper.table() else {
            return Ok(());
        };
        let known = self.known_by(&table);
        match &known.identity {
            Some(identity) if identity.may_write(source) => Ok(()),
            Some(identity) if identity.roles.contains(Role::Sync) => Err(AccessRejection {
                unknown: false,
                message: format!(
                    "`{}` may not send records of the source `{source}`; its sources are: {}",
                    identity.name,
                    identity.sources.join(", ")
                ),
                needed: RoleSet::of(&[Role::Sync]),
            }),
            _ => self.check_roles(&table, "sending records", RoleSet::of(&[Role::Sync])),
        }
    }

    /// Writes into the audit log what the caller did, or attempted.
    pub(crate) fn audit(
        &self,
        (action, outcome): (AuditAction, AuditOutcome),
        target: &str,
        details: Vec<(&'static str, serde_json::Value)>,
    ) {
        let known = self.known();
        self.keeper.audit().record(AuditEntry {
            action,
            outcome,
            identity: known.name,
            known_by: known.kind.name(),
            address: self.address.map_or_else(String::new, |address| address.to_string()),
            target: target.to_owned(),
            details,
        });
    }

    /// Counts and logs a rejection.
    pub(crate) fn record_rejection(&self, rejection: &AccessRejection, what: &str) {
        self.keeper.record_rejection(self, rejection, what);
    }

    /// Way by which the connection came.
    pub fn transport(&self) -> Option<TransportKind> {
        self.facts.get().map(|facts| facts.kind)
    }

    /// Address of the caller; `None`: the Unix socket.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Name and address of the caller, as histories and logs have them.
    pub fn signature(&self) -> String {
        let known = self.known();
        let address = self
            .address
            .map_or_else(|| "socket".to_owned(), |address| address.to_string());
        if known.kind == CallerKind::Unrestricted {
            return address;
        }
        format!("{}@{address}", known.name)
    }
}

fn unknown_token() -> KnownCaller {
    KnownCaller {
        unknown_token: true,
        ..KnownCaller::new(CallerKind::Anonymous, "unknown token", None)
    }
}

/// Names of roles of which one is enough.
fn either(roles: RoleSet) -> String {
    let names: Vec<&str> = roles.iter().map(Role::name).collect();
    names.join(" or ")
}

fn shown_token(headers: &HeaderMap) -> ShownToken {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return ShownToken::None;
    };
    let token = header.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => ShownToken::Digest(digest(token.trim())),
        _ => ShownToken::Malformed,
    }
}
