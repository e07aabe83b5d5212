//! Pods that carry a reason: it is taken back once they have a node.

use std::collections::{BTreeMap, BTreeSet};

use kube_client::Client;

use super::LookError;
use super::waiting_pods::{WaitingPod, find_pod, placed_pods};
use super::writes::ReasonWrites;
use super::{PODS_WRITTEN, WRITE_PAUSE};
use crate::requests::RequestError;

/// Most pods that are remembered. Reasons of pods beyond them are taken back by the next process that writes.
const PODS_REMEMBERED: usize = 100_000;

/// Pods whose condition says that they wait, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct ExplainedPods {
    /// Namespace and name by uid.
    pods: BTreeMap<String, (String, String)>,
    /// True: the pods of the process that wrote before are among them.
    is_complete: bool,
}

impl ExplainedPods {
    /// Forgets all: another process writes.
    pub(super) fn clear(&mut self) {
        *self = ExplainedPods::default();
    }

    /// Notes that a pod carries a reason.
    pub(super) fn note(&mut self, uid: &str, namespace: &str, name: &str) {
        if self.pods.len() < PODS_REMEMBERED {
            let key = (namespace.to_owned(), name.to_owned());
            self.pods.insert(uid.to_owned(), key);
        }
    }

    /// Takes back the reasons of the pods that no longer wait, as many as are written in one look.
    pub(super) async fn correct(
        &mut self,
        client: &Client,
        writes: &ReasonWrites,
        schedulers: &[String],
        waiting: &[WaitingPod],
    ) -> Result<(), LookError> {
        if !self.is_complete {
            for scheduler in schedulers {
                let placed = placed_pods(client, scheduler).await;
                for pod in placed.map_err(|error| failed(format!("pods of scheduler {scheduler}"), error))? {
                    self.note(&pod.uid, &pod.namespace, &pod.name);
                }
            }
            self.is_complete = true;
        }
        for (uid, (namespace, name)) in self.no_longer_among(waiting) {
            let what = || format!("pod {namespace}/{name}");
            let found = find_pod(client, &namespace, &name).await;
            let found = found.map_err(|error| failed(what(), error))?;
            match found.filter(|pod| pod.uid == uid) {
                Some(pod) if !pod.has_node => continue,
                Some(_) => {
                    let outcome = writes.write_scheduled(&namespace, &name, &uid).await;
                    tokio::time::sleep(WRITE_PAUSE).await;
                    match outcome {
                        Err(error) if !error.is_about_object() => return Err(failed(what(), error)),
                        Ok(()) | Err(_) => {}
                    }
                }
                None => {}
            }
            self.pods.remove(&uid);
        }
        Ok(())
    }

    /// Remembered pods that are not among those that wait, at most as many as are written in one look.
    fn no_longer_among(&self, waiting: &[WaitingPod]) -> Vec<(String, (String, String))> {
        let waiting: BTreeSet<&str> = waiting.iter().map(|pod| pod.uid.as_str()).collect();
        let gone = self.pods.iter().filter(|(uid, _)| !waiting.contains(uid.as_str()));
        gone.take(PODS_WRITTEN)
            .map(|(uid, pod)| (uid.clone(), pod.clone()))
            .collect()
    }
}

fn failed(what: String, error: RequestError) -> LookError {
    LookError::Request { what, error }
}
