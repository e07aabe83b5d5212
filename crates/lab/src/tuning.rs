//! Search for a policy: seeded samples of plugins and weights on training workloads, evaluated on other workloads.

use std::fmt::Write;

use crate::experiment::LabWorkload;
use crate::go_random::GoRandom;
use crate::policies::{LabPolicy, LabPolicyError, PublishedPolicy};
use crate::typical::TypicalTasks;

/// Plugins that score, in the order of documents.
const PLUGINS: [PublishedPolicy; 5] = [
    PublishedPolicy::GradientDescent,
    PublishedPolicy::BestFit,
    PublishedPolicy::Packing,
    PublishedPolicy::Clustering,
    PublishedPolicy::DotProduct,
];
/// Weights that are tried; most samples leave most plugins out.
const WEIGHTS: [i64; 8] = [0, 0, 0, 0, 1, 2, 3, 5];
/// Rules by which devices are picked.
const PICKS: [&str; 4] = ["score", "tightest", "widest", "first"];

/// Policy of the search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunedPolicy {
    /// Weights of [`PLUGINS`]; 0: the plugin is left out.
    weights: [i64; PLUGINS.len()],
    /// Rule by which devices are picked.
    pick: &'static str,
}

/// Policy with its outcome: means over workloads and seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedOutcome {
    /// Policy with its plugins and weights.
    pub policy: TunedPolicy,
    /// Percent of the devices allocated after the last arrival.
    pub allocation: f64,
    /// Percent of the tasks that were placed.
    pub placed: f64,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningResult {
    /// Policies that no other one exceeds in both measures on the workloads of the search, best allocation first.
    pub front: Vec<TunedOutcome>,
    /// Outcomes on the held-out workloads, in the order of the policies.
    pub held_out: Vec<TunedOutcome>,
    /// Position of the winner: the best allocation on the held-out workloads.
    pub winner: usize,
    /// Number of policies that were tried.
    pub tried: usize,
}

/// Workloads and seeds of a search.
#[derive(Clone, Debug)]
pub struct TuningPlan<'w> {
    /// Workloads on which policies are searched.
    pub training: Vec<&'w LabWorkload>,
    /// Workloads for the evaluation of the front. Empty: the training workloads with other seeds.
    pub held_out: Vec<&'w LabWorkload>,
    /// Seed of the search.
    pub seed: i64,
    /// Number of policies to try, beside those with one plugin each.
    pub samples: usize,
}

/// Seeds of the training workloads.
const TRAINING_SEEDS: [i64; 1] = [42];
const HELD_OUT_SEEDS: [i64; 2] = [47, 48];

impl TunedPolicy {
    /// Document of the policy, with the typical tasks of a workload.
    pub fn document(&self, typical: &TypicalTasks) -> String {
        let device_plugin = PublishedPolicy::GradientDescent.device_plugin();
        let mut text = format!(
            "actions: allocate\ntiers:\n- plugins:\n  - name: {device_plugin}\n    arguments:\n      pick: {}\n",
            self.pick
        );
        for (plugin, weight) in PLUGINS.iter().zip(self.weights).filter(|(_, weight)| *weight > 0) {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "  - name: {}\n    arguments:\n      weight: {weight}\n",
                plugin.plugin()
            );
            if *plugin == PublishedPolicy::GradientDescent {
                text.push_str(&typical.arguments("      "));
            }
        }
        text
    }

    /// Name for people: plugins with their weights, and the rule for devices.
    pub fn name(&self) -> String {
        let used = PLUGINS.iter().zip(self.weights).filter(|(_, weight)| *weight > 0);
        let used: Vec<String> = used
            .map(|(plugin, weight)| format!("{} x{weight}", plugin.plugin()))
            .collect();
        format!("{}, pick {}", used.join(" + "), self.pick)
    }

    /// Policies with one plugin each, as published.
    fn published() -> Vec<Self> {
        let of = |at: usize| {
            let mut weights = [0; PLUGINS.len()];
            if let Some(weight) = weights.get_mut(at) {
                *weight = 1;
            }
            let pick = if at == 0 { "score" } else { "tightest" };
            Self { weights, pick }
        };
        (0..PLUGINS.len()).map(of).collect()
    }

    fn sample(random: &mut GoRandom) -> Self {
        let mut draw = |items: usize| random.intn(items);
        let mut weights = [0; PLUGINS.len()];
        while weights.iter().all(|weight| *weight == 0) {
            for weight in &mut weights {
                *weight = WEIGHTS.get(draw(WEIGHTS.len())).copied().unwrap_or(0);
            }
        }
        let pick = PICKS.get(draw(PICKS.len())).copied().unwrap_or("score");
        Self { weights, pick }
    }
}

/// Searches a policy.
///
/// # Errors
/// A policy does not compile.
pub fn tune(
    plan: &TuningPlan<'_>,
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<TuningResult, LabPolicyError> {
    let mut random = GoRandom::new(plan.seed);
    let mut policies = TunedPolicy::published();
    while policies.len() < PLUGINS.len() + plan.samples {
        let policy = TunedPolicy::sample(&mut random);
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let tried = policies.len();
    let trained = judge(&policies, &plan.training, &TRAINING_SEEDS, threads, done)?;
    let mut front: Vec<TunedOutcome> = trained
        .iter()
        .filter(|own| !trained.iter().any(|other| other.exceeds(own)))
        .cloned()
        .collect();
    front.sort_by(|a, b| {
        b.allocation
            .total_cmp(&a.allocation)
            .then_with(|| a.policy.cmp(&b.policy))
    });
    let judges = if plan.held_out.is_empty() {
        &plan.training
    } else {
        &plan.held_out
    };
    let chosen: Vec<TunedPolicy> = front.iter().map(|own| own.policy.clone()).collect();
    let held_out = judge(&chosen, judges, &HELD_OUT_SEEDS, threads, done)?;
    let best = held_out
        .iter()
        .enumerate()
        .max_by(|(at, a), (other, b)| a.allocation.total_cmp(&b.allocation).then(other.cmp(at)));
    Ok(TuningResult {
        winner: best.map_or(0, |(at, _)| at),
        front,
        held_out,
        tried,
    })
}

impl TunedOutcome {
    /// True if this outcome is at least as good in both measures, and better in one.
    fn exceeds(&self, other: &Self) -> bool {
        let (own, theirs) = ((self.allocation, self.placed), (other.allocation, other.placed));
        own.0 >= theirs.0 && own.1 >= theirs.1 && own != theirs
    }
}

/// Outcomes of policies, in their order: means over workloads and seeds.
fn judge(
    policies: &[TunedPolicy],
    workloads: &[&LabWorkload],
    seeds: &[i64],
    threads: usize,
    done: &(dyn Fn(usize) + Sync),
) -> Result<Vec<TunedOutcome>, LabPolicyError> {
    let of = |policy: &TunedPolicy| -> Result<TunedOutcome, LabPolicyError> {
        let (mut allocation, mut placed, mut runs) = (0.0, 0.0, 0.0);
        for workload in workloads {
            let compiled = LabPolicy::compile(&policy.document(&workload.typical))?;
            for seed in seeds {
                let result = workload.run(&compiled, *seed);
                allocation += result.last.used as f64 / workload.trace.devices() as f64 / 10.0;
                placed += 100.0 * (result.arrived - result.unplaced) as f64 / result.arrived.max(1) as f64;
                runs += 1.0;
            }
        }
        Ok(TunedOutcome {
            policy: policy.clone(),
            allocation: allocation / runs,
            placed: placed / runs,
        })
    };
    crate::experiment::in_parallel(policies, threads, done, of)
}
