//! A locked door: TLS, and who may do what.

mod authority;
mod handshakes;
mod rotation;
mod tls;
