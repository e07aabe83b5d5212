//! Watches a Kubernetes cluster and sends its records to a Pumice server.
//!
//! [`ClusterWatch`] lists all resources ([`RESOURCES`]) and sends them as one full sync of a source. Then it follows
//! their changes and sends them as deltas. Like the server, it derives records with `pumice-kubernetes`.
//!
//! After a gap in the changes it lists everything again. For example, the API server returned 410 Gone, a resource was
//! installed, or the Pumice server requested a full sync. The records remain on the server until the new lists are
//! complete. [`ClusterCondition`] reports whether all changes arrive, and the reason if not.

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
