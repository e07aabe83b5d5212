//! Semantic differences between two policy documents: plugins are matched by name in any tier, keys by path.

use serde::Serialize;

use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::yaml::{self, YamlError};
use pumice_engine::policy::{YamlLimits, YamlNode, YamlValue};

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DocumentChange {
    /// `added`, `removed`, `changed` or `moved`.
    action: &'static str,
    /// Place in the document, such as `binpack arguments.binpack.weight`.
    path: String,
    /// Value before. Absent: there was none.
    from: Option<String>,
    /// Value after. Absent: there is none.
    to: Option<String>,
    /// Queries whose results the difference may change. Empty: none that Pumice serves.
    affected_queries: Vec<String>,
}

impl DocumentChange {
    /// One line for people.
    pub(super) fn line(&self) -> String {
        let touches = if self.affected_queries.is_empty() {
            String::new()
        } else {
            format!("   [{}]", self.affected_queries.join(", "))
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match self.action {
            "added" => format!("+ {}: {}{touches}", self.path, text(&self.to)),
            "removed" => format!("- {}: {}{touches}", self.path, text(&self.from)),
            _ => format!("~ {}: {} → {}{touches}", self.path, text(&self.from), text(&self.to)),
        }
    }
}

/// Differences between two effective documents, in the order of the first document.
///
/// # Errors
/// A document is not valid YAML.
pub(super) fn changes(before: &str, after: &str) -> Result<Vec<DocumentChange>, YamlError> {
    let limits = YamlLimits::default();
    let (before, after) = (yaml::read(before, &limits)?, yaml::read(after, &limits)?);
    let mut found = DocumentDiff::default();
    let (a, b) = (entries(&before), entries(&after));
    for key in merged_keys(&a, &b) {
        let (old, new) = (get(&a, key), get(&b, key));
        if key == "tiers" {
            found.compare_tiers(old, new);
        } else {
            let touches = match key {
                "pumice" => vec!["all".to_owned()],
                _ => Vec::new(),
            };
            found.compare_value(key, old, new, &touches);
        }
    }
    Ok(found.changes)
}

/// A plugin with the number of its tier, from 1.
struct TieredPlugin<'n> {
    name: String,
    tier: usize,
    node: &'n YamlNode,
}

#[derive(Default)]
struct DocumentDiff {
    changes: Vec<DocumentChange>,
}

impl DocumentDiff {
    fn add_change(
        &mut self,
        what: &'static str,
        path: &str,
        values: (Option<String>, Option<String>),
        touches: &[String],
    ) {
        self.changes.push(DocumentChange {
            action: what,
            path: path.to_owned(),
            from: values.0,
            to: values.1,
            affected_queries: touches.to_vec(),
        });
    }

    fn compare_tiers(&mut self, before: Option<&YamlNode>, after: Option<&YamlNode>) {
        let (a, b) = (tiered_plugins(before), tiered_plugins(after));
        for old in &a {
            // A name may occur twice: the first occurrence is compared with the first.
            let number = a
                .iter()
                .take_while(|one| !std::ptr::eq(*one, old))
                .filter(|one| one.name == old.name)
                .count();
            let new = b.iter().filter(|one| one.name == old.name).nth(number);
            let families = families(&old.name);
            let Some(new) = new else {
                let from = format!("tier {}", old.tier);
                self.add_change(
                    "removed",
                    &format!("plugin {}", old.name),
                    (Some(from), None),
                    &families,
                );
                continue;
            };
            if old.tier != new.tier {
                let values = (Some(format!("tier {}", old.tier)), Some(format!("tier {}", new.tier)));
                self.add_change("moved", &format!("plugin {}", old.name), values, &families);
            }
            self.compare_plugin(&old.name, old.node, new.node, &families);
        }
        for (at, new) in b.iter().enumerate() {
            let number = b.iter().take(at).filter(|one| one.name == new.name).count();
            if a.iter().filter(|one| one.name == new.name).nth(number).is_none() {
                let to = format!("tier {}{}", new.tier, arguments(new.node));
                self.add_change(
                    "added",
                    &format!("plugin {}", new.name),
                    (None, Some(to)),
                    &families(&new.name),
                );
            }
        }
        self.compare_order(&a, &b);
    }

