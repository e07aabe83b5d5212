//! What of a session's placements still holds: judged job by job, in order, against the newest state and policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::cycle::Placement;
use crate::engine::decide::{self, Detail, Question, QuestionTask, ResourceFit};
use crate::engine::derived::{DerivedSet, Movement, TaskMove};
use crate::engine::model::reservation::same_incarnation as same;
use crate::engine::model::{Kind, Problem, TaskRecord, TaskStatus, Uid, View};
use crate::engine::plugin::{Facts, Figure, Reason, Resolution};
use crate::engine::policy::Policy;
use crate::engine::{PolicyInForce, Revision};
use crate::store::Durability;

/// Stands for a plugin in reasons that the commit itself gives.
pub const COMMIT: &str = "commit";

/// What became of a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// From here on the placements are visible.
    pub revision: Revision,
    /// Name, version and hash of the policy that judged.
    pub policy: (Arc<str>, u64, Arc<str>),
    /// Number of the session's last change.
    pub applied_through: u64,
    /// Where the placements are kept.
    pub durability: Durability,
    /// In the order judged.
    pub jobs: Vec<JobCommitted>,
    /// Tasks whose assumption ended, by name.
    pub released: Vec<Arc<str>>,
    /// Tasks that the session evicted, by name: not committed.
    pub evicted: Vec<Arc<str>>,
    /// Tasks that the session pipelined, by name: not committed.
    pub pipelined: Vec<Arc<str>>,
}

impl Committed {
    /// Jobs, tasks and conflicts in it.
    pub(super) fn items(&self) -> usize {
        let conflicts: usize = self.jobs.iter().map(|job| job.conflicts.len()).sum();
        self.jobs.len() + conflicts + self.released.len() + self.evicted.len() + self.pipelined.len()
    }
}

/// What became of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCommitted {
    /// The job; empty: tasks without one.
    pub job: Arc<str>,
    /// Something of it was committed.
    pub committed: bool,
    /// What was not.
    pub conflicts: Vec<Conflict>,
}

/// A placement that was not committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The placement; `None`: the job was named and has none.
    pub placement: Option<Placement>,
    /// Why.
    pub reason: Reason,
    /// The figures of the reason.
    pub figures: Vec<Figure>,
}

/// A placement as the session made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) placement: Placement,
    /// Incarnation of the task in the session; empty: not said.
    pub(super) uid: Uid,
    /// Incarnation of the node, likewise.
    pub(super) node_uid: Arc<str>,
}

/// The placements of one job, in the order in which the session made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WantedJob {
    pub(super) job: Arc<str>,
    /// Its incarnation in the session; `None`: the session knew no such job.
    pub(super) uid: Option<Arc<str>>,
    pub(super) placements: Vec<Wanted>,
}

/// What a commit would make of the state.
#[derive(Debug)]
pub(super) struct Judged {
    /// The state with what holds.
    pub(super) view: View,
    /// What was placed, with the task's record before.
    pub(super) placed: Vec<TaskRecord>,
    /// In the order judged.
    pub(super) jobs: Vec<JobCommitted>,
}

/// How strictly a commit judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Checks {
    /// As documented.
    #[default]
    All,
    /// Only what keeps the books whole: shows that tests see what the checks prevent.
    #[cfg(debug_assertions)]
    Off,
}

type Why = (Reason, Vec<Figure>);

/// Judges jobs in order; each sees what was committed before it.
pub(super) fn judge(
    view: &View,
    policy: &PolicyInForce,
    derived: DerivedSet,
    jobs: &[WantedJob],
    checks: Checks,
) -> Judged {
    let mut judge = Judge {
        opened: view,
        policy: &policy.policy,
        checks,
        names: jobs.iter().map(|job| &*job.job).collect(),
        ready: None,
        now: Now {
            view: view.clone(),
            derived,
            placed: Vec::new(),
        },
    };
    let jobs = jobs.iter().map(|job| judge.job(job)).collect();
    let Now { view, placed, .. } = judge.now;
    Judged { view, placed, jobs }
}

/// The state as it would be.
#[derive(Clone)]
struct Now {
    view: View,
    derived: DerivedSet,
    placed: Vec<TaskRecord>,
}

struct Judge<'a> {
    opened: &'a View,
    policy: &'a Policy,
    checks: Checks,
    names: BTreeSet<&'a str>,
    /// Tasks that have their place before the commit, by job; counted when first needed.
    ready: Option<BTreeMap<&'a str, usize>>,
    now: Now,
}

