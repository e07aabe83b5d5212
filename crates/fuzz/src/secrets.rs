//! Files of access: identities, tokens, certificates and keys.

use pumice::fuzz_entries;

use crate::choices::{split_choice, text};

/// Reads a file of identities.
pub fn read_identities(data: &[u8]) {
    if let Err(message) = fuzz_entries::read_identities(&text(data)) {
        assert!(!message.is_empty());
    }
}

/// Reads a file of tokens; messages do not depend on what the tokens are.
pub fn read_tokens(data: &[u8]) {
    let text = text(data);
    let hidden: String = text
        .chars()
        .map(|c| if c.is_ascii_graphic() { 'x' } else { c })
        .collect();
    let (read, other) = (
        fuzz_entries::read_token_file(&text),
        fuzz_entries::read_token_file(&hidden),
    );
    assert_eq!(read, other);
}

/// Reads names and validity of a certificate.
pub fn read_certificate(data: &[u8]) {
    let (names, _) = fuzz_entries::read_certificate(data);
    assert!(names.len() <= 64);
    assert!(names.iter().all(|name| name.len() <= 1_024));
}

/// Reads the files of a listener: certificate, key and authorities, each behind its length.
pub fn read_tls_files(data: &[u8]) {
    let (first, rest) = split_choice(data);
    let (second, rest) = split_choice(rest);
    let (certificate, rest) = rest.split_at((usize::from(first) * 8).min(rest.len()));
    let (key, authorities) = rest.split_at((usize::from(second) * 8).min(rest.len()));
    let authorities = (!authorities.is_empty()).then_some(authorities);
    let _ = fuzz_entries::read_tls_files(certificate, key, authorities);
}
