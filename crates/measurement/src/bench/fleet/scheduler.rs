//! One scheduler of a fleet: it sends its own jobs, one call for each job, and records the responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Request};

use super::cluster::FleetJob;
use crate::bench::queries::ErrorCause;
use crate::bench::stats::LatencyHistogram;
use crate::placement_history::SeenCommit;
use pumice_console::CommandError;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Maximum number of times that a scheduler sends one call.
const MAX_SENDS: u32 = 20;

/// Work of one scheduler.
#[derive(Debug, Clone)]
pub(super) struct FleetScheduler {
    /// Position in the fleet, from 0.
    pub(super) number: usize,
    /// Number of all schedulers.
    pub(super) count: usize,
    pub(super) jobs: Arc<Vec<FleetJob>>,
    /// Jobs that it has begun.
    pub(super) begun: Arc<AtomicUsize>,
    pub(super) policy: pb::EvaluationRef,
    /// Beginning of the keys of this run.
    pub(super) run: String,
    /// Time limit of a call.
    pub(super) timeout: Duration,
    pub(super) connection: ClientConnection,
}

/// One call that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct FleetCall {
    pub(super) ended: Instant,
    /// Number of times that the server chose nodes.
    pub(super) tries: u32,
    /// Number of tasks that were placed.
    pub(super) placed: u32,
}

/// Log of what a scheduler saw.
#[derive(Debug)]
pub(super) struct SchedulerLog {
    /// Latencies of calls that were answered, with the calls before that were sent again.
    pub(super) latencies: LatencyHistogram,
    /// Number of calls that failed in the end, by cause.
    pub(super) failed: BTreeMap<ErrorCause, u64>,
    pub(super) calls: Vec<FleetCall>,
    pub(super) commits: Vec<SeenCommit>,
    /// Jobs for which no node was found.
    pub(super) unplaced: usize,
}

impl FleetScheduler {
    /// Sends its jobs until there is none left.
    pub(super) async fn run(mut self) -> Result<SchedulerLog, CommandError> {
        let mut log = SchedulerLog {
            latencies: LatencyHistogram::new()?,
            failed: BTreeMap::new(),
            calls: Vec::new(),
            commits: Vec::new(),
            unplaced: 0,
        };
        loop {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) * self.count + self.number;
            let jobs = Arc::clone(&self.jobs);
            let Some(job) = jobs.get(number) else { return Ok(log) };
            self.place(job, &mut log).await?;
        }
    }

    /// Places one job; a call that others were in the way of is sent again.
    async fn place(&mut self, job: &FleetJob, log: &mut SchedulerLog) -> Result<(), CommandError> {
        let request = self.request(job);
        let begun = Instant::now();
        let mut sends = 0;
        loop {
            sends += 1;
            let mut call = Request::new(request.clone());
            call.set_timeout(self.timeout);
            let answered = self.connection.decisions.place(call).await;
            let ended = Instant::now();
            match answered {
                Ok(response) => {
                    log.record(job, request, begun, ended, response.into_inner())?;
                    return Ok(());
                }
                Err(status) if sends < MAX_SENDS && may_succeed_later(status.code()) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(status) => {
                    let cause = ErrorCause {
                        code: format!("{:?}", status.code()),
                        reason: status.message().to_owned(),
                    };
                    let count = log.failed.entry(cause).or_default();
                    *count = count.saturating_add(1);
                    return Ok(());
                }
            }
        }
    }

    fn request(&self, job: &FleetJob) -> pb::PlaceRequest {
        pb::PlaceRequest {
            against: Some(self.policy.clone()),
            groups: vec![pb::TaskGroup {
                names: job.tasks.clone(),
                ..pb::TaskGroup::default()
            }],
            effect: pb::PlaceEffect::Commit.into(),
            commit_key: format!("{}/{}", self.run, job.name),
            samples: Some(0),
            ..pb::PlaceRequest::default()
        }
    }
}

fn may_succeed_later(code: Code) -> bool {
    matches!(
        code,
        Code::Aborted | Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded
    )
}

impl SchedulerLog {
    fn record(
        &mut self,
        job: &FleetJob,
        request: pb::PlaceRequest,
        begun: Instant,
        ended: Instant,
        response: pb::PlaceResponse,
    ) -> Result<(), CommandError> {
        self.latencies.record(ended.saturating_duration_since(begun));
        let result = response.result.unwrap_or_default();
        let Some(commit) = response.commit else {
            self.unplaced += 1;
            return Ok(());
        };
        let nodes = result.groups.into_iter().filter_map(|group| group.allocated);
        let nodes: Vec<String> = nodes.flat_map(|nodes| nodes.names).collect();
        if nodes.len() != job.tasks.len() {
            let message = format!(
                "error: job `{}` has {} tasks, and the server placed {}",
                job.name,
                job.tasks.len(),
                nodes.len()
            );
            return Err(CommandError::message(message));
        }
        self.calls.push(FleetCall {
            ended,
            tries: commit.tries,
            placed: result.placed_count,
        });
        let revision = response.metadata.and_then(|metadata| metadata.revision);
        self.commits.push(SeenCommit {
            key: request.commit_key,
            revision: revision.map_or(0, |revision| revision.number),
            tasks: job.tasks.iter().cloned().zip(nodes).collect(),
        });
        Ok(())
    }
}
