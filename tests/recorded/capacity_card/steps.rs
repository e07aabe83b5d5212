//! Steps of a recorded case.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::case::{TaskMove, counts, move_task, texts};
use pumice_engine::cards::CARD_NAME_ANNOTATION;
use pumice_engine::model::{ClusterState, ErrorCode, JobRecord, Problem, TaskRecord, find_text};
use pumice_engine::plugins::capacity_card::rejection::QUEUE_NOT_OPEN;
use pumice_engine::plugins::capacity_card::{
    CardVotes as _, QuotaAmounts, QuotaRequester, QuotaVerdict, UpstreamCapacityState, annotations, check_card,
    node_order,
};
use pumice_engine::policy::Compatibility;

/// Short name of a task: names here are `namespace/job/task`, so that they differ; in messages they are
/// `namespace/task`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    format!("{}/{}", parts[0], parts[parts.len() - 1])
}

fn job<'a>(cluster_state: &'a ClusterState, name: &Json) -> &'a JobRecord {
    &cluster_state.jobs().get(name.as_str().unwrap()).unwrap().record
}

fn task<'a>(cluster_state: &'a ClusterState, name: &Json) -> &'a TaskRecord {
    &cluster_state.tasks().get(name.as_str().unwrap()).unwrap().record
}

fn events(verdict: &QuotaVerdict, object: &str, long: &str) -> Json {
    let rejections = verdict.rejections.iter();
    let events: Vec<Json> = rejections
        .filter(|rejection| rejection.reason.code != QUEUE_NOT_OPEN)
        .map(|rejection| {
            let message = rejection
                .reason
                .message
                .replace(&format!("<{long}>"), &format!("<{}>", short(long)));
            json!({"object": object, "type": "Warning", "reason": rejection.reason.code, "message": message})
        })
        .collect();
    json!(events)
}

pub(super) fn run(
    step: &Json,
    cluster_state: &ClusterState,
    state: &mut UpstreamCapacityState,
    weight: f64,
) -> Result<Json, Problem> {
    match step["op"].as_str().unwrap() {
        "enqueue" => enqueue(job(cluster_state, &step["job"]), cluster_state, state),
        "allocatable" => {
            let task = task(cluster_state, &step["task"]);
            let verdict = state.vote_task(
                cluster_state,
                &cluster_state.jobs().get(&task.job).unwrap().record.queue,
                task,
            )?;
            let object = format!("pod:{}", short(&task.name));
            Ok(json!({"allocatable": verdict.is_permitted(), "events": events(&verdict, &object, &task.name)}))
        }
        "allocate" => {
            let task = task(cluster_state, &step["task"]);
            let node = step["node"].as_str().unwrap();
            apply_event(task, cluster_state, state, TaskMove::Allocate(node))
        }
        "pipeline" => {
            let task = task(cluster_state, &step["task"]);
            apply_event(task, cluster_state, state, TaskMove::Pipeline(&task.node))
        }
        "deallocate" => {
            let task = task(cluster_state, &step["task"]);
            apply_event(task, cluster_state, state, TaskMove::Deallocate)
        }
        "node_order" => {
            let name =
                find_text(&task(cluster_state, &step["task"]).annotations, CARD_NAME_ANNOTATION).unwrap_or_default();
            let node = state.cards().node_cards(step["node"].as_str().unwrap());
            Ok(json!({"score": node_order(name, node, weight)}))
        }
        "queue_order" => {
            let (left, right) = (step["left"].as_str().unwrap(), step["right"].as_str().unwrap());
            let compare = state.compare_queues(left, right)?;
            let first = if compare == 0 { left < right } else { compare < 0 };
            Ok(json!({"compare": compare, "session_left_first": first}))
        }
        "task_request" => {
            let task = task(cluster_state, &step["task"]);
            Ok(match state.task_request_amounts(task) {
                Ok(request) => json!({"request": counts(&request)}),
                Err(error) => {
                    let error = error.to_string();
                    json!({"error": error.replace(&format!("<{}>", task.name), &format!("<{}>", short(&task.name)))})
                }
            })
        }
        "job_view" => {
            let measurements = state.current_job_amounts(cluster_state, job(cluster_state, &step["job"]));
            Ok(json!({
                "card_request": counts(&measurements.card_request), "allocated": counts(&measurements.allocated),
                "min_resources": counts(&measurements.min_resources), "elastic": counts(&measurements.elastic),
            }))
        }
        "parse_annotation" => Ok(annotation(step)),
        "check_scalar" => Ok(check(step)),
        other => Err(Problem::new(ErrorCode::QuantityInvalid, "", other)),
    }
}

fn enqueue(job: &JobRecord, cluster_state: &ClusterState, state: &mut UpstreamCapacityState) -> Result<Json, Problem> {
    let verdict = state.permit(cluster_state, job)?;
    let inqueue = &state.account(&job.queue).unwrap().inqueue;
    Ok(json!({
        "permitted": verdict.is_permitted(), "vote": if verdict.is_permitted() { 1 } else { -1 },
        "events": events(&verdict, &format!("podgroup:{}", job.name), ""),
        "queue_inqueue_after": counts(inqueue), "enqueue_action_skips_check": job.min_resources.is_none(),
    }))
}

fn apply_event(
    task: &TaskRecord,
    cluster_state: &ClusterState,
    state: &mut UpstreamCapacityState,
    moved: TaskMove<'_>,
) -> Result<Json, Problem> {
    move_task(state, cluster_state, task, moved)?;
    let queue = &cluster_state.jobs().get(&task.job).unwrap().record.queue;
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
    let present = find_text(&texts, key).is_some_and(|text| !text.is_empty());
    let cards = annotations::read_cards(&texts, key, Compatibility::UPSTREAM);
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
        let mut read = QuotaAmounts::default();
        for (name, amount) in counts["scalars"].as_object().into_iter().flatten() {
            read.set_card(&Arc::from(name.as_str()), integer_amount(amount));
        }
        read
    };
    let asker = match step["mode"].as_str().unwrap() {
        "job" => QuotaRequester::Job,
        "task" => QuotaRequester::Task,
        other => panic!("{other}"),
    };
    let (name, wanted) = (
        step["scalar_name"].as_str().unwrap(),
        integer_amount(&step["scalar_quant"]),
    );
    let checked = check_card(
        name,
        wanted,
        &read(&step["to_be_used"]),
        &read(&step["capability"]),
        asker,
    );
    let fits = !checked.rejects();
    json!({
        "ok": fits, "to_be_used": checked.total as f64, "capability": checked.capability as f64,
        "short_name": if fits { "" } else { name },
        "short_quant": if fits { 0.0 } else { wanted as f64 },
    })
}

#[expect(clippy::cast_possible_truncation, reason = "recorded amounts are whole numbers")]
fn integer_amount(amount: &Json) -> i128 {
    amount.as_f64().unwrap_or(0.0) as i128
}
