//! `capacity-card` as it stands in a policy.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::effective::map;
use super::annotations::{NAME, OR, QUOTA, REQUEST, choice};
use super::config::Config;
use super::discovery::NodeCards;
use super::node_order::node_order;
use super::reserved;
use super::state::{CapacityState, Move};
use super::votes::Verdict;
use crate::engine::derived::{Derived, DerivedSet, Movement, TaskMove};
use crate::engine::model::{
    Amounts, CHUNK, Changes, Chunk, JobRecord, Problem, ProblemKind, ResourceTable, TaskClass, TaskRecord, Texts, View,
    text,
};
use crate::engine::plugin::{
    Facts, Filterer, Hooks, Lack, Opinion, OrderKey, Plugin, PluginDef, Prepared, Scorer, Scores, VictimQuestion,
};
use crate::engine::policy::{Arguments, Compatibility, Report, Switches, Value};

/// Its row in the registry.
pub(in super::super) const DEF: PluginDef = PluginDef {
    name: super::PLUGIN,
    families: &["admit", "filter", "order", "score", "victims"],
    task_annotations: &[NAME],
    job_annotations: &[REQUEST],
    queue_annotations: &[QUOTA],
    node_labels: &["*.product", "*.count", "*.memory", "*.replicas"],
    compile,
};

/// The plugin, compiled.
#[derive(Debug)]
struct CapacityCard {
    config: Config,
    compatibility: Compatibility,
}

fn compile(arguments: &Arguments, compatibility: Compatibility, report: &mut Report) -> Arc<dyn Plugin> {
    Arc::new(CapacityCard {
        config: Config::read(arguments, compatibility, report),
        compatibility,
    })
}

impl Plugin for CapacityCard {
    fn hooks(&self) -> Hooks {
        Hooks {
            filter: self.compatibility == Compatibility::Corrected,
            score: true,
            order: true,
            admit: true,
            victims: self.config.victims,
            accounts: self.compatibility == Compatibility::Corrected,
        }
    }

    fn effective_arguments(&self) -> Value {
        map(self.config.entries())
    }

    fn filterer<'a>(&'a self, class: &'a TaskClass, facts: Facts<'a>) -> Prepared<dyn Filterer + 'a> {
        let Some(state) = facts.derived.get::<CapacityState>(super::PLUGIN) else {
            return Err(not_derived());
        };
        let filter = state.node_filter(facts.view, class);
        Ok(filter.map(|filter| Box::new(filter) as Box<dyn Filterer>))
    }

    fn scorer<'a>(&'a self, class: &'a TaskClass, facts: Facts<'a>) -> Prepared<dyn Scorer + 'a> {
        let Some(name) = text(&class.annotations, NAME).filter(|name| name.contains(OR)) else {
            return Ok(None);
        };
        if self.compatibility == Compatibility::Upstream {
            return Ok(Some(Box::new(CardScorer {
                name: Arc::from(name),
                weight: self.config.weight,
                compatibility: self.compatibility,
                resources: facts.view.resources(),
            })));
        }
        let Some(state) = facts.derived.get::<CapacityState>(super::PLUGIN) else {
            return Err(not_derived());
        };
        let name = choice(name);
        Ok(name
            .contains(OR)
            .then(|| Box::new(state.node_scorer(facts.view, class, &name)) as Box<dyn Scorer>))
    }

    fn derive(&self, view: &View, _: &Switches) -> Option<Arc<dyn Derived>> {
        Some(Arc::new(CapacityState::of(view, self.config, self.compatibility)))
    }

    fn queue_keys(&self, derived: &DerivedSet, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let state: &CapacityState = derived.get(super::PLUGIN)?;
        Some(
            queues
                .iter()
                .map(|queue| state.order_key(queue).map(Vec::from))
                .collect(),
        )
    }

    fn admit_job(
        &self,
        derived: &mut DerivedSet,
        view: &View,
        job: &JobRecord,
        keep: bool,
    ) -> Result<Option<Opinion>, Problem> {
        let verdict = if keep {
            derived.change(super::PLUGIN, |state: &mut CapacityState| state.permit(view, job))
        } else {
            let state = derived.get::<CapacityState>(super::PLUGIN);
            state.map(|state| state.vote_job(view, job))
        };
        Ok(Some(opinion(verdict.unwrap_or_else(|| Err(not_derived()))?)))
    }

    fn admit_task(
        &self,
        derived: &DerivedSet,
        view: &View,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<Option<Opinion>, Problem> {
        match derived.get::<CapacityState>(super::PLUGIN) {
            Some(state) => state.vote_task(view, queue, task).map(|verdict| Some(opinion(verdict))),
            None => Err(not_derived()),
        }
    }

    fn admits_in_a_row(&self, derived: &DerivedSet, view: &View, queue: &str, task: &TaskRecord) -> u64 {
        let state = derived.get::<CapacityState>(super::PLUGIN);
        state.and_then(|state| state.in_a_row(view, queue, task)).unwrap_or(1)
    }

    fn victims(&self, question: &VictimQuestion<'_>) -> Result<Option<Vec<bool>>, Problem> {
        match question.derived.get::<CapacityState>(super::PLUGIN) {
            Some(state) => Ok(state.victims(question)),
            None => Err(not_derived()),
        }
    }

    fn lacks(&self, question: &VictimQuestion<'_>, node: &str) -> Result<Vec<Lack>, Problem> {
        match question.derived.get::<CapacityState>(super::PLUGIN) {
            Some(state) => Ok(state.lacks(question, node)),
            None => Err(not_derived()),
        }
    }

    fn reads_job(&self, task: &TaskRecord) -> bool {
        self.compatibility == Compatibility::Corrected
            && !self.config.mixed
            && text(&task.annotations, NAME).is_some_and(|name| name.contains(OR))
    }

    fn card_on(&self, derived: &DerivedSet, task: &TaskRecord, node: &str, admitted: &[Arc<str>]) -> Option<Arc<str>> {
        let state = derived.get::<CapacityState>(super::PLUGIN)?;
        let on_node = state.cards().on_node(node)?;
        let has = |card: &str| on_node.cards.get_key_value(card).map(|(card, _)| Arc::clone(card));
        // Under `corrected` a task that uses cards is admitted to some; the others use none, whatever they name.
        if !admitted.is_empty() || self.compatibility == Compatibility::Corrected {
            return admitted.iter().find_map(|card| has(card));
        }
        let name = text(&task.annotations, NAME)?;
        name.split(OR).find_map(has)
    }

    fn end_tentative(&self, derived: &mut DerivedSet) -> Result<(), Problem> {
        derived
            .change(super::PLUGIN, CapacityState::end_tentative)
            .ok_or_else(not_derived)
    }
}

