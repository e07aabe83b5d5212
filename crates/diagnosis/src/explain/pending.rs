//! Sentences about tasks that wait, for places where people look without asking.

use std::collections::BTreeMap;
use std::time::Duration;

use super::gather;
use super::target::{self, ExplainTarget, TaskState};
use pumice_console::CommandError;
use pumice_console::pinned_client::PinnedClient;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Jobs and single tasks that are explained in one call.
const EXPLAINED: usize = 50;

/// Verdict on a task that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingVerdict {
    /// Sentence for people, with the first hint.
    pub sentence: String,
    /// Job that the verdict is about; `None`: the task itself.
    pub job: Option<String>,
}

/// Verdicts on the pending tasks among these tasks. A task with a job gets the verdict on its job. At most 50 jobs and
/// single tasks are explained; all other tasks are left out. `time`: since 1970, for plugins that compare with it.
pub async fn explain_pending(
    connection: ClientConnection,
    tasks: &[String],
    time: Duration,
) -> Result<BTreeMap<String, PendingVerdict>, CommandError> {
    let mut client = PinnedClient::open(connection, pb::LatestRef::default()).await?;
    client.set_time(time);
    let found = explain_known(&mut client, tasks).await;
    client.close().await;
    found
}

async fn explain_known(
    client: &mut PinnedClient,
    tasks: &[String],
) -> Result<BTreeMap<String, PendingVerdict>, CommandError> {
    let known = client.fetch_records().await?;
    let mut by_subject: BTreeMap<String, String> = BTreeMap::new();
    let mut verdicts = BTreeMap::new();
    for name in tasks {
        let Some(task) = known.tasks.get(name).and_then(|stored| stored.task.as_ref()) else {
            continue;
        };
        if target::task_state(task) != TaskState::Waiting {
            continue;
        }
        let job = known.jobs.contains_key(&task.job).then(|| task.job.clone());
        let (subject, wanted) = match &job {
            Some(job) => (format!("job {job}"), ExplainTarget::Job(job.clone())),
            None => (format!("task {name}"), ExplainTarget::Task(name.clone())),
        };
        if !by_subject.contains_key(&subject) {
            if by_subject.len() == EXPLAINED {
                continue;
            }
            let report = gather::explain_known(client, &known, wanted, 1, 1).await?;
            let verdict = report.verdict;
            let sentence = match verdict.hints.first() {
                Some(hint) => format!("{}; {hint}", verdict.summary),
                None => verdict.summary,
            };
            by_subject.insert(subject.clone(), sentence);
        }
        if let Some(sentence) = by_subject.get(&subject).filter(|sentence| !sentence.is_empty()) {
            let sentence = sentence.clone();
            verdicts.insert(name.clone(), PendingVerdict { sentence, job });
        }
    }
    Ok(verdicts)
}
