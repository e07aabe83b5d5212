//! Metrics of TLS, of roles and of the audit log.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabel {
    outcome: FileOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabel {
    outcome: HandshakeOutcome,
}

/// Outcome of changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum FileOutcome {
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    accepted,
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    rejected,
}

impl FileOutcome {
    fn of(accepted: bool) -> Self {
        if accepted { Self::accepted } else { Self::rejected }
    }
}

/// Outcome of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum HandshakeOutcome {
    /// The connection is secured.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    completed,
    /// The caller speaks no TLS, ended it, or showed no certificate that holds.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    failed,
    /// The caller took too long.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    timed_out,
}

type SecondsGauge = Gauge<u64, AtomicU64>;

/// Metrics of TLS, of roles and of the audit log.
#[derive(Debug, Default)]
pub(crate) struct SecurityMetrics {
    tls_reloads: Family<ReloadLabel, Counter>,
    tls_refused: SecondsGauge,
    certificate_end: SecondsGauge,
    handshakes: Family<HandshakeLabel, Counter>,
}

impl SecurityMetrics {
    pub(super) fn register(&self, own: &mut Registry) {
        let help = "Changed files of TLS, by outcome";
        own.register("tls_reloads", help, self.tls_reloads.clone());
        let help = "1 if the files of TLS on disk were refused and former ones are in force, else 0";
        own.register("tls_rejected", help, self.tls_refused.clone());
        let help = "End of the server certificate's validity, since 1970; 0 without TLS";
        own.register_with_unit(
            "tls_certificate_end_time",
            help,
            Unit::Seconds,
            self.certificate_end.clone(),
        );
        let help = "TLS handshakes, by outcome";
        own.register("tls_handshakes", help, self.handshakes.clone());
        for outcome in [FileOutcome::accepted, FileOutcome::rejected] {
            drop(self.tls_reloads.get_or_create(&ReloadLabel { outcome }));
        }
        for outcome in [
            HandshakeOutcome::completed,
            HandshakeOutcome::failed,
            HandshakeOutcome::timed_out,
        ] {
            drop(self.handshakes.get_or_create(&HandshakeLabel { outcome }));
        }
    }

    /// Counts changed files of TLS.
    pub(crate) fn record_tls_reload(&self, accepted: bool) {
        let outcome = FileOutcome::of(accepted);
        self.tls_reloads.get_or_create(&ReloadLabel { outcome }).inc();
        self.set_tls_refused(!accepted);
    }

    /// Tells whether the files of TLS on disk are refused.
    pub(crate) fn set_tls_refused(&self, refused: bool) {
        self.tls_refused.set(refused.into());
    }

    /// Sets the end of the certificate in force.
    pub(crate) fn record_certificate(&self, end: u64) {
        self.certificate_end.set(end);
    }

    /// Counts a handshake.
    pub(crate) fn record_handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes.get_or_create(&HandshakeLabel { outcome }).inc();
    }
}
