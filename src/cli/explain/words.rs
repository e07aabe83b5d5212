//! Figures in sentences.

use super::report::{After, Class, Holder, Reason, Refusal};
use crate::cli::output;
use crate::server::pb;

/// A count with commas between thousands.
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

/// A count of things.
pub(super) fn many(number: u64, thing: &str) -> String {
    if number == 1 {
        format!("1 {thing}")
    } else {
        format!("{} {thing}s", count(number))
    }
}

/// An amount with its unit, such as `12 cores` and `4GiB`.
pub(super) fn amount(value: f64, unit: &str) -> String {
    match unit {
        "" => output::number(value),
        "bytes" => format!("{}B", output::bytes(value)),
        "cores" | "cards" if value == 1.0 => format!("1 {}", unit.trim_end_matches('s')),
        unit => format!("{} {unit}", output::number(value)),
    }
}

/// Figures of a quota: asked for, left, missing to admit it, ceiling.
pub(super) struct Quota {
    pub(super) asked: f64,
    pub(super) left: f64,
    pub(super) missing: f64,
    pub(super) ceiling: f64,
    pub(super) unit: String,
}

/// The figures of a refusal by quota, if it has them.
pub(super) fn quota(reason: &Reason) -> Option<Quota> {
    let figure = |name: &str| reason.figures.iter().find(|figure| figure.name == name);
    let (asked, total, ceiling) = (figure("requested")?, figure("total")?, figure("capability")?);
    Some(Quota {
        asked: asked.value,
        left: (ceiling.value - (total.value - asked.value)).max(0.0),
        missing: (total.value - ceiling.value).max(0.0),
        ceiling: ceiling.value,
        unit: asked.unit.clone(),
    })
}

/// Why a quota counts as empty, where its queue's record does not say one that can be read.
pub(super) fn unread_quota(reason: &Reason) -> Option<&str> {
    let (_, fault) = reason.message.split_once("; the quota counts as empty: ")?;
    Some(fault)
}

/// `2 of 8 NVIDIA-H100 cards left`.
pub(super) fn left(quota: &Quota, resource: &str) -> String {
    let (left, ceiling) = (quota.left, quota.ceiling);
    match quota.unit.as_str() {
        "bytes" => format!(
            "{} of {} {resource} left",
            amount(left, "bytes"),
            amount(ceiling, "bytes")
        ),
        unit => {
            let (left, ceiling) = (output::number(left), output::number(ceiling));
            format!("{left} of {ceiling} {resource} {unit} left")
        }
    }
}

/// `a/bert (6 cards, 2 cards of them not allocated yet)`.
pub(super) fn holder(holder: &Holder) -> String {
    let held = amount(holder.held, holder.unit);
    let reserved = if holder.reserved <= 0.0 {
        String::new()
    } else if holder.reserved < holder.held {
        format!(", {} of them not allocated yet", amount(holder.reserved, holder.unit))
    } else {
        ", not allocated yet".to_owned()
    };
    format!("{} ({held}{reserved})", holder.job)
}

/// `jobs a/x, a/y are before it`.
pub(super) fn takers(after: &After) -> Option<String> {
    let names: Vec<&str> = after.taken_by.iter().take(3).map(|taker| taker.job.as_str()).collect();
    let more = after.taken_by_count.saturating_sub(names.len() as u64);
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

/// The refusal of a job or a task in a few words.
pub(super) fn refused(admission: &pb::Admission) -> String {
    match (&admission.problem, admission.reasons.first()) {
        (Some(problem), _) => output::problem(problem),
        (None, Some(reason)) => reason.message.clone(),
        (None, None) => "its queue does not admit it".to_owned(),
    }
}

/// Why no node takes one more, in a few words.
pub(super) fn no_node(item: &pb::ScoreItem) -> String {
    if let Some(problem) = &item.problem {
        return output::problem(problem);
    }
    let rejections = item.filter.iter().flat_map(|filter| &filter.rejections);
    let mut most: Vec<&pb::Rejection> = rejections.collect();
    most.sort_by_key(|rejection| std::cmp::Reverse(rejection.count));
    let said = most.iter().take(3).map(|rejection| {
        let message = rejection.reason.as_ref().map(|reason| reason.message.as_str());
        let nodes = many(rejection.count.into(), "node");
        format!("{nodes}: {}", message.unwrap_or_default())
    });
    match said.collect::<Vec<_>>() {
        said if said.is_empty() => "no node is left".to_owned(),
        said => said.join("; "),
    }
}

/// Why some nodes refuse a task: `1,000 lack cpu (need 32 cores, the best has 12 cores idle: n-17)`.
pub(super) fn refusal(refusal: &Refusal) -> String {
    let reason = &refusal.reason;
    let nodes = count(refusal.count);
    let figure = |at: usize| reason.figures.get(at);
    if let ("resource-fit", Some(needed), Some(idle)) = (reason.plugin.as_str(), figure(0), figure(1)) {
        let verb = if refusal.count == 1 { "lacks" } else { "lack" };
        let best = if refusal.count == 1 { "it" } else { "the best" };
        let needed = amount(needed.value, &needed.unit);
        let idle = amount(idle.value, &idle.unit);
        let node = if refusal.node.is_empty() {
            String::new()
        } else {
            format!(": {}", refusal.node)
        };
        let never = if figure(2).is_some() {
            ", which is too small even when empty"
        } else {
            ""
        };
        let resource = &reason.resource;
        return format!("{nodes} {verb} {resource} (need {needed}, {best} has {idle} idle{node}{never})");
    }
    let verb = if refusal.count == 1 { "refuses" } else { "refuse" };
    let figures = reason.figures.iter();
    let figures = figures.map(|one| format!("{} {}", one.name, amount(one.value, &one.unit)));
    let figures: Vec<String> = figures.collect();
    let shown = match (refusal.node.as_str(), figures.is_empty()) {
        ("", _) | (_, true) => String::new(),
        (node, false) => format!(" ({node}: {})", figures.join(", ")),
    };
    format!("{nodes} {verb}: {}{shown}", reason.message)
}

/// What a task asks for: `cpu 32, memory 4Gi`.
pub(super) fn requests(class: &Class) -> String {
    if class.requests.is_empty() {
        return "nothing".to_owned();
    }
    let items = class.requests.iter().map(|(name, text)| format!("{name} {text}"));
    items.collect::<Vec<_>>().join(", ")
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
        assert_eq!(many(1, "node"), "1 node");
        assert_eq!(many(1_523, "node"), "1,523 nodes");
        let ordinals: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 112].into_iter().map(ordinal).collect();
        assert_eq!(
            ordinals,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]
        );
        assert_eq!(amount(1.0, "cores"), "1 core");
        assert_eq!(amount(4.0 * 1024.0 * 1024.0 * 1024.0, "bytes"), "4GiB");
    }
}
