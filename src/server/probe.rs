//! Health and metrics of the process: `/livez`, `/readyz` and `/metrics` over HTTP, and `grpc.health.v1`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::access::AccessKeeper;
use crate::telemetry::{Metrics, SharedPage};
use crate::tls::TlsKeeper;
use pumice_live::ClusterCondition;
use pumice_state::{SharedState, SourceKind, SourceStatus};

use super::PolicyFile;
use super::WorkerPool;

/// Services whose health is reported, each with true if it needs a state and a policy; the empty name is the server as
/// a whole.
const SERVICES: [(&str, bool); 4] = [
    ("", true),
    ("pumice.v1.DecisionService", true),
    ("pumice.v1.StateService", false),
    ("pumice.v1.PolicyService", false),
];
/// Period at which gRPC health is updated from readiness.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
/// Path of the page of metrics.
pub(crate) const METRICS_PATH: &str = "/metrics";
/// Content type of OpenMetrics text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Parts of the server that the health checks watch.
#[derive(Clone, Debug)]
pub struct HealthProbe {
    /// Shared state.
    pub state: Arc<SharedState>,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    /// Workers of large requests.
    pub workers: Arc<WorkerPool>,
    /// Policy file, if there is one.
    pub policy_file: Option<PolicyFile>,
    /// TLS of the listeners, if there is TLS.
    pub tls: Option<Arc<TlsKeeper>>,
    /// Active identities.
    pub identities: Arc<AccessKeeper>,
    /// Sources that must be synced before the server is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Condition of the watched cluster, if there is one.
    pub cluster: Option<Arc<ClusterCondition>>,
    /// Policies that must be active before the server is ready.
    pub expected_policies: Vec<Arc<str>>,
    /// SHA-256 of documents that must be active before the server is ready, in hexadecimal digits.
    pub expected_documents: Vec<Arc<str>>,
    /// Turns true when the server is to stop.
    pub draining: watch::Receiver<bool>,
}

/// One check of a probe, such as a source that is not synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Name of the check in `/readyz?verbose`, such as `store`.
    pub name: String,
    /// True if the check passed.
    pub passed: bool,
    /// Explanation for people.
    pub detail: String,
}

impl HealthCheck {
    fn new(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            passed,
            detail: detail.into(),
        }
    }
}

impl HealthProbe {
    /// Checks that readiness depends on, and others that operators should see.
    pub fn checks(&self) -> Vec<HealthCheck> {
        let draining = *self.draining.borrow();
        let serving = if draining { "draining" } else { "yes" };
        let mut checks = vec![
            HealthCheck::new("serving", !draining, serving),
            self.writer_check(),
            self.store_check(),
        ];
        checks.extend(self.policy_checks());
        checks.extend(self.policy_file_check());
        checks.extend(self.tls_check());
        checks.extend(
            self.identities
                .status()
                .map(|detail| HealthCheck::new("identities", true, detail)),
        );
        checks.extend(self.source_checks());
        checks.extend(self.cluster_check());
        checks
    }

    /// True if all checks passed.
    pub fn is_ready(&self) -> bool {
        self.checks().iter().all(|check| check.passed)
    }

    fn writer_check(&self) -> HealthCheck {
        let alive = self.state.is_alive();
        let detail = if alive {
            format!("works, {} batches wait", self.state.queued_writes())
        } else {
            "has stopped".to_owned()
        };
        HealthCheck::new("writer", alive, detail)
    }

    /// Check of the store. A store that fails leaves the server ready, because decisions go on, unless `store_stale_ms` ends them.
    fn store_check(&self) -> HealthCheck {
        let status = self.state.store_status();
        let durability = status.durability;
        HealthCheck::new(
            "store",
            !self.state.is_store_stale(),
            match status.problem {
                None => format!("works, {durability}"),
                Some(problem) => format!("fails: {problem}"),
            },
        )
    }

    /// Check of the policy file. A problem leaves the server ready, because the policy in force stays in force.
    fn policy_file_check(&self) -> Option<HealthCheck> {
        let file = self.policy_file.as_ref()?;
        let path = file.path().display();
        Some(HealthCheck::new(
            "policy-file",
            true,
            match file.read_failure() {
                None => format!("{path} is watched"),
                Some(trouble) => format!("{path} cannot be read: {trouble}"),
            },
        ))
    }

