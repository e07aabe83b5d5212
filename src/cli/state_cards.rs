//! `pumice state show cards`: the cards on nodes. They do not depend on the active policy.

use std::collections::BTreeMap;

use serde::Serialize;

use super::local_services::ProgramServices;
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, OutputFormat, listings, state_check};
use pumice_engine::cards::NodeCards;
use pumice_engine::policy::{Compatibility, suggestion};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// The cards of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CardRow {
    /// Name in quotas and in `volcano.sh/card.name`.
    card: String,
    /// Resource that pods request.
    resource: String,
    /// Number of nodes that have such cards.
    nodes: usize,
    total: u64,
    /// Number of cards that tasks hold.
    held: f64,
    free: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CardList {
    cards: Vec<CardRow>,
    /// Labels and resources of nodes that make no card.
    warnings: Vec<state_check::WarningGroup>,
}

/// Shows all cards, or only the cards with these names.
pub(super) async fn show(
    connection: &mut ClientConnection,
    names: &[String],
    format: OutputFormat,
) -> Result<(), CommandError> {
    let nodes = listings::rows(connection, pb::ListNodesRequest::default()).await?;
    let (mut rows, warnings) = count_cards(&nodes);
    let known: Vec<String> = rows.iter().map(|row| row.card.clone()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
        let hint = suggestion::hint(name, &known);
        output::note(&format!("note: no node has card `{name}`{hint}"));
    }
    if !names.is_empty() {
        rows.retain(|row| names.contains(&row.card));
    }
    let warnings = state_check::group(&warnings);
    if format == OutputFormat::Json {
        return output::report(&CardList { cards: rows, warnings });
    }
    for warning in &warnings {
        output::note(&warning.line());
    }
    let mut table = TextTable::new(["CARD", "RESOURCE", "NODES", "TOTAL", "HELD", "FREE"]);
    for row in &rows {
        table.row([
            row.card.clone(),
            row.resource.clone(),
            row.nodes.to_string(),
            row.total.to_string(),
            output::number(row.held),
            output::number(row.free),
        ]);
    }
    output::table(&table)?;
    output::line(&format!(
        "{} on {}",
        match rows.len() {
            1 => "1 kind of cards".to_owned(),
            kinds => format!("{kinds} kinds of cards"),
        },
        output::count(nodes.len(), "node")
    ))
}

/// Cards by name and resource, and what makes no card.
fn count_cards(nodes: &[pb::NodeStatus]) -> (Vec<CardRow>, Vec<state_check::StateWarning>) {
    let cluster = pb::Cluster {
        nodes: nodes.iter().filter_map(|status| status.node.clone()).collect(),
        ..pb::Cluster::default()
    };
    let state = state_check::state_of(&cluster, &ProgramServices);
    let mut rows: BTreeMap<(String, String), CardRow> = BTreeMap::new();
    let used: BTreeMap<&str, &[pb::Amount]> = nodes
        .iter()
        .filter_map(|status| Some((status.node.as_ref()?.name.as_str(), status.used.as_slice())))
        .collect();
    for (_, entry) in state.nodes() {
        let found = NodeCards::of(&entry.record, state.resources(), Compatibility::Corrected);
        let used = used.get(&*entry.record.name).copied().unwrap_or_default();
        for (card, on_node) in &found.cards {
            let resource = state.resources().name(on_node.resource);
            let used = used.iter().find(|amount| amount.resource == resource);
            let used = used.map_or(0.0, |amount| amount.value / 1000.0);
            let total = u64::try_from(on_node.cards).unwrap_or_default();
            let row = rows.entry((card.to_string(), resource.to_owned())).or_default();
            row.nodes += 1;
            row.total += total;
            row.held += used;
            row.free += (total as f64 - used).max(0.0);
        }
    }
    let rows = rows
        .into_iter()
        .map(|((card, resource), row)| CardRow { card, resource, ..row });
    (rows.collect(), state_check::plugin_warnings(&state))
}
