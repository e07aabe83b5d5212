//! Outcome of an import: records, errors of files, rejected objects, warnings.

use std::collections::BTreeMap;

use crate::object::{FieldError, RecordIdentity};
use pumice_engine::model::ErrorCode;
use pumice_protocol::v1 as pb;

/// Records of all files of an import, and what became of the objects that are not among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedRecords {
    /// All records, sorted by name.
    pub cluster: pb::Cluster,
    /// Objects that were rejected, in the order of the files.
    pub rejected: Vec<RejectedObject>,
    /// Unreadable objects with readable names, as in the protocol. An object is left out if a later object of the same name in
    /// the files is readable.
    pub unreadable: Vec<pb::UnreadableRecord>,
    /// Notes about ignored parts: each sentence with its number of occurrences.
    pub notes: BTreeMap<String, u64>,
    /// Unknown fields, records that stand more than once, and priority classes that are not in the files.
    pub warnings: Vec<ImportWarning>,
    /// Time that tasks ran, in seconds, by task name, where the files give it.
    pub run_seconds: BTreeMap<String, u64>,
}

/// Error of a file that cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The text is not JSON.
    #[error("{file}: {source}")]
    Json {
        /// Name of the file.
        file: String,
        /// Error and its place.
        source: serde_json::Error,
    },
    /// The text is not YAML 1.1.
    #[error("{file}: line {line}, column {column}: {message}")]
    Yaml {
        /// Name of the file.
        file: String,
        /// Number of the line, from 1.
        line: u32,
        /// Column in characters, from 1.
        column: u32,
        /// Problem of the text.
        message: String,
    },
    /// The text is not CSV.
    #[error("{file}: {source}")]
    Csv {
        /// Name of the file.
        file: String,
        /// Error and its place.
        source: csv::Error,
    },
    /// A document is not an object, or an object has no kind.
    #[error("{file}: {message}")]
    Shape {
        /// Name of the file.
        file: String,
        /// Problem of the document.
        message: String,
    },
}

/// Object that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedObject {
    /// Name of the object, such as `Pod default/web-0`.
    pub object: String,
    /// Field and its problem.
    pub error: FieldError,
    /// Record that the object would be, if its name can be read.
    pub record: Option<RecordIdentity>,
}

/// Problem in the files that has no effect or probably an unintended effect. For example, a misspelt annotation, or a
/// pod of a queue that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportWarning {
    /// Kind of warning, for programs.
    pub code: ErrorCode,
    /// Kind and name of the record, such as `task web/front-0`.
    pub subject: String,
    /// Warning for people; equal for records with the same mistake.
    pub message: String,
}
