//! "Did you mean" for unknown names of queues, jobs, tasks, nodes, policies and plugins. For example, `reserch`
//! suggests `research`.

use std::collections::BTreeSet;

use crate::listings::RecordListing;
use crate::{CommandError, listings};
use pumice_engine::policy::suggestion;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Kinds of names, each with the word in error messages and the words that stand before a name of that kind.
const KINDS: [(NameKind, &str); 7] = [
    (NameKind::Queue, "there is no queue `"),
    (NameKind::Job, "there is no job `"),
    (NameKind::Task, "there is no task `"),
    (NameKind::Node, "there is no node `"),
    (NameKind::Node, "no such node: `"),
    (NameKind::Policy, "there is no policy `"),
    (NameKind::Plugin, "plugin `"),
];

/// Kind of a name that was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Queue,
    Job,
    Task,
    Node,
    Policy,
    Plugin,
}

/// The unknown name in an error message, with its kind.
fn unknown_name(message: &str) -> Option<(NameKind, &str)> {
    KINDS.iter().find_map(|(kind, before)| {
        let (_, rest) = message.split_once(before)?;
        let (name, _) = rest.split_once('`')?;
        Some((*kind, name))
    })
}

/// Adds a suggestion to an error about an unknown name. Other errors are not changed.
pub(crate) async fn with_suggestion(connection: &mut ClientConnection, failure: CommandError) -> CommandError {
    let message = failure.to_string();
    if message.contains("hint: ") {
        return failure;
    }
    let Some((kind, name)) = unknown_name(&message) else {
        return failure;
    };
    // A listing that fails leaves the error as it is.
    let Ok(known) = known_names(connection, kind).await else {
        return failure;
    };
    match hint(kind, name, &known) {
        Some(hint) => CommandError::message(format!("{message}\nhint: {hint}")),
        None => failure,
    }
}

/// Adds a suggestion to the error of a result, if it is about an unknown name.
pub async fn suggest<T>(connection: &mut ClientConnection, result: Result<T, CommandError>) -> Result<T, CommandError> {
    match result {
        Ok(value) => Ok(value),
        Err(failure) => Err(with_suggestion(connection, failure).await),
    }
}

fn hint(kind: NameKind, name: &str, known: &[String]) -> Option<String> {
    if known.iter().any(|own| own == name) {
        return None;
    }
    if let Some(meant) = nearest(name, known) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let lists = match kind {
        NameKind::Queue => "pumice state show queues",
        NameKind::Job => "pumice state show jobs",
        NameKind::Task => "pumice state show tasks",
        NameKind::Node => "pumice state show nodes",
        NameKind::Policy => "pumice policy history --name ''",
        NameKind::Plugin => return Some(format!("plugins that are served: {}", known.join(", "))),
    };
    Some(format!("`{lists}` lists them all"))
}

/// The name that was probably meant, with or without its namespace.
pub fn nearest<'k>(name: &str, known: &'k [String]) -> Option<&'k str> {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    if let Some(meant) = suggestion::nearest_name(name, &names) {
        return Some(meant);
    }
    let short = |name: &'k str| name.rsplit('/').next().unwrap_or(name);
    let shorts: Vec<&str> = names.iter().map(|name| short(name)).collect();
    let asked = name.rsplit('/').next().unwrap_or(name);
    let same = shorts.iter().copied().find(|own| *own == asked);
    let meant = same.or_else(|| suggestion::nearest_name(asked, &shorts))?;
    names.into_iter().find(|name| short(name) == meant)
}

/// Names of all records of a kind.
async fn record_names<L: RecordListing>(connection: &mut ClientConnection) -> Result<Vec<String>, CommandError> {
    let rows = listings::rows(connection, L::new(None, Vec::new())).await?;
    Ok(rows.iter().filter_map(listings::name::<L>).collect())
}

async fn known_names(connection: &mut ClientConnection, kind: NameKind) -> Result<Vec<String>, CommandError> {
    match kind {
        NameKind::Queue => record_names::<pb::ListQueuesRequest>(connection).await,
        NameKind::Job => record_names::<pb::ListJobsRequest>(connection).await,
        NameKind::Task => record_names::<pb::ListTasksRequest>(connection).await,
        NameKind::Node => record_names::<pb::ListNodesRequest>(connection).await,
        NameKind::Policy => Ok(listings::server_info(connection).await?.policies),
        NameKind::Plugin => {
            let plugins = listings::server_info(connection).await?.plugins.into_iter();
            Ok(plugins.map(|plugin| plugin.name).collect())
        }
    }
}

/// Resources that some node has, sorted.
pub async fn node_resources(connection: &mut ClientConnection) -> Result<Vec<String>, CommandError> {
    let nodes = listings::rows(connection, pb::ListNodesRequest::default()).await?;
    let lists = nodes
        .iter()
        .filter_map(|status| status.node.as_ref()?.allocatable.as_ref());
    let names: BTreeSet<&String> = lists.flat_map(|list| list.items.keys()).collect();
    Ok(names.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_messages() {
        let message = "error: there is no queue `reserch` (QUEUE_UNKNOWN)";
        assert_eq!(unknown_name(message), Some((NameKind::Queue, "reserch")));
        let message = "error: nodes: there is no node `n-1`, `n-2` (NODE_UNKNOWN)";
        assert_eq!(unknown_name(message), Some((NameKind::Node, "n-1")));
        assert_eq!(unknown_name("error: nothing fits"), None);
    }

    #[test]
    fn a_name_may_lack_its_namespace() {
        let known = ["train/bert".to_owned(), "prod/web".to_owned()];
        assert_eq!(nearest("train/bret", &known), Some("train/bert"));
        assert_eq!(nearest("bert", &known), Some("train/bert"));
        assert_eq!(nearest("other/web", &known), Some("prod/web"));
        assert_eq!(nearest("zzz", &known), None);
    }
}
