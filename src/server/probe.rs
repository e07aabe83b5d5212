//! How the process is watched: `/livez`, `/readyz` and `/metrics` over HTTP, and `grpc.health.v1`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::state::State;
use crate::telemetry::Metrics;

/// Services whose health is reported one by one; the empty name is the server as a whole.
const SERVICES: [&str; 4] = [
    "",
    "pumice.v1.DecisionService",
    "pumice.v1.StateService",
    "pumice.v1.PolicyService",
];
/// How often gRPC health follows readiness.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// OpenMetrics text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is watched.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The state.
    pub state: Arc<State>,
    /// Instruments.
    pub metrics: Arc<Metrics>,
    /// Sources that must be synced before the server is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Turns true when the server is to stop.
    pub draining: watch::Receiver<bool>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: String,
    /// Nothing stands against serving.
    pub passed: bool,
    /// How it stands.
    pub detail: String,
}

impl Probe {
    /// Everything that readiness hangs on, and what an operator should know besides.
    pub fn checks(&self) -> Vec<Check> {
        let draining = *self.draining.borrow();
        let mut checks = vec![Check {
            name: "serving".to_owned(),
            passed: !draining,
            detail: if draining { "draining" } else { "yes" }.to_owned(),
        }];
        checks.extend(self.policies());
        checks.extend(self.sources());
        checks
    }

    /// True if all checks passed.
    pub fn is_ready(&self) -> bool {
        self.checks().iter().all(|check| check.passed)
    }

    fn policies(&self) -> Vec<Check> {
        let world = self.state.world();
        let mut checks: Vec<Check> = world
            .policies
            .iter()
            .map(|(name, policy)| Check {
                name: format!("policy/{name}"),
                passed: true,
                detail: format!("version {} ({})", policy.version, policy.hash),
            })
            .collect();
        if checks.is_empty() {
            checks.push(Check {
                name: "policy".to_owned(),
                passed: false,
                detail: "none is loaded".to_owned(),
            });
        }
        // The old policy serves on, so the server stays ready.
        checks.extend(self.state.refusals().into_iter().map(|refusal| Check {
            name: format!("reload/{}", refusal.name),
            passed: true,
            detail: format!("the last document, from {}, was refused: {refusal}", refusal.origin),
        }));
        checks
    }

    fn sources(&self) -> Vec<Check> {
        let known = self.state.sources();
        let status = |name: &Arc<str>| known.iter().find(|source| source.position.source == *name);
        let check = |name: &Arc<str>| {
            let (synced, detail) = match status(name) {
                Some(source) if source.synced => (true, format!("synced, batch {}", source.position.sequence)),
                Some(source) if source.silence.is_some() => (false, "not synced".to_owned()),
                Some(_) | None => (false, "not heard of yet".to_owned()),
            };
            Check {
                name: format!("source/{name}"),
                passed: synced,
                detail,
            }
        };
        self.expected_sources.iter().map(check).collect()
    }

    /// The HTTP paths.
    pub fn router(self) -> Router {
        Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self)
    }

    /// Keeps gRPC health in step with readiness; ends once the server drains.
    pub async fn follow(self, health: HealthReporter) {
        let mut last = None;
        let mut draining = self.draining.clone();
        loop {
            let ready = self.is_ready();
            if last != Some(ready) {
                let status = if ready {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                for service in SERVICES {
                    health.set_service_status(service, status).await;
                }
                last = Some(ready);
            }
            if *self.draining.borrow() {
                return;
            }
            let wait = async { draining.wait_for(|draining| *draining).await.is_ok() };
            // Whether it was the time or the draining: what to do next is looked up again.
            drop(tokio::time::timeout(FOLLOW_EVERY, wait).await);
        }
    }
}

#[derive(Debug, serde::Deserialize)]
struct ReadyQuery {
    verbose: Option<String>,
}

async fn ready(Shared(probe): Shared<Probe>, Query(query): Query<ReadyQuery>) -> Response {
    let checks = probe.checks();
    let ready = checks.iter().all(|check| check.passed);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut text = String::new();
    for check in &checks {
        if query.verbose.is_some() || !check.passed {
            let sign = if check.passed { '+' } else { '-' };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "[{sign}] {}: {}", check.name, check.detail);
        }
    }
    text.push_str(if ready { "ready\n" } else { "not ready\n" });
    (status, text).into_response()
}

async fn metrics(Shared(probe): Shared<Probe>) -> Response {
    match probe.metrics.encode(&probe.state) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
