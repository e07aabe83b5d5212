//! A policy that changes under load: no call fails, and every answer is of one policy, whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::stage::{Stage, node, task, world};
use crate::cli::connect::Connection;
use crate::cli::{Failure, output};
use crate::server::pb;

const SPREAD: &str = include_str!("../../../examples/spread.yaml");
const PACK: &str = include_str!("../../../examples/pack.yaml");
/// Refused: no actions, and a tier that is no list.
const BROKEN: &str = "tiers: 7\n";

const POLICY: &str = "live";
const CLIENTS: usize = 4;
const RELOADS: u64 = 20;
/// Answers under one version before the next comes.
const ANSWERS: u32 = 50;

/// One answer: the version that it names, and the best node.
type Answer = Result<(u64, String), String>;

/// Runs it.
pub(super) async fn run(stage: &mut Stage) -> Result<(), Failure> {
    output::line("\n4. Hot reload: 4 clients ask without pause while the policy changes between spread and pack")?;
    let nodes = vec![
        node("empty", "cpu: 32, memory: 64Gi", ""),
        node("half", "cpu: 32, memory: 64Gi", "cpu: 16, memory: 32Gi, pods: 4"),
    ];
    stage
        .load(pb::Cluster {
            nodes,
            ..pb::Cluster::default()
        })
        .await?;
    let first = stage.push(POLICY, SPREAD).await?;
    let done = Arc::new(AtomicBool::new(false));
    let (sender, mut answers) = mpsc::unbounded_channel();
    for _ in 0..CLIENTS {
        tokio::spawn(ask(stage.connection.clone(), sender.clone(), Arc::clone(&done)));
    }
    drop(sender);
    let mut tally = Tally::default();
    let mut refused = 0_u32;
    for reload in 0..=RELOADS {
        let version = first.saturating_add(reload);
        if reload > 0 {
            let document = if reload % 2 == 0 { SPREAD } else { PACK };
            let accepted = stage.push(POLICY, document).await?;
            if accepted != version {
                return Err(Failure::said(format!(
                    "error: expected version {version}, got {accepted}"
                )));
            }
        }
        refused = refused.saturating_add(u32::from(stage.push(POLICY, BROKEN).await.is_err()));
        let mut seen = 0_u32;
        while seen < ANSWERS {
            let Some(answer) = answers.recv().await else { break };
            seen = seen.saturating_add(u32::from(tally.take(first, version, answer)));
        }
    }
    done.store(true, Ordering::Relaxed);
    while let Some(answer) = answers.recv().await {
        tally.take(first, first.saturating_add(RELOADS), answer);
    }
    verdict(stage, &tally, refused)
}

fn verdict(stage: &mut Stage, tally: &Tally, refused: u32) -> Result<(), Failure> {
    output::line(&format!(
        "  {} answers: {} said `empty` (spread), {} said `half` (pack)",
        tally.spread.saturating_add(tally.pack),
        tally.spread,
        tally.pack
    ))?;
    if let Some(fault) = &tally.first_fault {
        output::line(&format!("  first fault: {fault}"))?;
    }
    stage.check(
        &format!("{RELOADS} reloads changed the answer back and forth"),
        tally.spread > 0 && tally.pack > 0,
    )?;
    stage.check(&format!("calls failed: {}", tally.failed), tally.failed == 0)?;
    stage.check(
        &format!("answers that do not belong to the version they name: {}", tally.mixed),
        tally.mixed == 0,
    )?;
    let broken = RELOADS.saturating_add(1);
    stage.check(
        &format!("broken documents refused while the old ones served: {refused} of {broken}"),
        u64::from(refused) == broken,
    )
}

async fn ask(mut connection: Connection, answers: mpsc::UnboundedSender<Answer>, done: Arc<AtomicBool>) {
    let request = pb::ScoreRequest {
        ground: Some(world(POLICY)),
        tasks: vec![task("default/web", "cpu: 2, memory: 4Gi")],
        with_filter: true,
        limit: Some(1),
        filter_detail: pb::FilterDetail::Counts.into(),
        ..pb::ScoreRequest::default()
    };
    while !done.load(Ordering::Relaxed) {
        let answer = match connection.decisions.score(request.clone()).await {
            Ok(reply) => read(reply.into_inner()),
            Err(status) => Err(status.to_string()),
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

fn read(reply: pb::ScoreResponse) -> Answer {
    let version = reply.stamp.map_or(0, |stamp| stamp.policy_version);
    let item = reply
        .answer
        .unwrap_or_default()
        .items
        .into_iter()
        .next()
        .unwrap_or_default();
    match item.problem {
        Some(problem) => Err(output::problem(&problem)),
        None => Ok((
            version,
            item.nodes
                .unwrap_or_default()
                .names
                .into_iter()
                .next()
                .unwrap_or_default(),
        )),
    }
}

#[derive(Default)]
struct Tally {
    spread: u32,
    pack: u32,
    failed: u32,
    mixed: u32,
    first_fault: Option<String>,
}

impl Tally {
    /// Counts an answer; true if it is of this version.
    fn take(&mut self, first: u64, version: u64, answer: Answer) -> bool {
        let (answered, node) = match answer {
            Ok(answer) => answer,
            Err(fault) => {
                self.failed = self.failed.saturating_add(1);
                self.first_fault.get_or_insert(fault);
                return true;
            }
        };
        // Versions alternate, beginning with spread.
        let spread = answered.saturating_sub(first) % 2 == 0;
        match (spread, node.as_str()) {
            (true, "empty") => self.spread = self.spread.saturating_add(1),
            (false, "half") => self.pack = self.pack.saturating_add(1),
            (_, other) => {
                self.mixed = self.mixed.saturating_add(1);
                self.first_fault
                    .get_or_insert(format!("version {answered} said `{other}`"));
            }
        }
        answered == version
    }
}
