//! Patterns of `resources`: the entry that applies to a resource name. An exact name has precedence, then the longest
//! prefix.
//!
//! A key without `*` is a name. A key with one `*`, at its end and not alone, is a pattern: `nvidia.com/gpu*` covers
//! every name that begins with `nvidia.com/gpu`. Every other key with a `*` is dropped.
//!
//! Under `compatibility: corrected` a pattern that ends in `/*` after a name that already has a `/`, such as
//! `nvidia.com/gpu/*`, is a *family*: it covers `nvidia.com/gpu` itself, and every name that continues it with `-`,
//! `_`, `.` or `/`, such as `nvidia.com/gpu-v100` (not `nvidia.com/gpus`). Read literally it covers nothing, since a
//! resource name has only one `/`; `upstream` reads it so. Of several patterns that cover a name the one with the
//! longest text before `*` (in a family: before `/*`) applies; at equal length the family does.

use std::collections::BTreeMap;

use crate::policy::Compatibility;

/// Entries by name and by pattern.
#[derive(Clone, Debug)]
pub(super) struct ResourcePatterns<T> {
    /// Entries by key, in the document's spelling.
    keys: BTreeMap<String, T>,
    /// Patterns, the longest first.
    patterns: Vec<(NamePattern, T)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern {
    prefix: String,
    family: bool,
}

/// Kind of key in `resources`, such as the prefix in `nvidia.com/*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceKeyKind<'a> {
    /// Exact name.
    Exact,
    /// Prefix of names.
    Prefix(&'a str),
    /// Name that covers itself and every name that continues it after a separator.
    Family(&'a str),
    /// Key with a `*` in a wrong place.
    Malformed,
}

impl<'a> ResourceKeyKind<'a> {
    /// Classifies a key by its `*`; only `corrected` has families.
    pub(super) fn of(key: &'a str, compatibility: Compatibility) -> Self {
        let Some(prefix) = key.strip_suffix('*') else {
            return if key.contains('*') {
                Self::Malformed
            } else {
                Self::Exact
            };
        };
        if prefix.is_empty() || prefix.contains('*') {
            return Self::Malformed;
        }
        match prefix.strip_suffix('/') {
            Some(name) if name.contains('/') && compatibility == Compatibility::Corrected => Self::Family(name),
            _ => Self::Prefix(prefix),
        }
    }
}

impl NamePattern {
    fn covers(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&*self.prefix) else {
            return false;
        };
        !self.family || rest.is_empty() || rest.starts_with(['-', '_', '.', '/'])
    }
}

impl<T: Copy> ResourcePatterns<T> {
    /// Patterns from these entries. A malformed key is left out, and a repeated key replaces the earlier key.
    pub(super) fn new(entries: impl IntoIterator<Item = (String, T)>, compatibility: Compatibility) -> Self {
        let mut keys: BTreeMap<String, T> = entries.into_iter().collect();
        keys.retain(|key, _| ResourceKeyKind::of(key, compatibility) != ResourceKeyKind::Malformed);
        let pattern = |prefix: &str, family| NamePattern {
            prefix: prefix.to_owned(),
            family,
        };
        let mut patterns: Vec<(NamePattern, T)> = keys
            .iter()
            .filter_map(|(key, &entry)| match ResourceKeyKind::of(key, compatibility) {
                ResourceKeyKind::Prefix(prefix) => Some((pattern(prefix, false), entry)),
                ResourceKeyKind::Family(name) => Some((pattern(name, true), entry)),
                ResourceKeyKind::Exact | ResourceKeyKind::Malformed => None,
            })
            .collect();
        patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse((pattern.prefix.len(), pattern.family)));
        Self { keys, patterns }
    }

    /// Entry that applies to a resource.
    pub(super) fn get(&self, name: &str) -> Option<T> {
        if let Some(&exact) = self.keys.get(name) {
            return Some(exact);
        }
        let mut covering = self.patterns.iter().filter(|(pattern, _)| pattern.covers(name));
        covering.next().map(|&(_, entry)| entry)
    }

    /// All entries by key, in the document's spelling.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, T)> {
        self.keys.iter().map(|(key, &entry)| (key.as_str(), entry))
    }

    /// True if the list has no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Key that applies by the rule's own words, found among all keys.
    fn plain(keys: &[String], name: &str, compatibility: Compatibility) -> Option<String> {
        if keys.iter().any(|key| key == name && !key.contains('*')) {
            return Some(name.to_owned());
        }
        let mut best: Option<(usize, bool, &String)> = None;
        for key in keys {
            let stars = key.chars().filter(|c| *c == '*').count();
            if stars != 1 || !key.ends_with('*') || key == "*" {
                continue;
            }
            let text = key.trim_end_matches('*');
            let slashes = text.chars().filter(|c| *c == '/').count();
            let family = compatibility == Compatibility::Corrected && text.ends_with('/') && slashes > 1;
            let text = if family { text.strip_suffix('/').unwrap() } else { text };
            let next = name.get(text.len()..).and_then(|rest| rest.chars().next());
            let covers = name.starts_with(text) && (!family || next.is_none_or(|c| "-_./".contains(c)));
            if covers && best.is_none_or(|(length, was_family, _)| (text.len(), family) > (length, was_family)) {
                best = Some((text.len(), family, key));
            }
        }
        best.map(|(.., key)| key.clone())
    }

    proptest! {
        #[test]
        fn lookup_equals_the_plain_rule(
            keys in prop::collection::vec("[ab/][ab/.*-]{0,5}[ab*]{0,2}[/]?[*]?", 0..12),
            names in prop::collection::vec("[ab/][ab/.-]{0,7}", 1..12),
            upstream in any::<bool>(),
        ) {
            let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
            let entries = keys.iter().enumerate().map(|(i, key)| (key.clone(), i));
            let patterns = ResourcePatterns::new(entries, compatibility);
            for name in names {
                let got = patterns.get(&name).map(|i| keys[i].clone());
                prop_assert_eq!(got, plain(&keys, &name, compatibility), "{}", name);
            }
        }
    }

    #[test]
    fn family_pattern_matches_only_under_corrected() {
        let keys = ["nvidia.com/gpu/*", "nvidia.com/gpu-*", "nvidia.com/gpu*", "amd.com/*"];
        let entries = || keys.iter().map(|key| ((*key).to_owned(), *key));
        let corrected = ResourcePatterns::new(entries().take(1), Compatibility::Corrected);
        for (name, covered) in [
            ("nvidia.com/gpu", true),
            ("nvidia.com/gpu-v100", true),
            ("nvidia.com/gpu.shared", true),
            ("nvidia.com/gpu_x", true),
            ("nvidia.com/gpus", false),
            ("nvidia.com/gp", false),
            ("amd.com/gpu", false),
        ] {
            assert_eq!(corrected.get(name).is_some(), covered, "{name}");
        }
        let upstream = ResourcePatterns::new(entries().take(1), Compatibility::UPSTREAM);
        assert_eq!(upstream.get("nvidia.com/gpu-v100"), None);
        assert_eq!(upstream.get("nvidia.com/gpu"), None);

        let several = ResourcePatterns::new(entries(), Compatibility::Corrected);
        assert_eq!(several.get("nvidia.com/gpu-v100"), Some("nvidia.com/gpu-*"));
        assert_eq!(several.get("nvidia.com/gpu.shared"), Some("nvidia.com/gpu/*"));
        assert_eq!(several.get("nvidia.com/gpus"), Some("nvidia.com/gpu*"));
        assert_eq!(several.get("amd.com/gpu"), Some("amd.com/*"));
    }
}
