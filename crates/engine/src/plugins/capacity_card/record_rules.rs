//! Rules about the cards that records name: quotas of queues, requests of jobs and tasks, labels of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::PLUGIN;
use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::annotations::{QUOTA, REQUEST, normalize_choice, read_cards};
use super::service_types::annotation_error;
use crate::cards::{CARD_NAME_ANNOTATION, NodeCards};
use crate::model::{ClusterState, ErrorCode, Problem, QueueRecord, RecordKind, TextMap, find_text};
use crate::plugin::{RecordRules, RecordWarning, RecordWarningKind};
use crate::policy::{Compatibility, Policy};

/// Rules about cards.
#[derive(Debug)]
pub(super) struct CardRecordRules;

impl RecordRules for CardRecordRules {
    /// True if the policy keeps quotas of cards and reports those that cannot be read. Under `upstream` they count as 0
    /// without a report.
    fn apply_to(&self, policy: &Policy) -> bool {
        policy.compatibility() == Compatibility::Corrected
            && policy.spec().plugins().any(|(_, plugin)| plugin.name == PLUGIN)
    }

    fn queue_problem(&self, queue: &QueueRecord) -> Option<Problem> {
        let error = read_cards(&queue.annotations, QUOTA, Compatibility::Corrected).err()?;
        let field = format!("queues[{}].annotations[{QUOTA}]", queue.name);
        let message = error.to_string();
        Some(Problem::new(ErrorCode::CardQuotaInvalid, field, message))
    }

    /// A quota that cannot be read counts as empty.
    fn reject_new_queues(&self) -> bool {
        false
    }

    fn warnings(&self, cluster_state: &ClusterState) -> Vec<RecordWarning> {
        let mut check = CardCheckup::default();
        for (_, entry) in cluster_state.nodes() {
            check.node(
                &entry.record.name,
                &NodeCards::of(&entry.record, cluster_state.resources(), Compatibility::Corrected),
            );
        }
        for (name, stored) in cluster_state.queues().iter() {
            check.annotation(RecordKind::Queue, name, &stored.record.annotations, QUOTA);
        }
        for (name, stored) in cluster_state.jobs().iter() {
            check.annotation(RecordKind::Job, name, &stored.record.annotations, REQUEST);
            check.service_type(RecordKind::Job, name, &stored.record.annotations);
        }
        // Tasks of one template name the same cards.
        let mut unknown: BTreeMap<&str, Vec<Arc<str>>> = BTreeMap::new();
        for (name, stored) in cluster_state.tasks().iter() {
            check.service_type(RecordKind::Task, name, &stored.record.annotations);
            let Some(choice) = find_text(&stored.record.annotations, CARD_NAME_ANNOTATION) else {
                continue;
            };
            let missing = unknown.entry(choice).or_insert_with(|| check.unknown_cards(choice));
            let warning = |card: &Arc<str>| unknown_card((RecordKind::Task, Arc::clone(name)), card);
            check.warnings.extend(missing.iter().map(warning));
        }
        check.warnings
    }
}

/// Warnings found so far, and the cards that some node has.
#[derive(Debug, Default)]
struct CardCheckup {
    cards: BTreeSet<Arc<str>>,
    warnings: Vec<RecordWarning>,
}

impl CardCheckup {
    fn node(&mut self, name: &Arc<str>, found: &NodeCards) {
        self.cards.extend(found.cards.keys().cloned());
        let warning = |diagnostic: &String| RecordWarning {
            record: (RecordKind::Node, Arc::clone(name)),
            kind: RecordWarningKind::CardLabelIgnored(diagnostic.clone()),
        };
        self.warnings.extend(found.diagnostics.iter().map(warning));
    }

    /// The numbers of cards in an annotation of a queue or a job.
    fn annotation(&mut self, kind: RecordKind, name: &Arc<str>, texts: &TextMap, annotation: &'static str) {
        let record = || (kind, Arc::clone(name));
        match read_cards(texts, annotation, Compatibility::Corrected) {
            Err(error) => self.warnings.push(RecordWarning {
                record: record(),
                kind: RecordWarningKind::AnnotationInvalid(error.to_string()),
            }),
            Ok(amounts) => {
                let choices = amounts.iter().flat_map(QuotaAmounts::cards).map(|(choice, _)| choice);
                let unknown = choices.flat_map(|choice| self.unknown_cards(choice));
                let warnings: Vec<RecordWarning> = unknown.map(|card| unknown_card(record(), &card)).collect();
                self.warnings.extend(warnings);
            }
        }
    }

    /// The service type of a job or a task.
    fn service_type(&mut self, kind: RecordKind, name: &Arc<str>, texts: &TextMap) {
        let warning = |error| RecordWarning {
            record: (kind, Arc::clone(name)),
            kind: RecordWarningKind::AnnotationInvalid(error),
        };
        self.warnings.extend(annotation_error(texts).map(warning));
    }

    /// Cards of a choice that no node has.
    fn unknown_cards(&self, choice: &str) -> Vec<Arc<str>> {
        let choice = normalize_choice(choice);
        let cards = choice.split(CARD_SEPARATOR).filter(|card| !card.is_empty());
        cards
            .filter(|card| !self.cards.contains(*card))
            .map(Arc::from)
            .collect()
    }
}

fn unknown_card(record: (RecordKind, Arc<str>), card: &Arc<str>) -> RecordWarning {
    RecordWarning {
        record,
        kind: RecordWarningKind::UnknownCard(Arc::clone(card)),
    }
}
