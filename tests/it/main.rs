//! All integration tests, in one crate.

#[cfg(test)]
mod rebuild_view;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vectors;
