//! All integration tests, in one crate.

#[cfg(test)]
mod vectors;
