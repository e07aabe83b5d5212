//! Explanation for people: the sentence first, then the results that it rests on.

use super::phrases::{self, count, count_of, if_any, ordinal};
use super::report::{
    AdmissionReport, ExplainReport, GangReport, OrderReport, QueueAccountRow, QueueReport, TaskClassReport,
};
use pumice_console::output::{self, TextTable};
use pumice_console::{CommandError, not_evaluated};

/// Prints a report.
pub(super) fn show(report: &ExplainReport) -> Result<(), CommandError> {
    output::paragraph(&report.verdict.summary)?;
    for hint in &report.verdict.hints {
        output::paragraph(&format!("  → {hint}"))?;
    }
    print_subject(report)?;
    if let Some(queue) = &report.queue {
        print_account(queue)?;
    }
    if let Some(admission) = &report.admission {
        output::paragraph("\nMAY THE JOB BE ENQUEUED?")?;
        print_admission(admission)?;
    }
    if let Some(order) = &report.order {
        print_order(order)?;
    }
    for one in &report.task_classes {
        print_class(one, report.verdict.impossible)?;
    }
    if let Some(gang) = &report.gang {
        print_gang(gang)?;
    }
    if !report.invalid_records.is_empty() {
        output::paragraph("\nREFUSED RECORDS (the last good ones count)")?;
        for invalid in &report.invalid_records {
            output::paragraph(&format!("  {}: {}", invalid.record, invalid.problems.join("; ")))?;
        }
    }
    not_evaluated::print(&report.not_evaluated)?;
    for note in &report.notes {
        output::paragraph(&format!("note: {note}"))?;
    }
    Ok(())
}

fn print_subject(report: &ExplainReport) -> Result<(), CommandError> {
    let subject = &report.subject;
    let ended = subject.finished.saturating_sub(subject.failed);
    let ended = ended.saturating_sub(subject.terminating);
    let stands = [
        (subject.pending, "waiting"),
        (subject.gated, "gated"),
        (subject.queue_gated, "gated by Volcano"),
        (subject.pipelined, "promised room"),
        (subject.placed, "placed"),
        (ended, "ended"),
        (subject.failed, "failed"),
        (subject.terminating, "ending"),
    ];
    let stands = stands.iter().filter(|(number, _)| *number > 0);
    let stands: Vec<String> = stands
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
    let mut parts = vec![count_of(subject.tasks, "task")];
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
    let evaluation_ref = &report.metadata;
    let with = match evaluation_ref.with.as_slice() {
        [] => String::new(),
        files => format!(", of a copy with {}", files.join(", ")),
    };
    output::paragraph(&format!("\n{}: {}", subject.name, parts.join("; ")))?;
    output::paragraph(&format!(
        "read at revision {} with {}, policy {} version {}{with}",
        evaluation_ref.revision,
        count_of(evaluation_ref.nodes, "node"),
        evaluation_ref.policy,
        evaluation_ref.policy_version
    ))?;
    for own in &subject.devices {
        output::paragraph(&format!("  {} has {}", own.task, phrases::device_numbers(own)))?;
    }
    Ok(())
}

fn print_account(queue: &QueueReport) -> Result<(), CommandError> {
    output::paragraph(&format!("\nQUEUE {}: {}", queue.name, queue.state))?;
    if queue.account.is_empty() {
        return output::paragraph("  no plugin of the policy keeps an account of it: no quota");
    }
    let has_guarantee = queue
        .account
        .iter()
        .any(|row| row.guarantee.is_some_and(|amount| amount > 0.0));
    let binds = |row: &QueueAccountRow| match (row.real_capability, row.capability) {
        (Some(bound), Some(capability)) => bound < capability,
        (bound, _) => bound.is_some(),
    };
    let has_bound = queue.account.iter().any(binds);
    let mut columns = vec!["RESOURCE", "ALLOCATED", "INQUEUE", "ELASTIC", "DESERVED"];
    columns.extend(has_guarantee.then_some("GUARANTEE"));
    columns.push("CAPABILITY");
    columns.extend(has_bound.then_some("MAY HOLD"));
    let mut table = TextTable::new(columns);
    for row in &queue.account {
        let shown = |value: f64| output::with_unit(value, row.unit);
        let mut cells = vec![
            row.resource.clone(),
            shown(row.allocated),
            shown(row.inqueue),
            shown(row.elastic),
            row.deserved.map(shown).unwrap_or_default(),
        ];
        cells.extend(has_guarantee.then(|| row.guarantee.map(shown).unwrap_or_default()));
        cells.push(capability_text(row));
        cells.extend(has_bound.then(|| row.real_capability.map_or_else(|| "no limit".to_owned(), shown)));
        table.row(cells);
    }
    output::table(&table)?;
    match queue.share {
        Some(share) if share > 0.0 => output::paragraph(&format!("  share {}", output::number(share))),
        _ => Ok(()),
    }
}

