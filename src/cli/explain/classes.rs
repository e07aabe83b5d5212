//! Waiting tasks, equal ones together, and what every plugin says to each kind.

use std::collections::BTreeMap;

use prost::Message as _;

use super::ask::Asker;
use super::report::{Admission, Alone, Class, Figure, Part, Reason, Refusal, Scored, Vote};
use super::rooms::{self, Rooms};
use crate::cli::{Failure, output};
use crate::server::pb;

/// Tasks that are named.
const NAMED: usize = 10;

/// Equal tasks.
#[derive(Debug)]
pub(in crate::cli) struct Kind {
    pub(in crate::cli) tasks: Vec<pb::Task>,
    /// The server knows them by their names.
    pub(super) stored: bool,
}

/// Puts tasks together that differ in name and age only, in the order of their first.
pub(in crate::cli) fn kinds(tasks: &[pb::Task], stored: bool) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for task in tasks {
        let like = pb::Task {
            name: String::new(),
            uid: String::new(),
            creation_time: None,
            priority: 0,
            ..task.clone()
        };
        let next = kinds.len();
        let place = *known.entry(like.encode_to_vec()).or_insert(next);
        match kinds.get_mut(place) {
            Some(kind) => kind.tasks.push(task.clone()),
            None => kinds.push(Kind {
                tasks: vec![task.clone()],
                stored,
            }),
        }
    }
    kinds
}

/// The task that stands for a stored one in a question, or the task itself.
pub(super) fn asked(task: &pb::Task, stored: bool) -> pb::Task {
    if !stored {
        return task.clone();
    }
    pb::Task {
        name: task.name.clone(),
        ..pb::Task::default()
    }
}

/// What is to be known of one kind. `in_queue`: its job is stored, so that its queue can be asked.
pub(super) async fn class(
    asker: &mut Asker,
    kind: &Kind,
    nodes: &[pb::NodeStatus],
    top: u32,
    in_queue: bool,
) -> Result<Class, Failure> {
    let Some(first) = kind.tasks.first() else {
        return Ok(Class::default());
    };
    let task = asked(first, kind.stored);
    let later = asker
        .filter(&task, pb::ResourceFit::FutureIdle, pb::FilterDetail::Nodes)
        .await?;
    let mut class = Class {
        tasks: kind.tasks.iter().take(NAMED).map(|task| task.name.clone()).collect(),
        count: kind.tasks.len() as u64,
        gated: kind.tasks.iter().filter(|task| task.gated).count() as u64,
        requests: requests(first),
        problem: later.problem.as_ref().map(output::problem),
        nodes: nodes.len() as u64,
        ..Class::default()
    };
    if class.problem.is_some() {
        return Ok(class);
    }
    let now = asker
        .filter(&task, pb::ResourceFit::Idle, pb::FilterDetail::Nodes)
        .await?;
    class.fit_now = now.fit_count.into();
    class.fit_names = now.fit.map(|set| set.names).unwrap_or_default();
    class.fit_later = later.fit_count.into();
    class.later_names = later.fit.as_ref().map(|set| set.names.clone()).unwrap_or_default();
    let rooms = Rooms::of(nodes, true);
    class.refusals = refusals(&later, &rooms);
    let alone = asker.filters_alone(&task).await?.into_iter();
    class.alone = alone.map(|(plugin, refused)| Alone { plugin, refused }).collect();
    if class.fit_later == 0 {
        class.nearest = rooms.nearest(&rooms::requests(first));
    } else {
        let fit = if class.fit_now > 0 {
            pb::ResourceFit::Idle
        } else {
            pb::ResourceFit::FutureIdle
        };
        class.best = best(&asker.score(&task, fit, top).await?);
    }
    if in_queue {
        let subject = pb::admit_subject::Subject::Task(task);
        class.admission = Some(admission(asker, subject).await?);
    }
    Ok(class)
}

/// Admit's verdict on one subject, with every plugin's vote.
pub(super) async fn admission(asker: &mut Asker, subject: pb::admit_subject::Subject) -> Result<Admission, Failure> {
    let verdict = asker.admit(vec![subject.clone()], Vec::new()).await?.into_iter().next();
    let verdict = verdict.unwrap_or_default();
    let problem = verdict.problem.as_ref().map(output::problem);
    let votes = match problem {
        Some(_) => Vec::new(),
        None => asker.votes(&subject).await?,
    };
    Ok(Admission {
        permitted: verdict.permitted,
        problem,
        votes: votes
            .into_iter()
            .map(|vote| Vote {
                plugin: vote.plugin,
                vote: vote.vote,
            })
            .collect(),
        reasons: verdict.reasons.iter().map(|one| reason(one, &one.figures)).collect(),
        headroom: verdict.headroom,
        cards: verdict.cards.into_iter().map(|choice| choice.card).collect(),
    })
}

pub(super) fn reason(reason: &pb::Reason, figures: &[pb::Figure]) -> Reason {
    let figure = |figure: &pb::Figure| Figure {
        name: figure.name.clone(),
        value: figure.value,
        unit: figure.unit.clone(),
    };
    Reason {
        plugin: reason.plugin.clone(),
        code: reason.code.clone(),
        message: reason.message.clone(),
        resource: reason.resource.clone(),
        eviction_may_help: reason.resolution() == pb::Resolution::Unschedulable,
        figures: figures.iter().map(figure).collect(),
    }
}

/// Why nodes are refused, most nodes first, each with the node that comes nearest.
fn refusals(verdict: &pb::FilterItem, rooms: &Rooms) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = verdict.rejections.iter().map(|one| refusal(one, rooms)).collect();
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
    refusals
}

fn refusal(rejection: &pb::Rejection, rooms: &Rooms) -> Refusal {
    let why = rejection.reason.clone().unwrap_or_default();
    let among = rejection
        .nodes
        .as_ref()
        .map(|set| set.names.as_slice())
        .unwrap_or_default();
    let nearest = if why.resource.is_empty() {
        None
    } else {
        rooms.roomiest(among, &why.resource).map(|(node, _)| node.to_owned())
    };
    let samples = &rejection.samples;
    let named = samples.iter().find(|sample| Some(&sample.node) == nearest.as_ref());
    let sample = named.or(samples.first()).cloned().unwrap_or_default();
    Refusal {
        count: rejection.count.into(),
        reason: reason(&why, &sample.figures),
        node: sample.node,
    }
}

fn best(item: &pb::ScoreItem) -> Vec<Scored> {
    let names = item.nodes.iter().flat_map(|set| &set.names);
    let scored = |(at, node): (usize, &String)| Scored {
        node: node.clone(),
        score: item.totals.get(at).copied().unwrap_or_default(),
        parts: item
            .parts
            .iter()
            .map(|part| Part {
                name: if part.part.is_empty() {
                    part.plugin.clone()
                } else {
                    format!("{}/{}", part.plugin, part.part)
                },
                score: part.scores.get(at).copied().unwrap_or_default(),
            })
            .collect(),
    };
    names.enumerate().map(scored).collect()
}

fn requests(task: &pb::Task) -> Vec<(String, String)> {
    let items = task.requests.iter().flat_map(|list| &list.items);
    items.map(|(name, text)| (name.clone(), text.clone())).collect()
}