    /// Compares the order of plugins, which matters for decisions of the first plugin that distinguishes two records.
    fn compare_order(&mut self, a: &[TieredPlugin<'_>], b: &[TieredPlugin<'_>]) {
        let common = |own: &[TieredPlugin<'_>], other: &[TieredPlugin<'_>]| -> Vec<String> {
            let shared = own
                .iter()
                .filter(|one| other.iter().any(|two| two.name == one.name && two.tier == one.tier));
            shared.map(|one| one.name.clone()).collect()
        };
        let (old, new) = (common(a, b), common(b, a));
        if old != new {
            let values = (Some(old.join(", ")), Some(new.join(", ")));
            self.add_change(
                "moved",
                "order of plugins",
                values,
                &["order".to_owned(), "victims".to_owned()],
            );
        }
    }

    fn compare_plugin(&mut self, name: &str, before: &YamlNode, after: &YamlNode, families: &[String]) {
        let (a, b) = (entries(before), entries(after));
        for key in merged_keys(&a, &b) {
            let path = format!("{name} {key}");
            let touches = match family_of_switch(key) {
                Some(family) => vec![family.to_owned()],
                // Pumice reads no other switch.
                None if key.starts_with("enable") => Vec::new(),
                None => families.to_vec(),
            };
            self.compare_value(&path, get(&a, key), get(&b, key), &touches);
        }
    }

    fn compare_value(&mut self, path: &str, before: Option<&YamlNode>, after: Option<&YamlNode>, touches: &[String]) {
        let (old, new) = match (before, after) {
            (None, None) => return,
            (Some(old), None) => return self.add_change("removed", path, (Some(one_line(&old.value)), None), touches),
            (None, Some(new)) => return self.add_change("added", path, (None, Some(one_line(&new.value))), touches),
            (Some(old), Some(new)) => (old, new),
        };
        if old.value.same(&new.value) {
            return;
        }
        if let (YamlValue::Map(olds), YamlValue::Map(news)) = (&old.value, &new.value)
            && olds
                .iter()
                .chain(news)
                .all(|(key, _)| matches!(key.value, YamlValue::String(_)))
        {
            let (a, b) = (entries(old), entries(new));
            for key in merged_keys(&a, &b) {
                self.compare_value(&format!("{path}.{key}"), get(&a, key), get(&b, key), touches);
            }
            return;
        }
        if let (Some(a), Some(b)) = (entries_by_name(old), entries_by_name(new)) {
            for key in merged_keys(&a, &b) {
                self.compare_value(&format!("{path}[{key}]"), get(&a, key), get(&b, key), touches);
            }
            return;
        }
        let values = (Some(one_line(&old.value)), Some(one_line(&new.value)));
        self.add_change("changed", path, values, touches);
    }
}

type MapEntries<'n> = Vec<(&'n str, &'n YamlNode)>;

fn entries(node: &YamlNode) -> MapEntries<'_> {
    let YamlValue::Map(pairs) = &node.value else {
        return Vec::new();
    };
    pairs
        .iter()
        .filter_map(|(key, value)| match &key.value {
            YamlValue::String(key) => Some((key.as_str(), value)),
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::Int(_)
            | YamlValue::UInt(_)
            | YamlValue::Float(_)
            | YamlValue::List(_)
            | YamlValue::Map(_) => None,
        })
        .collect()
}

/// A list whose items have names of their own, by name.
fn entries_by_name(node: &YamlNode) -> Option<MapEntries<'_>> {
    let YamlValue::List(items) = &node.value else {
        return None;
    };
    let mut found = MapEntries::new();
    for item in items {
        let mut entries = entries(item).into_iter();
        let (_, value) = entries.find(|(key, _)| matches!(*key, "name" | "schedulerName"))?;
        let YamlValue::String(text) = &value.value else {
            return None;
        };
        if found.iter().any(|(known, _)| *known == text.as_str()) {
            return None;
        }
        found.push((text.as_str(), item));
    }
    Some(found)
}

fn get<'n>(entries: &MapEntries<'n>, key: &str) -> Option<&'n YamlNode> {
    entries.iter().find(|(own, _)| *own == key).map(|(_, node)| *node)
}

/// Keys of both, in the order of the first, then of the second.
fn merged_keys<'n>(a: &MapEntries<'n>, b: &MapEntries<'n>) -> Vec<&'n str> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in a.iter().chain(b) {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    keys
}

