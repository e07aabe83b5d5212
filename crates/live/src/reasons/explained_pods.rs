//! Pods that carry a reason: it is taken back once they have a node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::LookError;
use super::lease::WriterLease;
use super::waiting_pods::{WaitingPod, find_pod, placed_pods};
use super::writes::ReasonWrites;
use super::{PODS_WRITTEN, WRITE_PAUSE};
use crate::api_client::Client;
use crate::requests::RequestError;

/// Most pods that are remembered. Reasons of pods beyond them are taken back by the next process that writes.
const PODS_REMEMBERED: usize = 100_000;

/// Pages of 500 placed pods that one poll reads. A process that takes over finds stale conditions of its predecessor
/// within several polls.
const PAGES_READ: usize = 8;

/// Pods whose last known condition is pending.
#[derive(Debug, Default)]
pub(super) struct ExplainedPods {
    /// Namespace and name by uid.
    pods: BTreeMap<String, (String, String)>,
    /// Uid after which the next poll continues, if one poll cannot query all pods.
    last: String,
    /// How far the pods of the process that wrote before have been looked for.
    search: PlacedPodSearch,
}

/// Search for pods that have a node and a reason of the process that wrote before.
#[derive(Debug, Default)]
struct PlacedPodSearch {
    /// Index of the scheduler whose pods are read. An index past the last scheduler: all pods have been read.
    scheduler: usize,
    /// Continuation token of the list of its pods. Empty: from the beginning.
    continuation: String,
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
        lease: &mut WriterLease,
        waiting: &[WaitingPod],
    ) -> Result<(), LookError> {
        for (uid, (namespace, name)) in self.no_longer_among(waiting) {
            lease.hold(client, tokio::time::Instant::now()).await?;
            self.last.clone_from(&uid);
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

    /// Reads some pages of the pods that have a node, where the look before stopped.
    pub(super) async fn search_placed(
        &mut self,
        client: &Client,
        schedulers: &[String],
        lease: &mut WriterLease,
    ) -> Result<(), LookError> {
        for _ in 0..PAGES_READ {
            lease.hold(client, tokio::time::Instant::now()).await?;
            let Some(scheduler) = schedulers.get(self.search.scheduler) else {
                return Ok(());
            };
            let (placed, next) = match placed_pods(client, scheduler, &self.search.continuation).await {
                Ok(page) => page,
                // The list is too old: the API server says where a newer one goes on, or the list begins again.
                Err(RequestError::Refused {
                    code: 410,
                    continuation,
                    ..
                }) => {
                    self.search.continuation = continuation;
                    continue;
                }
                Err(error) => return Err(failed(format!("pods of scheduler {scheduler}"), error)),
            };
            for pod in placed {
                self.note(&pod.uid, &pod.namespace, &pod.name);
            }
            if next.is_empty() {
                self.search.scheduler = self.search.scheduler.saturating_add(1);
            }
            self.search.continuation = next;
        }
        Ok(())
    }

    /// Remembered pods that are no longer pending, at most as many as one poll writes. The selection continues after
    /// the last pod of the previous poll and wraps around.
    fn no_longer_among(&self, waiting: &[WaitingPod]) -> Vec<(String, (String, String))> {
        let waiting: BTreeSet<&str> = waiting.iter().map(|pod| pod.uid.as_str()).collect();
        let behind = self
            .pods
            .range::<str, _>((Bound::Excluded(&*self.last), Bound::Unbounded));
        let before = self
            .pods
            .range::<str, _>((Bound::Unbounded, Bound::Included(&*self.last)));
        let gone = behind.chain(before).filter(|(uid, _)| !waiting.contains(uid.as_str()));
        gone.take(PODS_WRITTEN)
            .map(|(uid, pod)| (uid.clone(), pod.clone()))
            .collect()
    }
}

fn failed(what: String, error: RequestError) -> LookError {
    LookError::Request { what, error }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use crate::api_client::Body;
    use http::{Request, Response};
    use pumice_engine::short_lock::ShortLock;

    use super::*;

    /// Client of an API server with `pages` pages of one pod each; the list is too old for page 5 once.
    fn client(pages: usize, asked: &Arc<ShortLock<Vec<String>>>) -> Client {
        let asked = Arc::clone(asked);
        let serve = move |request: Request<Body>| {
            let asked = Arc::clone(&asked);
            async move {
                let uri = request.uri().to_string();
                let from = uri.rsplit("continue=").next().unwrap_or_default().to_owned();
                let is_first = asked.with(|asked| {
                    asked.push(from.clone());
                    asked.iter().filter(|other| **other == from).count() == 1
                });
                let number: usize = from.trim_end_matches("-new").parse().unwrap_or(0);
                let response = if number == 5 && from == "5" && is_first {
                    let status = r#"{"kind":"Status","code":410,"message":"too old","metadata":{"continue":"5-new"}}"#;
                    Response::builder()
                        .status(410)
                        .body(Body::from(status.as_bytes().to_vec()))
                } else {
                    let next = if number + 1 < pages {
                        (number + 1).to_string()
                    } else {
                        String::new()
                    };
                    let pod = format!(
                        r#"{{"metadata":{{"namespace":"a","name":"p{number}","uid":"u{number}"}},"spec":{{"nodeName":"n"}},
                            "status":{{"conditions":[{{"type":"PumiceSchedulable","status":"False"}}]}}}}"#
                    );
                    let list = format!(r#"{{"metadata":{{"continue":"{next}"}},"items":[{pod}]}}"#);
                    Response::builder().body(Body::from(list.into_bytes()))
                };
                Ok::<_, Infallible>(response.unwrap())
            }
        };
        Client::new(tower::service_fn(serve), "default")
    }

    #[tokio::test]
    async fn a_look_reads_some_pages_and_the_next_one_goes_on() {
        let asked = Arc::new(ShortLock::default());
        let client = client(11, &asked);
        let mut explained = ExplainedPods::default();
        let (schedulers, mut lease) = (["volcano".to_owned()], WriterLease::held());
        for pods in [7, 11, 11] {
            explained.search_placed(&client, &schedulers, &mut lease).await.unwrap();
            assert_eq!(explained.pods.len(), pods);
        }
        let asked = asked.with(|asked| asked.join(" "));
        assert_eq!(asked, " 1 2 3 4 5 5-new 6 7 8 9 10");
        explained.clear();
        assert_eq!((explained.search.scheduler, explained.pods.len()), (0, 0));
    }

    #[test]
    fn each_look_asks_about_the_pods_behind_those_of_the_look_before() {
        let mut explained = ExplainedPods::default();
        for number in 0..120 {
            explained.note(&format!("u{number:03}"), "a", "p");
        }
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let pods = explained.no_longer_among(&[]);
            assert_eq!(pods.len(), PODS_WRITTEN);
            explained.last = pods.last().unwrap().0.clone();
            asked.extend(pods.into_iter().map(|(uid, _)| uid));
        }
        assert_eq!(asked.len(), 120, "though none of them has a node yet");
    }
}
