//! Credentials of a cluster: a kubeconfig file, or the account of the pod that the process runs in.

use std::path::PathBuf;

use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use pumice_engine::short_lock::ShortLock;

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
    /// The credentials make no client.
    #[error("credentials of the cluster: {0}; check certificates, tokens and the proxy of the kubeconfig")]
    Client(String),
}

impl ClusterAccess {
    /// Client of the API server. Reads the files again at each call, and connects with the first request; tokens in files
    /// and tokens of exec plugins are renewed while the client lives.
    ///
    /// # Errors
    /// The credentials are missing or cannot be used.
    pub async fn client(&self) -> Result<Client, CredentialError> {
        let config = self.config().await?;
        Client::try_from(config).map_err(|error| CredentialError::Client(causes(&error)))
    }

    /// Client whose requests are sent once: what to do after an error, and when, its caller decides.
    ///
    /// # Errors
    /// The errors of [`Self::client`].
    pub async fn plain_client(&self) -> Result<Client, CredentialError> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Client::try_from(config).map_err(|error| CredentialError::Client(causes(&error)))
    }

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

/// Credentials with the client that they gave, for requests now and then.
#[derive(Debug, Default)]
pub(crate) struct SharedClient {
    access: ClusterAccess,
    client: ShortLock<Option<Client>>,
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
    pub(crate) async fn get(&self) -> Result<Client, CredentialError> {
        if let Some(client) = self.client.with(|client| client.clone()) {
            return Ok(client);
        }
        let client = self.access.client().await?;
        self.client.with(|place| *place = Some(client.clone()));
        Ok(client)
    }

    /// Drops a client whose request failed: the next one begins with fresh credentials and a fresh connection.
    pub(crate) fn forget(&self) {
        let broken = self.client.with(Option::take);
        drop(broken);
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
