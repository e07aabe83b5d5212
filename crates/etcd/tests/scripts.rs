//! Random scripts of problems of an etcd of this process. `PUMICE_SCRIPTS` sets their number, and `PUMICE_SCRIPT_SEED` the first seed.

#![cfg(test)]

#[expect(dead_code, reason = "other tests use more of it")]
mod fake;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::testing::problem_scripts::{
    ScriptDice, TroubledLog, check_left_out_rules, check_problem_scripts,
};
use pumice_state::store::{AppendRules, Store, StoreRuntime};
use tokio::runtime::Runtime;

use fake::{CallPlan, CallProblem, EtcdLie, FakeEtcd, no_problems};

struct ScriptEtcd {
    etcd: FakeEtcd,
    dice: Arc<ScriptDice>,
    shares: BTreeMap<usize, Arc<AtomicU64>>,
    runtimes: BTreeMap<usize, Arc<Runtime>>,
    rules: AppendRules,
}

fn virtual_time() -> Arc<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Arc::new(builder.enable_all().start_paused(true).build().unwrap())
}

fn problem(dice: &ScriptDice) -> CallProblem {
    let lie = EtcdLie::ALL[usize::try_from(dice.roll(4)).unwrap()];
    match dice.roll(12) {
        0 | 1 => CallProblem::LoseRequest,
        2 | 3 => CallProblem::LoseReply,
        4 => CallProblem::HangBefore,
        5 => CallProblem::HangAfter,
        6 => CallProblem::NoRoom,
        7 => CallProblem::Late(dice.roll(120)),
        8 | 9 => CallProblem::Lie(lie),
        _ => CallProblem::LieAfter(lie),
    }
}

impl ScriptEtcd {
    fn new(seed: u64, rules: AppendRules) -> Self {
        Self {
            etcd: FakeEtcd::default(),
            dice: Arc::new(ScriptDice::new(seed ^ 0xe7cd)),
            shares: BTreeMap::new(),
            runtimes: BTreeMap::new(),
            rules,
        }
    }

    fn open_on(&self, plan: CallPlan, runtime: &Arc<Runtime>) -> Box<dyn Store> {
        let options = EtcdOptions {
            snapshot_every: 4,
            rules: self.rules,
            ..self.etcd.options_with(plan)
        };
        Box::new(EtcdStore::on(options, StoreRuntime::on(Arc::clone(runtime))).unwrap())
    }
}

impl TroubledLog for ScriptEtcd {
    fn open(&mut self, server: usize) -> Box<dyn Store> {
        let (dice, share) = (
            Arc::clone(&self.dice),
            Arc::clone(self.shares.entry(server).or_default()),
        );
        let plan: CallPlan = Arc::new(move |_| {
            if dice.roll(64) < share.load(Ordering::SeqCst) {
                problem(&dice)
            } else {
                CallProblem::None
            }
        });
        let runtime = virtual_time();
        self.runtimes.insert(server, Arc::clone(&runtime));
        self.open_on(plan, &runtime)
    }

    fn open_whole(&mut self) -> Box<dyn Store> {
        self.open_on(no_problems(), &virtual_time())
    }

    fn set_problems(&mut self, server: usize, share: u64) {
        self.shares.entry(server).or_default().store(share, Ordering::SeqCst);
    }

    fn silence_watches(&mut self, is_silent: bool) {
        self.etcd.silence_watches(is_silent);
    }

    fn disturb(&mut self, number: u64) {
        self.etcd.put(&format!("/pumice/log/{number:015x}"), b"foreign");
        self.etcd.put("/pumice/log/b/head", b"foreign");
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
    check_problem_scripts(ScriptEtcd::new);
}

#[test]
fn the_scripts_notice_a_rule_that_is_left_out() {
    check_left_out_rules(ScriptEtcd::new);
}
