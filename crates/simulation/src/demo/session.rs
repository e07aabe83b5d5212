//! Session of a scene, whose changes go with its next query.

use super::harness::{DemoHarness, best_node, latest_ref};
use pumice_console::{CommandError, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// A session, the number of its last change, and the changes that were not sent yet.
pub(super) struct DemoSession {
    pub(super) connection: ClientConnection,
    session: String,
    applied_changes: u64,
    changes: Vec<pb::SessionChange>,
}

impl DemoSession {
    pub(super) async fn open(harness: &DemoHarness, policy: &str) -> Result<Self, CommandError> {
        let open = pb::OpenSessionRequest {
            against: Some(latest_ref(policy)),
            ..pb::OpenSessionRequest::default()
        };
        let mut connection = harness.connection.clone();
        let opened = connection.decisions.open_session(open).await?.into_inner();
        Ok(Self {
            connection,
            session: opened.session,
            applied_changes: 0,
            changes: Vec::new(),
        })
    }

    /// Evaluation reference of the next query, with the changes since the last one.
    pub(super) fn evaluation_ref(&mut self) -> pb::EvaluationRef {
        let changes = std::mem::take(&mut self.changes);
        let sent = u64::try_from(changes.len()).unwrap_or_default();
        let step = pb::SessionRef {
            id: self.session.clone(),
            after: self.applied_changes,
            changes,
        };
        self.applied_changes = self.applied_changes.saturating_add(sent);
        pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Session(step)),
            ..pb::EvaluationRef::default()
        }
    }

    /// Allocates a task on a node.
    pub(super) fn allocate(&mut self, task: &str, node: &str) {
        let placed = pb::TaskPlacement {
            task: task.to_owned(),
            node: node.to_owned(),
            card: String::new(),
            devices: Vec::new(),
        };
        self.changes.push(pb::SessionChange {
            change: Some(pb::session_change::Change::Allocate(placed)),
        });
    }

    /// Asks whether a job may be enqueued, and enqueues it if so. Returns the reasons against it; empty: permitted.
    pub(super) async fn admit(&mut self, job: &str) -> Result<Vec<String>, CommandError> {
        let named = pb::Job {
            name: job.to_owned(),
            ..pb::Job::default()
        };
        let request = pb::AdmitRequest {
            against: Some(self.evaluation_ref()),
            mode: pb::AdmitMode::Tentative.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Job(named)),
                ..pb::AdmitSubject::default()
            }],
            ..pb::AdmitRequest::default()
        };
        let result = self.connection.decisions.admit(request).await?.into_inner().result;
        // The question itself changed the session.
        self.applied_changes = self.applied_changes.saturating_add(1);
        let item = result.unwrap_or_default().items.into_iter().next().unwrap_or_default();
        if let Some(problem) = &item.problem {
            return Ok(vec![output::problem(problem)]);
        }
        if item.permitted {
            self.changes.push(pb::SessionChange {
                change: Some(pb::session_change::Change::JobEnqueued(job.to_owned())),
            });
        }
        Ok(item.reasons.into_iter().map(|reason| reason.message).collect())
    }

    /// Puts a task on its best node, if any fits.
    pub(super) async fn place(&mut self, task: &str) -> Result<Option<String>, CommandError> {
        let evaluation_ref = self.evaluation_ref();
        let node = best_node(&mut self.connection, evaluation_ref, named(task)).await?;
        if let Some(node) = &node {
            self.allocate(task, node);
        }
        Ok(node)
    }

    /// Filter's answer about a task of the cluster.
    pub(super) async fn filter(&mut self, task: &str) -> Result<pb::FilterItem, CommandError> {
        let request = pb::FilterRequest {
            against: Some(self.evaluation_ref()),
            tasks: vec![named(task)],
            ..pb::FilterRequest::default()
        };
        let result = self.connection.decisions.filter(request).await?.into_inner().result;
        Ok(result.unwrap_or_default().items.into_iter().next().unwrap_or_default())
    }

    pub(super) async fn close(mut self) -> Result<(), CommandError> {
        let close = pb::CloseSessionRequest { session: self.session };
        self.connection.decisions.close_session(close).await?;
        Ok(())
    }
}

/// Task of the cluster, by its name.
fn named(task: &str) -> pb::Task {
    pb::Task {
        name: task.to_owned(),
        ..pb::Task::default()
    }
}
