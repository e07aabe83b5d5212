//! Converts Kubernetes objects to records. `import` reads dumps of `kubectl` and the openb trace, `derive` computes the
//! amounts of a pod, and `claims` computes the devices of nodes and of claims. For example, a Pod with two containers
//! of 500m cpu becomes a task with `requests` 1.

pub mod claims;
pub mod derive;
pub mod import;
mod names;
pub mod object;
