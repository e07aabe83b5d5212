//! Watches a Kubernetes cluster and feeds a Pumice server with its records.
//!
//! [`ClusterWatch`] lists all resources ([`RESOURCES`]) and sends them as one full sync of a source. Then it follows their
//! changes and sends them as deltas. It derives records by `pumice-kubernetes`, as the server does itself, and reads
//! objects as the API server writes them. Whatever breaks the row of changes (a version that the API server has
//! forgotten, a resource that appears, a server that asks for it) leads back to the lists; meanwhile the records stay.
//! [`ClusterCondition`] says whether all changes arrive, and why not.

mod api_client;
mod backoff;
mod cluster_watch;
mod condition;
mod credentials;
mod events;
mod failure;
mod feed;
mod header;
mod object_reader;
mod pages;
mod pod_binder;
mod read_again;
mod reasons;
mod records;
mod requests;
mod resource_watch;
mod resources;
mod times;
mod token_review;

pub use api_client::Client;
pub use cluster_watch::{ClusterWatch, WatchOptions};
pub use condition::{ClusterCondition, ClusterStatus, ResourceCondition, ResourceStatus};
pub use credentials::{ClusterAccess, CredentialError, causes};
pub use feed::FeedError;
pub use pod_binder::{BindError, PodBinder, PodBinding};
pub use reasons::{PendingReasons, PodReason, ReasonOptions, ReasonWriter};
pub use resource_watch::ListMode;
pub use resources::{RESOURCES, WatchedResource};
pub use token_review::{TokenReviewError, TokenReviewer, TokenVerdict};
