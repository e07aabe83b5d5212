//! A whole scheduler: it sends its state, decides, commits, binds and reports.
//!
//! `cargo run --package pumice-protocol --example own_scheduler -- [HOST:PORT]` runs two cycles for a cluster of two nodes.
#![expect(clippy::print_stdout, reason = "the program shows what it decides")]
#![expect(
    clippy::disallowed_methods,
    reason = "the epoch of a source is the start time of its process"
)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pumice_protocol::{ClientConnection, ConnectError, DEFAULT_SERVER, v1};
use tonic::{Request, Status};

const SOURCE: &str = "own-scheduler";

/// Error of a cycle. Nothing is bound without a decision.
#[derive(Debug, thiserror::Error)]
enum CycleError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    Call(#[from] Box<Status>),
    #[error("another process with this source has started, and only one may run: {0}")]
    Fenced(String),
}

/// Scheduler that is the only writer of its source.
struct OwnScheduler {
    address: String,
    connection: Option<ClientConnection>,
    records: v1::Cluster,
    /// Records that changed since the last batch.
    changed: v1::Cluster,
    /// Epoch of this process: its start in nanoseconds since 1970.
    epoch: u64,
    sequence: u64,
    is_synced: bool,
    /// Task whose first bind fails, as an API server may do.
    failing: Option<&'static str>,
    /// Session of this cycle, and the number of its last change.
    session: v1::SessionRef,
}

#[tokio::main]
async fn main() -> Result<(), CycleError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut scheduler = OwnScheduler {
        address,
        connection: None,
        records: records(),
        changed: v1::Cluster::default(),
        epoch: u64::try_from(since.as_nanos()).unwrap_or_default(),
        sequence: 0,
        is_synced: false,
        failing: Some("ml/gang-1"),
        session: v1::SessionRef::default(),
    };
    scheduler.run(2).await
}

/// Request with a deadline.
fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(5));
    request
}

/// Records of `examples/own-scheduler/cluster.json`.
fn records() -> v1::Cluster {
    let amounts = |items: &[(&str, &str)]| {
        let items = items.iter().map(|&(name, amount)| (name.to_owned(), amount.to_owned()));
        Some(v1::ResourceList { items: items.collect() })
    };
    let node = |name: &str| v1::Node {
        name: name.to_owned(),
        allocatable: amounts(&[("cpu", "8"), ("memory", "32Gi"), ("pods", "110")]),
        ..v1::Node::default()
    };
    let job = |name: &str| v1::Job {
        name: name.to_owned(),
        queue: "research".to_owned(),
        min_member: 2,
        min_resources: amounts(&[("cpu", "12")]),
        ..v1::Job::default()
    };
    let task = |job: &str, number: usize| v1::Task {
        name: format!("{job}-{number}"),
        job: job.to_owned(),
        requests: amounts(&[("cpu", "6")]),
        ..v1::Task::default()
    };
    let queue = v1::Queue {
        name: "research".to_owned(),
        capability: amounts(&[("cpu", "16")]),
        ..v1::Queue::default()
    };
    let jobs = ["ml/gang", "ml/large"];
    v1::Cluster {
        nodes: vec![node("n1"), node("n2")],
        queues: vec![queue],
        jobs: jobs.into_iter().map(job).collect(),
        tasks: jobs.into_iter().flat_map(|job| [task(job, 0), task(job, 1)]).collect(),
        ..v1::Cluster::default()
    }
}

