//! An explanation for people: the sentence first, then what it rests on.

use super::report::{Admission, Class, Gang, Order, Queue, Report};
use super::words::{self, count, many, ordinal};
use crate::cli::Failure;
use crate::cli::output::{self, Table};

/// Prints it.
pub(super) fn show(report: &Report) -> Result<(), Failure> {
    output::line(&report.verdict.sentence)?;
    for hint in &report.verdict.hints {
        output::line(&format!("  → {hint}"))?;
    }
    subject(report)?;
    if let Some(queue) = &report.queue {
        account(queue)?;
    }
    if let Some(admission) = &report.admission {
        output::line("\nMAY THE JOB BE ENQUEUED?")?;
        admitted(admission)?;
    }
    if let Some(order) = &report.order {
        turn(order)?;
    }
    for one in &report.classes {
        class(one)?;
    }
    if let Some(gang) = &report.gang {
        together(gang)?;
    }
    if !report.invalid.is_empty() {
        output::line("\nREFUSED RECORDS (the last good ones count)")?;
        for invalid in &report.invalid {
            output::line(&format!("  {}: {}", invalid.record, invalid.faults.join("; ")))?;
        }
    }
    for note in &report.notes {
        output::line(&format!("note: {note}"))?;
    }
    Ok(())
}

fn subject(report: &Report) -> Result<(), Failure> {
    let subject = &report.subject;
    let ended = subject.finished.saturating_sub(subject.failed);
    let ended = ended.saturating_sub(subject.ending);
    let stands = [
        (subject.pending, "waiting"),
        (subject.gated, "gated"),
        (subject.pipelined, "promised room"),
        (subject.placed, "placed"),
        (ended, "ended"),
        (subject.failed, "failed"),
        (subject.ending, "ending"),
    ];
    let stands = stands.iter().filter(|(number, _)| *number > 0);
    let stands: Vec<String> = stands
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
    let mut parts = vec![many(subject.tasks, "task")];
    if !stands.is_empty() {
        parts.push(stands.join(", "));
    }
    if !subject.phase.is_empty() {
        parts.push(format!("phase {}", subject.phase));
    }
    if subject.min_member > 0 {
        parts.push(format!("starts with {}", count(subject.min_member)));
    }
    if subject.kind != "job" && !subject.job.is_empty() {
        parts.insert(0, format!("of job {}", subject.job));
    }
    let ground = &report.ground;
    output::line(&format!("\n{}: {}", subject.name, parts.join("; ")))?;
    output::line(&format!(
        "read at revision {} with {}, policy {} version {}",
        ground.revision,
        many(ground.nodes, "node"),
        ground.policy,
        ground.policy_version
    ))
}

fn account(queue: &Queue) -> Result<(), Failure> {
    output::line(&format!("\nQUEUE {}: {}", queue.name, queue.state))?;
    if queue.account.is_empty() {
        return output::line("  no plugin of the policy keeps an account of it: no quota");
    }
    let mut table = Table::new(["RESOURCE", "ALLOCATED", "INQUEUE", "ELASTIC", "DESERVED", "CAPABILITY"]);
    for row in &queue.account {
        let shown = |value: f64| words::amount(value, row.unit);
        table.row([
            row.resource.clone(),
            shown(row.allocated),
            shown(row.inqueue),
            shown(row.elastic),
            row.deserved.map(shown).unwrap_or_default(),
            row.capability.map_or_else(|| "no limit".to_owned(), shown),
        ]);
    }
    output::table(&table)
}

fn admitted(admission: &Admission) -> Result<(), Failure> {
    if let Some(problem) = &admission.problem {
        return output::line(&format!("  cannot be judged: {problem}"));
    }
    let verdict = if admission.permitted { "yes" } else { "no" };
    let votes = admission.votes.iter().map(|vote| {
        let vote_for = match vote.vote {
            1.. => "for",
            0 => "abstains",
            ..0 => "against",
        };
        format!("{} {vote_for}", vote.plugin)
    });
    let votes: Vec<String> = votes.collect();
    let votes = if votes.is_empty() {
        "no plugin of the policy votes".to_owned()
    } else {
        votes.join(", ")
    };
    output::line(&format!("  {verdict} ({votes})"))?;
    for reason in &admission.reasons {
        output::line(&format!("  {} {}: {}", reason.plugin, reason.code, reason.message))?;
    }
    if let Some(headroom) = admission.headroom {
        output::line(&format!("  its queue still admits {} of its like", count(headroom)))?;
    }
    if !admission.cards.is_empty() {
        output::line(&format!("  cards that would do: {}", admission.cards.join(", ")))?;
    }
    Ok(())
}

fn turn(order: &Order) -> Result<(), Failure> {
    output::line("\nTURN")?;
    let ahead = match order.queues_ahead.as_slice() {
        [] => "none before it has waiting jobs".to_owned(),
        ahead => format!("before it with waiting jobs: {}", ahead.join(", ")),
    };
    if order.queue_place > 0 {
        output::line(&format!(
            "  queue: {} of {}; {ahead}",
            ordinal(order.queue_place),
            count(order.queues)
        ))?;
    }
    if order.job_place > 0 {
        let ahead = match order.jobs_ahead.as_slice() {
            [] => "first".to_owned(),
            ahead => {
                let more = order.jobs_ahead_count.saturating_sub(ahead.len() as u64);
                let more = if more > 0 {
                    format!(" and {} more", count(more))
                } else {
                    String::new()
                };
                format!("after {}{more}", ahead.join(", "))
            }
        };
        output::line(&format!(
            "  job: {} of {} that wait in its queue; {ahead}",
            ordinal(order.job_place),
            count(order.jobs)
        ))?;
    }
    for key in &order.keys {
        let values = |values: &[f64]| {
            values
                .iter()
                .map(|value| output::number(*value))
                .collect::<Vec<_>>()
                .join(", ")
        };
        output::line(&format!(
            "  by {}: {} (the first has {})",
            key.plugin,
            values(&key.own),
            values(&key.first)
        ))?;
    }
    Ok(())
}

