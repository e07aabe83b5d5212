//! One pass of equal tasks over the nodes: all nodes are judged once, and after each task only the node that took it.

use super::admission::Gate;
use super::field::{Field, Taken};
use super::order::{Key, Order, key, score};
use crate::engine::cycle::assume;
use crate::engine::decide::candidates::{Candidates, Part};
use crate::engine::decide::question::{Question, ResourceFit};
use crate::engine::decide::reduce;
use crate::engine::decide::room::Room;
use crate::engine::decide::score::{Outside, Scorers, Scratch};
use crate::engine::decide::stages::Asked;
use crate::engine::model::{Chunk, Joining, Mask, NodeEntry, Problem, Slot, TaskClass, TaskRecord, TaskStatus, View};
use crate::engine::plugin::{Facts, Filterer, Verdicts};
use crate::engine::policy::{Compatibility, Policy};

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Every task of the group has a place.
    Full,
    /// No node has room in this gradient.
    Dry,
    /// Admission refuses the next task, or nodes are to be judged anew.
    Anew,
    /// Told to stop.
    Stopped,
}

/// Tasks between two looks at whether to stop.
const STOP_EVERY: usize = 256;

/// A task as it will stand on the node that it goes to.
#[derive(Debug)]
pub(super) struct Joins {
    task: TaskRecord,
    compatibility: Compatibility,
    /// What it adds to columns; `None`: nodes keep vectors of their own.
    joining: Option<Joining>,
}

impl Joins {
    pub(super) fn new(task: &TaskRecord, status: TaskStatus, compatibility: Compatibility) -> Self {
        let task = TaskRecord { status, ..task.clone() };
        let joining = (compatibility == Compatibility::Corrected).then(|| Joining::of(&task));
        Self {
            task,
            compatibility,
            joining,
        }
    }

    /// How it will stand there.
    pub(super) fn status(&self) -> TaskStatus {
        self.task.status
    }

    /// A node after so many more of the tasks.
    pub(super) fn after(&self, entry: &NodeEntry, times: u32) -> NodeEntry {
        let mut after = entry.clone();
        (0..times).for_each(|_| assume(&mut after, &self.task, self.compatibility));
        after
    }

    /// True if nodes that take such tasks keep vectors of their own.
    pub(super) fn need_entries(&self) -> bool {
        self.joining.is_none()
    }

    /// Counts so many of the tasks in a node's columns. False: nothing is done, the node itself is to be changed.
    pub(super) fn join(&self, view: &mut View, slot: Slot, times: u32) -> bool {
        let joining = self.joining.as_ref();
        joining.is_some_and(|joining| view.join(slot, joining, times))
    }
}

/// Everything that a pass asks, made ready.
pub(super) struct Run<'a> {
    view: &'a View,
    filterers: Vec<Box<dyn Filterer + 'a>>,
    scorers: Scorers<'a>,
    joins: &'a Joins,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        facts: Facts<'a>,
        policy: &'a Policy,
        class: &'a TaskClass,
        question: &Question,
        joins: &'a Joins,
    ) -> Result<Self, Problem> {
        let asked = Asked::of(policy, question)?;
        let mut filterers = asked.filterers(facts, question, class)?;
        if joins.task.status == TaskStatus::Allocated
            && let Some(room) = Room::of(class, ResourceFit::Idle)
        {
            filterers.push(Box::new(room));
        }
        Ok(Self {
            view: facts.view,
            filterers,
            scorers: Scorers::plain(&asked, facts, class)?,
            joins,
        })
    }

    pub(super) fn view(&self) -> &'a View {
        self.view
    }

    /// What a task adds to columns; `None`: nodes keep vectors of their own.
    pub(super) fn joining(&self) -> Option<&'a Joining> {
        self.joins.joining.as_ref()
    }

    /// A node after so many more of the tasks.
    pub(super) fn after(&self, entry: &NodeEntry, times: u32) -> NodeEntry {
        self.joins.after(entry, times)
    }

    /// True if scores of all nodes must be looked at after each task.
    pub(super) fn looks_at_all(&self) -> bool {
        self.scorers.are_bounded()
    }

    /// Places up to `count` tasks. `put` is told of each, and says whether the next one may follow at once.
    pub(super) fn go(
        &self,
        candidates: &Candidates<'_>,
        count: usize,
        gate: &mut Gate<'_>,
        stop: &dyn Fn() -> bool,
        put: &mut dyn FnMut(Slot, &mut Gate<'_>) -> Result<bool, Problem>,
    ) -> Result<(Ended, Taken), Problem> {
        let want = count.saturating_sub(gate.given);
        let want = if self.looks_at_all() { want.min(1) } else { want };
        let Some(keys) = self.keys(candidates, stop)? else {
            return Ok((Ended::Stopped, Vec::new()));
        };
        let mut field = Field::new(self, Order::best(keys, want));
        let mut steps = 0;
        let ended = loop {
            if steps == want {
                break if gate.given == count { Ended::Full } else { Ended::Anew };
            }
            if steps % STOP_EVERY == STOP_EVERY - 1 && stop() {
                break Ended::Stopped;
            }
            let Some(slot) = field.take(want - steps - 1) else {
                break Ended::Dry;
            };
            steps += 1;
            if !put(slot, gate)? {
                break if gate.given == count { Ended::Full } else { Ended::Anew };
            }
        };
        Ok((ended, field.taken()))
    }

    /// Every node that passes, with its place in the order; `None`: told to stop.
    fn keys(&self, candidates: &Candidates<'_>, stop: &dyn Fn() -> bool) -> Result<Option<Vec<Key>>, Problem> {
        let mut keys = Vec::with_capacity(candidates.len());
        let mut scratch = Scratch::new();
        let mut outside = Outside::default();
        let ranks = self.view.ranks();
        for (number, part) in candidates.parts.iter().enumerate() {
            if number % STOP_EVERY == STOP_EVERY - 1 && stop() {
                return Ok(None);
            }
            let among = self.passing(part.chunk, &part.among);
            if among.is_empty() {
                continue;
            }
            let part = Part { among, ..*part };
            self.scorers.check(self.view, &part, &mut scratch, &mut outside);
            self.scorers.each(&part, &mut scratch, |_, _, _| {});
            keys.extend(among.iter().map(|offset| {
                let slot = part.slot(offset);
                let rank = ranks.get(slot as usize).copied().unwrap_or(u32::MAX);
                key(score(scratch.total(offset)), rank, slot)
            }));
        }
        self.scorers.refuse(outside)?;
        Ok(Some(keys))
    }

    /// Nodes of a chunk that pass every filter.
    fn passing(&self, chunk: &Chunk, among: &Mask) -> Mask {
        let mut verdicts = Verdicts::unread();
        reduce::conjunction(&self.filterers, among, |filterer, left| {
            filterer.filter(chunk, left, &mut verdicts).and(left)
        })
    }

    /// Scores of nodes in a chunk that is made of them; `None`: refused.
    pub(super) fn judge(
        &self,
        chunk: &Chunk,
        among: &Mask,
        scratch: &mut Scratch,
        mut say: impl FnMut(usize, Option<u64>),
    ) {
        let passed = self.passing(chunk, among);
        let part = Part {
            first: 0,
            chunk,
            among: passed,
        };
        if !passed.is_empty() {
            self.scorers.each(&part, scratch, |_, _, _| {});
        }
        for offset in among.iter() {
            say(offset, passed.get(offset).then(|| score(scratch.total(offset))));
        }
    }
}
