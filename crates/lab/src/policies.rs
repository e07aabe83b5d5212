//! Policies of the published experiments, as documents that a server takes.

use std::sync::Arc;

use pumice_engine::devices::{DevicePick, DeviceScorer};
use pumice_engine::plugin::Plugin;
use pumice_engine::policy::{CompileOptions, Policy, compile};

use crate::typical::TypicalTasks;

/// Policy of the published experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublishedPolicy {
    /// `01-Random` of the published tables: a random node.
    Random,
    /// `02-DotProd`.
    DotProduct,
    /// `03-GpuClustering`.
    Clustering,
    /// `04-GpuPacking`.
    Packing,
    /// `05-BestFit`.
    BestFit,
    /// `06-FGD`.
    GradientDescent,
}

impl PublishedPolicy {
    /// All policies, in the order of their names.
    pub const ALL: [Self; 6] = [
        Self::Random,
        Self::DotProduct,
        Self::Clustering,
        Self::Packing,
        Self::BestFit,
        Self::GradientDescent,
    ];

    /// Name in the published tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "01-Random",
            Self::DotProduct => "02-DotProd",
            Self::Clustering => "03-GpuClustering",
            Self::Packing => "04-GpuPacking",
            Self::BestFit => "05-BestFit",
            Self::GradientDescent => "06-FGD",
        }
    }

    /// Document without the arguments that depend on the workload and the seed.
    fn template(self) -> &'static str {
        match self {
            Self::Random => include_str!("../policies/random.yaml"),
            Self::DotProduct => include_str!("../policies/dot-product.yaml"),
            Self::Clustering => include_str!("../policies/clustering.yaml"),
            Self::Packing => include_str!("../policies/packing.yaml"),
            Self::BestFit => include_str!("../policies/best-fit.yaml"),
            Self::GradientDescent => include_str!("../policies/gradient-descent.yaml"),
        }
    }

    /// Plugins of the document, in its order.
    fn plugins(self) -> impl DoubleEndedIterator<Item = &'static str> {
        let lines = self.template().lines();
        lines.filter_map(|line| line.trim().strip_prefix("- name: "))
    }

    /// Plugin that scores the nodes: the last one of the document.
    pub fn plugin(self) -> &'static str {
        self.plugins().next_back().unwrap_or("")
    }

    /// Plugin that filters and picks devices: the first one of the document.
    pub fn device_plugin(self) -> &'static str {
        self.plugins().next().unwrap_or("")
    }

    /// Document of the policy for a workload with these typical tasks. Only a random policy has a seed.
    pub fn document(self, typical: &TypicalTasks, seed: i64) -> String {
        let arguments = match self {
            Self::Random => format!("      seed: {seed}\n"),
            Self::GradientDescent => typical.arguments("      "),
            Self::DotProduct | Self::Clustering | Self::Packing | Self::BestFit => String::new(),
        };
        format!("{}{arguments}", self.template())
    }
}

/// Error of a policy that the Lab cannot run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LabPolicyError(String);

impl LabPolicyError {
    pub(crate) fn thread_failed() -> Self {
        Self("a thread that ran experiments failed".to_owned())
    }

    pub(crate) fn unsolved(error: &crate::bound::BoundError) -> Self {
        Self(error.to_string())
    }

    pub(crate) fn unknown_workload() -> Self {
        Self("an experiment names a workload that is not among those given".to_owned())
    }
}

/// Policy that chooses nodes by their devices alone.
#[derive(Clone, Debug)]
pub struct LabPolicy {
    policy: Arc<Policy>,
    pick: DevicePick,
}

impl LabPolicy {
    /// Compiles a document.
    ///
    /// # Errors
    /// The document is not a valid policy, or a plugin filters or scores by properties other than devices.
    pub fn compile(document: &str) -> Result<Self, LabPolicyError> {
        let compiled = compile(document, &CompileOptions::default()).map_err(|report| {
            let errors: Vec<String> = report.errors().map(ToString::to_string).collect();
            LabPolicyError(errors.join("\n"))
        })?;
        Self::new(compiled.policy)
    }

    /// Takes a compiled policy.
    ///
    /// # Errors
    /// A plugin that filters or scores does so by something else than devices.
    pub fn new(policy: Arc<Policy>) -> Result<Self, LabPolicyError> {
        let (filters, scorers) = (&policy.hooks().filters, &policy.hooks().scorers);
        let other_filter = filters.iter().find(|hook| hook.plugin.hooks().device_pick.is_none());
        let other_score = scorers.iter().find(|hook| hook.plugin.device_scorer().is_none());
        if let Some(hook) = other_filter.or(other_score) {
            return Err(LabPolicyError(format!(
                "plugin `{}` judges nodes by more than their devices, and a trace of the Lab has no more: leave it out",
                hook.name
            )));
        }
        let pick = filters.iter().find_map(|hook| hook.plugin.hooks().device_pick);
        let Some(pick) = pick else {
            let message = "no plugin of the policy picks devices, so that tasks would share devices without regard to what is left";
            return Err(LabPolicyError(message.to_owned()));
        };
        Ok(Self { policy, pick })
    }

    /// Rule by which devices are picked.
    pub fn pick(&self) -> DevicePick {
        self.pick
    }

    /// Scores of the policy with their weights, in the order of their sum.
    pub fn scorers(&self) -> Vec<(i64, &dyn DeviceScorer)> {
        let weighted = |plugin: &'_ Arc<dyn Plugin>, weight: i32| {
            plugin.device_scorer().map(|own| own.weight() * i64::from(weight))
        };
        let hooks = self.policy.hooks().scorers.iter();
        hooks
            .filter_map(|hook| Some((weighted(&hook.plugin, hook.weight)?, hook.plugin.device_scorer()?)))
            .collect()
    }
}
