//! Random scripts of problems of an API server of this process. `PUMICE_SCRIPTS` sets their number, and `PUMICE_SCRIPT_SEED` the first seed.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use more of it")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::testing::problem_scripts::{
    ScriptDice, TroubledLog, check_left_out_rules, check_problem_scripts,
};
use pumice_state::store::{AppendRules, Store, StoreRuntime};
use tokio::runtime::Runtime;

use support::{FakeObjectApi, Lie, ProblemPlan, RequestProblem};

struct ScriptApi {
    api: FakeObjectApi,
    dice: Arc<ScriptDice>,
    shares: BTreeMap<usize, Arc<AtomicU64>>,
    runtimes: BTreeMap<usize, Arc<Runtime>>,
    rules: AppendRules,
}

fn virtual_time() -> Arc<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Arc::new(builder.enable_all().start_paused(true).build().unwrap())
}

fn problem(dice: &ScriptDice) -> RequestProblem {
    let pick = |count: usize| usize::try_from(dice.roll(count as u64)).unwrap();
    let lie = Lie::ALL[pick(Lie::ALL.len())];
    match dice.roll(14) {
        0 | 1 => RequestProblem::LoseRequest,
        2 | 3 => RequestProblem::LoseReply,
        4 => RequestProblem::HangBefore,
        5 => RequestProblem::HangAfter,
        6 => RequestProblem::StatusAfter([500, 504, 409][pick(3)]),
        7 => RequestProblem::Status([403, 404, 409, 410][pick(4)]),
        8 | 9 => RequestProblem::Status([429, 500, 503][pick(3)]),
        10 | 11 => RequestProblem::Lie(lie),
        _ => RequestProblem::LieAfter(lie),
    }
}

impl ScriptApi {
    fn new(seed: u64, rules: AppendRules) -> Self {
        Self {
            api: FakeObjectApi::default(),
            dice: Arc::new(ScriptDice::new(seed ^ 0xab1)),
            shares: BTreeMap::new(),
            runtimes: BTreeMap::new(),
            rules,
        }
    }

    fn open_on(&self, plan: ProblemPlan, runtime: &Arc<Runtime>) -> Box<dyn Store> {
        let _entered = runtime.enter();
        let options = KubernetesStoreOptions {
            timeout: Duration::from_millis(200),
            slots: 8,
            snapshot_every: 4,
            rules: self.rules,
            ..self.api.options_with(plan)
        };
        Box::new(KubernetesStore::on(options, StoreRuntime::on(Arc::clone(runtime))).unwrap())
    }
}

impl TroubledLog for ScriptApi {
    fn open(&mut self, server: usize) -> Box<dyn Store> {
        let (dice, share) = (
            Arc::clone(&self.dice),
            Arc::clone(self.shares.entry(server).or_default()),
        );
        let plan: ProblemPlan = Arc::new(move |_, _| {
            if dice.roll(64) < share.load(Ordering::SeqCst) {
                problem(&dice)
            } else {
                RequestProblem::None
            }
        });
        let runtime = virtual_time();
        self.runtimes.insert(server, Arc::clone(&runtime));
        self.open_on(plan, &runtime)
    }

    fn open_whole(&mut self) -> Box<dyn Store> {
        self.open_on(Arc::new(|_, _| RequestProblem::None), &virtual_time())
    }

    fn set_problems(&mut self, server: usize, share: u64) {
        self.shares.entry(server).or_default().store(share, Ordering::SeqCst);
    }

    fn silence_watches(&mut self, is_silent: bool) {
        self.api.silence_watches(is_silent);
    }

    fn disturb(&mut self, number: u64) {
        if self.api.objects("-log-0001").is_empty() {
            return;
        }
        match number % 3 {
            0 => self.api.copy_as("-log-0001", &format!("pumice-log-{number:08}")),
            1 => self.api.touch(&format!("-log-{:04}", number % 8)),
            _ => self.api.forget_history(),
        }
    }

    fn pass(&mut self, server: usize, time: Duration) {
        self.runtimes[&server].block_on(async move { tokio::time::sleep(time).await });
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[test]
fn whatever_the_responses_acknowledged_entries_stay_and_doubts_are_reported() {
    check_problem_scripts(ScriptApi::new);
}

#[test]
fn the_scripts_notice_a_rule_that_is_left_out() {
    check_left_out_rules(ScriptApi::new);
}