/// Capability of a resource. A choice of cards, such as `A|B`, has none of its own.
fn capability_text(row: &QueueAccountRow) -> String {
    match row.capability {
        Some(capability) => output::with_unit(capability, row.unit),
        None if row.resource.contains('|') => "that of its cards".to_owned(),
        None => "no limit".to_owned(),
    }
}

fn print_admission(admission: &AdmissionReport) -> Result<(), CommandError> {
    if let Some(problem) = &admission.problem {
        return output::paragraph(&format!("  cannot be judged: {problem}"));
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
    output::paragraph(&format!("  {verdict} ({votes})"))?;
    for reason in &admission.reasons {
        output::paragraph(&format!("  {} {}: {}", reason.plugin, reason.code, reason.message))?;
    }
    if let Some(headroom) = admission.headroom {
        output::paragraph(&format!("  its queue still admits {} of its like", count(headroom)))?;
    }
    if !admission.cards.is_empty() {
        output::paragraph(&format!("  cards that would do: {}", admission.cards.join(", ")))?;
    }
    Ok(())
}

fn print_order(order: &OrderReport) -> Result<(), CommandError> {
    output::paragraph("\nTURN")?;
    let ahead = match order.queues_ahead.as_slice() {
        [] => "none before it has waiting jobs".to_owned(),
        ahead => format!("before it with waiting jobs: {}", ahead.join(", ")),
    };
    if order.queue_position > 0 {
        output::paragraph(&format!(
            "  queue: {} of {}; {ahead}",
            ordinal(order.queue_position),
            count(order.queues)
        ))?;
    }
    for key in &order.queue_keys {
        let other = order.queues_ahead.first();
        let other = other.map(|first| format!(" (queue {first} has {})", key.first_queue_text));
        let (own, other) = (&key.own_text, other.unwrap_or_default());
        output::paragraph(&format!("    by {}: {own}{other}", key.plugin))?;
    }
    if order.job_position > 0 {
        let ahead = match order.jobs_ahead.as_slice() {
            [] => "first".to_owned(),
            ahead => {
                let more = order.jobs_ahead_count.saturating_sub(ahead.len() as u64);
                let more = if_any(more, |more| format!(" and {more} more"));
                format!("after {}{more}", ahead.join(", "))
            }
        };
        output::paragraph(&format!(
            "  job: {} of {} that wait in its queue; {ahead}",
            ordinal(order.job_position),
            count(order.jobs)
        ))?;
    }
    for key in &order.keys {
        let (own, first) = (&key.own_text, &key.first_in_queue_text);
        output::paragraph(&format!("    by {}: {own} (the first has {first})", key.plugin))?;
    }
    Ok(())
}

fn print_class(class: &TaskClassReport, impossible: bool) -> Result<(), CommandError> {
    let first = class.tasks.first().cloned().unwrap_or_default();
    let more = if_any(class.count.saturating_sub(1), |more| {
        format!(" and {more} more like it")
    });
    let gated = if_any(class.gated, |gated| format!(", {gated} gated"));
    output::paragraph(&format!(
        "\nTASK {first}{more}{gated}: asks for {}",
        phrases::requests_text(class)
    ))?;
    if let Some(problem) = &class.problem {
        return output::paragraph(&format!("  cannot be judged: {problem}"));
    }
    if let Some(admission) = &class.admission {
        output::paragraph("  may it be allocated in its queue?")?;
        print_admission(admission)?;
    }
    let later = if class.fit_later > class.fit_now {
        format!(", {} when what is being released is gone", count(class.fit_later))
    } else {
        String::new()
    };
    output::paragraph(&format!(
        "  {} of {} fit now{later}",
        count(class.fit_now),
        count_of(class.nodes, "node")
    ))?;
    print_rejections(class, impossible)?;
    if !class.rejections_by_plugin.is_empty() && class.fit_now < class.nodes {
        let alone = class
            .rejections_by_plugin
            .iter()
            .map(|one| format!("{} rejects {}", one.plugin, count(one.rejected)));
        output::paragraph(&format!(
            "  each plugin alone: {}",
            alone.collect::<Vec<_>>().join(", ")
        ))?;
    }
    print_nearest(class)?;
    print_best(class)?;
    match &class.would_get {
        Some(own) => output::paragraph(&format!("  now it would get {}", phrases::device_numbers(own))),
        None => Ok(()),
    }
}

fn print_nearest(class: &TaskClassReport) -> Result<(), CommandError> {
    for near in &class.nearest_nodes {
        let short = near.shortages.iter().map(|short| {
            let missing = output::with_unit(short.requested - short.idle, short.unit);
            format!(
                "{missing} of {} ({} idle)",
                short.resource,
                output::with_unit(short.idle, short.unit)
            )
        });
        output::paragraph(&format!(
            "  near: {} lacks {}",
            near.node,
            short.collect::<Vec<_>>().join(" and ")
        ))?;
    }
    Ok(())
}

fn print_rejections(class: &TaskClassReport, impossible: bool) -> Result<(), CommandError> {
    if class.rejections.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(["  NODES", "REJECTED BY", "REASON", "PREEMPTION", "NEAREST"]);
    for rejection in &class.rejections {
        let reason = &rejection.reason;
        let nearest = match phrases::measurements_text(reason).as_str() {
            "" => rejection.node.clone(),
            measurements => format!("{}: {measurements}", rejection.node),
        };
        table.row([
            format!("  {}", count(rejection.count)),
            format!("{} {}", reason.plugin, reason.code),
            reason.message.clone(),
            // Beside a request that never fits no preemption helps, whatever a node could free.
            if reason.preemption_may_help && !impossible {
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

fn print_best(class: &TaskClassReport) -> Result<(), CommandError> {
    if class.best_nodes.is_empty() {
        return Ok(());
    }
    let mut head = vec!["  NODE".to_owned(), "SCORE".to_owned()];
    let parts = class
        .best_nodes
        .first()
        .map(|best| best.parts.as_slice())
        .unwrap_or_default();
    head.extend(parts.iter().map(|part| part.name.clone()));
    let mut table = TextTable::new(head);
    for best in &class.best_nodes {
        let mut row = vec![format!("  {}", best.node), output::number(best.score)];
        row.extend(best.parts.iter().map(|part| output::number(part.score)));
        table.row(row);
    }
    output::table(&table)
}

fn print_gang(gang: &GangReport) -> Result<(), CommandError> {
    output::paragraph("\nTOGETHER")?;
    let held = phrases::already_placed(gang);
    let tried = format!(
        "{} of {} find a place",
        count(gang.placeable),
        count_of(gang.attempted, "waiting task")
    );
    output::paragraph(&format!(
        "  starts with {}{held}; {tried} ({})",
        count(gang.min_count),
        gang.method
    ))?;
    if let Some(blocked) = &gang.blocked_by {
        output::paragraph(&format!("  the next finds none: {blocked}"))?;
    }
    if let Some(after) = &gang.after_earlier_jobs {
        let passed = if_any(after.jobs_skipped, |jobs| format!(", {jobs} find no place themselves"));
        let own = format!("{} of its own find a place", count(after.placeable));
        output::paragraph(&format!(
            "  after those before it ({} placed{passed}): {own}",
            count(after.jobs_placed)
        ))?;
        if let Some(blocked) = &after.blocked_by {
            output::paragraph(&format!("  then the next finds none: {blocked}"))?;
        }
    }
    Ok(())
}