fn tiered_plugins(tiers: Option<&YamlNode>) -> Vec<TieredPlugin<'_>> {
    let Some(YamlValue::List(tiers)) = tiers.map(|tiers| &tiers.value) else {
        return Vec::new();
    };
    let mut placed = Vec::new();
    for (tier, node) in (1..).zip(tiers) {
        let Some(YamlValue::List(plugins)) = get(&entries(node), "plugins").map(|plugins| &plugins.value) else {
            continue;
        };
        for node in plugins {
            if let Some(YamlValue::String(name)) = get(&entries(node), "name").map(|name| &name.value) {
                let name = name.clone();
                placed.push(TieredPlugin { name, tier, node });
            }
        }
    }
    placed
}

fn arguments(plugin: &YamlNode) -> String {
    match get(&entries(plugin), "arguments") {
        Some(arguments) => format!(", arguments {}", one_line(&arguments.value)),
        None => String::new(),
    }
}

/// The questions that a plugin takes part in; none: it is not served here.
fn families(plugin: &str) -> Vec<String> {
    let row = REGISTRY.iter().find(|row| row.name == plugin);
    row.into_iter()
        .flat_map(|row| row.families)
        .map(ToString::to_string)
        .collect()
}

/// The question that a switch of a plugin is about.
fn family_of_switch(key: &str) -> Option<&'static str> {
    Some(match key {
        "enablePredicate" => "filter",
        "enableNodeOrder" => "score",
        "enableJobOrder" | "enableQueueOrder" | "enableHierarchy" => "order",
        "enablePreemptable" | "enableReclaimable" => "victims",
        "enableJobEnqueued" | "enabledAllocatable" => "admit",
        _ => return None,
    })
}

/// A value in one line.
fn one_line(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "null".to_owned(),
        YamlValue::Bool(flag) => flag.to_string(),
        YamlValue::Int(number) => number.to_string(),
        YamlValue::UInt(number) => number.to_string(),
        YamlValue::Float(number) => number.to_string(),
        YamlValue::String(text) => text.clone(),
        YamlValue::List(items) => {
            let items: Vec<String> = items.iter().map(|item| one_line(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
        YamlValue::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| format!("{}: {}", one_line(&key.value), one_line(&value.value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(before: &str, after: &str) -> Vec<String> {
        changes(before, after)
            .unwrap()
            .iter()
            .map(DocumentChange::line)
            .collect()
    }

    #[test]
    fn plugins_are_compared_by_name_and_keys_by_path() {
        let before = "actions: allocate\ntiers:\n- plugins:\n  - {name: binpack, enableNodeOrder: true, arguments: {w: 1, x: {v: 2}}}\n  - {name: drf}\n";
        let after = "actions: allocate\ntiers:\n- plugins:\n  - {name: drf}\n- plugins:\n  - {name: binpack, enableNodeOrder: false, arguments: {w: 1, x: {v: 3}, z: [1]}}\n  - {name: gang}\n";
        assert_eq!(
            lines(before, after),
            [
                "~ plugin binpack: tier 1 → tier 2   [score]",
                "~ binpack enableNodeOrder: true → false   [score]",
                "~ binpack arguments.x.v: 2 → 3   [score]",
                "+ binpack arguments.z: [1]   [score]",
                "+ plugin gang: tier 2   [order, victims]",
            ]
        );
        assert_eq!(lines(before, before), Vec::<String>::new());
    }

    #[test]
    fn the_order_within_a_tier_is_a_difference() {
        let before = "tiers:\n- plugins:\n  - {name: drf}\n  - {name: capacity-card}\n";
        let after = "tiers:\n- plugins:\n  - {name: capacity-card}\n  - {name: drf}\n";
        assert_eq!(
            lines(before, after),
            ["~ order of plugins: drf, capacity-card → capacity-card, drf   [order, victims]"]
        );
    }

    #[test]
    fn lists_of_named_things_are_compared_by_name() {
        let before = "profiles:\n- schedulerName: a\n  weight: 1\n- schedulerName: b\n";
        let after = "profiles:\n- schedulerName: b\n- schedulerName: a\n  weight: 2\n";
        assert_eq!(lines(before, after), ["~ profiles[a].weight: 1 → 2"]);
    }
}
