//! Random histories: a state that followed each change equals one computed again, and the plain model.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::super::queue_accounts::QuotaState;
use super::super::super::queue_accounts::testing::cluster::{cluster_state, put_queue, queue};
use super::super::super::queue_accounts::testing::histories::{
    HistoryNumbers, assert_batch_equals_single, assert_near, change, place_some,
};
use super::super::super::queue_accounts::testing::plain::{self, Plain, PlainQueue, add, excess, larger, of, written};
use crate::model::{ClusterState, ResourceId, StateDiff};
use crate::plugin_state::{PluginState, PluginStateChange};
use crate::plugins::capacity::QueueCapacityState;
use crate::policy::Compatibility;

const UNLIMITED: f64 = f64::MAX;
const UNLIMITED_SCALAR: f64 = 9_223_372_036_854_775_807.0;

/// Parent of a queue in the model; `None`: the root.
fn parent(state: &ClusterState, name: &str) -> Option<String> {
    let record = &state.queues().get(name)?.record;
    let parent = if record.parent.is_empty() {
        "root"
    } else {
        &*record.parent
    };
    (name != "root").then(|| parent.to_owned())
}

/// Path from a queue to the root, if it ends there.
fn path(state: &ClusterState, name: &str) -> Option<Vec<String>> {
    let mut line = vec![name.to_owned()];
    while let Some(parent) = parent(state, line.last()?) {
        if line.contains(&parent) || !state.queues().contains(&parent) {
            return None;
        }
        line.push(parent);
    }
    (line.last()? == "root").then_some(line)
}

/// Sums of every queue and of those below it, where all of them hang below the root.
fn sums(state: &ClusterState, compatibility: Compatibility) -> BTreeMap<String, PlainQueue> {
    let own = plain::queues(state, compatibility);
    let mut all: BTreeMap<String, PlainQueue> = BTreeMap::new();
    for (name, queue) in &own {
        for above in path(state, name).into_iter().flatten() {
            let sum = all.entry(above).or_default();
            add(&mut sum.allocated, &queue.allocated);
            add(&mut sum.request, &queue.request);
            add(&mut sum.elastic, &queue.elastic);
            add(&mut sum.inqueue, &queue.inqueue);
        }
    }
    all
}

fn children(state: &ClusterState, name: &str) -> Vec<String> {
    let names = state.queues().iter().map(|(name, _)| name.to_string());
    names
        .filter(|child| parent(state, child).as_deref() == Some(name))
        .collect()
}

/// Capability, real capability and deserved amounts of a queue by the model. The root deserves what its children do.
fn limits(state: &ClusterState, name: &str, compatibility: Compatibility) -> [Plain; 3] {
    let [capability, real, mut deserved] = limits_alone(state, name, compatibility);
    if parent(state, name).is_none() {
        deserved = plain::empty();
        for child in children(state, name) {
            add(&mut deserved, &limits_alone(state, &child, compatibility)[2]);
        }
    }
    [capability, real, deserved]
}

/// Limits of a queue; the deserved amounts of the root are left out.
fn limits_alone(state: &ClusterState, name: &str, compatibility: Compatibility) -> [Plain; 3] {
    let corrected = compatibility == Compatibility::Corrected;
    let record = &state.queues().get(name).unwrap().record;
    let guarantee = |name: &str| {
        written(
            state.queues().get(name).unwrap().record.guarantee.as_ref(),
            compatibility,
        )
    };
    let mut capability = written(record.capability.as_ref(), compatibility);
    let Some(above) = parent(state, name) else {
        let is_empty = capability
            .iter()
            .all(|(id, amount)| *id == ResourceId::PODS || *amount < 0.1);
        if is_empty {
            capability = Plain::from([(ResourceId::CPU, UNLIMITED), (ResourceId::MEMORY, UNLIMITED)]);
            for (_, entry) in state.nodes().filter(|(_, entry)| entry.record.is_ready(compatibility)) {
                let scalars = entry
                    .record
                    .allocatable
                    .iter()
                    .filter(|(id, _)| *id > ResourceId::MEMORY);
                capability.extend(scalars.map(|(id, _)| (id, UNLIMITED_SCALAR)));
            }
        }
        return [capability.clone(), capability, plain::empty()];
    };
    let [above_capability, above_real, _] = limits_alone(state, &above, compatibility);
    for (id, amount) in &above_capability {
        let is_plain = *id <= ResourceId::MEMORY;
        let own = record.capability.as_ref().and_then(|own| own.get(*id));
        let has_none = is_plain && of(&capability, *id) <= 0.0 || !is_plain && !capability.contains_key(id);
        if has_none && !(corrected && own.is_some_and(|amount| amount >= 0)) {
            capability.insert(*id, *amount);
        }
    }
    let mut guaranteed = plain::empty();
    for child in children(state, &above) {
        add(&mut guaranteed, &guarantee(&child));
    }
    let mut real = excess(&above_real, &guaranteed);
    for id in above_real.keys().filter(|_| corrected) {
        real.entry(*id).or_insert(0.0);
    }
    add(&mut real, &guarantee(name));
    for (id, amount) in &mut real {
        *amount = amount.min(capability.get(id).copied().unwrap_or(UNLIMITED));
    }
    let mut deserved = larger(&written(record.deserved.as_ref(), compatibility), &guarantee(name));
    if corrected {
        for (id, amount) in &mut deserved {
            let limit = real.get(id).copied().unwrap_or(UNLIMITED);
            *amount = amount.min(limit).max(of(&guarantee(name), *id));
        }
    }
    [capability, real, deserved]
}

