//! Credentials of a cluster: a kubeconfig file, or the account of the pod that the process runs in.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "client")]
use std::time::Duration;

#[cfg(feature = "client")]
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
#[cfg(feature = "client")]
use kube_client::Config;
#[cfg(feature = "client")]
use kube_client::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use pumice_engine::short_lock::ShortLock;
#[cfg(feature = "client")]
use secrecy::ExposeSecret as _;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::api_client::Client;
#[cfg(feature = "client")]
use crate::{
    exec_plugin,
    requests::shortened,
    times::{distance, machine_time},
};

/// Time in which the files of credentials have to be read.
#[cfg(feature = "client")]
const READING_TIME: Duration = Duration::from_secs(10);
/// Time that a credential plugin has. It may ask another service.
#[cfg(feature = "client")]
const PLUGIN_TIME: Duration = Duration::from_secs(30);
/// Time after which a token in a file is read again.
#[cfg(feature = "client")]
const TOKEN_TIME: Duration = Duration::from_mins(1);
/// Time before the end of credentials at which others are requested.
#[cfg(feature = "client")]
const LEAD: Duration = Duration::from_mins(1);

/// Way to reach the API server of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// Kubeconfig file; `None`: the files that `KUBECONFIG` names, or `~/.kube/config`, or the account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None`: its current one.
    pub context: Option<String>,
}

/// Error of credentials that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The kubeconfig cannot be used.
    #[error("{kubeconfig}: {reason}; name a kubeconfig with its context, as `kubectl config view` shows them")]
    Kubeconfig {
        /// Name of the file.
        kubeconfig: String,
        /// Reason, from the reader of the file.
        reason: String,
    },
    /// There is neither a kubeconfig nor the account of a pod.
    #[error(
        "no credentials of a cluster: {0}; name a kubeconfig, or run in a pod whose service account token is mounted"
    )]
    None(String),
    /// The program was built without a client of the API server.
    #[error("this program was built without a client of the Kubernetes API; build it with the feature `kubernetes`")]
    NotBuilt,
    /// The user of the kubeconfig has credentials of a kind that is no longer supported.
    #[error(
        "the user of the kubeconfig has `auth-provider: {0}`, which Kubernetes removed in v1.26; give it a plugin of its provider under `exec`, \
         a token or a certificate"
    )]
    AuthProvider(String),
    /// A credential plugin gave no credentials.
    #[error("{0}; try the plugin by hand, or give the user of the kubeconfig a token or a certificate")]
    Plugin(String),
    /// The credentials make no client.
    #[error("credentials of the cluster: {0}; check certificates, tokens and the proxy of the kubeconfig")]
    Client(String),
}

/// Client of the API server, and the moment at which its credentials end.
#[derive(Clone)]
pub struct FreshClient {
    /// Client with these credentials.
    pub client: Client,
    /// Moment from which the credentials have to be read again; `None`: the client renews them itself, or they do not end.
    pub until: Option<Instant>,
}

impl std::fmt::Debug for FreshClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FreshClient")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl FreshClient {
    /// True once the credentials have to be read again.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl ClusterAccess {
    /// Client of the API server with credentials as they are now: the files are read again at each call. It connects with the first
    /// request, and sends each request once: what to do after an error, and when, its caller decides.
    ///
    /// # Errors
    /// The credentials are missing or cannot be used.
    #[cfg(feature = "client")]
    pub async fn client(&self) -> Result<FreshClient, CredentialError> {
        let access = self.clone();
        let mut config = on_thread(move || access.config()).await?;
        config.default_retry = false;
        let until = complete(&mut config.auth_info).await?;
        check_token(&mut config.auth_info)?;
        let client = on_thread(move || {
            let host = config.cluster_url.host().unwrap_or_default();
            if host.is_empty() || !matches!(config.cluster_url.scheme_str(), Some("http" | "https")) {
                let reason = "the server of the cluster is no address that begins with https://";
                return Err(CredentialError::Client(reason.to_owned()));
            }
            Client::try_from(config).map_err(|error| CredentialError::Client(shortened(&causes(&error))))
        });
        Ok(FreshClient {
            client: client.await?,
            until,
        })
    }

    /// Client of a build that has none.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "client"))]
    #[expect(clippy::unused_async, reason = "a build with a client waits here")]
    pub async fn client(&self) -> Result<FreshClient, CredentialError> {
        Err(CredentialError::NotBuilt)
    }

    /// Settings of the client, with a token of a file in its place.
    #[cfg(feature = "client")]
    fn config(&self) -> Result<Config, CredentialError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let unusable = |kubeconfig: String| {
            move |error: KubeconfigError| CredentialError::Kubeconfig {
                kubeconfig,
                reason: kubeconfig_text(&error),
            }
        };
        // The library reads files here, and waits for nothing.
        let runtime = tokio::runtime::Handle::current();
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let name = path.display().to_string();
                let kubeconfig = Kubeconfig::read_from(path).map_err(unusable(name.clone()))?;
                runtime
                    .block_on(Config::from_custom_kubeconfig(kubeconfig, &options))
                    .map_err(unusable(name))
            }
            (None, Some(_)) => runtime
                .block_on(Config::from_kubeconfig(&options))
                .map_err(unusable("the default kubeconfig".to_owned())),
            (None, None) => runtime.block_on(Config::infer()).map_err(|error| {
                let file = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
                CredentialError::None(match file {
                    Some(unreadable @ KubeconfigError::Parse(_)) => kubeconfig_text(unreadable),
                    Some(_) | None => shortened(&causes(&error)),
                })
            }),
        }
    }
}

