//! Bytes of records, by source: the bound on what sources make the server hold, however few records they send.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, BatchRecord};
use crate::limits::StateLimits;
use pumice_engine::model::constraints::LabelSelector;
use pumice_engine::model::{
    ClusterState, DisruptionBudget, ExactQuantities, GangMinimums, JobRecord, NamespaceQuota, NamespaceRecord,
    NodeRecord, PriorityClassRecord, QueueRecord, RecordKind, ResourceAmounts, TaskRecord, TextMap, UnevaluatedFields,
};

/// Bytes of one amount in a list.
const AMOUNT_BYTES: usize = 16;
/// Bytes of a text beside its characters.
const TEXT_BYTES: usize = 32;

/// Sums of bytes of the records in the state.
#[derive(Debug, Default)]
pub(crate) struct SourceBytes {
    by_source: BTreeMap<Arc<str>, usize>,
    total: usize,
}

impl SourceBytes {
    /// Bytes of a source's records.
    pub(crate) fn of(&self, source: &str) -> usize {
        self.by_source.get(source).copied().unwrap_or_default()
    }

    /// Puts a record of `after` bytes in the place of one of `before` bytes.
    ///
    /// # Errors
    /// The records of the source, or of all sources, would take too many bytes: name and value of the limit. Records
    /// that become smaller are never refused.
    pub(crate) fn replace(
        &mut self,
        source: &Arc<str>,
        before: usize,
        after: usize,
        limits: &StateLimits,
    ) -> Result<(), (&'static str, usize)> {
        if !self.by_source.contains_key(source) {
            self.by_source.insert(Arc::clone(source), 0);
        }
        let Some(own) = self.by_source.get_mut(source) else {
            return Ok(());
        };
        let (own_after, total_after) = (
            (*own + after).saturating_sub(before),
            (self.total + after).saturating_sub(before),
        );
        if after > before && own_after > limits.source_bytes {
            return Err(("source_bytes", limits.source_bytes));
        }
        if after > before && total_after > limits.records_bytes {
            return Err(("records_bytes", limits.records_bytes));
        }
        (*own, self.total) = (own_after, total_after);
        Ok(())
    }

    /// Takes a record away.
    pub(crate) fn remove(&mut self, source: &str, bytes: usize) {
        self.total = self.total.saturating_sub(bytes);
        if let Some(own) = self.by_source.get_mut(source) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.by_source.remove(source);
            }
        }
    }
}

/// Bytes of the records of a batch.
pub(crate) fn batch_bytes(batch: &Batch) -> usize {
    batch.put.iter().map(|(record, _)| record_bytes(record)).sum()
}

/// Size that is charged against `source_bytes`.
pub(crate) fn record_bytes(record: &BatchRecord) -> usize {
    match record {
        BatchRecord::Node(record) => node_bytes(record),
        BatchRecord::Queue(record) => queue_bytes(record),
        BatchRecord::Job(record) => job_bytes(record),
        BatchRecord::Task(record) => task_bytes(record),
        BatchRecord::Namespace(record) => namespace_bytes(record),
        BatchRecord::PriorityClass(record) => class_bytes(record),
    }
}

/// Bytes of a record in the state; zero: it has no such record.
pub(crate) fn stored_bytes(state: &ClusterState, kind: RecordKind, name: &str) -> usize {
    let bytes = match kind {
        RecordKind::Node => state.node_by_name(name).map(|entry| node_bytes(&entry.record)),
        RecordKind::Queue => state.queues().get(name).map(|stored| queue_bytes(&stored.record)),
        RecordKind::Job => state.jobs().get(name).map(|stored| job_bytes(&stored.record)),
        RecordKind::Task => state.tasks().get(name).map(|stored| task_bytes(&stored.record)),
        RecordKind::Namespace => {
            let stored = state.namespaces().get(name);
            stored.map(|stored| namespace_bytes(&stored.record))
        }
        RecordKind::PriorityClass => state
            .priority_classes()
            .get(name)
            .map(|stored| class_bytes(&stored.record)),
    };
    bytes.unwrap_or_default()
}

