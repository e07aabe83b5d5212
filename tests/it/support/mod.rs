//! Servers and clients for tests.

#![expect(dead_code, reason = "most of it waits for the server")]
pub(crate) mod wire;
pub(crate) mod yaml;
