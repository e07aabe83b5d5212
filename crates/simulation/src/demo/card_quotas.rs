//! Card quotas: jobs from manifests as users write them, admitted and placed task by task in one session.

use std::collections::BTreeMap;

use super::harness::DemoHarness;
use super::session::DemoSession;
use pumice_console::CommandError;
use pumice_console::output::{self, TextTable};
use pumice_kubernetes::import::{AmountRules, ClusterImport};
use pumice_protocol::v1 as pb;

const POLICY: &str = include_str!("../../examples/cards/policy.yaml");
const CLUSTER: &str = include_str!("../../examples/cards/cluster.yaml");
const JOBS: &str = include_str!("../../examples/cards/jobs.yaml");
const NAME: &str = "cards";
const PLUGIN: &str = "capacity-card";

const A100: &str = "NVIDIA-A100-80GB";
const H100: &str = "NVIDIA-H100-80GB";
const MPS: &str = "NVIDIA-A100-80GB/mps-80g*1/8";

impl DemoSession {
    /// Cards that each queue holds, and its quota: `(queue, card) → (held, quota)`.
    pub(super) async fn holdings(&mut self) -> Result<CardHoldings, CommandError> {
        let request = pb::ListQueuesRequest {
            against: Some(self.evaluation_ref()),
            ..pb::ListQueuesRequest::default()
        };
        let reply = self.connection.state.list_queues(request).await?.into_inner();
        let mut held = CardHoldings::new();
        for status in reply.queues {
            let queue = status.queue.unwrap_or_default().name;
            for account in status.accounts.iter().filter(|account| account.plugin == PLUGIN) {
                let cards = account
                    .capability
                    .iter()
                    .filter(|amount| !is_cpu_or_memory(&amount.resource));
                for quota in cards {
                    let own = account.allocated.iter().find(|own| own.resource == quota.resource);
                    let held_now = own.map_or(0.0, |own| own.value / 1000.0);
                    held.insert(
                        (queue.clone(), quota.resource.clone()),
                        (held_now, quota.value / 1000.0),
                    );
                }
            }
        }
        Ok(held)
    }
}

/// Cards held and the quota, by queue and card.
pub(super) type CardHoldings = BTreeMap<(String, String), (f64, f64)>;

fn is_cpu_or_memory(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory")
}

/// Prints the cards that each queue holds.
pub(super) fn print_holdings(held: &CardHoldings) -> Result<(), CommandError> {
    let mut table = TextTable::new(["QUEUE", "CARD", "HELD", "QUOTA"]);
    for ((queue, card), (own, quota)) in held {
        table.row([
            queue.clone(),
            card.clone(),
            output::number(*own),
            output::number(*quota),
        ]);
    }
    output::table(&table)
}

/// The three examples of the plugin's design document, and a job that asks for too much.
pub(super) async fn run_examples(harness: &mut DemoHarness) -> Result<(), CommandError> {
    output::line("\n6. Card quotas: Jobs, PodGroups and Queues as written in examples/cards")?;
    let mut import = ClusterImport::new(AmountRules::default());
    import.read("cluster.yaml", CLUSTER)?;
    import.read("jobs.yaml", JOBS)?;
    let cluster = import.finish().cluster;
    let mut tasks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in &cluster.tasks {
        tasks.entry(task.job.clone()).or_default().push(task.name.clone());
    }
    harness.load(cluster).await?;
    harness.push(NAME, POLICY).await?;
    let mut cycle = DemoSession::open(harness, NAME).await?;
    let mut table = TextTable::new(["JOB", "ADMITTED", "TASKS BY NODE"]);
    let mut refused = Vec::new();
    for job in ["training", "flexible-training", "inference", "too-large"] {
        let name = format!("default/{job}");
        let reasons = cycle.admit(&name).await?;
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        if reasons.is_empty() {
            for task in tasks.get(&name).into_iter().flatten() {
                let node = cycle.place(task).await?.unwrap_or_else(|| "nowhere".to_owned());
                *nodes.entry(node).or_default() += 1;
            }
        }
        let nodes: Vec<String> = nodes.iter().map(|(node, count)| format!("{node}: {count}")).collect();
        let admitted = if reasons.is_empty() { "yes" } else { "no" };
        table.row([job.to_owned(), admitted.to_owned(), nodes.join(", ")]);
        refused.extend(reasons.into_iter().map(|reason| (job, reason)));
    }
    output::table(&table)?;
    for (job, reason) in &refused {
        output::line(&format!("  {job}: {reason}"))?;
    }
    let held = cycle.holdings().await?;
    print_holdings(&held)?;
    let of = |queue: &str, card: &str| held.get(&(queue.to_owned(), card.to_owned())).map(|(held, _)| *held);
    let is = |found: Option<f64>, cards: f64| found.is_some_and(|found| (found - cards).abs() < 0.5);
    let all_four = is(of("team-a", A100), 4.0) && is(of("team-a", H100), 4.0);
    harness.check(
        "example 1 and 2: the quota of 5 A100 has no room for four more, so all four use H100",
        all_four,
    )?;
    harness.check("example 3: sixteen pods share four cards", is(of("team-b", MPS), 16.0))?;
    harness.check("six A100 are refused, with the figures", {
        refused.len() == 1
            && refused
                .iter()
                .all(|(job, reason)| *job == "too-large" && reason.contains(A100))
    })?;
    cycle.close().await
}
