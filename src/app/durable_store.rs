//! The store that the settings name, opened.

use std::io;
#[cfg(feature = "etcd")]
use std::path::Path;
use std::path::PathBuf;

use crate::config::{ServerConfig, StoreKind, StoreSettings};
#[cfg(feature = "etcd")]
use crate::tls::{FILE_BYTES as PEM_BYTES, read_bounded};
#[cfg(feature = "etcd")]
use pumice_etcd::{Certificate, ClientTlsConfig, EtcdOptions, EtcdStore, Identity};
#[cfg(feature = "kubernetes")]
use pumice_kubernetes_store::{ApiAccess, KubernetesStore, KubernetesStoreOptions};
use pumice_live::ClusterAccess;
use pumice_state::session_prefix;
use pumice_state::store::{DiskStore, MemoryStore, Store, StoreError};

/// Longest password of etcd, in bytes.
#[cfg(feature = "etcd")]
const MAX_PASSWORD_BYTES: usize = 4_096;

/// Error of a store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// The directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the settings cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The program was built without the store that the settings name.
    #[error("this program was built without the store in {store}; build it with the feature `{feature}`")]
    NotBuilt {
        /// Where the store is.
        store: &'static str,
        /// Feature of the package.
        feature: &'static str,
    },
}

/// Opens the store that the settings name.
pub(super) fn open_store(config: &ServerConfig, epoch: u64) -> Result<Box<dyn Store>, OpenStoreError> {
    match (config.store_kind(), &config.data_dir) {
        (StoreKind::Etcd, _) => open_etcd(&config.store, &session_prefix(epoch)),
        (StoreKind::Kubernetes, _) => {
            let (access, prefix) = (config.cluster.access(), session_prefix(epoch));
            open_kubernetes(&config.store, &access, &prefix)
        }
        (StoreKind::Disk | StoreKind::ByDirectory, Some(directory)) => Ok(Box::new(DiskStore::open(directory)?)),
        (StoreKind::Memory | StoreKind::Disk | StoreKind::ByDirectory, _) => Ok(Box::new(MemoryStore::default())),
    }
}

/// Opens the store in etcd that these settings name, for a server whose sessions have names that begin so. Nothing is sent yet.
///
/// # Errors
/// A file cannot be read, or an address cannot be used.
#[cfg(feature = "etcd")]
pub fn open_etcd(settings: &StoreSettings, session_prefix: &str) -> Result<Box<dyn Store>, OpenStoreError> {
    let mut options = EtcdOptions::new(settings.etcd.members.clone());
    options.prefix.clone_from(&settings.etcd.prefix);
    settings.set_times(&mut options.lease, &mut options.timeout);
    options.address.clone_from(&settings.advertised_address);
    session_prefix.clone_into(&mut options.session_prefix);
    options.tls = client_tls(settings)?;
    if let Some(path) = &settings.etcd.password_file {
        let password = read_file(path, MAX_PASSWORD_BYTES)?;
        let password = String::from_utf8(password).map_err(|_| OpenStoreError::File {
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidData, "the password is not text"),
        })?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        options.user = Some((settings.etcd.user.clone(), password));
    }
    Ok(Box::new(EtcdStore::new(options)?))
}

/// Reports that this build has no store in etcd.
///
/// # Errors
/// Always.
#[cfg(not(feature = "etcd"))]
pub fn open_etcd(_: &StoreSettings, _: &str) -> Result<Box<dyn Store>, OpenStoreError> {
    Err(OpenStoreError::NotBuilt {
        store: "etcd",
        feature: "etcd",
    })
}

/// Opens the store in the Kubernetes API that these settings name, for a server whose sessions have names that begin so. Nothing
/// is sent yet.
///
/// # Errors
/// A thread cannot be started.
#[cfg(feature = "kubernetes")]
pub fn open_kubernetes(
    settings: &StoreSettings,
    access: &ClusterAccess,
    session_prefix: &str,
) -> Result<Box<dyn Store>, OpenStoreError> {
    let own = &settings.kubernetes;
    let mut options = KubernetesStoreOptions::new(ApiAccess::Credentials(access.clone()));
    options.namespace = Some(own.namespace.clone()).filter(|namespace| !namespace.is_empty());
    options.name.clone_from(&own.name);
    settings.set_times(&mut options.lease, &mut options.timeout);
    options.address.clone_from(&settings.advertised_address);
    session_prefix.clone_into(&mut options.session_prefix);
    options.rates.writes_per_second = own.writes_per_second.into();
    Ok(Box::new(KubernetesStore::new(options)?))
}

/// Reports that this build has no store in the Kubernetes API.
///
/// # Errors
/// Always.
#[cfg(not(feature = "kubernetes"))]
pub fn open_kubernetes(_: &StoreSettings, _: &ClusterAccess, _: &str) -> Result<Box<dyn Store>, OpenStoreError> {
    Err(OpenStoreError::NotBuilt {
        store: "the Kubernetes API",
        feature: "kubernetes",
    })
}

#[cfg(feature = "etcd")]
fn client_tls(settings: &StoreSettings) -> Result<Option<ClientTlsConfig>, OpenStoreError> {
    let Some(authority) = &settings.etcd.ca else {
        return Ok(None);
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read_file(authority, PEM_BYTES)?));
    if let (Some(certificate), Some(key)) = (&settings.etcd.certificate, &settings.etcd.key) {
        tls = tls.identity(Identity::from_pem(
            read_file(certificate, PEM_BYTES)?,
            read_file(key, PEM_BYTES)?,
        ));
    }
    Ok(Some(tls))
}

#[cfg(feature = "etcd")]
fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, OpenStoreError> {
    read_bounded(path, most).map_err(|source| OpenStoreError::File {
        path: path.to_owned(),
        source,
    })
}
