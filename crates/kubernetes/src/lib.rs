//! Kubernetes objects to records: `import` reads dumps of `kubectl` and the openb trace, `derive` computes what the server
//! counts of a pod, and `claims` tells the devices that nodes have and pods claim.

pub mod claims;
pub mod derive;
pub mod import;
pub mod object;
