//! A policy that changes under load: no call fails, and every result is computed under one policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::harness::{DemoHarness, best_node_request, latest_ref, node, task};
use pumice_console::{CommandError, output};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

const SPREAD: &str = include_str!("../../examples/spread.yaml");
const PACK: &str = include_str!("../../examples/pack.yaml");
/// Document that the server rejects: it has no actions, and its `tiers` is not a list.
const BROKEN: &str = "tiers: 7\n";

const POLICY: &str = "live";
const CLIENTS: usize = 4;
const RELOADS: u64 = 20;
/// Number of results under one version before the next comes.
const REPLIES_PER_VERSION: u32 = 50;

/// One result: the policy version that it names, and the best node.
type ReloadReply = Result<(u64, String), String>;

/// Reloads policies under load.
pub(super) async fn run(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n4. Hot reload: 4 clients ask without pause while the policy changes between spread and pack")?;
    let nodes = vec![
        node("empty", "cpu: 32, memory: 64Gi", ""),
        node("half", "cpu: 32, memory: 64Gi", "cpu: 16, memory: 32Gi, pods: 4"),
    ];
    harness.load_nodes(nodes).await?;
    let first = harness.push(POLICY, SPREAD).await?;
    let done = Arc::new(AtomicBool::new(false));
    let (sender, mut results) = mpsc::unbounded_channel();
    for _ in 0..CLIENTS {
        tokio::spawn(send_queries(
            harness.connection.clone(),
            sender.clone(),
            Arc::clone(&done),
        ));
    }
    drop(sender);
    let mut tally = ReloadCounts::default();
    let mut refused = 0_u32;
    for reload in 0..=RELOADS {
        let version = first.saturating_add(reload);
        if reload > 0 {
            let document = if reload % 2 == 0 { SPREAD } else { PACK };
            let accepted = harness.push(POLICY, document).await?;
            if accepted != version {
                return Err(CommandError::message(format!(
                    "error: expected version {version}, got {accepted}"
                )));
            }
        }
        refused = refused.saturating_add(u32::from(harness.push(POLICY, BROKEN).await.is_err()));
        let mut seen = 0_u32;
        while seen < REPLIES_PER_VERSION {
            let Some(result) = results.recv().await else { break };
            seen = seen.saturating_add(u32::from(tally.count_reply(first, version, result)));
        }
    }
    done.store(true, Ordering::Relaxed);
    while let Some(result) = results.recv().await {
        tally.count_reply(first, first.saturating_add(RELOADS), result);
    }
    check_counts(harness, &tally, refused)
}

fn check_counts(harness: &mut DemoHarness, tally: &ReloadCounts, refused: u32) -> Result<(), CommandError> {
    output::line(&format!(
        "  {} answers: {} said `empty` (spread), {} said `half` (pack)",
        tally.spread.saturating_add(tally.pack),
        tally.spread,
        tally.pack
    ))?;
    if let Some(problem) = &tally.first_error {
        output::line(&format!("  first fault: {problem}"))?;
    }
    harness.check(
        &format!("{RELOADS} reloads changed the answer back and forth"),
        tally.spread > 0 && tally.pack > 0,
    )?;
    harness.check(&format!("calls failed: {}", tally.failed), tally.failed == 0)?;
    harness.check(
        &format!(
            "answers that do not belong to the version they name: {}",
            tally.inconsistent
        ),
        tally.inconsistent == 0,
    )?;
    let broken = RELOADS.saturating_add(1);
    harness.check(
        &format!("broken documents refused while the old ones served: {refused} of {broken}"),
        u64::from(refused) == broken,
    )
}

async fn send_queries(
    mut connection: ClientConnection,
    results: mpsc::UnboundedSender<ReloadReply>,
    done: Arc<AtomicBool>,
) {
    let request = best_node_request(latest_ref(POLICY), task("default/web", "cpu: 2, memory: 4Gi"));
    while !done.load(Ordering::Relaxed) {
        let result = match connection.decisions.score(request.clone()).await {
            Ok(reply) => read_reply(reply.into_inner()),
            Err(status) => Err(status.to_string()),
        };
        if results.send(result).is_err() {
            return;
        }
    }
}

fn read_reply(reply: pb::ScoreResponse) -> ReloadReply {
    let version = reply.metadata.map_or(0, |metadata| metadata.policy_version);
    let item = reply
        .result
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
struct ReloadCounts {
    spread: u32,
    pack: u32,
    failed: u32,
    inconsistent: u32,
    first_error: Option<String>,
}

impl ReloadCounts {
    /// Records a result. Returns true if it is from this version.
    fn count_reply(&mut self, first: u64, version: u64, result: ReloadReply) -> bool {
        let (answered, node) = match result {
            Ok(result) => result,
            Err(problem) => {
                self.failed = self.failed.saturating_add(1);
                self.first_error.get_or_insert(problem);
                return true;
            }
        };
        // Versions alternate, beginning with spread.
        let spread = answered.saturating_sub(first) % 2 == 0;
        match (spread, node.as_str()) {
            (true, "empty") => self.spread = self.spread.saturating_add(1),
            (false, "half") => self.pack = self.pack.saturating_add(1),
            (_, other) => {
                self.inconsistent = self.inconsistent.saturating_add(1);
                self.first_error
                    .get_or_insert(format!("version {answered} said `{other}`"));
            }
        }
        answered == version
    }
}
