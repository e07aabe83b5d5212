//! Clauses with numbers, amounts and names.

use super::report::{
    EvictionReport, GangAfterEarlierJobs, GangReport, RejectionReason, RejectionRow, RequestedDevices, ResourceHolder,
    ResourceShortage, ShortMembers, TaskClassReport, TaskDevices,
};
use pumice_console::output::{self, with_unit};
use pumice_engine::plugin::OrderKeyPart;
use pumice_protocol::v1 as pb;

/// Number with commas between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text with a number; empty if the number is 0.
pub(super) fn if_any(number: u64, text: impl FnOnce(String) -> String) -> String {
    if number == 0 {
        String::new()
    } else {
        text(count(number))
    }
}

/// `, 2 have a place`. Empty: no task of the gang has one.
pub(super) fn already_placed(gang: &GangReport) -> String {
    if_any(gang.placed_count, |held| format!(", {held} have a place"))
}

/// Number of things, such as `1 node` and `2 nodes`.
pub(super) fn count_of(number: u64, thing: &str) -> String {
    if number == 1 {
        format!("1 {thing}")
    } else {
        format!("{} {thing}s", count(number))
    }
}

/// Amounts of a quota: requested, left, missing to admit the request, and the whole quota.
pub(super) struct QuotaUsage {
    pub(super) requested: f64,
    pub(super) left: f64,
    pub(super) missing: f64,
    pub(super) ceiling: f64,
    /// Amount that the queue would hold and reserve with the request.
    pub(super) total: f64,
    pub(super) unit: String,
    /// True if the ceiling is what the queue deserves, which may grow when other queues ask for less.
    pub(super) is_deserved: bool,
    /// Amount that the queue may hold at all.
    pub(super) bound: f64,
}

impl QuotaUsage {
    /// True if no end of other jobs lets the request pass.
    pub(super) fn never_fits(&self) -> bool {
        self.requested > self.bound
    }
}

/// Amounts of a rejection because the cluster would promise more than it lends.
pub(super) struct PromiseUsage {
    pub(super) requested: f64,
    /// Amount that is reserved for other jobs.
    pub(super) promised: f64,
    /// Amount that can still be reserved.
    pub(super) idle: f64,
    pub(super) unit: String,
}

/// Amounts of a rejection because of reservations, if the reason has them.
pub(super) fn promise_usage(reason: &RejectionReason) -> Option<PromiseUsage> {
    let measurement = |name: &str| reason.measurements.iter().find(|measurement| measurement.name == name);
    let (requested, with_it, idle) = (measurement("requested")?, measurement("inqueue")?, measurement("idle")?);
    Some(PromiseUsage {
        requested: requested.value,
        promised: (with_it.value - requested.value).max(0.0),
        idle: idle.value,
        unit: requested.unit.clone(),
    })
}

/// Amounts of a rejection by quota, if the reason has them.
pub(super) fn quota_usage(reason: &RejectionReason) -> Option<QuotaUsage> {
    let measurement = |name: &str| reason.measurements.iter().find(|measurement| measurement.name == name);
    let (asked, total) = (measurement("requested")?, measurement("total")?);
    let (capability, deserved) = (measurement("capability")?, measurement("deserved"));
    let ceiling = deserved.unwrap_or(capability);
    Some(QuotaUsage {
        is_deserved: deserved.is_some(),
        bound: capability.value,
        requested: asked.value,
        left: (ceiling.value - (total.value - asked.value)).max(0.0),
        missing: (total.value - ceiling.value).max(0.0),
        ceiling: ceiling.value,
        total: total.value,
        unit: asked.unit.clone(),
    })
}

/// Problem of a quota that is treated as empty because the annotation of its queue is unreadable.
pub(super) fn unreadable_quota(reason: &RejectionReason) -> Option<&str> {
    let (_, problem) = reason.message.split_once("; the quota counts as empty: ")?;
    Some(problem)
}

/// `2 of 8 NVIDIA-H100 cards left`.
pub(super) fn quota_left(quota: &QuotaUsage, resource: &str) -> String {
    let (left, ceiling) = (quota.left, quota.ceiling);
    match quota.unit.as_str() {
        "bytes" => format!(
            "{} of {} of {resource} left",
            with_unit(left, "bytes"),
            with_unit(ceiling, "bytes")
        ),
        unit => {
            let (left, ceiling) = (output::number(left), output::number(ceiling));
            let unit = if unit.is_empty() {
                String::new()
            } else {
                format!(" {unit}")
            };
            format!("{left} of {ceiling} {resource}{unit} left")
        }
    }
}

