//! Watches a Kubernetes cluster and sends its records to a Pumice server.
//!
//! [`ClusterWatch`] lists all resources ([`RESOURCES`]) and sends them as one full sync of a source. Then it follows
//! their changes and sends them as deltas. Like the server, it derives records with `pumice-kubernetes`.
//!
//! Each resource fails alone. After a gap in its changes it is listed again, for example because the API server returned 410 Gone or
//! its watch was silent; objects that a complete new list does not show are removed. An answer removes records only if it proves that
//! it may: a list has its kind, its items and a version, and an API server confirms for a minute that it no longer serves a resource.
//! Until then the last good records stay, and [`ClusterCondition`] names the resource and the reason. Everything is listed again only
//! if the Pumice server requests a full sync.

mod api_client;
mod backoff;
mod cluster_watch;
mod condition;
mod credentials;
mod events;
#[cfg(feature = "client")]
mod exec_plugin;
mod failure;
mod feed;
mod header;
mod list_reading;
mod object_reader;
mod pages;
mod pod_binder;
mod probe;
mod read_again;
mod reasons;
mod records;
mod requests;
mod resource_watch;
mod resources;
#[cfg(test)]
#[cfg(feature = "client")]
mod tests;
mod times;
mod token_review;

pub use api_client::Client;
pub use cluster_watch::{ClusterWatch, SILENCE, WatchOptions};
pub use condition::{ClusterCondition, ClusterStatus, ResourceCondition, ResourceStatus};
pub use credentials::{ClusterAccess, CredentialError, FreshClient, causes};
pub use feed::FeedError;
pub use pages::is_version;
pub use pod_binder::{BindError, PodBinder, PodBinding};
pub use reasons::{PendingReasons, PodReason, ReasonOptions, ReasonWriter};
pub use resources::{RESOURCES, WatchedResource};
pub use token_review::{TokenReviewError, TokenReviewer, TokenVerdict};
