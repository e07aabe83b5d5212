//! The decision core: no clock, no I/O, no async, no wire types.
//!
//! `model` ← `plugin` ← `plugins` ← `policy` ← `decide`; `cycle` changes a private View, and a `World` is a View with
//! the policies that are published with it.

pub mod cycle;
pub mod decide;
pub mod derived;
mod kernel;
pub mod model;
pub mod plugin;
pub mod plugins;
pub mod policy;
mod world;

pub use world::{Derivations, PolicyInForce, Position, Revision, World};