    /// Check of TLS. A problem leaves the server ready, because the former files stay in force.
    fn tls_check(&self) -> Option<HealthCheck> {
        Some(HealthCheck::new("tls", true, self.tls.as_ref()?.status()))
    }

    fn policy_checks(&self) -> Vec<HealthCheck> {
        let snapshot = self.state.snapshot();
        let mut checks: Vec<HealthCheck> = snapshot
            .policies
            .iter()
            .map(|(name, policy)| {
                HealthCheck::new(
                    format!("policy/{name}"),
                    true,
                    format!("version {} ({})", policy.version, policy.hash),
                )
            })
            .collect();
        let expected: BTreeSet<&Arc<str>> = self.expected_policies.iter().collect();
        let absent = expected.iter().filter(|name| !snapshot.policies.contains_key(**name));
        checks
            .extend(absent.map(|name| HealthCheck::new(format!("policy/{name}"), false, "expected, and not in force")));
        let is_in_force = |hash: &&Arc<str>| {
            let mut policies = snapshot.policies.iter();
            policies.any(|(name, policy)| (expected.is_empty() || expected.contains(name)) && policy.hash == **hash)
        };
        checks.extend(
            self.expected_documents
                .iter()
                .filter(|hash| !is_in_force(hash))
                .map(|hash| HealthCheck::new(format!("policy-document/{hash}"), false, "expected, and not in force")),
        );
        if checks.is_empty() {
            checks.push(HealthCheck::new("policy", false, "none is loaded"));
        }
        // A rejected document leaves the server ready, because the old policy stays in force.
        checks.extend(
            self.state
                .rejected_documents()
                .into_iter()
                .map(|rejection| HealthCheck {
                    name: format!("reload/{}", rejection.name),
                    passed: true,
                    detail: format!(
                        "the last document, from {}, was rejected: {rejection}",
                        rejection.origin
                    ),
                }),
        );
        checks
    }

    fn source_checks(&self) -> Vec<HealthCheck> {
        let known = self.state.sources();
        let status = |name: &Arc<str>| known.iter().find(|source| source.position.source == *name);
        let expected = self.expected_sources.iter().map(|name| {
            HealthCheck::new(
                format!("source/{name}"),
                status(name).is_some_and(|source| source.synced),
                self.source_detail(status(name)),
            )
        });
        let snapshot = self.state.snapshot();
        let (labels, release) = (snapshot.read_labels(), snapshot.pod_release());
        let is_shown = |source: &&SourceStatus| {
            source.stale || source.awaited.is_some() || source.basis.is_outdated(labels, release)
        };
        // A source that nobody expects, and that had not synced before the start, does not keep the server from being ready.
        let stale = known
            .iter()
            .filter(is_shown)
            .filter(|source| !self.expected_sources.contains(&source.position.source))
            .map(|source| {
                HealthCheck::new(
                    format!("source/{}", source.position.source),
                    source.awaited.is_none(),
                    self.source_detail(Some(source)),
                )
            });
        expected.chain(stale).collect()
    }

    /// Check of the watched cluster. A watch that is interrupted for a moment leaves the server ready.
    fn cluster_check(&self) -> Option<HealthCheck> {
        let status = self.cluster.as_ref()?.status();
        let most = self.state.limits().source_stale;
        Some(HealthCheck::new(
            "cluster",
            status.full_syncs > 0 && status.behind.is_none_or(|behind| behind <= most),
            status.to_string(),
        ))
    }

    fn source_detail(&self, source: Option<&SourceStatus>) -> String {
        if let Some((source, left)) = source.and_then(|source| Some((source, source.awaited?))) {
            return format!(
                "had synced before the start, and has not since: awaited for {} s more (limit `source_return_ms`), or until `pumice \
                 state forget {}`",
                left.as_secs() + 1,
                source.position.source
            );
        }
        let Some((source, silence)) = source.and_then(|source| Some((source, source.silence?.as_secs()))) else {
            return "not heard yet".to_owned();
        };
        let batch = source.position.sequence;
        if let Some(detail) = self.outdated_detail(source) {
            return detail;
        }
        match source.kind {
            SourceKind::File if source.synced => format!("synced, a file loaded {silence} s ago"),
            SourceKind::Live if source.synced => format!("synced, batch {batch}"),
            SourceKind::Live if source.stale => format!(
                "stale: silent for {silence} s, longer than limit `source_stale_ms` ({}) allows a live source",
                self.state.limits().source_stale.as_millis()
            ),
            SourceKind::File | SourceKind::Live => "not synced".to_owned(),
        }
    }

