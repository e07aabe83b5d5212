//! Jobs, queues and requests of tests about the admission ledger.

use pumice::server::pb;

use crate::records::{amounts, job, queue};
use crate::wire::BlockingClients;

/// Puts capacity-card in force.
pub fn put_policy(wire: &BlockingClients) {
    let reload = pb::ReloadPolicyRequest {
        document: "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n".to_owned(),
        ..Default::default()
    };
    wire.reload_policy(reload).unwrap();
}

/// Queue that may hold `cores` cores.
pub fn limited(name: &str, cores: u32) -> pb::Queue {
    pb::Queue {
        capability: Some(amounts(&[("cpu", &cores.to_string())])),
        ..queue(name)
    }
}

/// Job that needs `cores` cores.
pub fn wants(name: &str, of: &str, cores: u32) -> pb::Job {
    pb::Job {
        uid: format!("{name}-uid"),
        phase: pb::JobPhase::Pending.into(),
        min_member: 1,
        min_resources: Some(amounts(&[("cpu", &cores.to_string())])),
        ..job(name, of)
    }
}

/// Item that asks for a job.
pub fn ask(job: pb::Job, attempt: u64) -> pb::AdmitSubject {
    pb::AdmitSubject {
        subject: Some(pb::admit_subject::Subject::Job(job)),
        attempt,
    }
}

/// Request that confirms at the newest state.
pub fn confirm(items: Vec<pb::AdmitSubject>) -> pb::AdmitRequest {
    pb::AdmitRequest {
        mode: pb::AdmitMode::Confirm.into(),
        items,
        ..Default::default()
    }
}
