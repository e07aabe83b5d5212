//! Hash and fingerprint of a policy's document, for comparisons of documents.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use pumice_engine::policy::Compatibility;

/// SHA-256 of a document, hexadecimal.
pub fn document_hash(document: &str) -> Arc<str> {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(document.as_bytes()) {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text.into()
}

/// Fingerprint of a policy file: hash of its content and its compatibility.
pub(crate) fn document_fingerprint(document: &str, compatibility: Compatibility) -> Arc<str> {
    format!("{}:{}", document_hash(document), compatibility.name()).into()
}
