//! Constraints that results do not take into account, gathered over all results of a command.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{CommandError, output};
use pumice_engine::decide;
use pumice_protocol::v1 as pb;

/// Constraint as `-o json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnevaluatedRow {
    /// Kind of records that have the field: tasks, nodes, or the policy itself.
    pub subject: String,
    /// Name of the field, or of a plugin.
    pub name: String,
    /// Tasks or nodes with the field; 0 for a plugin.
    pub count: u32,
    /// Effect on the result.
    pub effect: String,
}

/// Constraints of several results, each once.
#[derive(Debug, Clone, Default)]
pub struct UnevaluatedSet(BTreeMap<(usize, String, String), UnevaluatedRow>);

/// Subjects in the order of lists; others follow.
const SUBJECTS: [&str; 3] = ["policy", "task", "nodes"];

fn key(subject: &str, name: &str) -> (usize, String, String) {
    let rank = SUBJECTS.iter().position(|known| *known == subject);
    (rank.unwrap_or(SUBJECTS.len()), subject.to_owned(), name.to_owned())
}

impl UnevaluatedSet {
    /// Adds the constraints of a result for `tasks` equal tasks. Numbers of tasks are added. Several results may share
    /// nodes, so the largest number of nodes is used.
    pub fn add(&mut self, constraints: &[pb::NotEvaluated], tasks: u32) {
        for constraint in constraints {
            let pb::NotEvaluated {
                subject,
                name,
                count,
                effect,
            } = constraint.clone();
            let row = self.0.entry(key(&subject, &name)).or_insert_with(|| UnevaluatedRow {
                subject: subject.clone(),
                name,
                count: 0,
                effect,
            });
            row.count = if subject == "task" {
                row.count.saturating_add(count.saturating_mul(tasks))
            } else {
                row.count.max(count)
            };
        }
    }

    /// Adds constraints that the engine found, each of its tasks once.
    pub fn add_found(&mut self, constraints: Vec<decide::NotEvaluated>) {
        let message = |found: decide::NotEvaluated| pb::NotEvaluated {
            subject: found.subject.to_string(),
            name: found.name.to_string(),
            count: found.count,
            effect: found.effect.to_owned(),
        };
        let messages: Vec<pb::NotEvaluated> = constraints.into_iter().map(message).collect();
        self.add(&messages, 1);
    }

    /// Adds the constraints of a hypothetical shape, as for one task: the number of tasks of a shape has no meaning
    /// here.
    pub fn add_shape(&mut self, constraints: &[pb::NotEvaluated]) {
        let known = |set: &Self, one: &pb::NotEvaluated| {
            set.0
                .values()
                .any(|row| (&row.subject, &row.name) == (&one.subject, &one.name))
        };
        for one in constraints {
            let count = if one.subject == "task" {
                u32::from(!known(self, one))
            } else {
                one.count
            };
            self.add(&[pb::NotEvaluated { count, ..one.clone() }], 1);
        }
    }

    /// Adds a constraint of one of several runs over the same records: the largest number is used.
    pub fn add_widest(&mut self, row: &UnevaluatedRow) {
        let own = self
            .0
            .entry(key(&row.subject, &row.name))
            .or_insert_with(|| row.clone());
        own.count = own.count.max(row.count);
    }

    /// Adds the plugins that a reply's metadata lists.
    pub fn add_metadata(&mut self, metadata: Option<&pb::ResponseMetadata>) {
        if let Some(metadata) = metadata {
            self.add(&metadata.not_evaluated, 1);
        }
    }

    /// The constraints: plugins first, then fields of tasks and of nodes, each by name.
    pub fn rows(&self) -> Vec<UnevaluatedRow> {
        self.0.values().cloned().collect()
    }
}

/// Prints a paragraph that names the constraints; nothing if there are none.
pub fn print(rows: &[UnevaluatedRow]) -> Result<(), CommandError> {
    if rows.is_empty() {
        return Ok(());
    }
    output::paragraph("\nNot evaluated:")?;
    for row in rows {
        output::paragraph(&format!("  {}: {}", title(row), row.effect))?;
    }
    Ok(())
}

/// The constraints in one sentence; `None`: there are none.
pub fn sentence(rows: &[UnevaluatedRow]) -> Option<String> {
    let titles: Vec<String> = rows.iter().map(title).collect();
    (!titles.is_empty()).then(|| format!("Not evaluated: {}.", titles.join(", ")))
}

fn title(row: &UnevaluatedRow) -> String {
    let UnevaluatedRow {
        subject, name, count, ..
    } = row;
    match subject.as_str() {
        "task" => format!("{name} ({})", output::count(*count as usize, "task")),
        "nodes" => format!("{name} ({})", output::count(*count as usize, "node")),
        other => format!("{name} ({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraint(subject: &str, name: &str, count: u32) -> pb::NotEvaluated {
        pb::NotEvaluated {
            subject: subject.to_owned(),
            name: name.to_owned(),
            count,
            effect: "It matters.".to_owned(),
        }
    }

    #[test]
    fn equal_constraints_are_listed_once() {
        let mut all = UnevaluatedSet::default();
        all.add(&[constraint("nodes", "taints", 3), constraint("task", "volumes", 1)], 2);
        all.add(&[constraint("nodes", "taints", 2), constraint("task", "volumes", 1)], 1);
        all.add(&[constraint("policy", "predicates", 0)], 1);
        assert_eq!(
            sentence(&all.rows()).unwrap(),
            "Not evaluated: predicates (policy), volumes (3 tasks), taints (3 nodes)."
        );
        assert_eq!(sentence(&[]), None);
    }
}
