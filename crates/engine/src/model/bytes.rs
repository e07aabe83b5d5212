//! Memory of a cluster state in bytes: all that it holds, or what it does not share with an older state of its history.

use std::sync::Arc;

use super::amounts::{ResourceAmounts, ResourceTotals};
use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;
use super::node::NodeEntry;
use super::records::{JobRecord, NodeRecord, QueueRecord, TaskRecord, TaskShape, TextMap};
use super::stored::RecordOwner;
use super::table::SortedTable;

impl ClusterState {
    /// The chunks that the other cluster state does not share.
    pub fn unshared_chunks<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<NodeChunk>> + 'a {
        let shared = |(number, chunk): &(usize, &Arc<NodeChunk>)| {
            let there = other.chunks().get(*number);
            there.is_some_and(|there| Arc::ptr_eq(there, chunk))
        };
        let numbered = self.chunks().iter().enumerate();
        numbered.filter(move |one| !shared(one)).map(|(_, chunk)| chunk)
    }

    /// Bytes of the chunks that this cluster state has and the older one does not share.
    pub fn unshared_bytes(&self, older: &Self) -> usize {
        let none = NodeChunk::default();
        let chunks = self.chunks().iter().enumerate();
        chunks
            .map(|(number, chunk)| match older.chunks().get(number) {
                Some(old) if Arc::ptr_eq(old, chunk) => 0,
                Some(old) => chunk.unshared_bytes(old),
                None => chunk.unshared_bytes(&none),
            })
            .sum()
    }
}

/// Bytes of the counts before shared content.
const COUNT_BYTES: usize = 2 * size_of::<usize>();
/// Bytes to which allocators round small blocks.
const BLOCK_BYTES: usize = 16;
/// Blocks of a table are filled to about five sixths.
const TABLE_SLACK: (usize, usize) = (6, 5);

/// One holder's share of the bytes of shared content: all holders together count it once.
pub(super) fn held_share<T: ?Sized>(content: &Arc<T>, bytes: usize) -> usize {
    (bytes + COUNT_BYTES).next_multiple_of(BLOCK_BYTES) / Arc::strong_count(content).max(1)
}

fn text_bytes(text: &Arc<str>) -> usize {
    match text.len() {
        0 => 0,
        bytes => held_share(text, bytes),
    }
}

fn map_bytes(texts: &TextMap) -> usize {
    if texts.is_empty() {
        return 0;
    }
    let own: usize = texts.iter().map(|(key, text)| text_bytes(key) + text_bytes(text)).sum();
    held_share(texts, size_of_val(&**texts) + own)
}

fn amounts_bytes<'a>(lists: impl Iterator<Item = &'a ResourceAmounts>) -> usize {
    lists.map(ResourceAmounts::held_bytes).sum()
}

/// Bytes of a table's entries, and of what its values hold.
fn table_bytes<V: Clone>(table: &SortedTable<V>, value: impl Fn(&V) -> usize) -> usize {
    let (full, filled) = TABLE_SLACK;
    let entries = table.len() * size_of::<(Arc<str>, V)>() * full / filled;
    let content = table.iter().map(|(name, own)| text_bytes(name) + value(own));
    entries + content.sum::<usize>()
}

fn node_bytes(entry: &NodeEntry) -> usize {
    let node = &*entry.record;
    let usage = [&entry.usage.used, &entry.usage.releasing, &entry.usage.pipelined];
    let record = size_of::<NodeRecord>()
        + text_bytes(&node.name)
        + text_bytes(&node.uid)
        + map_bytes(&node.labels)
        + amounts_bytes(node.amounts())
        + node.unevaluated_fields.iter().map(text_bytes).sum::<usize>();
    held_share(&entry.record, record) + usage.map(ResourceTotals::held_bytes).iter().sum::<usize>()
}

