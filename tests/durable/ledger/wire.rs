//! CONFIRM, listing and release, as clients see them.

use pumice::server::pb;
use pumice::server::pb::session_change::Change;
use tonic::Code;

use super::{ask, confirm, limited, put_policy, wants};
use crate::support::records::{full_sync, session_ref};
use crate::support::{EmbeddedServer, reason};

fn start() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    put_policy(&server.wire);
    let cluster = pb::Cluster {
        queues: vec![limited("q", 10)],
        jobs: vec![wants("ns/a", "q", 6), wants("ns/b", "q", 5), wants("ns/c", "q", 4)],
        ..Default::default()
    };
    server.wire.apply_batch(full_sync("kube", 1, cluster)).unwrap();
    server
}

fn named(name: &str) -> pb::Job {
    pb::Job {
        name: name.to_owned(),
        ..Default::default()
    }
}

#[test]
fn a_confirmation_reports_the_reservation_and_its_durability() {
    let server = start();
    let items = vec![
        ask(named("ns/a"), 1),
        ask(named("ns/b"), 1),
        ask(named("ns/none"), 1),
        pb::AdmitSubject {
            subject: Some(pb::admit_subject::Subject::Task(pb::Task::default())),
            attempt: 0,
        },
        ask(wants("ns/new", "q", 4), 1),
    ];
    let reply = server.wire.admit(confirm(items)).unwrap();
    assert_eq!(reply.durability(), pb::Durability::Memory);
    let metadata = reply.metadata.unwrap();
    assert_eq!((metadata.policy.as_str(), metadata.policy_version), ("default", 2));
    let items = reply.result.unwrap().items;
    let said: Vec<(&str, bool)> = items.iter().map(|item| (&*item.job, item.permitted)).collect();
    assert_eq!(
        said,
        [
            ("ns/a", true),
            ("ns/b", false),
            ("", false),
            ("", false),
            ("ns/new", true)
        ]
    );
    let reserved = pb::Amount {
        resource: "cpu".to_owned(),
        value: 6_000.0,
    };
    assert_eq!(items[0].reserved, [reserved]);
    assert_eq!(items[0].event, None);
    let event = items[1].event.clone().unwrap();
    assert_eq!(
        (event.r#type.as_str(), event.reason.as_str()),
        ("Warning", "InsufficientCPUQuota")
    );
    assert_eq!(event.message, items[1].reasons[0].message);
    let problems: Vec<(&str, &str)> = items
        .iter()
        .filter_map(|item| item.problem.as_ref())
        .map(|problem| (&*problem.reason, &*problem.field))
        .collect();
    assert_eq!(
        problems,
        [
            ("JOB_UNKNOWN", "items[2].job.name"),
            ("TASK_CHECK_ONLY", "items[3].task")
        ]
    );
    // A promise counts at once for callers that only check.
    let check = pb::AdmitRequest {
        items: vec![ask(wants("ns/d", "q", 1), 0)],
        ..Default::default()
    };
    assert!(!server.wire.admit(check).unwrap().result.unwrap().items[0].permitted);
    let queues = server.wire.list_queues(pb::ListQueuesRequest::default()).unwrap();
    let inqueue = &queues.queues[0].accounts[0].inqueue;
    assert_eq!(inqueue[0].value, 10_000.0);
}

#[test]
fn reservations_are_listed_by_job_and_released() {
    let server = start();
    let items = ["ns/a", "ns/c"].map(|name| ask(named(name), 7)).to_vec();
    server.wire.admit(confirm(items)).unwrap();
    let first = pb::ListReservationsRequest {
        page: Some(pb::Page {
            size: 1,
            token: String::new(),
        }),
        ..Default::default()
    };
    let page = server.wire.list_reservations(first.clone()).unwrap();
    assert_eq!((page.reservations.len(), page.next_page_token.as_str()), (1, "ns/a"));
    let row = &page.reservations[0];
    assert_eq!(
        (row.job.as_str(), row.job_uid.as_str(), row.attempt, row.queue.as_str()),
        ("ns/a", "ns/a-uid", 7, "q")
    );
    assert_eq!((row.reserved[0].value, row.outstanding[0].value), (6_000.0, 6_000.0));
    assert!(row.confirm_time.is_some());
    let next = pb::ListReservationsRequest {
        page: Some(pb::Page {
            size: 1,
            token: page.next_page_token,
        }),
        ..first
    };
    let page = server.wire.list_reservations(next).unwrap();
    assert_eq!(
        (page.reservations[0].job.as_str(), page.next_page_token.as_str()),
        ("ns/c", "")
    );
    let elsewhere = pb::ListReservationsRequest {
        queues: vec!["another".to_owned()],
        page: None,
    };
    assert_eq!(server.wire.list_reservations(elsewhere).unwrap().reservations, []);

    let release = pb::ReleaseReservationRequest {
        job: "ns/a".to_owned(),
        attempt: 7,
        ..Default::default()
    };
    let released = server.wire.release_reservation(release.clone()).unwrap();
    assert_eq!(released.reservation.unwrap().outstanding[0].value, 6_000.0);
    assert_eq!(server.wire.release_reservation(release).unwrap().reservation, None);
    let late = server.wire.admit(confirm(vec![ask(named("ns/a"), 7)])).unwrap();
    let late = &late.result.unwrap().items[0];
    assert_eq!(
        (late.permitted, late.reasons[0].code.as_str()),
        (false, "ReservationReleased")
    );
    let nobody = server
        .wire
        .release_reservation(pb::ReleaseReservationRequest::default());
    assert_eq!(reason(&nobody.unwrap_err()), "NAME_MISSING");
}

#[test]
fn a_session_confirms_once_per_action() {
    let server = start();
    let session = server
        .wire
        .open_session(pb::OpenSessionRequest::default())
        .unwrap()
        .session;
    let tentative = pb::AdmitRequest {
        against: Some(session_ref(&session, 0, Vec::new())),
        mode: pb::AdmitMode::Tentative.into(),
        items: ["ns/a", "ns/c"].map(|name| ask(named(name), 0)).to_vec(),
        ..Default::default()
    };
    let votes = server.wire.admit(tentative).unwrap();
    assert!(votes.result.unwrap().items.iter().all(|item| item.permitted));
    // Meanwhile another job takes the capacity that the second would have used.
    let other = server.wire.admit(confirm(vec![ask(wants("ns/x", "q", 4), 0)])).unwrap();
    assert!(other.result.unwrap().items[0].permitted);
    let enqueued = ["ns/c", "ns/a"].map(|name| Change::JobEnqueued(name.to_owned()));
    let nothing = pb::AdmitRequest {
        against: Some(session_ref(&session, 1, Vec::new())),
        ..confirm(Vec::new())
    };
    let reply = server.wire.admit(nothing).unwrap();
    assert_eq!(reply.durability(), pb::Durability::Unspecified, "nothing is stored");
    let number = reply.metadata.unwrap().effects.unwrap().applied_through;
    let confirm_all = pb::AdmitRequest {
        against: Some(session_ref(&session, number, enqueued.to_vec())),
        ..confirm(Vec::new())
    };
    let reply = server.wire.admit(confirm_all.clone()).unwrap();
    let effects = reply.metadata.clone().unwrap().effects.unwrap();
    assert_eq!(effects.applied_through, number + 3);
    let said: Vec<(&str, bool)> = (reply.result.as_ref().unwrap().items.iter())
        .map(|item| (&*item.job, item.permitted))
        .collect();
    assert_eq!(said, [("ns/c", true), ("ns/a", false)]);
    let again = server.wire.admit(confirm_all).unwrap();
    assert_eq!(again.result, reply.result, "sent again: the recorded answer");
    let jobs = pb::ListJobsRequest {
        against: Some(session_ref(&session, number + 3, Vec::new())),
        ..Default::default()
    };
    let jobs = server.wire.list_jobs(jobs).unwrap().jobs;
    let phases: Vec<i32> = jobs.iter().map(|job| job.job.as_ref().unwrap().phase).collect();
    let (pending, inqueue) = (pb::JobPhase::Pending as i32, pb::JobPhase::Inqueue as i32);
    assert_eq!(
        phases,
        [pending, pending, inqueue],
        "one that is refused leaves the session, too"
    );
}

#[test]
fn shared_state_is_written_from_shared_state_only() {
    let server = start();
    let inline = pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::default())),
        ..pb::EvaluationRef::default()
    };
    let on_inline = pb::AdmitRequest {
        against: Some(inline.clone()),
        ..confirm(Vec::new())
    };
    let status = server.wire.admit(on_inline).unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::InvalidArgument, "CONFIRM_INLINE")
    );
    let open = pb::OpenSessionRequest {
        against: Some(inline),
        ..Default::default()
    };
    let session = server.wire.open_session(open).unwrap().session;
    let in_session = pb::AdmitRequest {
        against: Some(session_ref(&session, 0, Vec::new())),
        ..confirm(Vec::new())
    };
    let status = server.wire.admit(in_session).unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::InvalidArgument, "CONFIRM_INLINE")
    );
    let unknown = pb::AdmitRequest {
        plugins: vec!["nobody".to_owned()],
        ..confirm(vec![ask(named("ns/a"), 0)])
    };
    assert!(server.wire.admit(unknown).is_err());
}
