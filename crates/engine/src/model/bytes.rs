//! Memory of a cluster state in bytes: all that it holds, or what it does not share with an older state of its history.

use std::sync::Arc;

use super::amounts::{ResourceAmounts, ResourceTotals};
use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;
use super::constraints::{NodeProperties, PodConstraints};
use super::gang::{GangMember, GangMinimums, SubGroupPolicy};
use super::group_selector::GroupSelector;
use super::namespace::NamespaceRecord;
use super::node::NodeEntry;
use super::records::{JobRecord, NodeRecord, QueueRecord, TaskRecord, TaskShape};
use super::shared_content::{BLOCK_BYTES, COUNT_BYTES, held_share};
use super::stored::RecordOwner;
use super::table::SortedTable;
use super::text_map::TextMap;

impl ClusterState {
    /// Bytes that this cluster state has and another one, of the same history, does not share.
    pub fn unshared_bytes(&self, other: &Self) -> usize {
        let tasks = unshared_values(self.tasks(), other.tasks(), |task| {
            size_of::<TaskRecord>() + size_of::<RecordOwner>() + task_bytes(&task.record)
        });
        self.unshared_bytes_beside_tasks(other) + tasks
    }

    /// Bytes of this cluster state that another state of the same history does not share. Task records are not
    /// included: code that moves tasks already has their number.
    pub(crate) fn unshared_bytes_beside_tasks(&self, other: &Self) -> usize {
        self.unshared_nodes(other) + self.unshared_blocks(other) + self.unshared_accounts(other)
    }

    fn unshared_nodes(&self, other: &Self) -> usize {
        let none = NodeChunk::default();
        let chunks = self.chunks().iter().enumerate().map(|(number, chunk)| {
            let there = other.chunks().get(number);
            if there.is_some_and(|there| Arc::ptr_eq(there, chunk)) {
                return 0;
            }
            chunk.unshared_bytes(there.map_or(&none, |there| &**there))
        });
        chunks.sum()
    }

    fn unshared_blocks(&self, other: &Self) -> usize {
        self.queues().unshared_bytes(other.queues())
            + self.jobs().unshared_bytes(other.jobs())
            + self.tasks().unshared_bytes(other.tasks())
            + self.namespaces().unshared_bytes(other.namespaces())
            + self.allocated.unshared_bytes(&other.allocated)
            + self.assumed.unshared_bytes(&other.assumed)
    }

    /// Bytes of records of queues, jobs and namespaces, and of what jobs hold.
    fn unshared_accounts(&self, other: &Self) -> usize {
        let stored = size_of::<RecordOwner>();
        let queues = unshared_values(self.queues(), other.queues(), |queue| {
            size_of::<QueueRecord>() + stored + queue_bytes(&queue.record)
        });
        let jobs = unshared_values(self.jobs(), other.jobs(), |job| {
            size_of::<JobRecord>() + stored + job_bytes(&job.record)
        });
        let namespaces = unshared_values(self.namespaces(), other.namespaces(), |namespace| {
            size_of::<NamespaceRecord>() + stored + namespace_bytes(&namespace.record)
        });
        let allocated = unshared_values(&self.allocated, &other.allocated, |totals| {
            size_of::<ResourceTotals>() + totals.held_bytes()
        });
        queues + jobs + namespaces + allocated
    }
}

/// Bytes of each value that the other table does not share.
fn unshared_values<V>(table: &SortedTable<Arc<V>>, other: &SortedTable<Arc<V>>, bytes: impl Fn(&V) -> usize) -> usize {
    let mut sum = 0;
    table.unshared_entries(other, |value, there| {
        if !there.is_some_and(|there| Arc::ptr_eq(there, value)) {
            sum += COUNT_BYTES + bytes(value);
        }
    });
    sum
}

/// One holder's share of content that there may be.
fn shared_bytes<T>(content: Option<&Arc<T>>, held: impl Fn(&T) -> usize) -> usize {
    content.map_or(0, |content| held_share(content, size_of::<T>() + held(content)))
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
    let content = table.iter().map(|(name, own)| text_bytes(name) + value(own));
    table.unshared_bytes(&SortedTable::default()) + content.sum::<usize>()
}

fn node_bytes(entry: &NodeEntry) -> usize {
    let node = &*entry.record;
    let record = size_of::<NodeRecord>()
        + text_bytes(&node.name)
        + text_bytes(&node.uid)
        + map_bytes(&node.labels)
        + amounts_bytes(node.amounts())
        + node.unevaluated_fields.iter().map(text_bytes).sum::<usize>()
        + shared_bytes(node.properties.as_ref(), NodeProperties::held_bytes);
    held_share(&entry.record, record)
}

fn queue_bytes(queue: &QueueRecord) -> usize {
    let texts = [&queue.name, &queue.uid, &queue.parent].map(text_bytes);
    texts.iter().sum::<usize>() + map_bytes(&queue.annotations) + amounts_bytes(queue.amounts())
}

fn namespace_bytes(namespace: &NamespaceRecord) -> usize {
    text_bytes(&namespace.name) + map_bytes(&namespace.labels)
}

fn job_bytes(job: &JobRecord) -> usize {
    let texts = [&job.name, &job.uid, &job.queue].map(text_bytes);
    texts.iter().sum::<usize>()
        + map_bytes(&job.annotations)
        + amounts_bytes(job.amounts())
        + job.gang.as_ref().map_or(0, minimum_bytes)
}

fn minimum_bytes(gang: &Arc<GangMinimums>) -> usize {
    let lists = gang.min_task_member.capacity() * size_of::<(Arc<str>, i32)>()
        + gang.sub_groups.capacity() * size_of::<SubGroupPolicy>()
        + gang
            .sub_groups
            .iter()
            .filter_map(|policy| policy.selector.as_ref())
            .map(selector_bytes)
            .sum::<usize>();
    held_share(
        gang,
        size_of::<GangMinimums>() + lists + gang.texts().map(text_bytes).sum::<usize>(),
    )
}

fn selector_bytes(selector: &Arc<GroupSelector>) -> usize {
    held_share(selector, size_of::<GroupSelector>() + selector.held_bytes())
}

fn member_bytes(gang: &Arc<GangMember>) -> usize {
    let list = gang.scheduling_gates.capacity() * size_of::<Arc<str>>();
    held_share(
        gang,
        size_of::<GangMember>() + list + gang.texts().map(text_bytes).sum::<usize>(),
    )
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
        + shape.unevaluated_fields.iter().map(text_bytes).sum::<usize>()
        + shared_bytes(shape.constraints.as_ref(), PodConstraints::held_bytes)
        + shape.gang.as_ref().map_or(0, member_bytes);
    let texts = [&task.name, &task.job, &task.node].map(text_bytes);
    let own = held_share(&task.shape, own);
    texts.iter().sum::<usize>() + map_bytes(&task.labels) + task.uid.held_bytes() + own
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
        let namespaces = table_bytes(self.namespaces(), |namespace| {
            let bytes = size_of::<NamespaceRecord>() + stored + namespace_bytes(&namespace.record);
            held_share(namespace, bytes)
        });
        let allocated = table_bytes(&self.allocated, |totals| {
            held_share(totals, size_of::<ResourceTotals>() + totals.held_bytes())
        });
        columns + index + nodes + queues + jobs + tasks + namespaces + allocated
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
        assert!(empty.held_bytes() < 300, "{}", empty.held_bytes());
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
