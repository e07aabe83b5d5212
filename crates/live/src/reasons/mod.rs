//! Reasons where people look: why pods wait, as conditions of the pods and as events, written by one process of many.

mod explained_pods;
mod lease;
mod waiting_pods;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::api_client::Client;
use crate::credentials::{ClusterAccess, CredentialError, SharedClient};
use crate::requests::RequestError;
use explained_pods::ExplainedPods;
use lease::WriterLease;
use waiting_pods::{WaitingPod, waiting_pods};
use writes::ReasonWrites;

/// Polling interval for pending pods.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Pods whose reasons are asked for in one look.
const PODS_ASKED: usize = 200;
/// Pods whose reasons are written in one look, each with two requests.
const PODS_WRITTEN: usize = 50;
/// Time between two writes.
const WRITE_PAUSE: Duration = Duration::from_millis(50);

/// Reason of a pod that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodReason {
    /// Sentence for people.
    pub sentence: String,
    /// Pod group (`namespace/name`) that the sentence is about; `None`: the pod itself.
    pub pod_group: Option<String>,
}

/// Source of the reasons of waiting pods.
pub trait PendingReasons: Send + Sync {
    /// Reasons of the pending pods among these pods (`namespace/name`, such as `train/bert-0`).
    ///
    /// # Errors
    /// The reasons cannot be determined. The text describes the problem.
    fn reasons(&self, pods: Vec<String>) -> impl Future<Output = Result<BTreeMap<String, PodReason>, String>> + Send;
}

/// Settings of the writer.
#[derive(Debug, Clone)]
pub struct ReasonOptions {
    /// Schedulers whose pods are explained.
    pub schedulers: Vec<String>,
    /// Unique name of this process.
    pub holder: String,
}

/// Writes the reasons of pending pods as conditions and events.
#[derive(Debug)]
pub struct ReasonWriter<R> {
    client: SharedClient,
    options: ReasonOptions,
    reasons: R,
    /// Pod after which the next poll continues, if one poll cannot read all pods.
    last: String,
    explained: ExplainedPods,
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("{0}")]
    Access(#[from] CredentialError),
    #[error("{what}: {error}")]
    Request { what: String, error: RequestError },
    #[error("the reasons cannot be found: {0}")]
    Reasons(String),
    #[error("another process writes")]
    LeaseHeldElsewhere,
}

impl<R: PendingReasons> ReasonWriter<R> {
    /// Writer of what these reasons say.
    pub fn new(access: ClusterAccess, options: ReasonOptions, reasons: R) -> Self {
        ReasonWriter {
            client: SharedClient::new(access),
            options,
            reasons,
            last: String::new(),
            explained: ExplainedPods::default(),
        }
    }

    /// Polls pending pods while this process is the elected writer.
    pub async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lease = WriterLease::new(self.options.holder.clone());
        loop {
            looks.tick().await;
            let lent = match self.client.get().await {
                Ok(lent) => lent,
                Err(error) => {
                    tracing::warn!(%error, "reasons of waiting pods are not written now; it is tried again");
                    continue;
                }
            };
            if let Err(error) = self.look(&lent.client, &mut lease).await {
                tracing::warn!(%error, "reasons of waiting pods are not written now; it is tried again");
                self.client.forget(&lent);
            }
        }
    }

    async fn look(&mut self, client: &Client, lease: &mut WriterLease) -> Result<(), LookError> {
        match self.write_reasons(client, lease).await {
            Err(LookError::LeaseHeldElsewhere) => {
                self.explained.clear();
                Ok(())
            }
            looked => looked,
        }
    }

    async fn write_reasons(&mut self, client: &Client, lease: &mut WriterLease) -> Result<(), LookError> {
        lease.hold(client, tokio::time::Instant::now()).await?;
        let mut pods = Vec::new();
        for scheduler in &self.options.schedulers {
            let waiting = waiting_pods(client, scheduler).await;
            pods.append(&mut waiting.map_err(|error| LookError::Request {
                what: format!("pods of scheduler {scheduler}"),
                error,
            })?);
            lease.hold(client, tokio::time::Instant::now()).await?;
        }
        let writes = ReasonWrites::new(client.clone(), self.options.holder.clone());
        let schedulers = &self.options.schedulers;
        let explained = &mut self.explained;
        explained.search_placed(client, schedulers, lease).await?;
        explained.correct(client, &writes, lease, &pods).await?;
        let pods = self.next_pods(pods);
        self.write(client, &writes, lease, pods).await
    }

    /// Pods of this look: those after the last one of the look before, and then from the beginning.
    fn next_pods(&mut self, mut pods: Vec<WaitingPod>) -> Vec<WaitingPod> {
        pods.sort_by_key(WaitingPod::full_name);
        let start = pods.partition_point(|pod| pod.full_name() <= self.last);
        let length = pods.len();
        pods.rotate_left(start.min(length));
        pods.truncate(PODS_ASKED);
        self.last = match pods.last() {
            Some(last) if length > PODS_ASKED => last.full_name(),
            _ => String::new(),
        };
        pods
    }

    async fn write(
        &mut self,
        client: &Client,
        writes: &ReasonWrites,
        lease: &mut WriterLease,
        pods: Vec<WaitingPod>,
    ) -> Result<(), LookError> {
        let names = pods.iter().map(WaitingPod::full_name).collect();
        let reasons = self.reasons.reasons(names).await.map_err(LookError::Reasons)?;
        let mut written: usize = 0;
        let mut groups = BTreeSet::new();
        let mut refused = None;
        for pod in pods {
            let Some(reason) = reasons.get(&pod.full_name()) else {
                continue;
            };
            let sentence = writes::cut(&reason.sentence);
            self.explained.note(&pod.uid, &pod.namespace, &pod.name);
            if !pod.needs(&sentence) {
                continue;
            }
            if written == PODS_WRITTEN {
                tracing::debug!("more pods have new reasons; they are written at the next look");
                break;
            }
            written = written.saturating_add(1);
            lease.hold(client, tokio::time::Instant::now()).await?;
            let mut outcome = writes.write(&pod, &sentence).await;
            tokio::time::sleep(WRITE_PAUSE).await;
            if let Some(group) = &reason.pod_group
                && outcome.is_ok()
                && groups.insert(group.clone())
            {
                outcome = writes.write_pod_group(group, &sentence).await;
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            match outcome {
                Ok(()) => {}
                // A namespace that ends takes no events; the pods of others get theirs.
                Err(error) if error.is_about_object() => {
                    refused.get_or_insert_with(|| format!("{}: {error}", pod.full_name()));
                }
                Err(error) => {
                    let what = format!("pod {}", pod.full_name());
                    return Err(LookError::Request { what, error });
                }
            }
        }
        if let Some(refused) = refused {
            tracing::warn!(refused, "the reason of a pod cannot be written");
        }
        Ok(())
    }
}
