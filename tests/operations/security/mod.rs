//! A locked door: TLS, and who may do what.

mod audit;
mod handshakes;
mod identities;
mod roles;
mod rotation;
mod soak;
mod store;
mod tls;
mod token_review;

use crate::support::authority;