fn queue_bytes(queue: &QueueRecord) -> usize {
    let texts = [&queue.name, &queue.uid, &queue.parent].map(text_bytes);
    texts.iter().sum::<usize>() + map_bytes(&queue.annotations) + amounts_bytes(queue.amounts())
}

fn job_bytes(job: &JobRecord) -> usize {
    let texts = [&job.name, &job.uid, &job.queue].map(text_bytes);
    texts.iter().sum::<usize>() + map_bytes(&job.annotations) + amounts_bytes(job.amounts())
}

fn task_bytes(task: &TaskRecord) -> usize {
    let shape = &*task.shape;
    // All but the requests have a block of their own.
    let boxes = shape.amounts().count() - 1;
    let own = size_of::<TaskShape>()
        + text_bytes(&shape.nominated_node)
        + text_bytes(&shape.card)
        + map_bytes(&shape.annotations)
        + amounts_bytes(shape.amounts())
        + boxes * BLOCK_BYTES
        + shape.unevaluated_fields.iter().map(text_bytes).sum::<usize>();
    let texts = [&task.name, &task.job, &task.node].map(text_bytes);
    texts.iter().sum::<usize>() + task.uid.held_bytes() + held_share(&task.shape, own)
}

impl ClusterState {
    /// Bytes that this cluster state holds: its share of all records, tables and columns. It walks all records.
    pub fn held_bytes(&self) -> usize {
        let columns: usize = self.chunks().iter().map(|chunk| chunk.bytes()).sum();
        // The index has an entry for each node, beside the node's own.
        let index = self.node_count() as usize * size_of::<(Arc<str>, u64)>();
        let nodes: usize = self.nodes().map(|(_, entry)| node_bytes(entry)).sum();
        let stored = size_of::<RecordOwner>();
        let queues = table_bytes(self.queues(), |queue| {
            held_share(queue, size_of::<QueueRecord>() + stored + queue_bytes(&queue.record))
        });
        let jobs = table_bytes(self.jobs(), |job| {
            held_share(job, size_of::<JobRecord>() + stored + job_bytes(&job.record))
        });
        let tasks = table_bytes(self.tasks(), |task| {
            held_share(task, size_of::<TaskRecord>() + stored + task_bytes(&task.record))
        });
        let allocated = table_bytes(&self.allocated, |totals| {
            held_share(totals, size_of::<ResourceTotals>() + totals.held_bytes())
        });
        columns + index + nodes + queues + jobs + tasks + allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeSlot, TaskFields};

    fn state_of(tasks: usize, annotation: usize) -> ClusterState {
        let mut state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
        for number in 0..tasks {
            let annotations: TextMap = [("key".into(), "x".repeat(annotation).into())].into();
            let task = TaskFields {
                name: format!("ns/task-{number}").into(),
                annotations,
                ..TaskFields::default()
            };
            state.put_task(task.into(), &"a".into());
        }
        state
    }

    #[test]
    fn records_and_their_texts_weigh() {
        let (empty, few, many) = (state_of(0, 0), state_of(1_000, 0), state_of(1_000, 2_000));
        assert!(empty.held_bytes() < 100, "{}", empty.held_bytes());
        let each = few.held_bytes() / 1_000;
        let record = size_of::<TaskRecord>() + size_of::<TaskShape>();
        assert!((record..record + 400).contains(&each), "{each}");
        let more = (many.held_bytes() - few.held_bytes()) / 1_000;
        assert!((2_000..2_100).contains(&more), "{more}");
    }

    #[test]
    fn holders_count_their_share() {
        let state = state_of(100, 1_000);
        let alone = state.held_bytes();
        let shared = state
            .tasks()
            .iter()
            .map(|(_, task)| Arc::clone(task))
            .collect::<Vec<_>>();
        let half = state.held_bytes();
        assert!(half < alone * 6 / 10, "{half} of {alone}");
        drop(shared);
        assert_eq!(state.held_bytes(), alone);
    }
}
