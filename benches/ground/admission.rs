//! Queues with quotas of cards, and jobs that ask for some, which the benches of admission share.

use std::sync::Arc;

use pumice::engine::model::{Amounts, JobPhase, JobRecord, QueueRecord, ResourceId};

/// Number of queues.
pub(crate) const QUEUES: usize = 100;
/// The policy under which jobs are admitted.
pub(crate) const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

fn amounts(cores: i64) -> Amounts {
    Amounts::from_iter([(ResourceId::CPU, cores * 1_000), (ResourceId::MEMORY, cores << 30)])
}

/// A queue with room for whatever is asked.
pub(crate) fn queue(number: usize) -> QueueRecord {
    let quota = [(
        Arc::from("volcano.sh/card.quota"),
        Arc::from(r#"{"A100": 1000000, "H100": 1000000}"#),
    )];
    QueueRecord {
        name: format!("q{number:03}").into(),
        capability: Some(amounts(1_000_000)),
        annotations: quota.into_iter().collect(),
        ..QueueRecord::default()
    }
}

/// A job of eight tasks with a card each.
pub(crate) fn job(prefix: &str, number: usize) -> JobRecord {
    let request = [(Arc::from("volcano.sh/card.request"), Arc::from(r#"{"A100": 8}"#))];
    JobRecord {
        name: format!("{prefix}/j{number:06}").into(),
        queue: format!("q{:03}", number % QUEUES).into(),
        min_member: 8,
        phase: JobPhase::Pending,
        min_resources: Some(amounts(64)),
        annotations: request.into_iter().collect(),
        ..JobRecord::default()
    }
}
