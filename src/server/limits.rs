//! The limits in force, by name, as the server tells them.

use std::time::Duration;

use crate::state::Limits;

use super::MessageLimits;
use super::convert::amounts::{LIST_RESOURCES, QUESTION_RESOURCES};
use super::convert::ground::POSITIONS;
use super::convert::inline::RECORDS;
use super::convert::listing::PAGE_MAX;
use super::convert::question::{NAMED_PAIRS, PAIRS, PLUGINS, SAMPLES_MAX, SLOT_PAIRS, TASKS};
use super::convert::reader::{NAME_BYTES, TEXT_BYTES, TEXTS};
use super::pb;

/// All limits, by name.
pub(super) fn list(limits: &Limits, messages: MessageLimits) -> Vec<pb::Limit> {
    let mut all = state(limits);
    all.extend(edge(messages));
    all.sort_unstable();
    let limit = |(name, value): (&str, u64)| pb::Limit {
        name: name.to_owned(),
        value,
    };
    all.into_iter().map(limit).collect()
}

fn state(limits: &Limits) -> Vec<(&'static str, u64)> {
    let Limits {
        resource_names,
        sources,
        snapshot_records,
        queued_writes,
        stored_outcomes,
        sessions,
        session_changes,
        session_savepoints,
        session_lease,
        session_lease_max,
        session_age,
        tombstone_age,
        tombstones,
        policy_names,
        policy_versions,
        policy_bytes,
        wait,
    } = limits;
    vec![
        ("resource_names", count(*resource_names)),
        ("sources", count(*sources)),
        ("snapshot_records", count(*snapshot_records)),
        ("queued_writes", count(*queued_writes)),
        ("stored_outcomes", count(*stored_outcomes)),
        ("sessions", count(*sessions)),
        ("session_changes", *session_changes),
        ("session_savepoints", count(*session_savepoints)),
        ("session_lease_ms", millis(*session_lease)),
        ("session_lease_max_ms", millis(*session_lease_max)),
        ("session_age_ms", millis(*session_age)),
        ("tombstone_age_ms", millis(*tombstone_age)),
        ("tombstones", count(*tombstones)),
        ("policy_names", count(*policy_names)),
        ("policy_versions", count(*policy_versions)),
        ("policy_bytes", count(*policy_bytes)),
        ("wait_ms", millis(*wait)),
    ]
}

fn edge(messages: MessageLimits) -> Vec<(&'static str, u64)> {
    let MessageLimits {
        request_bytes,
        answer_bytes,
    } = messages;
    vec![
        ("request_bytes", count(request_bytes)),
        ("answer_bytes", count(answer_bytes)),
        ("tasks", count(TASKS)),
        ("pairs", PAIRS),
        ("named_pairs", NAMED_PAIRS),
        ("slot_pairs", SLOT_PAIRS),
        ("plugins", count(PLUGINS)),
        ("samples", SAMPLES_MAX.into()),
        ("positions", count(POSITIONS)),
        ("page_records", PAGE_MAX.into()),
        ("inline_records", count(RECORDS)),
        ("list_resources", count(LIST_RESOURCES)),
        ("question_resources", count(QUESTION_RESOURCES)),
        ("name_bytes", count(NAME_BYTES)),
        ("texts", count(TEXTS)),
        ("text_bytes", count(TEXT_BYTES)),
    ]
}

fn count(limit: usize) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX)
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