fn class(class: &Class) -> Result<(), Failure> {
    let first = class.tasks.first().cloned().unwrap_or_default();
    let more = class.count.saturating_sub(1);
    let more = if more > 0 {
        format!(" and {} more like it", count(more))
    } else {
        String::new()
    };
    let gated = if class.gated > 0 {
        format!(", {} gated", count(class.gated))
    } else {
        String::new()
    };
    output::line(&format!(
        "\nTASK {first}{more}{gated}: asks for {}",
        words::requests(class)
    ))?;
    if let Some(problem) = &class.problem {
        return output::line(&format!("  cannot be judged: {problem}"));
    }
    if let Some(admission) = &class.admission {
        output::line("  may it be allocated in its queue?")?;
        admitted(admission)?;
    }
    let later = if class.fit_later > class.fit_now {
        format!(", {} when what is being released is gone", count(class.fit_later))
    } else {
        String::new()
    };
    output::line(&format!(
        "  {} of {} fit now{later}",
        count(class.fit_now),
        many(class.nodes, "node")
    ))?;
    refusals(class)?;
    if !class.alone.is_empty() && class.fit_now < class.nodes {
        let alone = class
            .alone
            .iter()
            .map(|one| format!("{} refuses {}", one.plugin, count(one.refused)));
        output::line(&format!(
            "  each plugin alone: {}",
            alone.collect::<Vec<_>>().join(", ")
        ))?;
    }
    near(class)?;
    best(class)
}

fn near(class: &Class) -> Result<(), Failure> {
    for near in &class.nearest {
        let short = near.short.iter().map(|short| {
            let missing = words::amount(short.needed - short.idle, short.unit);
            format!(
                "{missing} of {} ({} idle)",
                short.resource,
                words::amount(short.idle, short.unit)
            )
        });
        output::line(&format!(
            "  near: {} lacks {}",
            near.node,
            short.collect::<Vec<_>>().join(" and ")
        ))?;
    }
    Ok(())
}

fn refusals(class: &Class) -> Result<(), Failure> {
    if class.refusals.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["  NODES", "REFUSED BY", "REASON", "EVICTION", "NEAREST"]);
    for refusal in &class.refusals {
        let reason = &refusal.reason;
        let figures = reason
            .figures
            .iter()
            .map(|one| format!("{} {}", one.name, words::amount(one.value, &one.unit)));
        let figures: Vec<String> = figures.collect();
        let nearest = if figures.is_empty() {
            refusal.node.clone()
        } else {
            format!("{}: {}", refusal.node, figures.join(", "))
        };
        table.row([
            format!("  {}", count(refusal.count)),
            format!("{} {}", reason.plugin, reason.code),
            reason.message.clone(),
            if reason.eviction_may_help {
                "may help"
            } else {
                "cannot help"
            }
            .to_owned(),
            nearest,
        ]);
    }
    output::table(&table)
}

fn best(class: &Class) -> Result<(), Failure> {
    if class.best.is_empty() {
        return Ok(());
    }
    let mut head = vec!["  NODE".to_owned(), "SCORE".to_owned()];
    let parts = class.best.first().map(|best| best.parts.as_slice()).unwrap_or_default();
    head.extend(parts.iter().map(|part| part.name.clone()));
    let mut table = Table::new(head);
    for best in &class.best {
        let mut row = vec![format!("  {}", best.node), output::number(best.score)];
        row.extend(best.parts.iter().map(|part| output::number(part.score)));
        table.row(row);
    }
    output::table(&table)
}

fn together(gang: &Gang) -> Result<(), Failure> {
    output::line("\nTOGETHER")?;
    let held = if gang.held > 0 {
        format!(", {} have a place", count(gang.held))
    } else {
        String::new()
    };
    let tried = format!(
        "{} of {} find a place",
        count(gang.placeable),
        many(gang.tried, "waiting task")
    );
    output::line(&format!(
        "  starts with {}{held}; {tried} ({})",
        count(gang.needed),
        gang.method
    ))?;
    if let Some(blocked) = &gang.blocked_by {
        output::line(&format!("  the next finds none: {blocked}"))?;
    }
    if let Some(after) = &gang.after_those_ahead {
        let passed = if after.jobs_passed_over > 0 {
            format!(", {} find no place themselves", count(after.jobs_passed_over))
        } else {
            String::new()
        };
        let own = format!("{} of its own find a place", count(after.placeable));
        output::line(&format!(
            "  after those before it ({} placed{passed}): {own}",
            count(after.jobs_placed)
        ))?;
        if let Some(blocked) = &after.blocked_by {
            output::line(&format!("  then the next finds none: {blocked}"))?;
        }
    }
    Ok(())
}
