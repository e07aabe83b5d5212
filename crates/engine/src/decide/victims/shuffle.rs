//! Evictions without a preemptor: tasks that plugins name in rounds, without those that others spare.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::VictimVote;
use crate::model::{Problem, TaskRecord};
use crate::plugin::{EvictionOrder, Plugin, PluginContext, ShufflePart, VictimKind, VictimQuery};
use crate::policy::{Policy, PolicyHook};

/// Times of the last rounds in seconds since 1970, by name of the plugin.
pub type LastRounds = BTreeMap<Arc<str>, i64>;

/// Victims by position among the candidates, each once, and the choice of each plugin that was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ShuffledTasks {
    pub(crate) victims: Vec<usize>,
    pub(crate) votes: Vec<VictimVote>,
    /// Names of the plugins that made a round.
    pub(crate) rounds: Vec<Arc<str>>,
}

/// Candidates for evictions without a preemptor.
#[derive(Clone, Copy)]
pub(crate) struct ShuffleQuery<'a> {
    pub(crate) context: PluginContext<'a>,
    pub(crate) candidates: &'a [&'a TaskRecord],
    pub(crate) last_rounds: &'a LastRounds,
}

impl ShuffleQuery<'_> {
    /// Choice of one plugin by itself; `None`: it takes no part, or its last round was too short ago.
    pub(crate) fn ask(self, name: &str, plugin: &dyn Plugin) -> Result<Option<Vec<usize>>, Problem> {
        let Some(part) = plugin.shuffle_part() else {
            return Ok(None);
        };
        if let (ShufflePart::Names { interval }, Some(last), Some(now)) =
            (part, self.last_rounds.get(name), self.context.now)
            && now.nanos_since(*last) < interval.into()
        {
            return Ok(None);
        }
        let query = VictimQuery {
            kind: VictimKind::Shuffle,
            preemptor: &TaskRecord::default(),
            candidates: self.candidates,
            eviction_order: EvictionOrder::default(),
        };
        plugin.ordered_victims(self.context, &query)
    }

    /// Choice of the first tier whose plugins name victims, without what plugins of any tier spare.
    pub(crate) fn ask_tiers(self, policy: &Policy) -> Result<ShuffledTasks, Problem> {
        let tiers = policy.victims(VictimKind::Shuffle);
        let names = |hook: &&PolicyHook| matches!(hook.plugin.shuffle_part(), Some(ShufflePart::Names { .. }));
        let (mut shuffled, mut seen) = (ShuffledTasks::default(), BTreeSet::new());
        for tier in tiers {
            for hook in tier.iter().filter(names) {
                let chosen = self.ask(&hook.name, &*hook.plugin)?;
                if let Some(chosen) = &chosen {
                    shuffled.rounds.push(Arc::clone(&hook.name));
                    shuffled
                        .victims
                        .extend(chosen.iter().filter(|victim| seen.insert(**victim)));
                }
                shuffled.votes.push(vote(hook, chosen));
            }
            if !shuffled.victims.is_empty() {
                break;
            }
        }
        let spares = |hook: &&PolicyHook| hook.plugin.shuffle_part() == Some(ShufflePart::Spares);
        for hook in tiers.iter().flatten().filter(spares) {
            let before = std::mem::take(&mut shuffled.victims);
            let candidates: Vec<&TaskRecord> = before
                .iter()
                .filter_map(|at| self.candidates.get(*at).copied())
                .collect();
            let query = ShuffleQuery {
                candidates: &candidates,
                ..self
            };
            let goes = query.ask(&hook.name, &*hook.plugin)?.unwrap_or_default();
            shuffled.victims = goes.into_iter().filter_map(|at| before.get(at).copied()).collect();
            shuffled.votes.push(vote(hook, Some(shuffled.victims.clone())));
        }
        Ok(shuffled)
    }
}

fn vote(hook: &PolicyHook, victims: Option<Vec<usize>>) -> VictimVote {
    VictimVote {
        plugin: Arc::clone(&hook.name),
        victims,
    }
}
