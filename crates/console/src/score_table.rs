//! Scores of a task as a table.

use crate::output::{self, TextTable};
use pumice_protocol::v1 as pb;

/// Number of nodes with equal scores that are listed by name.
const NODES_NAMED: usize = 4;

/// Scores of one task, in the order of the result. Neighbours with equal scores share a row.
pub fn score_table(item: &pb::ScoreItem) -> TextTable {
    let mut head = vec!["NODE".to_owned(), "SCORE".to_owned()];
    head.extend(item.parts.iter().map(|part| match part.part.as_str() {
        "" => part.plugin.clone(),
        name => format!("{}/{name}", part.plugin),
    }));
    let names = item.nodes.as_ref().map(|set| set.names.as_slice()).unwrap_or_default();
    let mut rows: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let totals = std::iter::once(item.totals.get(at));
        let scores = totals.chain(item.parts.iter().map(|part| part.scores.get(at)));
        let scores: Vec<String> = scores
            .map(|score| score.copied().map(output::number).unwrap_or_default())
            .collect();
        match rows.last_mut() {
            Some((names, last)) if *last == scores => names.push(name),
            Some(_) | None => rows.push((vec![name], scores)),
        }
    }
    let mut table = TextTable::new(head);
    for (names, scores) in rows {
        table.row(std::iter::once(output::first_names(&names, NODES_NAMED)).chain(scores));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_equal_scores_share_a_row() {
        let names: Vec<String> = (0..12).map(|at| format!("n-{at:02}")).collect();
        let item = pb::ScoreItem {
            nodes: Some(pb::NodeSet {
                names,
                ..pb::NodeSet::default()
            }),
            totals: [vec![9.0], vec![5.0; 9], vec![1.0; 2]].concat(),
            ..pb::ScoreItem::default()
        };
        let lines = score_table(&item).lines(None);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[2].contains("n-01, n-02, n-03, n-04 and 5 more"), "{lines:#?}");
        assert!(lines[3].contains("n-10, n-11"), "{lines:#?}");
    }
}