    /// Why the source has to send its records again, if it has to, and until when.
    fn outdated_detail(&self, source: &SourceStatus) -> Option<String> {
        let snapshot = self.state.snapshot();
        let detail = if source.basis.dropped_labels.intersects(snapshot.read_labels()) {
            "lacks labels that a policy reads, because none read them when the records came: filters refuse".to_owned()
        } else {
            let release = snapshot.pod_release();
            let (derived, release) = (source.basis.release_other_than(release)?.name(), release.name());
            format!("amounts of pods were derived by `{derived}`, and policies follow `{release}`: they stay so")
        };
        Some(match source.kind {
            SourceKind::File => format!("{detail} until the file is loaded again"),
            SourceKind::Live => format!("{detail} until its next full sync, for which its next batch is asked"),
        })
    }

    /// Router of the HTTP paths. Must be called on the runtime, on which the page of metrics is made.
    pub fn router(self) -> Router {
        let (measured, state, workers) = (
            Arc::clone(&self.metrics),
            Arc::clone(&self.state),
            Arc::clone(&self.workers),
        );
        let page = SharedPage::start(move || measured.encode(&state, &workers.loads()));
        let scrapes = Router::new().route(METRICS_PATH, get(metrics)).with_state(page);
        Router::new()
            .route("/livez", get(live))
            .route("/readyz", get(ready))
            .with_state(self)
            .merge(scrapes)
    }

    /// Publishes gRPC health as it is now, unless that was the last: whether it decides, and whether it takes changes.
    /// Each publication wakes the callers of Watch.
    pub async fn publish_health(&self, health: &HealthReporter, last: Option<(bool, bool)>) -> (bool, bool) {
        // State and policy services are healthy before there is anything to decide from: sources sync, and policies are
        // pushed.
        let now = (self.is_ready(), !*self.draining.borrow() && self.state.is_alive());
        if last != Some(now) {
            let (ready, open) = now;
            for (service, needs_state) in SERVICES {
                let serving = if needs_state { ready } else { open };
                let status = if serving {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                health.set_service_status(service, status).await;
            }
        }
        now
    }

    /// Publishes gRPC health whenever it changes, and ends once the server drains.
    pub async fn follow_health(self, health: HealthReporter, mut last: (bool, bool)) {
        let mut draining = self.draining.clone();
        loop {
            let ends = *draining.borrow_and_update();
            last = self.publish_health(&health, Some(last)).await;
            if ends {
                return;
            }
            let wait = async { draining.wait_for(|draining| *draining).await.is_ok() };
            // The timeout and the drain signal both lead to the next look.
            drop(tokio::time::timeout(HEALTH_INTERVAL, wait).await);
        }
    }
}

/// True if the query asks for each check, in any of its parameters.
fn is_verbose(query: Option<&str>) -> bool {
    let mut parameters = query.unwrap_or_default().split('&');
    parameters.any(|parameter| parameter.split('=').next() == Some("verbose"))
}

/// A process whose writer has ended does not recover by itself.
async fn live(Shared(probe): Shared<HealthProbe>, RawQuery(query): RawQuery) -> Response {
    check_page(
        &[probe.writer_check()],
        is_verbose(query.as_deref()),
        "ok\n",
        "not ok\n",
    )
}

async fn ready(Shared(probe): Shared<HealthProbe>, RawQuery(query): RawQuery) -> Response {
    check_page(&probe.checks(), is_verbose(query.as_deref()), "ready\n", "not ready\n")
}

fn check_page(checks: &[HealthCheck], verbose: bool, good: &str, bad: &str) -> Response {
    let passed = checks.iter().all(|check| check.passed);
    let status = if passed {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut text = String::new();
    for check in checks {
        if verbose || !check.passed {
            let sign = if check.passed { '+' } else { '-' };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "[{sign}] {}: {}", check.name, check.detail);
        }
    }
    text.push_str(if passed { good } else { bad });
    (status, text).into_response()
}

async fn metrics(Shared(page): Shared<SharedPage>) -> Response {
    match page.get().await {
        Some(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
