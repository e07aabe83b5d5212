//! Which connections and sites may call: a web page of somebody else may not, even if the browser runs on this machine.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Extensions, HeaderMap, HeaderName};

use crate::server::{CallerConnection, TransportFacts, TransportKind};

/// Header in which a browser says which site a request comes from.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Longest quoted part of a header, in characters.
const QUOTED_CHARS: usize = 100;

/// Connections on which the gRPC services are served. Calls on the HTTP port need one that would be served there, so the
/// port opens nothing that gRPC does not.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct CallExposure {
    /// True if other machines reach the gRPC services.
    pub(crate) is_remote: bool,
    /// True if connections in plain text are served.
    pub(crate) takes_plain: bool,
    /// True if connections with TLS need a certificate of the caller.
    pub(crate) needs_certificate: bool,
    /// True if the server has identities, and so checks the tokens of callers.
    pub(crate) has_identities: bool,
}

impl CallExposure {
    fn check(self, is_local: bool, facts: Option<&TransportFacts>) -> Result<(), &'static str> {
        if !is_local && !self.is_remote {
            return Err("calls of other machines need a `grpc_address` that they reach: calls over HTTP follow gRPC");
        }
        match facts.map(|facts| (facts.kind, &facts.certificate)) {
            Some((TransportKind::Tls, None)) if self.needs_certificate => {
                Err("the call needs a client certificate, as over gRPC (`tls_client_auth`)")
            }
            Some((TransportKind::Plain, _)) | None if !self.takes_plain => {
                Err("the call needs TLS, as over gRPC; `insecure: http` is for probes and metrics only")
            }
            Some((TransportKind::Tls | TransportKind::Plain | TransportKind::Socket, _)) | None => Ok(()),
        }
    }

    /// Checks the connection of a request.
    ///
    /// # Errors
    /// The gRPC services would not be served on it: what to change.
    pub(crate) fn check_connection(self, extensions: &Extensions) -> Result<(), &'static str> {
        let facts = connection(extensions).and_then(|connection| connection.facts.get());
        self.check(Self::is_local(extensions), facts)
    }

    /// Checks that the request names this server, so that no name of somebody else stands for this address. An address and
    /// `localhost` belong to nobody else; another name needs TLS, whose certificate proves it, or a token that is checked.
    ///
    /// # Errors
    /// The Host is missing, or a name that may be of somebody else.
    pub(crate) fn check_host(self, headers: &HeaderMap, extensions: &Extensions) -> Result<(), String> {
        let text = single(headers, &HOST)?.ok_or("the request has no Host")?;
        let authority: Authority = text
            .parse()
            .map_err(|_| format!("the Host `{}` cannot be read", quoted(text)))?;
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let is_own = host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok();
        let facts = connection(extensions).and_then(|connection| connection.facts.get());
        let has_certificate = facts.is_some_and(|facts| facts.kind == TransportKind::Tls);
        // Anybody can send a header; a server without identities believes each.
        let has_token = self.has_identities && headers.contains_key(AUTHORIZATION);
        if text.contains('@') || !(is_own || has_certificate || has_token) {
            return Err(format!(
                "the Host `{}` may be a name of somebody else: use localhost or an IP address, or TLS, or a bearer token of \
                 `identities_file`",
                quoted(text)
            ));
        }
        Ok(())
    }

    /// True if the caller is on this machine.
    pub(crate) fn is_local(extensions: &Extensions) -> bool {
        let peer = connection(extensions).and_then(|connection| connection.peer.remote_addr);
        peer.is_some_and(|peer| peer.ip().is_loopback())
    }
}

fn connection(extensions: &Extensions) -> Option<&Arc<CallerConnection>> {
    extensions.get::<Option<Arc<CallerConnection>>>()?.as_ref()
}

/// Checks that a request that a browser sends comes from a page of this server.
///
/// # Errors
/// It comes from another site.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), String> {
    let host = single(headers, &HOST)?.unwrap_or_default();
    if let Some(origin) = single(headers, &ORIGIN)? {
        let (_, authority) = origin.split_once("://").unwrap_or_default();
        if !authority.eq_ignore_ascii_case(host) {
            return Err(format!(
                "the request comes from another site (Origin `{}`); only pages of this server may call it",
                quoted(origin)
            ));
        }
    }
    match single(headers, &FETCH_SITE)? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(site) => Err(format!(
            "the request comes from another site (Sec-Fetch-Site `{}`); only pages of this server may call it",
            quoted(site)
        )),
    }
}

/// The only value of a header.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(format!("the header {name} is not readable text")),
        },
        (Some(_), Some(_)) => Err(format!("the request has several headers {name}")),
    }
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::CertificateNames;

    fn facts(kind: TransportKind, certificate: bool) -> TransportFacts {
        TransportFacts {
            kind,
            certificate: certificate.then(CertificateNames::default),
        }
    }

    #[test]
    fn calls_need_a_connection_on_which_grpc_is_served() {
        let local_plain = CallExposure {
            is_remote: false,
            takes_plain: true,
            needs_certificate: false,
            has_identities: false,
        };
        let remote_tls = CallExposure {
            is_remote: true,
            takes_plain: false,
            needs_certificate: true,
            has_identities: true,
        };
        let may = |exposure: CallExposure, is_local, kind, certificate| {
            exposure.check(is_local, Some(&facts(kind, certificate))).is_ok()
        };
        assert!(may(local_plain, true, TransportKind::Plain, false));
        assert!(
            !may(local_plain, false, TransportKind::Plain, false),
            "gRPC is on loopback"
        );
        assert!(!may(remote_tls, false, TransportKind::Plain, false), "`insecure: http`");
        assert!(
            !may(remote_tls, true, TransportKind::Plain, false),
            "gRPC wants TLS on loopback as well"
        );
        assert!(
            !may(remote_tls, false, TransportKind::Tls, false),
            "gRPC wants a certificate"
        );
        assert!(may(remote_tls, false, TransportKind::Tls, true));
        assert!(
            remote_tls.check(true, None).is_err(),
            "nothing is known of the connection"
        );
    }
}
