//! Metrics of TLS, of roles and of the audit log.

use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};
use pumice_live::TokenVerdict;

use super::LabelledCounter;
use super::integer_gauge::IntegerGauge;
use crate::access::AccessRejectionKind;

/// Codes of calls that were rejected because of their callers.
const REJECTION_CODES: [&str; 3] = ["PERMISSION_DENIED", "UNAUTHENTICATED", "UNAVAILABLE"];
/// Outcomes of questions about tokens of service accounts.
const REVIEW_OUTCOMES: [&str; 3] = ["accepted", "rejected", "failed"];

/// Outcome of changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
enum FileOutcome {
    accepted,
    rejected,
}

/// Outcome of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
pub(crate) enum HandshakeOutcome {
    /// The connection is secured.
    completed,
    /// The caller speaks no TLS, ended it, or showed no certificate that holds.
    failed,
    /// The caller took too long.
    timed_out,
}

/// Metrics of files that are read again when they change.
#[derive(Debug, Default)]
pub(crate) struct FileMetrics {
    reloads: LabelledCounter<FileOutcome>,
    refused: IntegerGauge,
}

impl FileMetrics {
    /// Records changed files.
    pub(crate) fn record_reload(&self, accepted: bool) {
        let outcome = if accepted {
            FileOutcome::accepted
        } else {
            FileOutcome::rejected
        };
        self.reloads.get_or_create(&[("outcome", outcome)]).inc();
        self.set_refused(!accepted);
    }

    /// Sets whether the files on disk are rejected.
    pub(crate) fn set_refused(&self, refused: bool) {
        self.refused.set(refused.into());
    }
}

/// Metrics of TLS, of roles and of the audit log.
#[derive(Debug, Default)]
pub(crate) struct SecurityMetrics {
    pub(crate) tls: FileMetrics,
    pub(crate) identities: FileMetrics,
    certificate_end: IntegerGauge,
    handshakes: LabelledCounter<HandshakeOutcome>,
    rejections: LabelledCounter<&'static str>,
    reviews: LabelledCounter<&'static str>,
    lost_audit: Counter,
}

impl SecurityMetrics {
    pub(super) fn register(&self, own: &mut Registry) {
        let help = "Changed files of TLS, by outcome";
        own.register("tls_reloads", help, self.tls.reloads.clone());
        let help = "1 if the TLS files on disk were rejected and the previous files are active, else 0";
        own.register("tls_rejected", help, self.tls.refused.clone());
        let help = "End of the server certificate's validity, since 1970; 0 without TLS";
        own.register_with_unit(
            "tls_certificate_end_time",
            help,
            Unit::Seconds,
            self.certificate_end.clone(),
        );
        let help = "TLS handshakes, by outcome";
        own.register("tls_handshakes", help, self.handshakes.clone());
        let help = "Changed files of identities, by outcome";
        own.register("identity_reloads", help, self.identities.reloads.clone());
        let help = "1 if the identities files on disk were rejected and the previous files are active, else 0";
        own.register("identities_rejected", help, self.identities.refused.clone());
        let help = "Lines of the audit log that were lost";
        own.register("audit_lost_lines", help, self.lost_audit.clone());
        let help = "Calls and pages rejected because of their callers, by code";
        own.register("access_rejections", help, self.rejections.clone());
        let help = "Tokens of service accounts that the API server was asked about, by outcome";
        own.register("token_reviews", help, self.reviews.clone());
        for outcome in REVIEW_OUTCOMES {
            drop(self.reviews.get_or_create(&[("outcome", outcome)]));
        }
        for outcome in [FileOutcome::accepted, FileOutcome::rejected] {
            for files in [&self.tls, &self.identities] {
                drop(files.reloads.get_or_create(&[("outcome", outcome)]));
            }
        }
        for code in REJECTION_CODES {
            drop(self.rejections.get_or_create(&[("code", code)]));
        }
        for outcome in [
            HandshakeOutcome::completed,
            HandshakeOutcome::failed,
            HandshakeOutcome::timed_out,
        ] {
            drop(self.handshakes.get_or_create(&[("outcome", outcome)]));
        }
    }

    /// Records a call or a page that was rejected because of its caller.
    pub(crate) fn record_rejection(&self, kind: AccessRejectionKind) {
        let [denied, unauthenticated, unavailable] = REJECTION_CODES;
        let code = match kind {
            AccessRejectionKind::Forbidden => denied,
            AccessRejectionKind::Unknown => unauthenticated,
            AccessRejectionKind::Unverified => unavailable,
        };
        self.rejections.get_or_create(&[("code", code)]).inc();
    }

    /// Records a token review. `None`: the API server did not respond.
    pub(crate) fn record_token_review(&self, verdict: Option<&TokenVerdict>) {
        let [accepted, rejected, failed] = REVIEW_OUTCOMES;
        let outcome = match verdict {
            Some(TokenVerdict::Account(_)) => accepted,
            Some(TokenVerdict::Rejected(_)) => rejected,
            None => failed,
        };
        self.reviews.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Records a lost line of the audit log.
    pub(crate) fn record_lost_audit(&self) {
        self.lost_audit.inc();
    }

    /// Sets the end of the certificate in force.
    pub(crate) fn record_certificate(&self, end: u64) {
        self.certificate_end.set(end);
    }

    pub(crate) fn record_handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes.get_or_create(&[("outcome", outcome)]).inc();
    }
}
