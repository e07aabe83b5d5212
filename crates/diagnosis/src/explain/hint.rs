//! Hints of a verdict, and what is asked again before a proposed change is printed.

use super::trial::{WaitingJob, is_started, place_request};
use pb::admit_subject::Subject;
use pumice_console::CommandError;
use pumice_console::pinned_client::{KnownRecords, PinnedClient};
use pumice_protocol::v1 as pb;

/// Most nodes and tasks of a state that is copied to ask again.
const COPIED_RECORDS: usize = 20_000;

/// Line of a verdict: a fact, or a change with the query that shows whether it helps.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub(super) text: String,
    /// Query that shows whether the change helps; `None`: the line is a fact.
    trial: Option<HintTrial>,
}

/// Query about a changed subject or a changed state.
#[derive(Debug, Clone)]
pub(super) enum HintTrial {
    /// Admit permits the subject in a state with these records; none: in the state itself.
    Permits(Box<Subject>, pb::Cluster),
    /// A node takes the task now.
    Takes { task: Box<pb::Task>, node: String },
    /// Place starts the job, now or once releasing tasks are gone.
    Starts(Box<WaitingJob>),
    /// Place starts the job in the order of its tasks in a state with these records.
    StartsInOrder(Box<WaitingJob>, pb::Cluster),
    /// A job is served before another one in a state with these records.
    Precedes {
        own: String,
        other: String,
        records: pb::Cluster,
    },
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self { text, trial: None }
    }
}

impl Hint {
    /// Change that is printed if the query shows that it helps.
    pub(super) fn tried(text: impl Into<String>, trial: HintTrial) -> Self {
        Self {
            text: text.into(),
            trial: Some(trial),
        }
    }
}

/// Texts of the first hints that hold: facts, and changes that help when they are asked again. A change that needs a copy of
/// a state with more than 20,000 nodes and tasks is not asked again.
pub(super) async fn helping_hints(
    client: &mut PinnedClient,
    known: &KnownRecords,
    hints: Vec<Hint>,
    most: usize,
) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for hint in hints {
        if texts.len() == most {
            break;
        }
        let helps = match &hint.trial {
            None => true,
            // A changed subject that cannot be evaluated does not help.
            Some(trial) => helps(client, known, trial).await.unwrap_or(false),
        };
        if helps && !texts.contains(&hint.text) {
            texts.push(hint.text);
        }
    }
    texts
}

async fn helps(client: &mut PinnedClient, known: &KnownRecords, trial: &HintTrial) -> Result<bool, CommandError> {
    match trial {
        HintTrial::Takes { task, node } => {
            let found = client
                .filter(task, pb::ResourceFit::Idle, pb::FilterDetail::Nodes)
                .await?;
            Ok(found.fit.is_some_and(|set| set.names.contains(node)))
        }
        HintTrial::Starts(job) => {
            let request = pb::PlaceRequest {
                idle_only: false,
                ..place_request(job, pb::PlaceEffect::Preview)
            };
            Ok(is_started(&client.place(request).await?))
        }
        HintTrial::Permits(subject, records) => {
            let asked = vec![Subject::clone(subject)];
            let items = match copy_with(client, known, records).await {
                AskedState::Pinned => client.admit(asked, Vec::new()).await?,
                AskedState::Copied(mut copy) => copy.admit(asked, Vec::new()).await?,
                AskedState::TooLarge => return Ok(true),
                AskedState::Unreadable => return Ok(false),
            };
            Ok(items.first().is_some_and(|item| item.permitted))
        }
        HintTrial::StartsInOrder(job, records) => match copy_with(client, known, records).await {
            AskedState::Copied(mut copy) => starts_in_order(&mut copy, job).await,
            AskedState::TooLarge => Ok(true),
            AskedState::Pinned | AskedState::Unreadable => Ok(false),
        },
        HintTrial::Precedes { own, other, records } => match copy_with(client, known, records).await {
            AskedState::Copied(mut copy) => {
                let ranks = copy.order(vec![own.clone(), other.clone()], Vec::new()).await?.jobs;
                Ok(ranks.first().is_some_and(|rank| rank.name == *own))
            }
            AskedState::TooLarge => Ok(true),
            AskedState::Pinned | AskedState::Unreadable => Ok(false),
        },
    }
}

async fn starts_in_order(copy: &mut PinnedClient, job: &WaitingJob) -> Result<bool, CommandError> {
    let mut job = job.clone();
    let names = job.tasks.iter().map(|task| task.name.clone()).collect();
    let ranks = copy.order(Vec::new(), names).await?.tasks;
    job.tasks
        .sort_by_key(|task| ranks.iter().position(|rank| rank.name == task.name));
    let request = place_request(&job, pb::PlaceEffect::Preview);
    Ok(is_started(&copy.place(request).await?))
}

/// State that a query is put to.
enum AskedState {
    /// The pinned state: no record differs.
    Pinned,
    /// A copy with the changed records.
    Copied(Box<PinnedClient>),
    /// The state has too many records for a copy.
    TooLarge,
    /// The server does not show all that a copy needs.
    Unreadable,
}

async fn copy_with(client: &mut PinnedClient, known: &KnownRecords, records: &pb::Cluster) -> AskedState {
    if *records == pb::Cluster::default() {
        return AskedState::Pinned;
    }
    if known.nodes.len().saturating_add(known.tasks.len()) > COPIED_RECORDS {
        return AskedState::TooLarge;
    }
    match client.on_copy(known, records.clone()).await {
        Some(copy) => AskedState::Copied(Box::new(copy)),
        None => AskedState::Unreadable,
    }
}
