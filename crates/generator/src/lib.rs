//! Code generated from the protocol files. The build script writes it, and `tests/generated.rs` compares it with the files that the
//! other crates are compiled from.

/// Folder of the generated code, with a folder for each crate that uses some.
pub const GENERATED: &str = env!("OUT_DIR");