fn not_derived() -> Problem {
    let message = "there is no state of `capacity-card` for this question";
    Problem::new(ProblemKind::Unserved, "NOT_DERIVED", "", message)
}

fn opinion(verdict: Verdict) -> Opinion {
    Opinion {
        reasons: verdict
            .refusals
            .into_iter()
            .map(|refusal| (refusal.reason, refusal.figures))
            .collect(),
        cards: verdict.cards,
        headroom: verdict.headroom,
        reserve: reserved::named(&verdict.least),
    }
}

impl Derived for CapacityState {
    fn follow(&mut self, view: &View, movement: &Movement<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let node = |moved: &TaskMove<'_>| Arc::clone(&moved.after.node);
        match movement {
            Movement::Allocate(moved) => {
                let step = Move::Allocate {
                    node: &node(moved),
                    card: moved.card,
                };
                CapacityState::follow(self, view, moved.after, step)?;
            }
            Movement::Pipeline(moved) => {
                let step = Move::Pipeline {
                    node: &node(moved),
                    card: moved.card,
                };
                CapacityState::follow(self, view, moved.after, step)?;
            }
            Movement::Deallocate(moved) => {
                CapacityState::follow(self, view, moved.before, Move::Deallocate)?;
            }
            Movement::Enqueue(job) => self.keep(job),
            Movement::Leave(job) => self.leave(job),
            Movement::Reserve(job) => return Ok(self.set_row(view, job)),
        }
        Ok(Vec::new())
    }

    fn follow_all(&mut self, view: &View, movements: &[Movement<'_>]) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut queues = BTreeSet::new();
        for row in movements.chunk_by(Movement::arrives_like) {
            if row.len() > 1 && self.compatibility == Compatibility::Corrected {
                self.hold_all(view, row.iter().filter_map(Movement::arrival));
            } else {
                for movement in row {
                    queues.extend(Derived::follow(self, view, movement)?);
                }
            }
        }
        Ok(queues)
    }

    fn follow_alike(&mut self, view: &View, movement: &Movement<'_>, times: u64) -> Result<(), Problem> {
        match movement {
            Movement::Allocate(moved) | Movement::Pipeline(moved) => {
                self.hold_alike(view, moved.after, times);
            }
            Movement::Deallocate(_) | Movement::Enqueue(_) | Movement::Leave(_) | Movement::Reserve(_) => {
                for _ in 0..times {
                    Derived::follow(self, view, movement)?;
                }
            }
        }
        Ok(())
    }

    fn carry(&self, changes: &Changes<'_>) -> Option<Arc<dyn Derived>> {
        Some(Arc::new(self.carried(changes)?))
    }

    fn copy(&self) -> Arc<dyn Derived> {
        Arc::new(self.clone())
    }
}

/// Scores nodes by the first acceptable card that they have.
struct CardScorer<'a> {
    name: Arc<str>,
    weight: f64,
    compatibility: Compatibility,
    resources: &'a ResourceTable,
}

impl Scorer for CardScorer<'_> {
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    fn score(&self, chunk: &Chunk, parts: &mut [Scores]) {
        let Some(scores) = parts.first_mut() else { return };
        *scores = [0.0; CHUNK];
        // Nodes of one pool have the same labels and the same amounts: each kind is looked into once.
        let mut kinds: Vec<(&Texts, &Amounts, f64)> = Vec::new();
        for offset in chunk.live().iter() {
            let (Some(entry), Some(score)) = (chunk.entry(offset), scores.get_mut(offset)) else {
                continue;
            };
            let record = &entry.record;
            let known = kinds
                .iter()
                .find(|(labels, allocatable, _)| **labels == record.labels && **allocatable == record.allocatable);
            *score = if let Some((_, _, score)) = known {
                *score
            } else {
                let cards = NodeCards::of(record, self.resources, self.compatibility);
                let own = node_order(&self.name, Some(&cards), self.weight);
                kinds.push((&record.labels, &record.allocatable, own));
                own
            };
        }
    }
}
