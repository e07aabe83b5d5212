//! Probes of the API server, and remedies for what it says.

use std::sync::Arc;
use std::time::Duration;

use crate::condition::ClusterCondition;
use crate::credentials::SharedClient;
use crate::pages::proved_page;
use crate::requests::{RequestError, get_page, judged};
use crate::resources::scopes;
use crate::times::paced;
use pumice_kubernetes::object::ObjectKind;

/// Time that a probe of the API server has.
const PROBE_TIME: Duration = paced(10_000);

/// Remedy for an error of a list.
pub(crate) fn remedy(error: &RequestError) -> &'static str {
    match error {
        RequestError::Refused { code: 403, .. } => "; bind the account to the ClusterRole of deploy/kustomize/live",
        RequestError::Refused { code: 401, .. } => "; renew the credentials of the kubeconfig",
        RequestError::Unreachable(_) | RequestError::TimedOut(_) => "; check the address and the network",
        RequestError::Refused { .. }
        | RequestError::WithoutCredentials(_)
        | RequestError::TooLarge(_)
        | RequestError::Unreadable(_)
        | RequestError::WatchEnded(_) => "",
    }
}

/// Asks the API server from time to time whether it answers: a connection may be dead without a sign of it.
pub(crate) async fn probe(client: Arc<SharedClient>, condition: Arc<ClusterCondition>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let problem = match tokio::time::timeout(PROBE_TIME, ask_for_a_node(&client)).await {
            Ok(Ok(())) => None,
            Ok(Err(error @ RequestError::WithoutCredentials(_))) => Some(error.to_string()),
            Ok(Err(error)) => Some(format!("the API server does not answer: {error}{}", remedy(&error))),
            Err(_) => Some(format!(
                "the API server does not answer within {} s",
                PROBE_TIME.as_secs()
            )),
        };
        condition.set_problem(problem);
    }
}

async fn ask_for_a_node(client: &SharedClient) -> Result<(), RequestError> {
    let lent = client.get().await?;
    let scopes = scopes(&[]);
    let nodes = scopes.iter().find(|scope| scope.resource.kind == ObjectKind::Node);
    // With `resourceVersion=0` the API server would show all nodes: its cache knows no limit.
    let page = get_page(&lent.client, "/api/v1/nodes?limit=1").await;
    let proved = page.and_then(|page| nodes.map_or(Ok(()), |nodes| proved_page(nodes, &page).map(drop)));
    judged(client, &lent, proved)
}
