//! `PolicyService`: documents in, versions out.
#![expect(clippy::unused_async, reason = "all methods of the protocol are called alike")]

use std::sync::Arc;

use tonic::Request;

use crate::audit::{AuditAction, AuditOutcome};
use crate::telemetry::LogText;
use pumice_engine::model::{ErrorCode, Problem};
use pumice_state::store::Durability;
use pumice_state::{
    DeletedPolicy, PolicyDeletion, PolicyError, PolicyOrigin, PolicyReload, PolicyRollback, PolicyVersion,
    ReloadedPolicy,
};

use super::convert;
use super::convert::evaluation_ref::{DEFAULT_POLICY, policy_name_or_default};
use super::convert::listing::page_size;
use super::convert::policy::{policy, policy_report, policy_summary, read_compatibility};
use super::large_messages::{LARGE_MESSAGE, work_beside_tasks};
use super::pb;
use super::policy_audit::{AuditDetails, AuditedCall, reload_details};
use super::status::{CallError, RpcResult};
use super::{BUILT_IN_POLICY, ServerContext};

impl ServerContext {
    pub(super) async fn reload_policy(
        self: Arc<Self>,
        rpc: Request<pb::ReloadPolicyRequest>,
    ) -> RpcResult<pb::ReloadPolicyResponse> {
        let (_, extensions, request) = rpc.into_parts();
        let pb::ReloadPolicyRequest {
            name,
            document,
            expected_version,
            dry_run,
            strict,
            compatibility: asked,
        } = request;
        let name = policy_name_or_default(name);
        let large = document.len() > LARGE_MESSAGE;
        let audited = AuditedCall::new(&extensions, AuditAction::ReloadPolicy, &*name);
        let reload = PolicyReload {
            name,
            document: document.into(),
            expected_version,
            dry_run,
            strict,
            compatibility: read_compatibility("compatibility", &asked)?,
            origin: PolicyOrigin::Rpc(audited.signature()),
        };
        let origin = reload.origin.kind();
        let state = Arc::clone(&self.state);
        let compiled = self
            .workers
            .policies
            .run(move |_| Ok(state.compile_reload(reload)))
            .await?;
        let _place = self.waiting_place()?;
        let reloaded = match compiled {
            Ok(compiled) => self.state.install_policy(compiled).await,
            Err(error) => Err(error),
        };
        work_beside_tasks(large, || self.record_outcome(reloaded, (origin, &audited), dry_run))
    }

    pub(super) async fn rollback_policy(
        self: Arc<Self>,
        rpc: Request<pb::RollbackPolicyRequest>,
    ) -> RpcResult<pb::ReloadPolicyResponse> {
        let (_, extensions, request) = rpc.into_parts();
        let pb::RollbackPolicyRequest {
            name,
            version,
            expected_version,
            dry_run,
        } = request;
        let name = policy_name_or_default(name);
        let audited = AuditedCall::new(&extensions, AuditAction::RollbackPolicy, &*name);
        let rollback = PolicyRollback {
            name,
            version,
            expected_version,
            dry_run,
            caller: audited.signature(),
        };
        let _place = self.waiting_place()?;
        let reloaded = self.state.rollback_policy(rollback).await;
        self.record_outcome(reloaded, ("rollback", &audited), dry_run)
    }

    pub(super) async fn delete_policy(
        self: Arc<Self>,
        rpc: Request<pb::DeletePolicyRequest>,
    ) -> RpcResult<pb::DeletePolicyResponse> {
        let (_, extensions, request) = rpc.into_parts();
        let pb::DeletePolicyRequest { name, expected_version } = request;
        if name.is_empty() {
            let message = "name: name the policy to delete; `default` is not the default here";
            return Err(CallError::new(ErrorCode::NameMissing, message));
        }
        let audited = AuditedCall::new(&extensions, AuditAction::DeletePolicy, name.as_str());
        let caller = audited.signature();
        let deletion = PolicyDeletion {
            replacement: (name == DEFAULT_POLICY).then(|| BUILT_IN_POLICY.into()),
            name: name.into(),
            expected_version,
        };
        let state = &self.state;
        let _place = self.waiting_place()?;
        let deleted = state.delete_policy(deletion).await;
        let deleted = audited.recorded(deleted, |done| (AuditOutcome::Done, deletion_details(done)))?;
        let DeletedPolicy { deleted, replacement } = deleted;
        let (durability, in_force) = (state.durability(), &deleted.in_force);
        let now = replacement.as_ref().map_or(0, |now| now.in_force.version);
        tracing::warn!(
            policy = %in_force.name, version = in_force.version, built_in_version = now, caller, %durability,
            "policy deleted, with all its versions"
        );
        Ok(pb::DeletePolicyResponse {
            deleted: Some(policy_summary(&deleted, false)),
            replacement: replacement.map(|now| policy_summary(&now, true)),
            durability: convert::durability(durability).into(),
        })
    }

