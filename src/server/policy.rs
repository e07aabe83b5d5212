//! `PolicyService`: documents in, versions out.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::engine::model::Problem;
use crate::state::{Origin, PolicyError, PolicyVersion, Reload, Reloaded, Rollback};
use crate::telemetry::ReloadOutcome;

use super::Edge;
use super::convert::ground::policy_name;
use super::convert::listing::page_size;
use super::convert::policy::{compatibility, listed, policy, report};
use super::pb;
use super::pb::policy_service_server::PolicyService;
use super::status::Failure;

/// The service.
#[derive(Debug)]
pub(super) struct Policies(pub(super) Arc<Edge>);

#[tonic::async_trait]
impl PolicyService for Policies {
    async fn reload_policy(
        &self,
        rpc: Request<pb::ReloadPolicyRequest>,
    ) -> Result<Response<pb::ReloadPolicyResponse>, Status> {
        let caller = rpc.remote_addr();
        let pb::ReloadPolicyRequest {
            name,
            document,
            expected_version,
            dry_run,
            strict,
            compatibility: asked,
        } = rpc.into_inner();
        let reload = Reload {
            name: policy_name(name),
            document: document.into(),
            expected_version,
            dry_run,
            strict,
            compatibility: compatibility("compatibility", &asked)?,
            origin: Origin::Rpc(caller.map_or_else(String::new, |address| address.ip().to_string())),
        };
        let origin = reload.origin.kind();
        let reloaded = self.0.state.reload_policy(reload).await;
        let Accepted {
            policy,
            unchanged,
            report,
            difference,
        } = self.accepted(reloaded, origin, dry_run)?;
        Ok(Response::new(pb::ReloadPolicyResponse {
            policy,
            unchanged,
            report,
            difference,
        }))
    }

    async fn rollback_policy(
        &self,
        rpc: Request<pb::RollbackPolicyRequest>,
    ) -> Result<Response<pb::RollbackPolicyResponse>, Status> {
        let pb::RollbackPolicyRequest {
            name,
            version,
            expected_version,
            dry_run,
        } = rpc.into_inner();
        let rollback = Rollback {
            name: policy_name(name),
            version,
            expected_version,
            dry_run,
        };
        let origin = "rollback";
        let reloaded = self.0.state.rollback_policy(rollback).await;
        let Accepted {
            policy,
            unchanged,
            report,
            difference,
        } = self.accepted(reloaded, origin, dry_run)?;
        Ok(Response::new(pb::RollbackPolicyResponse {
            policy,
            unchanged,
            report,
            difference,
        }))
    }

    async fn get_policy(&self, rpc: Request<pb::GetPolicyRequest>) -> Result<Response<pb::GetPolicyResponse>, Status> {
        let pb::GetPolicyRequest { name, version } = rpc.into_inner();
        let name = policy_name(name);
        let state = &self.0.state;
        let found = state.policy(&name, version).map_err(Failure::from)?;
        let active = state.policy(&name, 0).map_err(Failure::from)?;
        Ok(Response::new(pb::GetPolicyResponse {
            policy: Some(policy(&found, same(&found, &active))),
            report: Some(report(&found.report)),
        }))
    }

    async fn list_policies(
        &self,
        rpc: Request<pb::ListPoliciesRequest>,
    ) -> Result<Response<pb::ListPoliciesResponse>, Status> {
        let pb::ListPoliciesRequest {
            name,
            page_size: size,
            page_token,
        } = rpc.into_inner();
        let all = name.is_empty();
        let (rows, active) = if all {
            (self.0.state.active_policies(), None)
        } else {
            let versions = self
                .0
                .state
                .policy_versions(&policy_name(name))
                .map_err(Failure::from)?;
            let active = versions.first().cloned();
            (versions, active)
        };
        // Names go up, versions go down; the token is the last of the page before.
        let key = |row: &PolicyVersion| {
            if all {
                row.in_force.name.to_string()
            } else {
                row.in_force.version.to_string()
            }
        };
        let last: u64 = page_token.parse().unwrap_or(u64::MAX);
        let seen = |row: &&Arc<PolicyVersion>| match page_token.as_str() {
            "" => false,
            token if all => *row.in_force.name <= *token,
            _ => row.in_force.version >= last,
        };
        let mut rows = rows.iter().skip_while(seen);
        let page: Vec<_> = rows
            .by_ref()
            .take(page_size(size, self.0.declared.limits.page_records))
            .collect();
        let more = rows.next().is_some();
        let is_active = |row: &PolicyVersion| active.as_ref().is_none_or(|active| same(active, row));
        Ok(Response::new(pb::ListPoliciesResponse {
            next_page_token: page.last().filter(|_| more).map(|row| key(row)).unwrap_or_default(),
            policies: page.into_iter().map(|row| listed(row, is_active(row))).collect(),
        }))
    }
}

/// What both ways of changing a policy answer.
struct Accepted {
    policy: Option<pb::Policy>,
    unchanged: bool,
    report: Option<pb::PolicyReport>,
    difference: String,
}

impl Policies {
    /// Counts and logs what became of a document.
    fn accepted(
        &self,
        reloaded: Result<Reloaded, PolicyError>,
        origin: &'static str,
        dry_run: bool,
    ) -> Result<Accepted, Failure> {
        if !dry_run {
            self.0.metrics.reloaded(origin, ReloadOutcome::of(&reloaded));
        }
        let reloaded = reloaded.inspect_err(|error| {
            tracing::warn!(%error, origin, dry_run, "policy not changed");
        })?;
        let Reloaded {
            version,
            unchanged,
            difference,
            queues,
            ..
        } = reloaded;
        if !dry_run {
            let in_force = &version.in_force;
            let (policy, number, origin) = (&in_force.name, in_force.version, &version.origin);
            tracing::info!(%policy, version = number, %origin, unchanged, "policy in force");
        }
        Ok(Accepted {
            policy: Some(policy(&version, unchanged || !dry_run)),
            unchanged,
            report: Some(with_queues(report(&version.report), &queues)),
            difference,
        })
    }
}

/// The same with what is wrong with the queues that stand there, which is no part of the version.
fn with_queues(mut report: pb::PolicyReport, queues: &[Problem]) -> pb::PolicyReport {
    report.findings.extend(queues.iter().map(|problem| pb::Finding {
        severity: pb::Severity::Warning.into(),
        code: problem.reason.to_owned(),
        message: problem.message.clone(),
        path: problem.field.clone(),
        ..pb::Finding::default()
    }));
    report
}

fn same(a: &PolicyVersion, b: &PolicyVersion) -> bool {
    a.in_force.version == b.in_force.version
}
