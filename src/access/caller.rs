//! Identity and permissions of a caller at the time of a call.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::identities::{Identity, IdentityTable, TokenDigest, digest};
use super::keeper::AccessKeeper;
use super::methods::{MethodAccess, access_of};
use super::roles::{Role, RoleSet};
use super::token_reviews::{CachedVerdict, is_reviewable};
use crate::audit::{AuditAction, AuditEntry, AuditOutcome};
use crate::server::{PendingFacts, TransportKind};
use pumice_live::TokenVerdict;

/// Kind of authentication of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerKind {
    /// The server has no identities: every client that can connect has all roles.
    Unrestricted,
    /// By the certificate of the connection.
    Certificate,
    /// By a bearer token.
    Token,
    /// By the token of a Kubernetes service account.
    ServiceAccount,
    /// Without credentials, on loopback or on the Unix socket.
    Local,
    /// Without credentials.
    Anonymous,
}

impl CallerKind {
    /// Name in `WhoAmI`, logs and metrics, such as `token`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unrestricted => "unrestricted",
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::ServiceAccount => "service-account",
            Self::Local => "local",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Kind of a rejection: unknown caller, or missing role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRejectionKind {
    /// The caller is not authenticated (`UNAUTHENTICATED`).
    Unknown,
    /// The caller is authenticated but not authorized (`PERMISSION_DENIED`).
    Forbidden,
    /// The caller cannot be authenticated at present, for example because the API server is unreachable.
    Unverified,
}

/// Rejection of a call because of missing roles or an unknown identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRejection {
    /// Kind, which determines the gRPC code.
    pub kind: AccessRejectionKind,
    /// Text with the caller, the rejected method and the required roles.
    pub message: String,
    /// Roles that permit the call. One of the roles is enough.
    pub needed: RoleSet,
}

/// Token of a call.
#[derive(Clone, PartialEq, Eq)]
enum ShownToken {
    None,
    /// The header is not a bearer token.
    Malformed,
    Digest(TokenDigest),
    /// A token that may be one of a service account.
    Reviewable(TokenDigest, Arc<str>),
}

/// Credentials of a caller, and the identities that they are compared with.
#[derive(Clone)]
pub struct CallerAccess {
    keeper: Arc<AccessKeeper>,
    facts: PendingFacts,
    address: Option<IpAddr>,
    token: ShownToken,
    /// Verdict of the API server on the token; `None`: it was not asked.
    review: Option<Result<CachedVerdict, Arc<str>>>,
}

/// Identity of a caller as authenticated by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCaller {
    /// Kind of authentication, such as a certificate or a token.
    pub kind: CallerKind,
    /// Name for people: of the identity, or of what was shown.
    pub name: String,
    /// Identity of the caller. `None`: the caller has no identity.
    pub identity: Option<Arc<Identity>>,
    /// True if the caller's certificate or token is unknown.
    pub unknown_token: bool,
    /// Why the token cannot be verified for now; `None`: it can.
    pub unverified: Option<Arc<str>>,
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
            unverified: None,
        }
    }

    /// Roles that the caller's identity has. All roles on a server without identities.
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
            (None, CallerKind::ServiceAccount) => {
                format!("no identity of the server has the service account `{}`", self.name)
            }
            (None, _) if self.unverified.is_some() => {
                format!(
                    "who the caller is cannot be told now: {}",
                    self.unverified.as_deref().unwrap_or_default()
                )
            }
            (None, _) if self.unknown_token => "the token is none that the server knows".to_owned(),
            (None, _) => "neither a token nor a certificate was shown".to_owned(),
        }
    }
}

