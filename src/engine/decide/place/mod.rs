//! Place: a whole job in one call, exactly as filter, score and assume would do it task by task.
//!
//! A task goes where Volcano's allocate action would put it: onto the best of the nodes that pass every filter and have
//! idle room; if there is none, it is promised room on the best that will have it once releasing tasks are gone. The best
//! is the highest score, among equals the first by name. After each task only what changed is looked at again.

mod admission;
mod ahead;
mod field;
mod group;
mod order;
mod run;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::question::Rejection;
use crate::engine::cycle::{Cycle, Outcome, Put, To};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{
    JobRecord, Problem, ProblemKind, ResourceTable, Slot, TaskRecord, TaskStatus, Totals, View,
};
use crate::engine::plugin::{Figure, Reason, Resolution};
use crate::engine::policy::Policy;

/// Question of Place.
#[derive(Clone, Debug)]
pub struct PlaceQuestion {
    /// The job of the tasks, if it does not stand so in the state; only for a preview.
    pub job: Option<Arc<JobRecord>>,
    /// What to place, in this order. A group that could not be read stands as its problem.
    pub groups: Vec<Result<PlaceGroup, Problem>>,
    /// Names of the tasks' resources: the View's table, or one that extends it.
    pub resources: Arc<ResourceTable>,
    /// Fewer than this: none. `None`: the job's minimum, less what holds room already; without one: all.
    pub min_available: Option<usize>,
    /// Nodes to use, each once; `None`: all.
    pub candidates: Option<Vec<Slot>>,
    /// Nodes not to use.
    pub exclusions: Vec<Slot>,
    /// Promise nothing on releasing room.
    pub idle_only: bool,
    /// Refused nodes shown per blocker.
    pub samples: usize,
    /// Task-node pairs that may be looked at one by one, where the policy leaves no other way.
    pub pairs: u64,
}

/// Equal tasks.
#[derive(Clone, Debug)]
pub struct PlaceGroup {
    /// What each asks for, with its job.
    pub task: Arc<TaskRecord>,
    /// How many.
    pub count: usize,
    /// Stored tasks that it is about, in order; empty for a preview of tasks that are not there.
    pub names: Vec<Arc<str>>,
    /// What was overlooked when it was read.
    pub warnings: Vec<Problem>,
}

/// Answer of Place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placing {
    /// Enough found a place, and every group could be read.
    pub placed: bool,
    /// One per group.
    pub groups: Vec<Result<PlacedGroup, Problem>>,
    /// Tasks that found a place.
    pub found: usize,
    /// How many had to.
    pub needed: usize,
    /// What kept the next task from being placed, of the first group that was cut short.
    pub blockers: Vec<Blocker>,
}

/// Where a group went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedGroup {
    /// Nodes of the first tasks, on idle room.
    pub allocated: Vec<Slot>,
    /// Nodes of the tasks after those, on room that is being released.
    pub pipelined: Vec<Slot>,
    /// Card of each task; empty if no plugin gives any.
    pub cards: Vec<Arc<str>>,
    /// What kept the next task from being placed; empty: all were.
    pub blockers: Vec<Blocker>,
    /// What was overlooked.
    pub warnings: Vec<Problem>,
}

impl PlacedGroup {
    /// Tasks that found a place.
    pub fn found(&self) -> usize {
        self.allocated.len() + self.pipelined.len()
    }
}

/// One thing that kept a task from being placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// The reason, and the nodes that were refused for it; none, if the task was refused before any node.
    pub rejection: Rejection,
    /// Figures of a reason that is not about nodes.
    pub figures: Vec<Figure>,
}

/// Stands for a plugin in reasons about the gang as a whole.
pub const GANG: &str = "gang";

/// Places the groups on a state, and changes nothing.
///
/// # Errors
/// Something that belongs to no group; nothing was judged.
pub fn place(view: &View, policy: &Policy, derived: &DerivedSet, question: &PlaceQuestion) -> Result<Placing, Problem> {
    Ok(place_until(view, policy, Kept::Moved(derived), question, &|| false)?.unwrap_or_default())
}

