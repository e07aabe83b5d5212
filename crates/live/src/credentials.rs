//! Credentials of a cluster: a kubeconfig file, or the account of the pod that the process runs in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "client")]
use kube_client::Config;
#[cfg(feature = "client")]
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use pumice_engine::short_lock::ShortLock;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};

use crate::api_client::Client;

/// Time in which credentials have to be read. An exec plugin may ask another service for them.
const READING_TIME: Duration = Duration::from_secs(30);
/// Credentials that are read at once. Each takes a thread, which an exec plugin that hangs does not give back.
static READINGS: Semaphore = Semaphore::const_new(4);

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
    /// The credentials make no client.
    #[error("credentials of the cluster: {0}; check certificates, tokens and the proxy of the kubeconfig")]
    Client(String),
}

impl ClusterAccess {
    /// Client of the API server with credentials as they are now: the files are read again at each call. It connects with the first
    /// request, and sends each request once: what to do after an error, and when, its caller decides. Tokens in files and tokens of
    /// exec plugins are renewed while the client lives.
    ///
    /// # Errors
    /// The credentials are missing or cannot be used.
    // Credentials are read on a thread of their own: the library waits there for exec plugins.
    pub async fn client(&self) -> Result<Client, CredentialError> {
        let (access, runtime) = (self.clone(), Handle::current());
        let reading = async move {
            // Nobody closes the semaphore.
            let permit = READINGS.acquire().await.ok();
            let work = move || {
                let read = runtime.block_on(access.new_client());
                drop(permit);
                read
            };
            tokio::task::spawn_blocking(work).await
        };
        match tokio::time::timeout(READING_TIME, reading).await {
            Ok(read) => read.map_err(|error| CredentialError::Client(error.to_string()))?,
            Err(_) => Err(CredentialError::Client(format!(
                "they were not read within {} s, which an exec plugin may be the cause of",
                READING_TIME.as_secs()
            ))),
        }
    }

    #[cfg(not(feature = "client"))]
    #[expect(clippy::unused_async, reason = "a build with a client waits here")]
    async fn new_client(&self) -> Result<Client, CredentialError> {
        Err(CredentialError::NotBuilt)
    }

    #[cfg(feature = "client")]
    async fn new_client(&self) -> Result<Client, CredentialError> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Client::try_from(config).map_err(|error| CredentialError::Client(causes(&error)))
    }

    #[cfg(feature = "client")]
    async fn config(&self) -> Result<Config, CredentialError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let unusable = |kubeconfig: String| {
            move |error: kube_client::config::KubeconfigError| CredentialError::Kubeconfig {
                kubeconfig,
                reason: causes(&error),
            }
        };
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let name = path.display().to_string();
                let kubeconfig = Kubeconfig::read_from(path).map_err(unusable(name.clone()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(unusable(name))
            }
            (None, Some(_)) => Config::from_kubeconfig(&options)
                .await
                .map_err(unusable("the default kubeconfig".to_owned())),
            (None, None) => Config::infer()
                .await
                .map_err(|error| CredentialError::None(causes(&error))),
        }
    }
}

/// Credentials with the client that they gave.
#[derive(Debug)]
pub(crate) struct SharedClient {
    access: ClusterAccess,
    client: ShortLock<Arc<OnceCell<Client>>>,
}

/// Client of [`SharedClient`], and which one it is.
pub(crate) struct LentClient {
    pub(crate) client: Client,
    own: Arc<OnceCell<Client>>,
}

impl SharedClient {
    /// Credentials that are read with the first request.
    pub(crate) fn new(access: ClusterAccess) -> Self {
        Self {
            access,
            client: ShortLock::default(),
        }
    }

    /// Client of the last request, or a new one.
    ///
    /// # Errors
    /// The credentials are missing or cannot be used.
    pub(crate) async fn get(&self) -> Result<LentClient, CredentialError> {
        let own = self.client.with(|own| Arc::clone(own));
        let client = own.get_or_try_init(|| self.access.client()).await?;
        let client = client.clone();
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
