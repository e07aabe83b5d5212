//! The decision core: no clock, no I/O, no async, no wire types.
//!
//! `model` ← `plugin` ← `plugins` ← `policy` ← `decide`.

pub mod model;
pub mod policy;