    pub(super) async fn get_policy(
        self: Arc<Self>,
        rpc: Request<pb::GetPolicyRequest>,
    ) -> RpcResult<pb::GetPolicyResponse> {
        let pb::GetPolicyRequest { name, version } = rpc.into_inner();
        let name = policy_name_or_default(name);
        let state = &self.state;
        let found = state.policy_version(&name, version).map_err(CallError::from)?;
        let active = state.policy_version(&name, 0).map_err(CallError::from)?;
        Ok(pb::GetPolicyResponse {
            policy: Some(policy(&found, is_same_version(&found, &active))),
            report: Some(policy_report(&found.report)),
        })
    }

    pub(super) async fn list_policies(
        self: Arc<Self>,
        rpc: Request<pb::ListPoliciesRequest>,
    ) -> RpcResult<pb::ListPoliciesResponse> {
        let pb::ListPoliciesRequest {
            name,
            page_size: size,
            page_token,
        } = rpc.into_inner();
        let all = name.is_empty();
        let (rows, active) = if all {
            (self.state.active_policies(), None)
        } else {
            let versions = self
                .state
                .policy_versions(&policy_name_or_default(name))
                .map_err(CallError::from)?;
            let active = versions.first().cloned();
            (versions, active)
        };
        // Names ascend, versions descend; the token is the last row of the previous page.
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
            .take(page_size(size, self.read_options.limits.page_records))
            .collect();
        let more = rows.next().is_some();
        let is_active = |row: &PolicyVersion| active.as_ref().is_none_or(|active| is_same_version(active, row));
        Ok(pb::ListPoliciesResponse {
            next_page_token: page.last().filter(|_| more).map(|row| key(row)).unwrap_or_default(),
            policies: page
                .into_iter()
                .map(|row| policy_summary(row, is_active(row)))
                .collect(),
        })
    }

    /// Warns once that a policy of a caller does not survive a restart.
    fn warn_of_memory(&self) {
        if self.state.durability() == Durability::Memory {
            self.memory_warning.call_once(|| {
                tracing::warn!(
                    "policies that callers bring are in memory only: a restart loses them; set `data_dir` to make them durable"
                );
            });
        }
    }

    /// Records the outcome of a document in metrics and log.
    fn record_outcome(
        &self,
        reloaded: Result<ReloadedPolicy, PolicyError>,
        (origin, audited): (&'static str, &AuditedCall),
        dry_run: bool,
    ) -> RpcResult<pb::ReloadPolicyResponse> {
        if !dry_run {
            let details = reload_details(&reloaded, origin.to_owned());
            audited.record(AuditOutcome::of_reload(&reloaded), details);
            self.metrics.record_reload(origin, &reloaded);
        }
        let reloaded = reloaded.inspect_err(|error| {
            tracing::warn!(error = %LogText(error), origin, dry_run, "policy not changed");
        })?;
        let ReloadedPolicy {
            version,
            unchanged,
            difference,
            queue_problems: queues,
            awaited_sources: awaited,
            ..
        } = reloaded;
        if !dry_run {
            let in_force = &version.in_force;
            let (policy, number, origin) = (&in_force.name, in_force.version, &version.origin);
            let durability = self.state.durability();
            tracing::info!(%policy, version = number, %origin, unchanged, %durability, "policy in force");
            warn_of_awaited_sources(policy, &awaited);
            self.warn_of_memory();
        }
        let durability = if dry_run {
            pb::Durability::Unspecified
        } else {
            convert::durability(self.state.durability())
        };
        Ok(pb::ReloadPolicyResponse {
            durability: durability.into(),
            policy: Some(policy(&version, unchanged || !dry_run)),
            unchanged,
            awaited_sources: awaited.iter().map(ToString::to_string).collect(),
            report: Some(with_queue_problems(policy_report(&version.report), &queues)),
            difference,
        })
    }
}

/// Details of a deletion for the audit log.
fn deletion_details(done: &DeletedPolicy) -> AuditDetails {
    let (deleted, now) = (&done.deleted.in_force, done.replacement.as_ref());
    vec![
        ("version", deleted.version.into()),
        ("hash", deleted.hash.to_string().into()),
        ("replacement_version", now.map_or(0, |now| now.in_force.version).into()),
    ]
}

/// Warns of sources whose records have to be read otherwise for a policy in force.
pub(super) fn warn_of_awaited_sources(policy: &str, sources: &[Arc<str>]) {
    if sources.is_empty() {
        return;
    }
    let sources = sources.join(", ");
    tracing::warn!(
        policy, %sources,
        "records were read for other policies, without labels that this one reads or with pods derived by another release: filters that read \
         such labels refuse until the sources have sent their records again"
    );
}

/// Adds problems of existing queues, which are not part of the version, to a policy report.
fn with_queue_problems(mut report: pb::PolicyReport, queues: &[Problem]) -> pb::PolicyReport {
    report.diagnostics.extend(queues.iter().map(|problem| pb::Diagnostic {
        severity: pb::Severity::Warning.into(),
        code: problem.code.name().to_owned(),
        message: problem.message.clone(),
        path: problem.field.clone(),
        ..pb::Diagnostic::default()
    }));
    report
}

fn is_same_version(a: &PolicyVersion, b: &PolicyVersion) -> bool {
    a.in_force.version == b.in_force.version
}
