//! Kubernetes objects to records: `import` reads dumps of `kubectl` and the openb trace, and `derive` computes what the
//! server counts of a pod.

pub mod derive;
pub mod import;
pub mod object;
