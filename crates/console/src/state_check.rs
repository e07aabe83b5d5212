//! Records that a load would pass over in silence: references to records that do not exist, annotations that cannot be
//! read, cards that no node has.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::cluster_record::ClusterRecord;
use crate::listings::RecordListing;
use crate::{CommandError, LocalServices, listings, output};
use pumice_engine::cards::NodeCards;
use pumice_engine::model::{ClusterState, ErrorCode, PREEMPTABLE};
use pumice_engine::plugin::{RecordWarning, RecordWarningKind};
use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::{Compatibility, suggestion};
use pumice_kubernetes::import::ImportWarning;
use pumice_kubernetes::object::missing_queues;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Subjects of one warning that a line names.
const MAX_NAMED: usize = 5;
/// Warnings that get a suggestion: each compares a name with all known names.
const MAX_SUGGESTIONS: usize = 20;
/// Names in one question to a server.
const NAMES_PER_CALL: usize = 1_000;

/// A record that hardly means what its author has in mind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateWarning {
    /// Kind of warning, for programs.
    pub code: ErrorCode,
    /// Warning for people, without the record; equal for records with the same mistake.
    pub message: String,
    /// Record that is missing.
    missing: Option<(MissingKind, String)>,
    /// Kind and name of the record.
    pub subject: String,
}

/// Kind of a record, or of a card, that others refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MissingKind {
    Node,
    Queue,
    Job,
    Card,
}

impl MissingKind {
    fn code(self) -> ErrorCode {
        match self {
            MissingKind::Node => ErrorCode::NodeUnknown,
            MissingKind::Queue => ErrorCode::QueueUnknown,
            MissingKind::Job => ErrorCode::JobUnknown,
            MissingKind::Card => ErrorCode::CardUnknown,
        }
    }

    fn message(self, name: &str) -> String {
        match self {
            MissingKind::Node => format!("there is no node `{name}`"),
            MissingKind::Queue => format!("there is no queue `{name}`"),
            MissingKind::Job => format!("there is no job (PodGroup) `{name}`"),
            MissingKind::Card => format!("no node has card `{name}`"),
        }
    }
}

impl From<ImportWarning> for StateWarning {
    fn from(warning: ImportWarning) -> Self {
        StateWarning::reported(warning.code, warning.message, warning.subject)
    }
}

impl StateWarning {
    /// Warning about a record that refers to something that is not there.
    fn missing(kind: MissingKind, name: &str, subject: String) -> Self {
        StateWarning {
            code: kind.code(),
            message: kind.message(name),
            missing: Some((kind, name.to_owned())),
            subject,
        }
    }

    /// Warning that a server reported about a record.
    pub fn reported(code: ErrorCode, message: String, subject: String) -> Self {
        StateWarning {
            code,
            message,
            missing: None,
            subject,
        }
    }

    /// Warning about an object that an import left out. `rejected` has its name and the reason.
    pub fn rejected(rejected: &str) -> Self {
        let message = "refused, and so left out".to_owned();
        StateWarning::reported(ErrorCode::RecordRejected, message, rejected.to_owned())
    }
}

/// Warnings about a cluster, each once.
pub fn check_cluster(cluster: &pb::Cluster, services: &dyn LocalServices) -> Vec<StateWarning> {
    let mut check = ClusterCheck::default();
    check.references(cluster);
    let state = state_of(cluster, services);
    check.found.extend(plugin_warnings(&state));
    check.suggest(cluster, &card_names(&state));
    check.found.into_iter().collect()
}

/// Warnings of the plugins' rules about records.
pub fn plugin_warnings(state: &ClusterState) -> Vec<StateWarning> {
    let rules = REGISTRY.iter().filter_map(|def| def.record_rules);
    rules
        .flat_map(|rules| rules.warnings(state))
        .map(state_warning)
        .collect()
}

fn state_warning(warning: RecordWarning) -> StateWarning {
    let RecordWarning {
        record: (kind, name),
        kind: found,
    } = warning;
    let subject = format!("{} {name}", kind.name());
    let warning = |code, message| StateWarning::reported(code, message, subject.clone());
    match found {
        RecordWarningKind::AnnotationInvalid(message) => warning(ErrorCode::AnnotationInvalid, message),
        RecordWarningKind::CardLabelIgnored(message) => warning(ErrorCode::CardLabelIgnored, message),
        RecordWarningKind::UnknownCard(card) => StateWarning::missing(MissingKind::Card, &card, subject),
    }
}

/// Names of all cards that some node has.
fn card_names(state: &ClusterState) -> BTreeSet<String> {
    let nodes = state.nodes().map(|(_, entry)| &entry.record);
    let cards = nodes.flat_map(|node| NodeCards::of(node, state.resources(), Compatibility::Corrected).cards);
    cards.map(|(name, _)| name.to_string()).collect()
}

