//! Fronts for schedulers that use HTTP and JSON instead of a Pumice client: kube-scheduler's extender protocol, version
//! 1, and the protocol of Volcano's plugin `extender`.
//!
//! A front reads a request, makes the same decisions as for gRPC callers, and writes the response in the format of the
//! scheduler.

mod asked_nodes;
mod asked_pod;
mod body;
mod kube;
mod kube_bind;
mod kube_filter;
mod kube_preempt;
mod kube_scores;
mod node_verdicts;
mod offers;
mod requests;
mod scored_nodes;
mod volcano;
mod volcano_messages;
mod volcano_nodes;
mod volcano_sessions;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use tokio::time::Instant;

use super::convert::evaluation_ref::DEFAULT_POLICY;
use super::request_body::BodyReceiver;
use super::status::CallError;
use super::{MemoryBudget, ServerContext};
use kube::KUBE_VERBS;
use offers::OfferTable;
use pumice_live::PodBinder;
use volcano::VOLCANO_VERBS;
use volcano_sessions::{SchedulerPath, VolcanoSessions};

/// First part of the paths of kube-scheduler's extender protocol.
pub(crate) const KUBE_PREFIX: &str = "/kube-scheduler/";
/// First part of the paths of Volcano's extender protocol.
const VOLCANO_PREFIX: &str = "/volcano/";

/// Front for extender protocols.
#[derive(Debug)]
pub(crate) struct ExtenderFront {
    edge: Arc<ServerContext>,
    bodies: Arc<BodyReceiver>,
    offers: OfferTable,
    volcano: VolcanoSessions,
    /// Binder for kube-scheduler's verb bind; `None`: the server binds nothing.
    binder: Option<PodBinder>,
}

/// Header of a request that is answered without a hold: "true".
const DRY_RUN: &str = "pumice-dry-run";

/// Effect of a response on the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseMode {
    /// The pod is held.
    Hold,
    /// Nothing.
    DryRun,
}

/// Answer of a front that is not a decision: a status, and a sentence for people.
type HttpError = (StatusCode, String);

impl ExtenderFront {
    pub(crate) fn new(edge: Arc<ServerContext>, memory: &Arc<MemoryBudget>, binder: Option<PodBinder>) -> Arc<Self> {
        let limits = &edge.read_options.limits;
        let bodies = BodyReceiver::new(memory, limits.extender_body_bytes, limits.request_body);
        Arc::new(Self {
            edge,
            bodies,
            offers: OfferTable::default(),
            volcano: VolcanoSessions::default(),
            binder,
        })
    }

    /// Response to a request that `work` answers. Records the request and its time in metrics.
    async fn respond(
        &self,
        metric: &'static str,
        work: impl Future<Output = Result<(&'static str, Vec<u8>), HttpError>>,
    ) -> Response {
        let start = Instant::now();
        let (code, response) = match work.await {
            Ok((code, json)) => (
                code,
                ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            ),
            Err((status, text)) => ("HttpError", (status, text + "\n").into_response()),
        };
        self.edge
            .metrics
            .record_call(metric, code, start.elapsed().as_secs_f64());
        response
    }

    /// Router of the paths of all fronts.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route(&format!("{KUBE_PREFIX}{{*call}}"), post(ask_kube))
            .route(&format!("{VOLCANO_PREFIX}{{*call}}"), post(ask_volcano))
            .with_state(self)
    }
}

/// True if the path belongs to a front, whose callers keep their connections.
pub(crate) fn is_extender_path(path: &str) -> bool {
    path.starts_with(KUBE_PREFIX) || path.starts_with(VOLCANO_PREFIX)
}

/// Policy and verb of a path behind its prefix: `VERB`, or `policy/NAME/VERB`.
fn policy_and_verb(call: &str) -> Option<(&str, &str)> {
    match call.split_once('/') {
        None => Some((DEFAULT_POLICY, call)),
        Some(("policy", rest)) => rest
            .split_once('/')
            .filter(|(name, verb)| !name.is_empty() && !verb.contains('/')),
        Some(_) => None,
    }
}

/// Verb of a name, with its path, which is the value of the metrics' label `rpc`.
fn find_verb<V: Copy>(verbs: &[(&'static str, V)], name: &str) -> Option<(&'static str, V)> {
    let mut verbs = verbs.iter().copied();
    verbs.find(|(path, _)| path.split_once('/').is_some_and(|(_, own)| own == name))
}

/// Names of verbs, for messages.
fn verb_names<V>(verbs: &[(&'static str, V)]) -> String {
    let names = verbs.iter().filter_map(|(path, _)| path.split_once('/'));
    let names: Vec<&str> = names.map(|(_, name)| name).collect();
    names.join(", ")
}

async fn ask_kube(Shared(front): Shared<Arc<ExtenderFront>>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let call = path.strip_prefix(KUBE_PREFIX).unwrap_or_default();
    let known = policy_and_verb(call).and_then(|(policy, verb)| Some((policy, find_verb(KUBE_VERBS, verb)?)));
    let Some((policy, (metric, verb))) = known else {
        let verbs = verb_names(KUBE_VERBS);
        let text =
            format!("{path} is no verb of this extender; there are {verbs}, and policy/NAME/VERB for another policy\n");
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    front.respond(metric, front.respond_kube(policy, verb, request)).await
}

async fn ask_volcano(Shared(front): Shared<Arc<ExtenderFront>>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    let call = path.strip_prefix(VOLCANO_PREFIX).unwrap_or_default();
    let known = call.split_once('/').and_then(|(scheduler, rest)| {
        let (policy, verb) = policy_and_verb(rest)?;
        let path = SchedulerPath {
            scheduler: scheduler.to_owned(),
            policy: policy.to_owned(),
        };
        Some((path, find_verb(VOLCANO_VERBS, verb)?)).filter(|(path, _)| !path.scheduler.is_empty())
    });
    let Some((path, (metric, verb))) = known else {
        let verbs = verb_names(VOLCANO_VERBS);
        let text = format!(
            "{path} is no verb of this extender; behind /volcano/SCHEDULER/ there are {verbs}, and policy/NAME/VERB for another policy\n"
        );
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    front.respond(metric, front.respond_volcano(&path, verb, request)).await
}

/// Sentence that an extender's answer carries for an error.
fn error_text(error: &CallError) -> String {
    format!("pumice: {}", error.message())
}
