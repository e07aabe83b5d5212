//! Tokens of service accounts, verified by the API server of a cluster (`TokenReview` of `authentication.k8s.io/v1`).

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::api_client::Client;
use crate::credentials::{ClusterAccess, SharedClient};
use crate::requests::{JSON, RequestError, object_request, send_whole};

/// Resource of the API.
const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Prefix of the user name of a service account.
const ACCOUNT_BEGIN: &str = "system:serviceaccount:";
/// Time that a review has.
const REVIEW_TIME: Duration = Duration::from_secs(5);

/// Verifier of tokens. It connects with the first token, and reads its credentials again after a failure.
#[derive(Debug)]
pub struct TokenReviewer {
    client: SharedClient,
}

/// Verdict of the API server on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenVerdict {
    /// The token belongs to this service account (`namespace/name`, such as `volcano-system/volcano-scheduler`) and to
    /// one of the audiences.
    Account(String),
    /// The token proves nothing: why.
    Rejected(String),
}

/// Error: a token that the API server gave no verdict on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server of the cluster verifies no tokens: {0}")]
pub struct TokenReviewError(String);

/// Relevant fields of the API server's response.
#[derive(Debug, Deserialize)]
struct ReviewResponse {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: ReviewedUser,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    error: String,
}

#[derive(Debug, Default, Deserialize)]
struct ReviewedUser {
    #[serde(default)]
    username: String,
}

impl ReviewStatus {
    /// The verdict for a server with these audiences.
    fn verdict<S: AsRef<str>>(self, audiences: &[S]) -> TokenVerdict {
        if !self.authenticated {
            let reason = if self.error.is_empty() {
                "the API server does not know the token, or it has expired".to_owned()
            } else {
                self.error
            };
            return TokenVerdict::Rejected(reason);
        }
        // An authenticator that knows no audiences names none: then the token may be meant for anybody.
        let is_meant = |audience: &String| audiences.iter().any(|own| own.as_ref() == audience);
        if !self.audiences.iter().any(is_meant) {
            return TokenVerdict::Rejected("the token is for another audience".to_owned());
        }
        let account = self.user.username.strip_prefix(ACCOUNT_BEGIN);
        match account.and_then(|name| name.split_once(':')) {
            Some((namespace, name)) => TokenVerdict::Account(format!("{namespace}/{name}")),
            None => TokenVerdict::Rejected(format!("`{}` is no service account", self.user.username)),
        }
    }
}

impl TokenReviewer {
    /// Verifier with these credentials, whose account may create `tokenreviews`.
    pub fn new(access: ClusterAccess) -> Self {
        Self {
            client: SharedClient::new(access),
        }
    }

    /// Requests a review of a token from the API server.
    ///
    /// # Errors
    /// The API server is unreachable, does not respond in time, or rejects the request.
    pub async fn review<S: AsRef<str>>(&self, token: &str, audiences: &[S]) -> Result<TokenVerdict, TokenReviewError> {
        let deadline = Instant::now() + REVIEW_TIME;
        let late = |_| TokenReviewError(format!("no response within {} s", REVIEW_TIME.as_secs()));
        let lent = timeout_at(deadline, self.client.get()).await.map_err(late)?;
        let lent = lent.map_err(|error| TokenReviewError(error.to_string()))?;
        let asked = timeout_at(deadline, ask(&lent.client, token, audiences)).await;
        let asked = asked.map_err(late).and_then(|asked| asked.map_err(TokenReviewError));
        if asked.is_err() {
            self.client.forget(&lent);
        }
        asked
    }
}

/// Requests a review of a token from the API server.
async fn ask<S: AsRef<str>>(client: &Client, token: &str, audiences: &[S]) -> Result<TokenVerdict, String> {
    let names: Vec<&str> = audiences.iter().map(AsRef::as_ref).collect();
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": names},
    });
    let request = object_request(Method::POST, PATH, JSON, &review).map_err(|error| error.to_string())?;
    let bytes = send_whole(client, request).await.map_err(|error| remedied(&error))?;
    let response: ReviewResponse = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    Ok(response.status.verdict(audiences))
}

fn remedied(error: &RequestError) -> String {
    if error.is_forbidden() {
        format!("{error}; let the server's account create `tokenreviews` of authentication.k8s.io")
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> TokenVerdict {
        let response: ReviewResponse = serde_json::from_str(text).unwrap();
        response.status.verdict(&["pumice", "other"])
    }

    #[test]
    fn only_accounts_of_the_audience_are_accounts() {
        let accepted = r#"{"status":{"authenticated":true,"user":{"username":"system:serviceaccount:ns:a"},"audiences":["pumice"]}}"#;
        assert_eq!(verdict(accepted), TokenVerdict::Account("ns/a".to_owned()));
        for (text, part) in [
            (r#"{"status":{"authenticated":false,"error":"expired"}}"#, "expired"),
            (r#"{"status":{}}"#, "does not know the token"),
            ("{}", "does not know the token"),
            (
                &accepted.replace("[\"pumice\"]", "[\"https://kubernetes.default.svc\"]"),
                "another audience",
            ),
            (&accepted.replace(",\"audiences\":[\"pumice\"]", ""), "another audience"),
            (
                &accepted.replace("system:serviceaccount:ns:a", "system:admin"),
                "no service account",
            ),
            (
                &accepted.replace("serviceaccount:ns:a", "serviceaccount:ns"),
                "no service account",
            ),
        ] {
            match verdict(text) {
                TokenVerdict::Rejected(reason) => assert!(reason.contains(part), "{reason}"),
                TokenVerdict::Account(account) => panic!("{text} is {account}"),
            }
        }
    }
}
