//! All integration tests, in one crate.

#[cfg(test)]
mod command_line;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod rebuild;
#[cfg(test)]
mod rebuild_view;
#[cfg(test)]
mod session_model;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vectors;
