//! Steps of a recorded case.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::{counts, texts};
use pumice::engine::model::{JobRecord, Problem, ProblemKind, TaskRecord, View, text};
use pumice::engine::plugins::capacity_card::refusal::{Asker, QUEUE_NOT_OPEN};
use pumice::engine::plugins::capacity_card::{
    CapacityState, Counts, Move, Verdict, annotations, check_card, node_order,
};
use pumice::engine::policy::Compatibility;

/// Names of tasks here are `namespace/job/task`, so that they differ; in messages they are `namespace/task`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    format!("{}/{}", parts[0], parts[parts.len() - 1])
}

fn job<'a>(view: &'a View, name: &Json) -> &'a JobRecord {
    &view.jobs().get(name.as_str().unwrap()).unwrap().record
}

fn task<'a>(view: &'a View, name: &Json) -> &'a TaskRecord {
    &view.tasks().get(name.as_str().unwrap()).unwrap().record
}

fn events(verdict: &Verdict, object: &str, long: &str) -> Json {
    let refusals = verdict.refusals.iter();
    let events: Vec<Json> = refusals
        .filter(|refusal| refusal.reason.code != QUEUE_NOT_OPEN)
        .map(|refusal| {
            let message = refusal
                .reason
                .message
                .replace(&format!("<{long}>"), &format!("<{}>", short(long)));
            json!({"object": object, "type": "Warning", "reason": refusal.reason.code, "message": message})
        })
        .collect();
    json!(events)
}

pub(super) fn run(step: &Json, view: &View, state: &mut CapacityState, weight: f64) -> Result<Json, Problem> {
    match step["op"].as_str().unwrap() {
        "enqueue" => enqueue(job(view, &step["job"]), view, state),
        "allocatable" => {
            let task = task(view, &step["task"]);
            let verdict = state.vote_task(view, &view.jobs().get(&task.job).unwrap().record.queue, task)?;
            let object = format!("pod:{}", short(&task.name));
            Ok(json!({"allocatable": verdict.permitted(), "events": events(&verdict, &object, &task.name)}))
        }
        "allocate" => {
            let node = step["node"].as_str().unwrap();
            follow(
                task(view, &step["task"]),
                view,
                state,
                Move::Allocate { node, card: "" },
            )
        }
        "pipeline" => follow(
            task(view, &step["task"]),
            view,
            state,
            Move::Pipeline { node: "", card: "" },
        ),
        "deallocate" => follow(task(view, &step["task"]), view, state, Move::Deallocate),
        "node_order" => {
            let name = text(&task(view, &step["task"]).annotations, annotations::NAME).unwrap_or_default();
            let node = state.cards().on_node(step["node"].as_str().unwrap());
            Ok(json!({"score": node_order(name, node, weight)}))
        }
        "queue_order" => {
            let (left, right) = (step["left"].as_str().unwrap(), step["right"].as_str().unwrap());
            let compare = state.compare(left, right)?;
            let first = if compare == 0 { left < right } else { compare < 0 };
            Ok(json!({"compare": compare, "session_left_first": first}))
        }
        "task_request" => {
            let task = task(view, &step["task"]);
            Ok(match state.request(task) {
                Ok(request) => json!({"request": counts(&request)}),
                Err(error) => {
                    let error = error.to_string();
                    json!({"error": error.replace(&format!("<{}>", task.name), &format!("<{}>", short(&task.name)))})
                }
            })
        }
        "job_view" => {
            let figures = state.job_view_now(view, job(view, &step["job"]));
            Ok(json!({
                "card_request": counts(&figures.card_request), "allocated": counts(&figures.allocated),
                "min_resources": counts(&figures.min_resources), "elastic": counts(&figures.elastic),
            }))
        }
        "parse_annotation" => Ok(annotation(step)),
        "check_scalar" => Ok(check(step)),
        other => Err(Problem::new(ProblemKind::Unserved, "UNKNOWN_STEP", "", other)),
    }
}

fn enqueue(job: &JobRecord, view: &View, state: &mut CapacityState) -> Result<Json, Problem> {
    let verdict = state.vote_job(view, job)?;
    if verdict.permitted() {
        state.reserve(view, job, &verdict)?;
    }
    let inqueue = &state.account(&job.queue).unwrap().inqueue;
    Ok(json!({
        "permitted": verdict.permitted(), "vote": if verdict.permitted() { 1 } else { -1 },
        "events": events(&verdict, &format!("podgroup:{}", job.name), ""),
        "queue_inqueue_after": counts(inqueue), "enqueue_action_skips_check": job.min_resources.is_none(),
    }))
}

fn follow(task: &TaskRecord, view: &View, state: &mut CapacityState, step: Move<'_>) -> Result<Json, Problem> {
    state.follow(view, task, step)?;
    let queue = &view.jobs().get(&task.job).unwrap().record.queue;
    let account = state.account(queue).unwrap();
    Ok(json!({"queue_allocated_after": counts(&account.allocated), "queue_share_after": account.share()}))
}

fn annotation(step: &Json) -> Json {
    let texts = texts(&step["annotations"]);
    let key = match step["key"].as_str().unwrap() {
        annotations::QUOTA => annotations::QUOTA,
        annotations::REQUEST => annotations::REQUEST,
        other => panic!("{other}"),
    };
    let present = text(&texts, key).is_some_and(|text| !text.is_empty());
    let cards = annotations::cards(&texts, key, Compatibility::Upstream);
    let valid = cards.is_ok();
    let cards = counts(&cards.ok().flatten().unwrap_or_default());
    if present {
        json!({"cards_milli": cards["scalars"], "present": true, "valid": valid})
    } else {
        json!({"cards_milli": cards["scalars"], "present": false})
    }
}

fn check(step: &Json) -> Json {
    let read = |counts: &Json| {
        let mut read = Counts::default();
        for (name, amount) in counts["scalars"].as_object().into_iter().flatten() {
            read.set_card(&Arc::from(name.as_str()), whole(amount));
        }
        read
    };
    let asker = match step["mode"].as_str().unwrap() {
        "job" => Asker::Job,
        "task" => Asker::Task,
        other => panic!("{other}"),
    };
    let (name, wanted) = (step["scalar_name"].as_str().unwrap(), whole(&step["scalar_quant"]));
    let checked = check_card(
        name,
        wanted,
        &read(&step["to_be_used"]),
        &read(&step["capability"]),
        asker,
    );
    json!({
        "ok": checked.fits, "to_be_used": checked.total as f64, "capability": checked.capability as f64,
        "short_name": if checked.fits { "" } else { name },
        "short_quant": if checked.fits { 0.0 } else { wanted as f64 },
    })
}

#[expect(clippy::cast_possible_truncation, reason = "recorded amounts are whole numbers")]
fn whole(amount: &Json) -> i128 {
    amount.as_f64().unwrap_or(0.0) as i128
}