fn class_bytes(record: &PriorityClassRecord) -> usize {
    size_of::<PriorityClassRecord>() + record.name.len()
}

fn node_bytes(record: &NodeRecord) -> usize {
    size_of::<NodeRecord>()
        + record.name.len()
        + record.uid.len()
        + text_bytes(&record.labels)
        + record.amounts().map(amount_bytes).sum::<usize>()
        + field_bytes(&record.unevaluated_fields)
        + record
            .properties
            .as_ref()
            .map_or(0, |properties| size_of_val(&**properties) + properties.text_bytes())
}

fn queue_bytes(record: &QueueRecord) -> usize {
    size_of::<QueueRecord>()
        + record.name.len()
        + record.uid.len()
        + record.parent.len()
        + text_bytes(&record.annotations)
        + record.amounts().map(amount_bytes).sum::<usize>()
        + record
            .affinity
            .as_ref()
            .map_or(0, |own| size_of_val(&**own) + own.text_bytes())
}

fn namespace_bytes(record: &NamespaceRecord) -> usize {
    let budgets = record.disruption_budgets.iter().map(|budget| {
        let selector = budget.selector.as_ref().map_or(0, LabelSelector::text_bytes);
        let names = budget.disrupted_pods.iter().map(name_bytes).sum::<usize>();
        size_of::<DisruptionBudget>() + budget.name.len() + selector + names
    });
    let quotas = record.resource_quotas.iter().map(|quota| {
        let amounts = exact_bytes(&quota.hard) + exact_bytes(&quota.used);
        size_of::<NamespaceQuota>() + quota.name.len() + amounts
    });
    let lists = budgets.sum::<usize>() + quotas.sum::<usize>();
    size_of::<NamespaceRecord>() + record.name.len() + text_bytes(&record.labels) + lists
}

fn job_bytes(record: &JobRecord) -> usize {
    size_of::<JobRecord>()
        + record.name.len()
        + record.uid.len()
        + record.queue.len()
        + text_bytes(&record.annotations)
        + record.amounts().map(amount_bytes).sum::<usize>()
        + record
            .gang
            .iter()
            .flat_map(|gang| gang.texts())
            .map(name_bytes)
            .sum::<usize>()
        + record.gang.iter().map(|gang| selector_bytes(gang)).sum::<usize>()
}

/// Bytes of the selectors by which a job finds the groups of its tasks.
fn selector_bytes(gang: &GangMinimums) -> usize {
    let selectors = gang.sub_groups.iter().filter_map(|policy| policy.selector.as_ref());
    selectors.map(|own| size_of_val(&**own) + own.text_bytes()).sum()
}

/// Bytes of a task, without the parts that a committed placement changes.
fn task_bytes(record: &TaskRecord) -> usize {
    size_of::<TaskRecord>()
        + record.name.len()
        + record.job.len()
        + record.nominated_node.len()
        + text_bytes(&record.annotations)
        + record.amounts().map(amount_bytes).sum::<usize>()
        + field_bytes(&record.unevaluated_fields)
        + text_bytes(&record.labels)
        + record
            .constraints
            .as_ref()
            .map_or(0, |own| size_of_val(&**own) + own.text_bytes())
        + record
            .gang
            .iter()
            .flat_map(|gang| gang.texts())
            .map(name_bytes)
            .sum::<usize>()
}

fn text_bytes(texts: &TextMap) -> usize {
    let bytes = texts.iter().map(|(name, text)| name.len() + text.len());
    bytes.sum::<usize>() + 2 * TEXT_BYTES * texts.len()
}

fn amount_bytes(amounts: &ResourceAmounts) -> usize {
    AMOUNT_BYTES * amounts.iter().count()
}

fn exact_bytes(amounts: &ExactQuantities) -> usize {
    amounts.names().map(|name| AMOUNT_BYTES + name_bytes(name)).sum()
}

fn field_bytes(fields: &UnevaluatedFields) -> usize {
    fields.iter().map(name_bytes).sum()
}

fn name_bytes(name: &Arc<str>) -> usize {
    name.len() + TEXT_BYTES
}

