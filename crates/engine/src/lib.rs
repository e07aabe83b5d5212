//! The decision core: no clock, no I/O, no async, no wire types.
//!
//! `model` ← `plugin` ← `plugins` ← `policy` ← `decide` ← `actions`. `cycle` changes a private cluster state. A `Snapshot` is a
//! cluster state with the policies that are published with it.

pub mod actions;
pub mod cards;
pub mod cycle;
pub mod decide;
pub mod devices;
pub mod held_bytes;
pub mod model;
pub mod plugin;
pub mod plugin_state;
pub mod plugins;
pub mod policy;
pub mod short_lock;
mod snapshot;

pub use snapshot::{PluginStateCache, PolicyInForce, Revision, Snapshot, SourcePosition};
