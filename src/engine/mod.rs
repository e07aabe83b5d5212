//! The decision core: no clock, no I/O, no async, no wire types.

pub mod model;
pub mod policy;
