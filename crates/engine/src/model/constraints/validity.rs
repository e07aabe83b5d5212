//! Validity of keys and values of labels, as Kubernetes checks them in node selectors (`k8s.io/apimachinery` v0.36.1,
//! `pkg/util/validation`).

const MAX_NAME: usize = 63;
const MAX_PREFIX: usize = 253;

/// True of a qualified name: an optional DNS subdomain and `/`, and a name of at most 63 characters.
pub fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
    }
}

/// True of a label's value: empty, or a name.
pub(super) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub(in crate::model) fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = name.as_bytes();
    name.len() <= MAX_NAME
        && bytes.iter().all(|byte| inner(*byte))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Labels of lower-case letters, digits and `-`, with a letter or digit at both ends, and dots between them.
pub(in crate::model) fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = label.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        bytes.iter().all(inner) && end(bytes.first()) && end(bytes.last())
    };
    name.len() <= MAX_PREFIX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_qualified_names() {
        for key in ["a", "A.b_c-9", "kubernetes.io/hostname", "x.y-z/n", &"a".repeat(63)] {
            assert!(is_qualified_name(key), "{key}");
        }
        let long = format!("{}/n", "a".repeat(254));
        for key in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "A.b/n",
            "a..b/n",
            "-a",
            "a-",
            "a b",
            "ä",
            &"a".repeat(64),
            &long,
        ] {
            assert!(!is_qualified_name(key), "{key}");
        }
    }

    #[test]
    fn values_are_empty_or_names() {
        assert!(
            ["", "1", "a.b", &"9".repeat(63)]
                .iter()
                .all(|value| is_label_value(value))
        );
        assert!(
            !["-5", "a/", " ", "a ", "+1", &"9".repeat(64)]
                .iter()
                .any(|value| is_label_value(value))
        );
    }
}