/// Reason why a kubeconfig cannot be used. Its text is not repeated: it has tokens and keys.
#[cfg(feature = "client")]
fn kubeconfig_text(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(unreadable) = error else {
        return shortened(&causes(error));
    };
    let place = unreadable.location();
    let place = place.map(|place| format!(": line {}, column {}", place.line(), place.column()));
    format!("it is no kubeconfig in YAML{}", place.unwrap_or_default())
}

/// Runs work on files on a thread of its own.
#[cfg(feature = "client")]
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CredentialError> + Send + 'static,
) -> Result<T, CredentialError> {
    match tokio::time::timeout(READING_TIME, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(CredentialError::Client(error.to_string())),
        Err(_) => {
            let seconds = READING_TIME.as_secs();
            Err(CredentialError::Client(format!(
                "their files were not read within {seconds} s"
            )))
        }
    }
}

/// Checks that a token can be sent, without white space around it. The library would panic.
#[cfg(feature = "client")]
fn check_token(user: &mut AuthInfo) -> Result<(), CredentialError> {
    let Some(token) = user.token.take() else { return Ok(()) };
    let text = token.expose_secret().trim();
    if text.is_empty() || http::HeaderValue::from_str(text).is_err() {
        let reason = "the token is empty, or has characters that a header cannot have";
        return Err(CredentialError::Client(reason.to_owned()));
    }
    user.token = Some(text.to_owned().into());
    Ok(())
}

/// Puts a token of a file and what a plugin says in their places. Returns the moment at which that has to be done again.
#[cfg(feature = "client")]
async fn complete(user: &mut AuthInfo) -> Result<Option<Instant>, CredentialError> {
    if let Some(provider) = &user.auth_provider {
        return Err(CredentialError::AuthProvider(shortened(&provider.name)));
    }
    if let Some(file) = user.token_file.take() {
        let read = on_thread({
            let file = file.clone();
            move || {
                let unusable =
                    |reason: &str| CredentialError::Client(format!("the token file {}: {reason}", shortened(&file)));
                let text = std::fs::read_to_string(&file).map_err(|error| unusable(&error.to_string()))?;
                if text.trim().is_empty() {
                    Err(unusable("it is empty"))
                } else {
                    Ok(text)
                }
            }
        });
        return match read.await {
            // The client reads it again by itself.
            Ok(text) if text.trim() == text => {
                (user.token, user.token_file) = (None, Some(file));
                Ok(None)
            }
            Ok(text) => {
                user.token = Some(text.trim().to_owned().into());
                Ok(Some(Instant::now() + TOKEN_TIME))
            }
            // The token beside the file counts, as in kubectl.
            Err(_) if user.token.is_some() => Ok(Some(Instant::now() + TOKEN_TIME)),
            Err(error) => Err(error),
        };
    }
    let Some(plugin) = user.exec.take_if(|_| user.token.is_none()) else {
        return Ok(None);
    };
    let given = exec_plugin::run(&plugin, PLUGIN_TIME)
        .await
        .map_err(CredentialError::Plugin)?;
    if let (Some(certificate), Some(key)) = (given.client_certificate_data, given.client_key_data) {
        user.client_certificate_data = Some(BASE64.encode(certificate));
        user.client_key_data = Some(BASE64.encode(key).into());
    }
    user.token = given.token.map(|token| token.trim().to_owned().into());
    let now = machine_time();
    Ok(given.end.map(|end| {
        let left = if end > now { distance(end, now) } else { Duration::ZERO };
        Instant::now() + left.saturating_sub(LEAD).max(Duration::from_secs(1))
    }))
}

/// Credentials with the client that they gave.
#[derive(Debug)]
pub(crate) struct SharedClient {
    access: ClusterAccess,
    client: ShortLock<Arc<OnceCell<FreshClient>>>,
    #[cfg(test)]
    ready: Option<FreshClient>,
}

/// Client of [`SharedClient`], and which one it is.
pub(crate) struct LentClient {
    pub(crate) client: Client,
    own: Arc<OnceCell<FreshClient>>,
}

impl SharedClient {
    /// Credentials that are read with the first request.
    pub(crate) fn new(access: ClusterAccess) -> Self {
        Self {
            access,
            client: ShortLock::default(),
            #[cfg(test)]
            ready: None,
        }
    }

    /// Client of a test.
    #[cfg(all(test, feature = "client"))]
    pub(crate) fn ready(client: Client) -> Self {
        Self {
            ready: Some(FreshClient { client, until: None }),
            ..Self::new(ClusterAccess::default())
        }
    }

    /// Client of the last request, or a new one.
    ///
    /// # Errors
    /// The credentials are missing or cannot be used.
    pub(crate) async fn get(&self) -> Result<LentClient, CredentialError> {
        let own = self.client.with(|own| {
            if own.get().is_some_and(FreshClient::is_over) {
                *own = Arc::default();
            }
            Arc::clone(own)
        });
        #[cfg(test)]
        if let Some(ready) = self.ready.clone() {
            let client = ready.client;
            return Ok(LentClient { client, own });
        }
        let client = own.get_or_try_init(|| Box::pin(self.access.client())).await?;
        let client = client.client.clone();
        Ok(LentClient { client, own })
    }

    /// Drops the client: credentials may have changed.
    pub(crate) fn renew(&self) {
        let fresh = Arc::default();
        drop(self.client.with(|own| std::mem::replace(own, fresh)));
    }

    /// Drops a client whose request failed: the next one begins with fresh credentials and a fresh connection. Others may have
    /// dropped it before.
    pub(crate) fn forget(&self, broken: &LentClient) {
        let fresh = Arc::default();
        self.client.with(|own| {
            if Arc::ptr_eq(own, &broken.own) {
                *own = fresh;
            }
        });
    }
}

/// An error and its causes, in one line.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Many errors repeat their cause.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
