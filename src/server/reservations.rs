//! `ListReservations` and `ReleaseReservation`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tonic::Request;

use super::ServerContext;
use super::convert::accounts;
use super::convert::admit::named_amounts;
use super::convert::durability;
use super::convert::listing::PageRequest;
use super::convert::policy::timestamp;
use super::convert::reader::check_name;
use super::pb;
use super::policy_audit::AuditedCall;
use super::status::{CallError, RpcResult};
use crate::audit::{AuditAction, AuditOutcome};
use pumice_engine::Snapshot;
use pumice_engine::model::{ErrorCode, Reservation};
use pumice_state::LedgerRelease;

impl ServerContext {
    /// Lists rows of the ledger by job, page by page.
    pub(super) async fn list_reservations(
        self: Arc<Self>,
        rpc: Request<pb::ListReservationsRequest>,
    ) -> RpcResult<pb::ListReservationsResponse> {
        let pb::ListReservationsRequest { queues, page } = rpc.into_inner();
        let edge = Arc::clone(&self);
        let queues: BTreeSet<String> = queues.into_iter().collect();
        let list = move || {
            let snapshot = edge.state.snapshot();
            let wanted = PageRequest::read(Vec::new(), page, edge.read_options.limits.page_records);
            let rows = snapshot.state.reservations().iter_after(&wanted.after);
            let of_queues = rows.filter(|(_, row)| queues.is_empty() || queues.contains(&*row.queue));
            let (rows, next_page_token) = wanted.cut_page(of_queues.map(|(job, row)| (&**job, row)));
            let reservations = rows
                .into_iter()
                .map(|row| edge.reservation(&snapshot, row, edge.state.lease_left(&row.job)));
            Ok(pb::ListReservationsResponse {
                reservations: reservations.collect(),
                next_page_token,
            })
        };
        self.run_blocking(list).await
    }

    /// Ends a reservation, and leaves a line about it in the audit log.
    pub(super) async fn release_reservation(
        self: Arc<Self>,
        rpc: Request<pb::ReleaseReservationRequest>,
    ) -> RpcResult<pb::ReleaseReservationResponse> {
        let job = rpc.get_ref().job.clone();
        let audited = AuditedCall::new(rpc.extensions(), AuditAction::ReleaseReservation, job);
        let released = self.release_row(rpc.into_inner()).await;
        audited.recorded(released, |reply| match &reply.reservation {
            None => (AuditOutcome::Unchanged, Vec::new()),
            Some(row) => (AuditOutcome::Done, vec![("queue", row.queue.as_str().into())]),
        })
    }

    async fn release_row(
        self: &Arc<Self>,
        request: pb::ReleaseReservationRequest,
    ) -> RpcResult<pb::ReleaseReservationResponse> {
        let pb::ReleaseReservationRequest { job, job_uid, attempt } = request;
        if job.is_empty() {
            return Err(CallError::new(
                ErrorCode::NameMissing,
                "job: the name of the job is missing",
            ));
        }
        for (field, text) in [("job", &job), ("job_uid", &job_uid)] {
            check_name(field, text, &self.read_options.limits)?;
        }
        let release = LedgerRelease {
            job: job.into(),
            uid: job_uid.into(),
            attempt,
        };
        let before = self.state.snapshot();
        let place = self.waiting_place()?;
        let released = self.state.release(release).await?;
        drop(place);
        let reservation = match released {
            None => None,
            Some(released) => {
                let edge = Arc::clone(self);
                let row = move || Ok(edge.reservation(&before, &released.row, released.lease_left));
                Some(self.run_blocking(row).await?)
            }
        };
        Ok(pb::ReleaseReservationResponse {
            reservation,
            durability: durability(self.state.durability()).into(),
        })
    }

    fn reservation(&self, snapshot: &Snapshot, row: &Reservation, left: Option<Duration>) -> pb::Reservation {
        let derived = snapshot
            .policies
            .get(&row.policy)
            .map(|policy| snapshot.plugin_states(policy));
        let held = derived.and_then(|derived| accounts::reserved_amounts(&derived, row));
        let now = self.state.clock().wall();
        pb::Reservation {
            job: row.job.to_string(),
            job_uid: row.uid.to_string(),
            attempt: row.attempt,
            queue: row.queue.to_string(),
            reserved: named_amounts(&row.amounts),
            outstanding: held.unwrap_or_else(|| named_amounts(&row.amounts)),
            confirm_time: Some(timestamp(row.confirmed)),
            expire_time: left.map(|left| timestamp(now + left)),
        }
    }
}