/// Cluster as the service reads it, without records that it would reject. Tasks have only their names and the
/// annotations that plugins read.
pub fn state_of(cluster: &pb::Cluster, services: &dyn LocalServices) -> ClusterState {
    let whole = pb::Cluster {
        nodes: cluster.nodes.clone(),
        queues: cluster.queues.clone(),
        jobs: cluster.jobs.clone(),
        tasks: annotated_tasks(&cluster.tasks),
        namespaces: cluster.namespaces.clone(),
        ..pb::Cluster::default()
    };
    let read = |cluster: pb::Cluster| services.read_cluster(cluster, Compatibility::UPSTREAM);
    if let Some(state) = read(whole.clone()) {
        return state;
    }
    let mut usable = whole;
    retain_usable::<pb::Node>(&mut usable, &read);
    retain_usable::<pb::Queue>(&mut usable, &read);
    retain_usable::<pb::Job>(&mut usable, &read);
    retain_usable::<pb::Task>(&mut usable, &read);
    retain_usable::<pb::Namespace>(&mut usable, &read);
    read(usable)
        .or_else(|| read(pb::Cluster::default()))
        .unwrap_or_else(empty_state)
}

/// Keeps the records of a kind that the service can read alone.
fn retain_usable<R: ClusterRecord>(cluster: &mut pb::Cluster, read: impl Fn(pb::Cluster) -> Option<ClusterState>) {
    R::list_mut(cluster).retain(|record| {
        let mut alone = pb::Cluster::default();
        R::list_mut(&mut alone).push(record.clone());
        read(alone).is_some()
    });
}

/// Names and declared annotations of the tasks that have some, each name once.
fn annotated_tasks(tasks: &[pb::Task]) -> Vec<pb::Task> {
    let declared = REGISTRY.iter().flat_map(|def| def.task_annotations).copied();
    let declared: BTreeSet<&str> = declared.chain([PREEMPTABLE]).collect();
    let annotated = |task: &pb::Task| {
        let own = task.annotations.iter();
        let own = own.filter(|(key, _)| declared.contains(key.as_str()));
        pb::Task {
            name: task.name.clone(),
            annotations: own.map(|(key, text)| (key.clone(), text.clone())).collect(),
            ..pb::Task::default()
        }
    };
    let mut named = BTreeSet::new();
    let tasks = tasks.iter().map(annotated).filter(|task| !task.annotations.is_empty());
    tasks.filter(|task| named.insert(task.name.clone())).collect()
}

fn empty_state() -> ClusterState {
    let index = pumice_engine::model::SortedTable::<pumice_engine::model::NodeSlot>::default();
    ClusterState::new(std::sync::Arc::new(index), 0)
}

#[derive(Default)]
struct ClusterCheck {
    found: BTreeSet<StateWarning>,
}

impl ClusterCheck {
    fn missing(&mut self, kind: MissingKind, name: &str, subject: String) {
        self.found.insert(StateWarning::missing(kind, name, subject));
    }

    /// Records that refer to a record which is not in the cluster.
    fn references(&mut self, cluster: &pb::Cluster) {
        let nodes: BTreeSet<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        let made = missing_queues(cluster);
        let queues = cluster.queues.iter().chain(&made);
        let queues: BTreeSet<&str> = queues.map(|queue| queue.name.as_str()).collect();
        let jobs: BTreeSet<&str> = cluster.jobs.iter().map(|job| job.name.as_str()).collect();
        for queue in &cluster.queues {
            let parent = queue.parent.as_str();
            if !parent.is_empty() && !queues.contains(parent) {
                self.missing(MissingKind::Queue, parent, format!("parent of queue {}", queue.name));
            }
        }
        for job in &cluster.jobs {
            if !job.queue.is_empty() && !queues.contains(job.queue.as_str()) {
                self.missing(MissingKind::Queue, &job.queue, format!("job {}", job.name));
            }
        }
        for task in &cluster.tasks {
            if !task.node.is_empty() && !nodes.contains(task.node.as_str()) {
                self.missing(MissingKind::Node, &task.node, format!("task {}", task.name));
            }
            if !task.job.is_empty() && !jobs.contains(task.job.as_str()) {
                self.missing(MissingKind::Job, &task.job, format!("task {}", task.name));
            }
        }
    }