#[cfg(test)]
mod tests {
    use crate::tests::batch;
    use crate::*;

    use super::*;

    fn queue(name: &str, bytes: usize) -> BatchRecord {
        let text: (Arc<str>, Arc<str>) = ("note".into(), "x".repeat(bytes).into());
        BatchRecord::Queue(QueueRecord {
            name: name.into(),
            annotations: [text].into(),
            ..QueueRecord::default()
        })
    }

    fn start(limits: StateLimits) -> Arc<SharedState> {
        let options = StateOptions {
            limits,
            ..StateOptions::default()
        };
        SharedState::start(options, Arc::new(SystemClock::default())).unwrap()
    }

    /// Messages about the records of a batch that were rejected.
    async fn rejected(state: &SharedState, batch: Batch) -> Vec<String> {
        let outcome = state.apply_batch(batch).await.unwrap();
        outcome.rejected.into_iter().map(|problem| problem.message).collect()
    }

    fn delta(sequence: u64, put: Vec<BatchRecord>) -> Batch {
        batch(sequence, BatchKind::Delta, put)
    }

    #[tokio::test]
    async fn the_records_of_a_source_are_bounded_in_bytes() {
        let state = start(StateLimits {
            source_bytes: 120_000,
            ..StateLimits::default()
        });
        let three = ["a", "b", "c"].map(|name| queue(name, 50_000)).to_vec();
        let messages = rejected(&state, batch(1, BatchKind::FullSyncLast, three)).await;
        assert!(
            messages.len() == 1 && messages[0].starts_with("limit `source_bytes` is 120000"),
            "{messages:?}"
        );
        assert_eq!(state.snapshot().state.queues().len(), 2);
        assert_eq!(rejected(&state, delta(2, vec![queue("a", 90_000)])).await.len(), 1);
        let stored = state.snapshot().state.queues().get("a").cloned().unwrap();
        assert!(stored.record.annotations[0].1.len() == 50_000 && stored.invalid().is_some());
        assert_eq!(rejected(&state, delta(3, vec![queue("a", 10)])).await, [""; 0]);
        assert_eq!(rejected(&state, delta(4, vec![queue("c", 50_000)])).await, [""; 0]);
        let remove = ["a", "b"].map(|name| (RecordKind::Queue, name.into())).to_vec();
        let gone = Batch {
            remove,
            ..delta(5, vec![queue("c", 10)])
        };
        assert_eq!(rejected(&state, gone).await, [""; 0]);
        let left = state.sources()[0].bytes;
        assert!((1..1_000).contains(&left), "{left}");
    }

    #[tokio::test]
    async fn all_records_together_are_bounded_in_bytes() {
        let state = start(StateLimits {
            records_bytes: 80_000,
            ..StateLimits::default()
        });
        let from = |source: &str| Batch {
            source: source.into(),
            ..batch(1, BatchKind::FullSyncLast, vec![queue(source, 50_000)])
        };
        assert_eq!(rejected(&state, from("one")).await, [""; 0]);
        let messages = rejected(&state, from("two")).await;
        assert!(
            messages[0].starts_with("limit `records_bytes` is 80000"),
            "{messages:?}"
        );
        let source = "one".into();
        state.forget_source(ForgetSource { source, force: true }).await.unwrap();
        let again = Batch {
            sequence: 2,
            ..from("two")
        };
        assert_eq!(rejected(&state, again).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_full_sync_that_is_being_sent_is_bounded_in_bytes() {
        let state = start(StateLimits {
            full_sync_bytes: 80_000,
            ..StateLimits::default()
        });
        let part = |source: &str, number: u32| Batch {
            source: source.into(),
            part: number,
            ..batch(number.into(), BatchKind::FullSyncPart, vec![queue(source, 30_000)])
        };
        for sent in [part("one", 1), part("one", 2)] {
            state.apply_batch(sent).await.unwrap();
        }
        for late in [part("two", 1), part("one", 3)] {
            let error = state.apply_batch(late).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    StateError::Limit {
                        limit: "full_sync_bytes",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }
}