fn assert_equals_model(state: &ClusterState, own: &QueueCapacityState, compatibility: Compatibility) {
    for (name, model) in sums(state, compatibility) {
        let account = own.accounts.account(&name).unwrap();
        assert_near(
            &format!("{name} allocated"),
            &model.allocated,
            &(&account.allocated).into(),
        );
        assert_near(&format!("{name} request"), &model.request, &(&account.request).into());
        assert_near(&format!("{name} elastic"), &model.elastic, &(&account.elastic).into());
        assert_near(&format!("{name} inqueue"), &model.inqueue, &(&account.inqueue).into());
        let [capability, real, deserved] = limits(state, &name, compatibility);
        assert_near(
            &format!("{name} capability"),
            &capability,
            account.limits.capability.as_ref().unwrap(),
        );
        assert_near(&format!("{name} real"), &real, &account.limits.real_capability);
        assert_near(&format!("{name} deserved"), &deserved, &account.deserved);
    }
}

#[test]
fn trees_that_followed_equal_a_rebuild() {
    for (compatibility, hierarchy) in [
        (Compatibility::UPSTREAM, true),
        (Compatibility::Corrected, true),
        (Compatibility::UPSTREAM, false),
        (Compatibility::Corrected, false),
    ] {
        let build = |state: &ClusterState| QueueCapacityState::of(state, compatibility, 1, hierarchy);
        for seed in 0..40 {
            let mut numbers = HistoryNumbers(seed);
            let mut state = cluster_state(&[(8000, 4000, 4000), (3000, 900, -1)]);
            for name in ["root", "q0", "q1", "q2"] {
                put_queue(&mut state, queue(name, 1));
            }
            let mut own = build(&state);
            for _ in 0..40 {
                let old = state.clone();
                for _ in 0..=numbers.below(3) {
                    change(&mut state, &mut numbers);
                }
                let step = PluginStateChange::Step(StateDiff { old: &old, new: &state });
                own.apply(&step).unwrap();
                assert_eq!(own, build(&state), "seed {seed}");
                if hierarchy {
                    assert_equals_model(&state, &own, compatibility);
                }
            }
            let placed = place_some(&mut state, &mut numbers);
            let followed = assert_batch_equals_single(&own, &state, &placed);
            if compatibility == Compatibility::Corrected {
                assert_eq!(followed, build(&state), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_cycle_below_the_root_ends() {
    let mut state = cluster_state(&[(1000, 1000, -1)]);
    for (name, parent) in [("root", "x"), ("x", "y"), ("y", "x"), ("z", "x"), ("w", "w")] {
        let mut record = queue(name, 1);
        record.parent = Arc::from(parent);
        put_queue(&mut state, record);
    }
    let own = QueueCapacityState::of(&state, Compatibility::UPSTREAM, 0, true);
    assert_eq!(own.unready_reason(), None, "the reference does not notice it");
    let room = |queue: &str| {
        own.accounts
            .account(queue)
            .unwrap()
            .limits
            .real_capability
            .amount(ResourceId::CPU)
    };
    assert_eq!((room("z"), room("w")), (0.0, 0.0));
    let own = QueueCapacityState::of(&state, Compatibility::Corrected, 0, true);
    for name in ["x", "y", "z", "w"] {
        let problem = own.known_account(name).unwrap_err();
        assert_eq!(
            (problem.code.name(), problem.field),
            ("QUEUE_PARENT_CYCLE", format!("queues[{name}].parent"))
        );
    }
    assert!(own.known_account("root").is_ok());
}