impl OwnScheduler {
    /// Runs cycles. An error ends its cycle.
    async fn run(&mut self, cycles: usize) -> Result<(), CycleError> {
        for _ in 0..cycles {
            match self.cycle().await {
                Ok(()) => {}
                Err(error @ CycleError::Fenced(_)) => return Err(error),
                Err(error @ (CycleError::Connect(_) | CycleError::Call(_))) => {
                    println!("no decision, the next cycle tries again: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(())
    }

    /// Connection to the server. It connects again by itself after the first time.
    async fn server(&mut self) -> Result<ClientConnection, CycleError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = ClientConnection::open(&self.address).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    async fn cycle(&mut self) -> Result<(), CycleError> {
        // Left by a cycle that ended in between.
        self.bind_committed().await?;
        self.send().await?;
        let mut server = self.server().await?;
        let opened = server.decisions.open_session(within(v1::OpenSessionRequest::default()));
        let id = opened.await.map_err(Box::new)?.into_inner().session;
        self.session = v1::SessionRef {
            id: id.clone(),
            ..v1::SessionRef::default()
        };
        let decided = self.decide().await;
        let close = v1::CloseSessionRequest { session: id };
        let closed = server.decisions.close_session(within(close)).await.map_err(Box::new);
        decided?;
        closed?;
        self.bind_committed().await?;
        self.send().await
    }

    async fn decide(&mut self) -> Result<(), CycleError> {
        let jobs = self.records.jobs.iter();
        let names: Vec<String> = jobs
            .map(|job| job.name.clone())
            .filter(|job| !self.pending(job).is_empty())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let mut server = self.server().await?;
        let order = v1::OrderRequest {
            against: Some(self.here()),
            jobs: Some(v1::NameSet { names }),
            ..v1::OrderRequest::default()
        };
        let order = server
            .decisions
            .order(within(order))
            .await
            .map_err(Box::new)?
            .into_inner();
        for rank in order.result.unwrap_or_default().jobs {
            self.place(&rank.name).await?;
        }
        self.confirm().await?;
        let commit = v1::CommitSessionRequest {
            session: Some(self.session.clone()),
            jobs: Vec::new(),
        };
        let committed = server
            .decisions
            .commit_session(within(commit))
            .await
            .map_err(Box::new)?
            .into_inner();
        for job in committed.jobs {
            for rejection in job.rejections {
                let task = rejection
                    .placement
                    .map_or_else(|| job.job.clone(), |placement| placement.task);
                println!("{task} waits: {}", rejection.reason.unwrap_or_default().message);
            }
        }
        Ok(())
    }

    /// The session after its last change.
    fn here(&self) -> v1::EvaluationRef {
        v1::EvaluationRef {
            target: Some(v1::evaluation_ref::Target::Session(self.session.clone())),
            ..v1::EvaluationRef::default()
        }
    }

    /// Takes over the number of the last change from a response.
    fn follow(&mut self, metadata: Option<v1::ResponseMetadata>) {
        let effects = metadata.unwrap_or_default().effects.unwrap_or_default();
        self.session.after = effects.applied_through;
        self.session.changes.clear();
    }

    /// Admits a job, and places its tasks in the session.
    async fn place(&mut self, name: &str) -> Result<(), CycleError> {
        let mut server = self.server().await?;
        let named = v1::Job {
            name: name.to_owned(),
            ..v1::Job::default()
        };
        let is_pending = |job: &v1::Job| job.name == name && job.phase <= v1::JobPhase::Pending as i32;
        if self.records.jobs.iter().any(is_pending) {
            let subject = v1::AdmitSubject {
                subject: Some(v1::admit_subject::Subject::Job(named.clone())),
                ..v1::AdmitSubject::default()
            };
            let admit = v1::AdmitRequest {
                against: Some(self.here()),
                mode: v1::AdmitMode::Tentative as i32,
                items: vec![subject],
                ..v1::AdmitRequest::default()
            };
            let admitted = server
                .decisions
                .admit(within(admit))
                .await
                .map_err(Box::new)?
                .into_inner();
            self.follow(admitted.metadata);
            for item in admitted.result.unwrap_or_default().items {
                if !item.permitted {
                    println!("{name} waits: {}", admit_reason(&item));
                    return Ok(());
                }
            }
            let enqueued = v1::session_change::Change::JobEnqueued(name.to_owned());
            self.session.changes.push(v1::SessionChange { change: Some(enqueued) });
        }
        let groups = self.pending(name).into_iter().map(|task| v1::TaskGroup {
            names: vec![task],
            ..v1::TaskGroup::default()
        });
        let request = v1::PlaceRequest {
            against: Some(self.here()),
            job: Some(named),
            groups: groups.collect(),
            effect: v1::PlaceEffect::Session as i32,
            ..v1::PlaceRequest::default()
        };
        let placed = server
            .decisions
            .place(within(request))
            .await
            .map_err(Box::new)?
            .into_inner();
        self.follow(placed.metadata);
        let result = placed.result.unwrap_or_default();
        if !result.placed {
            println!("{name} waits: {}", place_reason(&result));
        }
        Ok(())
    }

    /// Reserves the quota of the jobs that the session enqueued. Their phase is reported after the commit.
    async fn confirm(&mut self) -> Result<(), CycleError> {
        let request = v1::AdmitRequest {
            against: Some(self.here()),
            mode: v1::AdmitMode::Confirm as i32,
            ..v1::AdmitRequest::default()
        };
        let mut server = self.server().await?;
        let confirmed = server
            .decisions
            .admit(within(request))
            .await
            .map_err(Box::new)?
            .into_inner();
        self.follow(confirmed.metadata);
        for item in confirmed.result.unwrap_or_default().items {
            if !item.permitted {
                println!("{} waits: {}", item.job, admit_reason(&item));
                continue;
            }
            for job in self.records.jobs.iter_mut().filter(|job| job.name == item.job) {
                job.phase = v1::JobPhase::Inqueue as i32;
                self.changed.jobs.push(job.clone());
            }
        }
        Ok(())
    }

    /// Names of the tasks of a job without a node.
    fn pending(&self, job: &str) -> Vec<String> {
        let tasks = self.records.tasks.iter();
        let pending = tasks.filter(|task| task.job == job && task.node.is_empty());
        pending.map(|task| task.name.clone()).collect()
    }

    /// Binds committed placements, and releases those that cannot be bound.
    async fn bind_committed(&mut self) -> Result<(), CycleError> {
        let nodes = self.committed().await?;
        let mut server = self.server().await?;
        for task in &mut self.records.tasks {
            let Some(node) = nodes.get(&task.name) else {
                continue;
            };
            // Here your scheduler calls the API server. Binding a task again to the same node must change nothing.
            if self.failing == Some(&*task.name) {
                self.failing = None;
                let release = v1::ReleaseAssumptionsRequest {
                    tasks: vec![task.name.clone()],
                    ..v1::ReleaseAssumptionsRequest::default()
                };
                server
                    .state
                    .release_assumptions(within(release))
                    .await
                    .map_err(Box::new)?;
                println!("{} waits: the API server rejected the bind", task.name);
                continue;
            }
            task.node.clone_from(node);
            task.status = v1::TaskStatus::Bound as i32;
            self.changed.tasks.push(task.clone());
            println!("{} -> {node}", task.name);
        }
        Ok(())
    }

    /// Nodes of the own tasks whose placement is committed and not reported.
    async fn committed(&mut self) -> Result<BTreeMap<String, String>, CycleError> {
        let mut server = self.server().await?;
        let mut nodes = BTreeMap::new();
        let mut token = String::new();
        loop {
            let request = v1::ListTasksRequest {
                page: Some(v1::Page {
                    token,
                    ..v1::Page::default()
                }),
                ..v1::ListTasksRequest::default()
            };
            let page = server
                .state
                .list_tasks(within(request))
                .await
                .map_err(Box::new)?
                .into_inner();
            let own = page
                .tasks
                .into_iter()
                .filter(|stored| stored.assumed && stored.source == SOURCE);
            nodes.extend(own.filter_map(|stored| stored.task).map(|task| (task.name, task.node)));
            if page.next_page_token.is_empty() {
                return Ok(nodes);
            }
            token = page.next_page_token;
        }
    }

    /// Sends a full sync first and after each loss, otherwise what changed.
    async fn send(&mut self) -> Result<(), CycleError> {
        let mut server = self.server().await?;
        while !self.is_synced || self.changed != v1::Cluster::default() {
            self.sequence += 1;
            let mut batch = v1::Batch {
                source: SOURCE.to_owned(),
                source_epoch: self.epoch,
                sequence: self.sequence,
                ..v1::Batch::default()
            };
            if self.is_synced {
                batch.kind = v1::BatchKind::Delta as i32;
                batch.put = Some(self.changed.clone());
            } else {
                batch.kind = v1::BatchKind::FullSyncLast as i32;
                batch.part = 1;
                batch.put = Some(self.records.clone());
            }
            self.is_synced = false;
            let request = v1::ApplyRequest { batch: Some(batch) };
            let applied = server
                .state
                .apply(within(request))
                .await
                .map_err(Box::new)?
                .into_inner();
            let outcome = applied.outcome.unwrap_or_default();
            match outcome.resync {
                Some(resync) if resync.reason == "FENCED" => return Err(CycleError::Fenced(resync.message)),
                Some(_) => {}
                None => {
                    for problem in outcome.refused {
                        println!("rejected record: {}", problem.message);
                    }
                    self.is_synced = true;
                    self.changed = v1::Cluster::default();
                }
            }
        }
        Ok(())
    }
}

/// An item has either a problem, which concerns the request, or a result.
fn admit_reason(item: &v1::AdmitItem) -> &str {
    let problem = item.problem.as_ref().map(|problem| &*problem.message);
    let reason = item.reasons.first().map(|reason| &*reason.message);
    problem.or(reason).unwrap_or_default()
}

/// Problem of a group, or the first reason that keeps the next task from its node.
fn place_reason(result: &v1::PlaceResult) -> &str {
    let problem = result.groups.iter().find_map(|group| group.problem.as_ref());
    let blocker = result.blockers.first().and_then(|blocker| blocker.reason.as_ref());
    let problem = problem.map(|problem| &*problem.message);
    problem.or(blocker.map(|reason| &*reason.message)).unwrap_or_default()
}
