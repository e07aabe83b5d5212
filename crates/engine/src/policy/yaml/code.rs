//! Codes of the errors that the reader finds.

/// Text that is not YAML 1.1.
pub const YAML_SYNTAX: &str = "YAML_SYNTAX";
/// Alias without an anchor, or inside the value of its own anchor.
pub const YAML_ALIAS: &str = "YAML_ALIAS";
/// Merge key whose value is neither a map nor a list of maps.
pub const YAML_MERGE: &str = "YAML_MERGE";
/// Text that does not match its tag.
pub const YAML_TAG: &str = "YAML_TAG";
/// List or map as the key of a map.
pub const YAML_KEY: &str = "YAML_KEY";
/// Document larger, deeper or more repetitive than a limit allows.
pub const YAML_LIMIT: &str = "YAML_LIMIT";