/// `a/bert (6 cards, 2 cards of them not allocated yet)`.
pub(super) fn holder_text(holder: &ResourceHolder) -> String {
    let held = with_unit(holder.amount, holder.unit);
    let reserved = if holder.reserved <= 0.0 {
        String::new()
    } else if holder.reserved < holder.amount {
        format!(
            ", {} of them not allocated yet",
            with_unit(holder.reserved, holder.unit)
        )
    } else {
        ", not allocated yet".to_owned()
    };
    format!("{} ({held}{reserved})", holder.job)
}

/// Tasks of a role or groups of a policy: `2 tasks of role ps`, `3 groups of worker`.
pub(super) fn members(short: &ShortMembers, number: u64) -> String {
    let of = if short.kind == "task" { "role " } else { "" };
    format!("{} of {of}{}", count_of(number, short.kind), short.name)
}

/// Evictions that make room: "preemption may help on 1 node: `preempt` evicts 1 task on n-1 (a/b-0)".
pub(super) fn eviction(eviction: &EvictionReport) -> String {
    let shown = output::first_names(&eviction.tasks, 3);
    let tasks = count_of(eviction.tasks.len() as u64, "task");
    let (action, node) = (eviction.action, &eviction.node);
    let evicts = format!("`{action}` evicts {tasks} on {node} ({shown})");
    let nodes = count_of(eviction.node_count, "node");
    if action == "preempt" {
        return format!("preemption may help on {nodes}: {evicts}");
    }
    match eviction.node_count {
        1 => format!("{evicts} for it"),
        _ => format!("{evicts} for it, or on one of {nodes}"),
    }
}

/// Request that is larger than every node: `it asks for 2 cards of x, and the largest node has 1 card`.
pub(super) fn beyond_nodes(beyond: &ResourceShortage) -> String {
    let resource = &beyond.resource;
    if beyond.allocatable <= 0.0 {
        return format!("no node has {resource}");
    }
    let asked = with_unit(beyond.requested, beyond.unit);
    let largest = with_unit(beyond.allocatable, beyond.unit);
    format!("it asks for {asked} of {resource} on one node, and the largest node has {largest}")
}

/// A wait without an end, behind a job that never starts.
pub(super) fn endless_wait(name: &str, job: &str, reason: &str) -> String {
    format!(
        "job {job} never starts: {reason}; {name} waits until job {job} is deleted or changed, or nodes come that take it"
    )
}

/// `jobs a/x, a/y are before it`.
pub(super) fn competing_jobs(after: &GangAfterEarlierJobs) -> Option<String> {
    let names: Vec<&str> = after
        .competing_jobs
        .iter()
        .take(3)
        .map(|taker| taker.job.as_str())
        .collect();
    let more = after.competing_job_count.saturating_sub(names.len() as u64);
    match names.as_slice() {
        [] => None,
        [only] => Some(format!("job {only} is before it")),
        names if more > 0 => Some(format!(
            "jobs {} and {} more are before it",
            names.join(", "),
            count(more)
        )),
        names => Some(format!("jobs {} are before it", names.join(", "))),
    }
}

/// Values of an order key with their meanings: `priority 10`, `share 0.25`, `not ready`.
pub(super) fn key_text(meanings: &[OrderKeyPart], values: &[f64]) -> String {
    let text = |(at, value): (usize, &f64)| match meanings.get(at) {
        Some(part) if part.is_flag => format!("{}{}", if *value == 0.0 { "not " } else { "" }, part.name),
        Some(part) => {
            let value = if part.is_negated { 0.0 - *value } else { *value };
            format!("{} {}", part.name, output::number(value))
        }
        None => output::number(*value),
    };
    values.iter().enumerate().map(text).collect::<Vec<_>>().join(", ")
}

