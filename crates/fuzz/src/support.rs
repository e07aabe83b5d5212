//! Parts that the tests of the service share, as far as the engine alone needs them.

#[path = "../../../tests/it/support/constraints.rs"]
pub(crate) mod constraints;
#[path = "../../../tests/it/support/engine.rs"]
pub(crate) mod engine;
#[path = "../../../tests/it/support/records.rs"]
pub(crate) mod records;
