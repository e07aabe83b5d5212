//! Reservations, as they are listed and taken back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Edge;
use super::convert::accounts;
use super::convert::admit::named_amounts;
use super::convert::listing::Wanted;
use super::convert::policy::time;
use super::pb;
use super::status::Failure;
use crate::engine::World;
use crate::engine::model::Reservation;
use crate::state::Release;

impl Edge {
    /// Lists rows of the ledger by job, page by page.
    pub(super) async fn list_reservations(
        self: &Arc<Self>,
        request: pb::ListReservationsRequest,
    ) -> Result<pb::ListReservationsResponse, Failure> {
        let pb::ListReservationsRequest { queues, page } = request;
        let edge = Arc::clone(self);
        let queues: BTreeSet<String> = queues.into_iter().collect();
        let list = move || {
            let world = edge.state.world();
            let wanted = Wanted::read(Vec::new(), page, edge.declared.limits.page_records);
            let rows = world.view.reservations().after(wanted.after());
            let of_queues = rows.filter(|(_, row)| queues.is_empty() || queues.contains(&*row.queue));
            let (rows, next_page_token) = wanted.page(of_queues.map(|(job, row)| (&**job, row)));
            let reservations = rows
                .into_iter()
                .map(|row| edge.reservation(&world, row, edge.state.lease_left(&row.job)));
            Ok(pb::ListReservationsResponse {
                reservations: reservations.collect(),
                next_page_token,
            })
        };
        self.heavily(list).await
    }

    /// Takes a reservation back.
    pub(super) async fn release_reservation(
        self: &Arc<Self>,
        request: pb::ReleaseReservationRequest,
    ) -> Result<pb::ReleaseReservationResponse, Failure> {
        let pb::ReleaseReservationRequest { job, job_uid, attempt } = request;
        let most = self.declared.limits.name_bytes;
        if job.is_empty() {
            return Err(Failure::invalid("NAME_MISSING", "job: whose reservation is not said"));
        }
        for (field, text) in [("job", &job), ("job_uid", &job_uid)] {
            if text.len() > most {
                let message = format!("{field}: {} bytes; limit `name_bytes` is {most}", text.len());
                return Err(Failure::invalid("NAME_TOO_LONG", message));
            }
        }
        let release = Release {
            job: job.into(),
            uid: job_uid.into(),
            attempt,
        };
        let before = self.state.world();
        let released = self.state.release(release).await?;
        let Some(released) = released else {
            return Ok(pb::ReleaseReservationResponse::default());
        };
        let edge = Arc::clone(self);
        let told = move || Ok(edge.reservation(&before, &released.row, released.left));
        let reservation = Some(self.heavily(told).await?);
        Ok(pb::ReleaseReservationResponse { reservation })
    }

    fn reservation(&self, world: &World, row: &Reservation, left: Option<Duration>) -> pb::Reservation {
        let derived = world.policies.get(&row.policy).map(|policy| world.derived(policy));
        let held = derived.and_then(|derived| accounts::held_of(&derived, row));
        let now = self.state.clock().wall();
        pb::Reservation {
            job: row.job.to_string(),
            job_uid: row.uid.to_string(),
            attempt: row.attempt,
            queue: row.queue.to_string(),
            reserved: named_amounts(&row.amounts),
            held: held.unwrap_or_else(|| named_amounts(&row.amounts)),
            confirm_time: Some(time(row.confirmed)),
            expire_time: left.map(|left| time(now + left)),
        }
    }
}