impl Judge<'_> {
    fn job(&mut self, wanted: &WantedJob) -> JobCommitted {
        let WantedJob { job, placements, .. } = wanted;
        let nothing = |conflicts| JobCommitted {
            job: Arc::clone(job),
            committed: false,
            conflicts,
        };
        if placements.is_empty() {
            let why = own("NothingPlaced", format!("the session places no task of job `{job}`"));
            return nothing(vec![conflict(None, why)]);
        }
        if let Some(why) = self.checked(|judge| judge.job_gone(wanted)) {
            let all = placements.iter();
            return nothing(all.map(|one| conflict(Some(&one.placement), why.clone())).collect());
        }
        let before = self.now.clone();
        let refused: Vec<Option<Why>> = placements.iter().map(|one| self.place(job, one).err()).collect();
        let placed = refused.iter().filter(|why| why.is_none()).count();
        let short = self.checked(|judge| judge.split(job, placed));
        if short.is_some() {
            self.now = before;
        }
        let conflicts: Vec<Conflict> = placements
            .iter()
            .zip(refused)
            .filter_map(|(one, why)| Some(conflict(Some(&one.placement), why.or_else(|| short.clone())?)))
            .collect();
        JobCommitted {
            job: Arc::clone(job),
            committed: short.is_none() && placed > 0,
            conflicts,
        }
    }

    fn checked(&mut self, check: impl FnOnce(&mut Self) -> Option<Why>) -> Option<Why> {
        match self.checks {
            Checks::All => check(self),
            #[cfg(debug_assertions)]
            Checks::Off => None,
        }
    }

    /// Why nothing of a job can hold, if so.
    fn job_gone(&self, wanted: &WantedJob) -> Option<Why> {
        let uid = wanted.uid.as_ref()?;
        let job = &wanted.job;
        let Some(stored) = self.now.view.jobs().get(job) else {
            return Some(own("JobGone", format!("job `{job}` is gone")));
        };
        (!same(uid, &stored.record.uid)).then(|| {
            let message = format!("job `{job}` is now another incarnation, `{}`", stored.record.uid);
            own("JobReplaced", message)
        })
    }

    /// Places one task, if that still holds.
    fn place(&mut self, job: &str, wanted: &Wanted) -> Result<(), Why> {
        let Placement { task, node, card } = &wanted.placement;
        let Some(stored) = self.now.view.tasks().get(task) else {
            return Err(own("TaskGone", format!("task `{task}` is gone")));
        };
        let record = Arc::new(stored.record.clone());
        if !wanted.uid.may_be(&record.uid) || *record.job != *job {
            let message = format!(
                "task `{task}` is now another one, `{}` of job `{}`",
                record.uid, record.job
            );
            return Err(own("TaskReplaced", message));
        }
        if record.status != TaskStatus::Pending {
            let assumed = if self.now.view.is_assumed(task) {
                ", by another commit"
            } else {
                ""
            };
            let message = format!(
                "task `{task}` is {:?} on node `{}`{assumed}",
                record.status, record.node
            );
            return Err(own("TaskNotPending", message));
        }
        let mut card = Arc::clone(card);
        if self.checks == Checks::All {
            // Judged as one that names its card: what came free elsewhere meanwhile chooses no other for its job.
            let mut asked = Arc::clone(&record);
            if asked.card != card {
                Arc::make_mut(&mut asked).card = Arc::clone(&card);
            }
            self.fits(&asked, node, &wanted.node_uid)?;
            card = self.admitted(&asked, node, &card)?;
        }
        self.put(&record, node, &card)
    }

    /// The node is the same, and has room; the policy's filters pass it.
    fn fits(&self, task: &Arc<TaskRecord>, node: &str, uid: &str) -> Result<(), Why> {
        let view = &self.now.view;
        let (Some(slot), Some(entry)) = (view.slot_of(node), view.node_named(node)) else {
            return Err(own("NodeGone", format!("node `{node}` is gone")));
        };
        if !same(uid, &entry.record.uid) {
            let message = format!("node `{node}` is now another incarnation, `{}`", entry.record.uid);
            return Err(own("NodeReplaced", message));
        }
        let question = Question {
            tasks: vec![Ok(QuestionTask {
                task: Arc::clone(task),
                warnings: Vec::new(),
            })],
            resources: Arc::clone(view.resources()),
            candidates: Some(vec![slot]),
            plugins: Vec::new(),
            resource_fit: ResourceFit::Idle,
            samples: 1,
            detail: Detail::Samples,
        };
        let facts = Facts {
            view,
            derived: &self.now.derived,
        };
        let items = decide::filter_with(facts, self.policy, &question, decide::Effort::ALONE);
        let items = items.map_err(|problem| unjudged(&problem))?.unwrap_or_default();
        let Some(item) = items.into_iter().next() else {
            return Ok(());
        };
        let answered = item.map_err(|problem| unjudged(&problem))?;
        match answered.answer.rejections.first() {
            None => Ok(()),
            Some(rejection) => {
                let figures = rejection.samples.first().map(|(_, figures)| figures.clone());
                Err((rejection.reason.clone(), figures.unwrap_or_default()))
            }
        }
    }

    /// The policy admits the task, and to this card if one was said; else the card that it uses there.
    fn admitted(&self, task: &TaskRecord, node: &str, card: &Arc<str>) -> Result<Arc<str>, Why> {
        let view = &self.now.view;
        let asks = self.policy.allocators().iter().any(|tier| !tier.is_empty());
        let queue = view.jobs().get(&task.job).map(|job| &job.record.queue);
        if !asks && !queue.is_some_and(|queue| view.queues().contains(queue)) {
            return Ok(Arc::clone(card));
        }
        let admission =
            decide::admit_task(view, self.policy, &self.now.derived, task).map_err(|problem| unjudged(&problem))?;
        if !admission.permitted {
            let refused = || own("NotAdmitted", format!("the policy does not admit task `{}`", task.name));
            return Err(admission.reasons.into_iter().next().unwrap_or_else(refused));
        }
        let mut cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if !card.is_empty() {
            if cards.is_empty() {
                return Ok(Arc::clone(card));
            }
            cards.retain(|admitted| admitted == card);
            if cards.is_empty() {
                let message = format!("the queue of task `{}` no longer admits it to card `{card}`", task.name);
                return Err(own("CardNotAdmitted", message));
            }
        }
        let mut plugins = self.policy.allocators().iter().flatten();
        let first = plugins.find_map(|hook| hook.plugin.card_on(&self.now.derived, task, node, &cards));
        if first.is_none() && !cards.is_empty() {
            // Whatever card the node has would be counted in its place.
            let message = format!(
                "node `{node}` has none of the cards that task `{}` may use: {}",
                task.name,
                cards.join(", ")
            );
            return Err(own("CardNotAdmitted", message));
        }
        Ok(first.unwrap_or_default())
    }

    /// Counts the task where it was placed.
    fn put(&mut self, before: &TaskRecord, node: &Arc<str>, card: &Arc<str>) -> Result<(), Why> {
        let Now { view, derived, placed } = &mut self.now;
        let opened = view.tasks().get(&before.name).cloned();
        view.assume(&before.name, node, card);
        if let (Some(stored), Some(opened)) = (view.tasks().get(&before.name).cloned(), opened) {
            let moved = TaskMove {
                before,
                after: &stored.record,
                card,
            };
            let mut next = derived.clone();
            if let Err(problem) = next.follow(view, &Movement::Allocate(moved)) {
                view.put_task(before.clone(), &opened.source);
                view.set_invalid(Kind::Task, &before.name, opened.invalid().cloned());
                return Err(unjudged(&problem));
            }
            *derived = next;
        }
        placed.push(before.clone());
        Ok(())
    }

    /// Why a job that got so many more tasks placed would be split, if it would.
    fn split(&mut self, job: &str, placed: usize) -> Option<Why> {
        let stored = self.opened.jobs().get(job)?;
        let least = usize::try_from(stored.record.min_member).unwrap_or(0);
        if placed >= least {
            return None;
        }
        let ready = self.ready(job) + placed;
        if ready >= least {
            return None;
        }
        let message = format!("{ready} of the tasks of job `{job}` would have their place, it needs {least}");
        let figure = |name: &str, value: usize| Figure {
            name: name.to_owned(),
            value: value as f64,
            unit: "",
        };
        let (reason, _) = own("GangIncomplete", message);
        Some((reason, vec![figure("ready", ready), figure("min member", least)]))
    }

    fn ready(&mut self, job: &str) -> usize {
        let (opened, names) = (self.opened, &self.names);
        let ready = self.ready.get_or_insert_with(|| {
            let mut ready = BTreeMap::new();
            for (_, stored) in opened.tasks().iter().filter(|(_, stored)| is_ready(&stored.record)) {
                if let Some(name) = names.get(&*stored.record.job) {
                    *ready.entry(*name).or_default() += 1;
                }
            }
            ready
        });
        ready.get(job).copied().unwrap_or(0)
    }
}

/// A task that a gang need not wait for any more.
fn is_ready(task: &TaskRecord) -> bool {
    task.status.is_allocated() || task.status == TaskStatus::Succeeded
}

fn conflict(placement: Option<&Placement>, (reason, figures): Why) -> Conflict {
    Conflict {
        placement: placement.cloned(),
        reason,
        figures,
    }
}

fn own(code: &'static str, message: String) -> Why {
    let reason = Reason {
        plugin: Arc::from(COMMIT),
        code,
        message,
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    (reason, Vec::new())
}

/// Something cannot be judged, and so it is refused.
fn unjudged(problem: &Problem) -> Why {
    own(problem.reason, problem.message.clone())
}
