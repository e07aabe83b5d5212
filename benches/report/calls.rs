//! Requests of the report over gRPC: one call each, its response checked.

use pb::DecisionServiceClient;
use pumice::server::pb;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::shapes;

/// Largest accepted response, in bytes.
const RESPONSE_BYTES: usize = 64 << 20;

/// Request of a measured call.
#[derive(Clone, Debug)]
pub(crate) enum BenchCall {
    /// Empty request: the floor of every call.
    Empty,
    /// Request for scores.
    Score(Box<pb::ScoreRequest>),
    /// Request for scores of tasks of a class that no request was about before.
    ScoreNewClass(Box<pb::ScoreRequest>),
    /// Request to place a gang.
    Place(Box<pb::PlaceRequest>),
}

/// Request with the name that its keys have, and its number of decisions.
#[derive(Clone, Debug)]
pub(crate) struct NamedBenchCall {
    pub(crate) name: &'static str,
    pub(crate) call: BenchCall,
    pub(crate) decisions: u32,
    /// Number of calls of a round.
    pub(crate) calls: usize,
}

/// All measured requests.
pub(crate) fn bench_calls() -> Vec<NamedBenchCall> {
    let named = |name, decisions, calls, query| NamedBenchCall {
        name,
        call: query,
        decisions,
        calls,
    };
    let score = |request| BenchCall::Score(Box::new(request));
    let new_class = |request| BenchCall::ScoreNewClass(Box::new(request));
    vec![
        named("empty", 1, 600, BenchCall::Empty),
        named("best", 1, 600, score(shapes::best())),
        named("best_with_pods", 1, 300, score(shapes::best_with_pods())),
        named("best_new_class", 1, 600, new_class(shapes::best())),
        named("best_with_pods_new_class", 1, 300, new_class(shapes::best_with_pods())),
        named("all", 1, 300, score(shapes::all())),
        named("64x10k", 64, 40, score(shapes::classes())),
        named("place", 1_000, 60, BenchCall::Place(Box::new(shapes::place()))),
    ]
}

/// Client of the service.
#[derive(Clone, Debug)]
pub(crate) struct BenchClient(DecisionServiceClient<Channel>);

impl BenchClient {
    /// Client over a connection.
    pub(crate) fn new(channel: Channel) -> Self {
        Self(DecisionServiceClient::new(channel).max_decoding_message_size(RESPONSE_BYTES))
    }

    /// Response to the empty request.
    pub(crate) async fn empty_response(channel: Channel) -> pb::FilterResponse {
        let mut client = DecisionServiceClient::new(channel);
        let response = client.filter(pb::FilterRequest::default()).await;
        response.expect("a response").into_inner()
    }

    /// Sends a request, waits for the whole response and checks it. A server that has too much to do says when to ask again:
    /// the call then lasts until it has its response.
    pub(crate) async fn ask(&mut self, query: &BenchCall) {
        while let Err(status) = self.ask_once(query).await {
            let retry = status.get_details_retry_info().and_then(|retry| retry.retry_delay);
            let delay = retry.filter(|_| status.code() == Code::ResourceExhausted);
            let delay = delay.ok_or(status).expect("a response");
            tokio::time::sleep(delay).await;
        }
    }

    /// Sends a request once.
    async fn ask_once(&mut self, query: &BenchCall) -> Result<(), Status> {
        let nodes = shapes::NODES as usize;
        match query {
            BenchCall::Empty => {
                let result = self.0.filter(pb::FilterRequest::default()).await?;
                assert!(result.into_inner().metadata.is_some());
            }
            BenchCall::Score(request) | BenchCall::ScoreNewClass(request) => {
                let mut sent = (**request).clone();
                if matches!(query, BenchCall::ScoreNewClass(_)) {
                    shapes::change_class(&mut sent.tasks);
                }
                let result = self.0.score(sent).await?.into_inner();
                let items = result.result.expect("an answer").items;
                let wanted = request.limit.map_or(nodes, |limit| limit as usize);
                assert_eq!(items.len(), request.tasks.len());
                assert!(
                    items
                        .iter()
                        .all(|item| item.problem.is_none() && item.totals.len() == wanted)
                );
            }
            BenchCall::Place(request) => {
                let result = self.0.place((**request).clone()).await?.into_inner();
                assert!(result.result.expect("an answer").placed);
            }
        }
        Ok(())
    }
}