    /// Adds "did you mean" to the first missing names.
    fn suggest(&mut self, cluster: &pb::Cluster, cards: &BTreeSet<String>) {
        let mut hints: BTreeMap<(MissingKind, String), String> = BTreeMap::new();
        for warning in &self.found {
            let Some((kind, name)) = &warning.missing else {
                continue;
            };
            if hints.len() < MAX_SUGGESTIONS {
                hints.entry((*kind, name.clone())).or_insert_with(|| {
                    let known: Vec<&str> = match kind {
                        MissingKind::Node => cluster.nodes.iter().map(|node| node.name.as_str()).collect(),
                        MissingKind::Queue => cluster.queues.iter().map(|queue| queue.name.as_str()).collect(),
                        MissingKind::Job => cluster.jobs.iter().map(|job| job.name.as_str()).collect(),
                        MissingKind::Card => cards.iter().map(String::as_str).collect(),
                    };
                    suggestion::hint(name, &known)
                });
            }
        }
        let with_hint = |mut warning: StateWarning| {
            let hint = warning.missing.as_ref().and_then(|missing| hints.get(missing));
            warning.message.push_str(hint.map_or("", String::as_str));
            warning
        };
        self.found = std::mem::take(&mut self.found).into_iter().map(with_hint).collect();
    }
}

/// Drops warnings about records that the server has from sources other than `own_source`.
pub async fn drop_known(
    connection: &mut ClientConnection,
    own_source: Option<&str>,
    warnings: &mut Vec<StateWarning>,
    services: &dyn LocalServices,
) -> Result<(), CommandError> {
    let mut missing: BTreeMap<MissingKind, BTreeSet<String>> = BTreeMap::new();
    for (kind, name) in warnings.iter().filter_map(|warning| warning.missing.clone()) {
        missing.entry(kind).or_default().insert(name);
    }
    let mut known: BTreeSet<(MissingKind, String)> = BTreeSet::new();
    for (kind, names) in missing {
        let names: Vec<String> = names.into_iter().collect();
        let found = match kind {
            MissingKind::Card => known_cards(connection, own_source, services).await?,
            MissingKind::Node => known_names::<pb::ListNodesRequest>(connection, own_source, &names).await?,
            MissingKind::Queue => known_names::<pb::ListQueuesRequest>(connection, own_source, &names).await?,
            MissingKind::Job => known_names::<pb::ListJobsRequest>(connection, own_source, &names).await?,
        };
        known.extend(found.into_iter().map(|name| (kind, name)));
    }
    warnings.retain(|warning| warning.missing.as_ref().is_none_or(|missing| !known.contains(missing)));
    Ok(())
}

/// Names of the server's records from other sources.
async fn known_names<L: RecordListing>(
    connection: &mut ClientConnection,
    own_source: Option<&str>,
    names: &[String],
) -> Result<Vec<String>, CommandError> {
    let mut known = Vec::new();
    for names in names.chunks(NAMES_PER_CALL) {
        for row in listings::rows(connection, L::new(None, names.to_vec())).await? {
            let (record, source, _) = L::parts(row);
            let record = record.filter(|_| own_source != Some(source.as_str()));
            known.extend(record.map(|record| record.name().to_owned()));
        }
    }
    Ok(known)
}

/// Cards of the server's nodes from other sources.
async fn known_cards(
    connection: &mut ClientConnection,
    own_source: Option<&str>,
    services: &dyn LocalServices,
) -> Result<Vec<String>, CommandError> {
    let nodes = listings::rows(connection, pb::ListNodesRequest::default())
        .await?
        .into_iter();
    let nodes = nodes.filter(|status| own_source != Some(status.source.as_str()));
    let cluster = pb::Cluster {
        nodes: nodes.filter_map(|status| status.node).collect(),
        ..pb::Cluster::default()
    };
    Ok(card_names(&state_of(&cluster, services)).into_iter().collect())
}

/// Warnings with the same mistake, as JSON.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WarningGroup {
    code: &'static str,
    message: String,
    count: usize,
    /// Kinds and names of the records.
    subjects: Vec<String>,
}

/// Warnings by mistake, in the order of their codes.
pub fn group(warnings: &[StateWarning]) -> Vec<WarningGroup> {
    let mut groups: BTreeMap<(&'static str, &str), Vec<String>> = BTreeMap::new();
    for warning in warnings {
        let subjects = groups
            .entry((warning.code.name(), warning.message.as_str()))
            .or_default();
        subjects.push(warning.subject.clone());
    }
    let group = |((code, message), subjects): ((&'static str, &str), Vec<String>)| WarningGroup {
        code,
        message: message.to_owned(),
        count: subjects.len(),
        subjects,
    };
    groups.into_iter().map(group).collect()
}

impl WarningGroup {
    /// One line for people.
    pub fn line(&self) -> String {
        let subjects = output::first_names(&self.subjects, MAX_NAMED);
        format!("warning: {}: {subjects} ({})", self.message, self.code)
    }
}

/// Names the warnings on standard error.
pub fn report(warnings: &[StateWarning]) {
    for group in group(warnings) {
        output::note(&group.line());
    }
}

/// Under `--strict` warnings are errors.
pub fn refuse_strict(strict: bool, warnings: usize, consequence: &str) -> Result<(), CommandError> {
    if strict && warnings > 0 {
        let warnings = output::count(warnings, "warning");
        return Err(CommandError::message(format!(
            "error: {warnings} under --strict{consequence}"
        )));
    }
    Ok(())
}
