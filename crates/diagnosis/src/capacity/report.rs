//! Report of `pumice capacity`, for people and programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cards::CardCapacity;
use pumice_console::not_evaluated::{self, UnevaluatedRow};
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, node_query, remedies};
use pumice_protocol::v1 as pb;

/// Nodes that are named in a table.
const NODES_NAMED: usize = 3;

/// Report by queue and card; its JSON is one stable object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CapacityReport {
    /// Shape, as `--shape` reads it.
    pub(super) shape: String,
    /// Pods of one shape.
    pub(super) pods: u32,
    /// Rows by queue and card.
    pub(super) rows: Vec<CapacityRow>,
    /// Free and stranded cards, by name.
    pub(super) cards: BTreeMap<String, CardCapacity>,
    /// Constraints that the numbers do not take into account.
    #[serde(rename = "notEvaluated")]
    pub(super) not_evaluated: Vec<UnevaluatedRow>,
}

/// Capacity in one queue, with one card.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CapacityRow {
    /// Queue. Empty: the server has no queues.
    pub(super) queue: String,
    /// Card. Empty: the shape requests none.
    pub(super) card: String,
    /// Whole shapes that could be admitted and placed now.
    pub(super) shapes: u32,
    /// Pods that could be admitted and placed now.
    pub(super) pods: u32,
    /// True: the search stopped at `--limit`; more pods may fit.
    pub(super) limit_reached: bool,
    /// Pods by node.
    pub(super) nodes: BTreeMap<String, u32>,
    /// Reasons that keep the next pod from being placed.
    #[serde(serialize_with = "reasons")]
    pub(super) blockers: Vec<pb::Rejection>,
}

fn reasons<S: serde::Serializer>(blockers: &[pb::Rejection], serializer: S) -> Result<S::Ok, S::Error> {
    let words = blockers.iter().map(|blocker| {
        let reason = blocker.reason.clone().unwrap_or_default();
        serde_json::json!({
            "plugin": reason.plugin, "code": reason.code, "message": reason.message, "resource": reason.resource,
            "nodes": blocker.count,
            "remedy": remedies::of_code(&reason.code),
        })
    });
    serializer.collect_seq(words)
}

impl CapacityReport {
    /// True if at least one whole shape fits somewhere.
    pub(super) fn fits_any(&self) -> bool {
        self.rows.iter().any(|row| row.shapes > 0)
    }

    /// Prints the report for people.
    pub(super) fn show(&self) -> Result<(), CommandError> {
        self.print_tables()?;
        not_evaluated::print(&self.not_evaluated)
    }

    fn print_tables(&self) -> Result<(), CommandError> {
        output::paragraph(&format!("how many more of {} fit now", self.shape))?;
        let mut table = TextTable::new(["QUEUE", "CARD", "FIT", "PODS", "ON", "THEN HELD BACK BY"]);
        for row in &self.rows {
            let more = if row.limit_reached { " or more" } else { "" };
            table.row([
                row.queue.clone(),
                row.card.clone(),
                format!("{}{more}", row.shapes),
                format!("{}{more}", row.pods),
                row.node_summary(),
                row.blocker_summary(),
            ]);
        }
        output::table(&table)?;
        remedies::print(self.rows.iter().flat_map(|row| &row.blockers))?;
        if self.cards.is_empty() {
            return Ok(());
        }
        output::line("")?;
        let mut table = TextTable::new(["CARD", "TOTAL", "FREE", "STRANDED", "SPLIT"]);
        for (
            card,
            CardCapacity {
                total,
                free,
                stranded,
                fragmented: split,
            },
        ) in &self.cards
        {
            let mut row = vec![card.clone()];
            row.extend([total, free, stranded, split].map(ToString::to_string));
            table.row(row);
        }
        output::table(&table)?;
        output::paragraph(
            "stranded: free, but their node has no cpu, memory or pods left for such a pod, or takes none",
        )?;
        output::paragraph("split: free, but fewer on their node than one such pod requests")
    }
}

impl CapacityRow {
    fn node_summary(&self) -> String {
        let mut most: Vec<(&String, u32)> = self.nodes.iter().map(|(node, pods)| (node, *pods)).collect();
        most.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        let named: Vec<String> = most.iter().map(|(node, pods)| format!("{node} ({pods})")).collect();
        output::first_names(&named, NODES_NAMED)
    }

    fn blocker_summary(&self) -> String {
        let lines = self.blockers.iter().map(node_query::blocker_line);
        lines.collect::<Vec<_>>().join("\n")
    }
}
