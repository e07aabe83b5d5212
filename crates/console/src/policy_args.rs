//! Policy of a query: the two arguments of every command with queries.

use clap::Args;

use pumice_protocol::v1 as pb;

/// Policy of the server.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Name of the policy
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Profile of the policy; required for a `KubeSchedulerConfiguration` with several profiles
    #[arg(long, value_name = "NAME")]
    policy_profile: Option<String>,
}

impl PolicyArgs {
    /// Name of the policy. Default: `default`.
    pub fn name(&self) -> &str {
        &self.policy
    }

    /// Reference to shared state under the policy.
    pub fn latest_ref(&self) -> pb::LatestRef {
        pb::LatestRef {
            policy: self.policy.clone(),
            profile: self.policy_profile.clone().unwrap_or_default(),
            ..pb::LatestRef::default()
        }
    }

    /// Evaluation reference to shared state under the policy.
    pub fn evaluation_ref(&self) -> pb::EvaluationRef {
        against(self.latest_ref())
    }
}

/// Evaluation reference to shared state.
pub fn against(latest: pb::LatestRef) -> pb::EvaluationRef {
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(latest)),
        ..pb::EvaluationRef::default()
    }
}