/// Reason that the next task of a job found no place, in a clause; `None`: all found one.
pub(super) fn place_blockers(result: &pb::PlaceResult) -> Option<String> {
    if let Some(problem) = result.groups.iter().find_map(|group| group.problem.as_ref()) {
        return Some(output::problem(problem));
    }
    let message = |rejection: &pb::Rejection| rejection.reason.as_ref().map(|reason| reason.message.clone());
    // A rejection that is not about nodes comes from the queue.
    if let Some(quota) = result.blockers.iter().find(|rejection| rejection.count == 0) {
        return message(quota);
    }
    let mut most: Vec<&pb::Rejection> = result.blockers.iter().collect();
    most.sort_by_key(|rejection| std::cmp::Reverse(rejection.count));
    let said = most.iter().take(3).map(|rejection| {
        let nodes = count_of(rejection.count.into(), "node");
        format!("{nodes}: {}", message(rejection).unwrap_or_default())
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Rejection of a task by several nodes: `1,000 lack cpu (need 32 cores, the best has 12 cores idle: n-17)`.
pub(super) fn node_rejection(rejection: &RejectionRow) -> String {
    let reason = &rejection.reason;
    let nodes = count(rejection.count);
    let measurement = |at: usize| reason.measurements.get(at);
    if let ("resource-fit", Some(needed), Some(idle)) = (reason.plugin.as_str(), measurement(0), measurement(1)) {
        let verb = if rejection.count == 1 { "lacks" } else { "lack" };
        let best = if rejection.count == 1 { "it" } else { "the best" };
        let needed = with_unit(needed.value, &needed.unit);
        let idle = with_unit(idle.value, &idle.unit);
        let node = if rejection.node.is_empty() {
            String::new()
        } else {
            format!(": {}", rejection.node)
        };
        let never = if measurement(2).is_some() {
            ", which is too small even when empty"
        } else {
            ""
        };
        let resource = &reason.resource;
        return format!("{nodes} {verb} {resource} (need {needed}, {best} has {idle} idle{node}{never})");
    }
    let verb = if rejection.count == 1 {
        "rejects it"
    } else {
        "reject it"
    };
    let shown = match (rejection.node.as_str(), measurements_text(reason).as_str()) {
        ("", _) | (_, "") => String::new(),
        (node, measurements) => format!(" ({node}: {measurements})"),
    };
    format!("{nodes} {verb}: {}{shown}", reason.message)
}

/// Measurements of a reason: `requested 8 cards, idle 2 cards`. Empty: it has none.
pub(super) fn measurements_text(reason: &RejectionReason) -> String {
    let measurements = reason.measurements.iter();
    let measurements = measurements.map(|one| format!("{} {}", one.name, with_unit(one.value, &one.unit)));
    measurements.collect::<Vec<_>>().join(", ")
}

/// Requests of a task: `cpu 32, memory 4Gi, 1 device with 470 thousandths`.
pub(super) fn requests_text(class: &TaskClassReport) -> String {
    let items = class.requests.iter().map(|(name, text)| format!("{name} {text}"));
    let all: Vec<String> = items.chain(class.devices.as_ref().map(devices_text)).collect();
    if all.is_empty() {
        return "nothing".to_owned();
    }
    all.join(", ")
}

/// Devices that a task asks for: `2 whole devices of T4 or P100`, `1 device with 470 thousandths`.
fn devices_text(asked: &RequestedDevices) -> String {
    let memory = (asked.memory_mib > 0).then(|| format!("{} MiB", count(asked.memory_mib.into())));
    let part = (asked.milli > 0).then(|| format!("{} thousandths", asked.milli));
    let is_whole = asked.milli == 1000 || (part.is_none() && memory.is_none());
    let parts: Vec<String> = memory.into_iter().chain(part.filter(|_| !is_whole)).collect();
    let of = match asked.models.as_slice() {
        [] => String::new(),
        models => format!(" of {}", models.join(" or ")),
    };
    let kind = if is_whole { "whole device" } else { "device" };
    let number = count_of(asked.count.into(), kind);
    if parts.is_empty() {
        format!("{number}{of}")
    } else {
        format!("{number}{of} with {}", parts.join(" and "))
    }
}

/// Devices of a task: `device 3 of n-1`, `devices 0, 2 of n-1`.
pub(super) fn device_numbers(own: &TaskDevices) -> String {
    let numbers: Vec<String> = own.devices.iter().map(u32::to_string).collect();
    let noun = if numbers.len() == 1 { "device" } else { "devices" };
    format!("{noun} {} of {}", numbers.join(", "), own.node)
}

/// `1st`, `2nd`, `3rd`, `11th`.
pub(super) fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_523), "1,523");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(count_of(1, "node"), "1 node");
        assert_eq!(count_of(1_523, "node"), "1,523 nodes");
        let ordinals: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 112].into_iter().map(ordinal).collect();
        assert_eq!(
            ordinals,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]
        );
        assert_eq!(with_unit(1.0, "cores"), "1 core");
        let asked = |milli, memory_mib, models: &[&str]| {
            devices_text(&RequestedDevices {
                count: 2,
                milli,
                memory_mib,
                models: models.iter().map(|model| (*model).to_owned()).collect(),
            })
        };
        assert_eq!(asked(1000, 0, &["T4", "P100"]), "2 whole devices of T4 or P100");
        assert_eq!(asked(470, 8192, &[]), "2 devices with 8,192 MiB and 470 thousandths");
        assert_eq!(with_unit(4.0 * 1024.0 * 1024.0 * 1024.0, "bytes"), "4Gi");
    }
}