impl CallerAccess {
    /// Reads the credentials of a request.
    pub(crate) fn new(
        keeper: Arc<AccessKeeper>,
        facts: PendingFacts,
        address: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> Self {
        // Without identities nobody is compared with anything.
        let token = keeper
            .table()
            .map_or(ShownToken::None, |table| shown_token(headers, &table));
        let mut access = Self {
            keeper,
            facts,
            address,
            token,
            review: None,
        };
        if let (ShownToken::Reviewable(digest, _), Some(table)) = (&access.token, access.keeper.table()) {
            access.review = access.keeper.reviews().cached(digest, &table.audiences).map(Ok);
        }
        access
    }

    /// True if the API server has to be asked before anybody can say who the caller is.
    pub(crate) fn awaits_review(&self) -> bool {
        let ShownToken::Reviewable(shown, _) = &self.token else {
            return false;
        };
        let counts = |review: &Result<CachedVerdict, _>| review.as_ref().is_ok_and(CachedVerdict::counts);
        let table = self.keeper.table();
        let is_asked = |table: &IdentityTable| !table.audiences.is_empty() && !table.by_token.contains_key(shown);
        table.as_deref().is_some_and(is_asked) && !self.review.as_ref().is_some_and(counts)
    }

    /// True if the API server must review the token before the method at a path. A method that the caller may call
    /// anyway needs a review only if it returns the caller's identity.
    pub(crate) fn needs_review(&self, path: &str) -> bool {
        self.awaits_review() && (matches!(access_of(path), Some(MethodAccess::Open)) || self.check(path).is_err())
    }

    /// The caller's present identity: the token may have expired since the call began.
    pub(crate) async fn renewed(&self) -> Self {
        let access = self.clone();
        if access.awaits_review() {
            access.reviewed().await
        } else {
            access
        }
    }

    /// The caller with the API server's verdict on the token.
    pub(crate) async fn reviewed(mut self) -> Self {
        if let (ShownToken::Reviewable(digest, token), Some(table)) = (&self.token, self.keeper.table())
            && !table.audiences.is_empty()
        {
            let verdict = self
                .keeper
                .reviews()
                .verdict(self.address, (digest, token), &table.audiences);
            self.review = Some(verdict.await.map_err(Arc::from));
        }
        self
    }

    /// Identity of the caller's token.
    fn known_by_token(&self, table: &IdentityTable, shown: &TokenDigest) -> KnownCaller {
        if let Some(identity) = table.by_token.get(shown) {
            return KnownCaller::new(CallerKind::Token, &*identity.name, Some(identity));
        }
        match &self.review {
            Some(Ok(cached)) => match &*cached.verdict {
                TokenVerdict::Account(account) => {
                    let identity = table.by_account.get(&**account);
                    let name = identity.map_or(&**account, |identity| &identity.name);
                    KnownCaller::new(CallerKind::ServiceAccount, name, identity)
                }
                TokenVerdict::Rejected(_) => unknown_token(),
            },
            Some(Err(error)) => KnownCaller {
                unverified: Some(Arc::clone(error)),
                ..unknown_token()
            },
            None => unknown_token(),
        }
    }

    /// Present identity of the caller.
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
            ShownToken::Digest(shown) | ShownToken::Reviewable(shown, _) => return self.known_by_token(table, shown),
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
    /// The caller lacks a required role.
    pub fn check(&self, path: &str) -> Result<(), AccessRejection> {
        let Some(table) = self.keeper.table() else {
            return Ok(());
        };
        let needed = match access_of(path) {
            // Whoever cannot be told now is not taken for somebody without credentials.
            Some(MethodAccess::Open) => {
                let known = self.known_by(&table);
                return match known.unverified {
                    None => Ok(()),
                    Some(_) => Err(AccessRejection {
                        kind: AccessRejectionKind::Unverified,
                        message: known.describe(),
                        needed: RoleSet::default(),
                    }),
                };
            }
            Some(MethodAccess::Probe) if table.probes_open => return Ok(()),
            Some(MethodAccess::Probe) => RoleSet::ALL,
            Some(MethodAccess::Roles(roles)) => roles,
            // There is no such method; should there be one that nobody listed, few may call it.
            None => RoleSet::of(&[Role::Admin]),
        };
        self.check_roles(&table, path.trim_start_matches('/'), needed)
    }

    /// Checks whether the caller may read the metrics page.
    ///
    /// # Errors
    /// The caller lacks a required role.
    pub fn check_page(&self, is_metrics: bool) -> Result<(), AccessRejection> {
        match self.keeper.table() {
            Some(table) if is_metrics && !table.metrics_open => {
                self.check_roles(&table, "/metrics", RoleSet::of(&[Role::Read, Role::Admin]))
            }
            Some(table) if !is_metrics && !table.probes_open => self.check_roles(&table, "probes", RoleSet::ALL),
            _ => Ok(()),
        }
    }

    /// Checks whether the caller may use an extender protocol, which decides and holds pods like a scheduler.
    ///
    /// # Errors
    /// The caller lacks a required role.
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
        let kind = match (&known.unverified, &known.identity, known.kind) {
            (Some(_), ..) => AccessRejectionKind::Unverified,
            (None, None, CallerKind::Anonymous | CallerKind::Local | CallerKind::Token | CallerKind::Unrestricted) => {
                AccessRejectionKind::Unknown
            }
            (None, Some(_), _) | (None, None, CallerKind::Certificate | CallerKind::ServiceAccount) => {
                AccessRejectionKind::Forbidden
            }
        };
        Err(AccessRejection {
            kind,
            message: format!("{what} needs the role {}; {}", either(needed), known.describe()),
            needed,
        })
    }

    /// Checks whether the caller may send records of a source.
    ///
    /// # Errors
    /// The caller lacks a required role.
    pub fn check_source(&self, source: &str) -> Result<(), AccessRejection> {
        let Some(table) = self.keeper.table() else {
            return Ok(());
        };
        let known = self.known_by(&table);
        match &known.identity {
            Some(identity) if identity.may_write(source) => Ok(()),
            Some(identity) if identity.roles.contains(Role::Sync) => Err(AccessRejection {
                kind: AccessRejectionKind::Forbidden,
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

    /// Records a rejection in metrics and log.
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

/// Names of alternative roles, joined by `or`.
fn either(roles: RoleSet) -> String {
    let names: Vec<&str> = roles.iter().map(Role::name).collect();
    names.join(" or ")
}

fn shown_token(headers: &HeaderMap, table: &IdentityTable) -> ShownToken {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return ShownToken::None;
    };
    let token = header.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            let token = token.trim();
            if !table.audiences.is_empty() && is_reviewable(token) {
                return ShownToken::Reviewable(digest(token), token.into());
            }
            ShownToken::Digest(digest(token))
        }
        _ => ShownToken::Malformed,
    }
}