/// What plugins keep beside the state that is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Kept<'a> {
    /// As it was worked out from the state: an imagined job is counted by carrying it.
    WorkedOut(&'a DerivedSet),
    /// Moved since by changes of a cycle: with an imagined job it is worked out anew.
    Moved(&'a DerivedSet),
}

/// As [`place()`]; `None` as soon as `stop` says so, which is asked every so many tasks.
///
/// # Errors
/// As [`place()`].
pub fn place_until(
    view: &View,
    policy: &Policy,
    kept: Kept<'_>,
    question: &PlaceQuestion,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Placing>, Problem> {
    let (view, derived) = ground(view, policy, kept, question);
    let needed = needed(&view, question);
    let mut desk = group::Desk {
        opened: view.clone(),
        view,
        derived,
        policy,
        question,
        stop,
        log: Vec::new(),
        settled: 0,
        entries: BTreeSet::new(),
    };
    let mut placing = Placing {
        needed,
        ..Placing::default()
    };
    for (number, group) in question.groups.iter().enumerate() {
        let placed = match group {
            Err(problem) => Err(problem.clone()),
            Ok(group) => match desk.place(number, group) {
                Ok(Some(placed)) => Ok(placed),
                Ok(None) => return Ok(None),
                Err(problem) => Err(problem),
            },
        };
        if let Ok(group) = &placed {
            placing.found += group.found();
            if placing.blockers.is_empty() {
                placing.blockers.clone_from(&group.blockers);
            }
        }
        placing.groups.push(placed);
    }
    placing.placed = placing.found >= needed && placing.groups.iter().all(Result::is_ok);
    if !placing.placed && placing.blockers.is_empty() {
        placing.blockers.extend(too_few(&placing, question));
    }
    Ok(Some(placing))
}

/// The state with the job that is imagined, and what plugins that are asked keep beside it.
fn ground(view: &View, policy: &Policy, kept: Kept<'_>, question: &PlaceQuestion) -> (View, DerivedSet) {
    let is_asked = |name: &str| {
        let allocates = policy.allocators().iter().flatten().any(|hook| *hook.name == *name);
        allocates || policy.reads_accounts(&[Arc::from(name)])
    };
    let mut with_job = view.clone();
    with_job.set_resources(Arc::clone(&question.resources));
    if let Some(job) = &question.job {
        with_job.put_job(JobRecord::clone(job), &Arc::from(""));
    }
    let waiting = put_waiting(&mut with_job, policy, question);
    if question.job.is_none() && !waiting {
        let (Kept::WorkedOut(derived) | Kept::Moved(derived)) = kept;
        let mut derived = derived.clone();
        derived.keep_only(is_asked);
        return (with_job, derived);
    }
    let before = match kept {
        // Names that nobody knew before may be those of cards.
        Kept::WorkedOut(derived) if question.resources.len() == view.resources().len() => Some((view, derived)),
        Kept::WorkedOut(_) | Kept::Moved(_) => None,
    };
    let derived = policy.derive_of(is_asked, &with_job, before);
    (with_job, derived)
}

/// Lets imagined tasks wait in the View, where it matters to a plugin what else of their job waits, and nothing of it does:
/// one card for all of them is chosen by how many they are. True: some were put there.
fn put_waiting(view: &mut View, policy: &Policy, question: &PlaceQuestion) -> bool {
    let reads_job = |task: &TaskRecord| {
        let mut allocators = policy.allocators().iter().flatten();
        policy.reads_job(task) || allocators.any(|hook| hook.plugin.reads_job(task))
    };
    let groups = question.groups.iter().enumerate();
    let groups = groups.filter_map(|(number, group)| Some((number, group.as_ref().ok()?)));
    let imagined: Vec<(usize, &PlaceGroup)> = groups.filter(|(_, group)| group.names.is_empty()).collect();
    let Some((_, first)) = imagined.iter().find(|(_, group)| reads_job(&group.task)) else {
        return false;
    };
    let waits = |record: &TaskRecord| record.job == first.task.job && record.status == TaskStatus::Pending;
    if view.tasks().iter().any(|(_, task)| waits(&task.record)) {
        return false;
    }
    for (number, group) in imagined {
        for place in 0..group.count {
            view.put_task(admission::imagined(number, place, &group.task), &Arc::from(""));
        }
    }
    true
}

/// Places the groups in a cycle: what found a place becomes its next changes, if it is enough.
///
/// # Errors
/// As [`place()`], or the changes cannot be made; the cycle is as it was.
pub fn place_in(
    cycle: &mut Cycle,
    policy: &Policy,
    question: &PlaceQuestion,
    stop: &dyn Fn() -> bool,
) -> Result<Option<(Placing, Outcome)>, Problem> {
    let Some(placing) = place_until(cycle.view(), policy, Kept::Moved(cycle.derived()), question, stop)? else {
        return Ok(None);
    };
    if !placing.placed {
        return Ok(Some((placing, Outcome::default())));
    }
    let mut next = cycle.clone();
    let outcome = next.put_all(&puts(question, &placing))?;
    if let Some(warning) = outcome.warnings.first() {
        // Under `upstream` a node may still hold a copy of a task that was taken off it.
        return Err(warning.clone());
    }
    *cycle = next;
    Ok(Some((placing, outcome)))
}

fn puts<'a>(question: &'a PlaceQuestion, placing: &'a Placing) -> Vec<Put<'a>> {
    let mut puts = Vec::with_capacity(placing.found);
    let groups = question.groups.iter().zip(&placing.groups);
    for (asked, placed) in groups.filter_map(|(asked, placed)| Some((asked.as_ref().ok()?, placed.as_ref().ok()?))) {
        let allocated = placed.allocated.iter().map(|slot| (slot, false));
        let nodes = allocated.chain(placed.pipelined.iter().map(|slot| (slot, true)));
        let mut cards = placed.cards.iter();
        puts.extend(asked.names.iter().zip(nodes).map(|(task, (slot, pipelined))| Put {
            task,
            to: To::Slot(*slot),
            pipelined,
            card: cards.next(),
        }));
    }
    puts
}

/// How many tasks must find a place.
fn needed(view: &View, question: &PlaceQuestion) -> usize {
    if let Some(given) = question.min_available {
        return given;
    }
    let groups = || question.groups.iter().filter_map(|group| group.as_ref().ok());
    let job = groups().find_map(|group| view.jobs().get(&group.task.job));
    match job.map(|job| (&job.record, usize::try_from(job.record.min_member).unwrap_or(0))) {
        Some((job, members)) if members > 0 => {
            let holding = view.job_allocated(&job.name).map_or(0, Totals::records);
            members.saturating_sub(holding as usize)
        }
        _ => groups().map(|group| group.count).sum(),
    }
}

/// Every task that was asked for has found a place, and yet it is not enough.
fn too_few(placing: &Placing, question: &PlaceQuestion) -> Option<Blocker> {
    if placing.groups.iter().any(Result::is_err) {
        return None;
    }
    let asked: usize = question.groups.iter().flatten().map(|group| group.count).sum();
    let reason = Reason {
        plugin: Arc::from(GANG),
        code: "TooFewTasks",
        message: format!(
            "at least {} more tasks are needed, and {asked} were to be placed",
            placing.needed
        ),
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    Some(Blocker::plain(reason, Vec::new()))
}

impl Blocker {
    /// A reason that is not about nodes.
    fn plain(reason: Reason, figures: Vec<Figure>) -> Self {
        let rejection = Rejection {
            reason,
            nodes: Vec::new(),
            count: 0,
            samples: Vec::new(),
        };
        Self { rejection, figures }
    }
}

/// A group cannot be placed with this policy without looking at more pairs than one question may.
fn too_large(count: usize, nodes: usize, limit: u64) -> Problem {
    let message = format!(
        "{count} tasks on {nodes} nodes: under this policy every node must be looked at after each task, and limit `pairs` \
         is {limit}"
    );
    Problem::new(ProblemKind::Exhausted, "QUESTION_TOO_LARGE", "count", message)
}
