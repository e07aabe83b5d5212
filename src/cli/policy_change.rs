//! What differs between two documents, by meaning: plugins by name, wherever they stand; keys by path.

use serde::Serialize;

use crate::engine::plugins::REGISTRY;
use crate::engine::policy::yaml::{self, ReadError};
use crate::engine::policy::{Limits, Node, Value};

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    /// `added`, `removed`, `changed` or `moved`.
    #[serde(rename = "change")]
    what: &'static str,
    /// Where: `binpack arguments.binpack.weight`.
    path: String,
    /// Absent: it was not there.
    from: Option<String>,
    /// Absent: it is not there any more.
    to: Option<String>,
    /// Questions whose answers it may change; empty: none of Pumice's.
    touches: Vec<String>,
}

impl Change {
    /// One line for people.
    pub(super) fn line(&self) -> String {
        let touches = if self.touches.is_empty() {
            String::new()
        } else {
            format!("   [{}]", self.touches.join(", "))
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match self.what {
            "added" => format!("+ {}: {}{touches}", self.path, text(&self.to)),
            "removed" => format!("- {}: {}{touches}", self.path, text(&self.from)),
            _ => format!("~ {}: {} → {}{touches}", self.path, text(&self.from), text(&self.to)),
        }
    }
}

/// What differs between two effective documents, in the order of the first.
///
/// # Errors
/// One of them is no YAML.
pub(super) fn changes(before: &str, after: &str) -> Result<Vec<Change>, ReadError> {
    let limits = Limits::default();
    let (before, after) = (yaml::read(before, &limits)?, yaml::read(after, &limits)?);
    let mut found = Found::default();
    let (a, b) = (entries(&before), entries(&after));
    for key in keys(&a, &b) {
        let (old, new) = (get(&a, key), get(&b, key));
        if key == "tiers" {
            found.tiers(old, new);
        } else {
            let touches = match key {
                "pumice" => vec!["all".to_owned()],
                _ => Vec::new(),
            };
            found.value(key, old, new, &touches);
        }
    }
    Ok(found.changes)
}

/// A plugin and the tier that it stands in, from 1.
struct Placed<'n> {
    name: String,
    tier: usize,
    node: &'n Node,
}

#[derive(Default)]
struct Found {
    changes: Vec<Change>,
}

impl Found {
    fn put(&mut self, what: &'static str, path: &str, values: (Option<String>, Option<String>), touches: &[String]) {
        self.changes.push(Change {
            what,
            path: path.to_owned(),
            from: values.0,
            to: values.1,
            touches: touches.to_vec(),
        });
    }

    fn tiers(&mut self, before: Option<&Node>, after: Option<&Node>) {
        let (a, b) = (placed(before), placed(after));
        for old in &a {
            // The same name may stand there twice: the first goes with the first.
            let number = a
                .iter()
                .take_while(|one| !std::ptr::eq(*one, old))
                .filter(|one| one.name == old.name)
                .count();
            let new = b.iter().filter(|one| one.name == old.name).nth(number);
            let families = families(&old.name);
            let Some(new) = new else {
                let from = format!("tier {}", old.tier);
                self.put(
                    "removed",
                    &format!("plugin {}", old.name),
                    (Some(from), None),
                    &families,
                );
                continue;
            };
            if old.tier != new.tier {
                let values = (Some(format!("tier {}", old.tier)), Some(format!("tier {}", new.tier)));
                self.put("moved", &format!("plugin {}", old.name), values, &families);
            }
            self.plugin(&old.name, old.node, new.node, &families);
        }
        for (at, new) in b.iter().enumerate() {
            let number = b.iter().take(at).filter(|one| one.name == new.name).count();
            if a.iter().filter(|one| one.name == new.name).nth(number).is_none() {
                let to = format!("tier {}{}", new.tier, arguments(new.node));
                self.put(
                    "added",
                    &format!("plugin {}", new.name),
                    (None, Some(to)),
                    &families(&new.name),
                );
            }
        }
        self.order(&a, &b);
    }

    /// Who stands before whom counts where the first that distinguishes decides.
    fn order(&mut self, a: &[Placed<'_>], b: &[Placed<'_>]) {
        let common = |own: &[Placed<'_>], other: &[Placed<'_>]| -> Vec<String> {
            let shared = own
                .iter()
                .filter(|one| other.iter().any(|two| two.name == one.name && two.tier == one.tier));
            shared.map(|one| one.name.clone()).collect()
        };
        let (old, new) = (common(a, b), common(b, a));
        if old != new {
            let values = (Some(old.join(", ")), Some(new.join(", ")));
            self.put(
                "moved",
                "order of plugins",
                values,
                &["order".to_owned(), "victims".to_owned()],
            );
        }
    }

    fn plugin(&mut self, name: &str, before: &Node, after: &Node, families: &[String]) {
        let (a, b) = (entries(before), entries(after));
        for key in keys(&a, &b) {
            let path = format!("{name} {key}");
            let touches = match hook(key) {
                Some(family) => vec![family.to_owned()],
                // Of the other switches Pumice asks nothing.
                None if key.starts_with("enable") => Vec::new(),
                None => families.to_vec(),
            };
            self.value(&path, get(&a, key), get(&b, key), &touches);
        }
    }

    fn value(&mut self, path: &str, before: Option<&Node>, after: Option<&Node>, touches: &[String]) {
        let (old, new) = match (before, after) {
            (None, None) => return,
            (Some(old), None) => return self.put("removed", path, (Some(inline(&old.value)), None), touches),
            (None, Some(new)) => return self.put("added", path, (None, Some(inline(&new.value))), touches),
            (Some(old), Some(new)) => (old, new),
        };
        if old.value.same(&new.value) {
            return;
        }
        if let (Value::Map(olds), Value::Map(news)) = (&old.value, &new.value)
            && olds
                .iter()
                .chain(news)
                .all(|(key, _)| matches!(key.value, Value::String(_)))
        {
            let (a, b) = (entries(old), entries(new));
            for key in keys(&a, &b) {
                self.value(&joined(path, key), get(&a, key), get(&b, key), touches);
            }
            return;
        }
        if let (Some(a), Some(b)) = (named(old), named(new)) {
            for key in keys(&a, &b) {
                self.value(&format!("{path}[{key}]"), get(&a, key), get(&b, key), touches);
            }
            return;
        }
        let values = (Some(inline(&old.value)), Some(inline(&new.value)));
        self.put("changed", path, values, touches);
    }
}

/// `binpack arguments` and `binpack.weight` become `binpack arguments.binpack.weight`.
fn joined(path: &str, key: &str) -> String {
    format!("{path}.{key}")
}

type Entries<'n> = Vec<(&'n str, &'n Node)>;

fn entries(node: &Node) -> Entries<'_> {
    let Value::Map(pairs) = &node.value else {
        return Vec::new();
    };
    pairs
        .iter()
        .filter_map(|(key, value)| match &key.value {
            Value::String(key) => Some((key.as_str(), value)),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::UInt(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Map(_) => None,
        })
        .collect()
}

/// A list whose items have names of their own, by name.
fn named(node: &Node) -> Option<Entries<'_>> {
    let Value::List(items) = &node.value else { return None };
    let name = |item: &'_ Node| -> Option<usize> {
        let entries = entries(item);
        entries
            .iter()
            .position(|(key, _)| matches!(*key, "name" | "schedulerName"))
    };
    let mut found = Entries::new();
    for item in items {
        let at = name(item)?;
        let (_, value) = entries(item).into_iter().nth(at)?;
        let Value::String(text) = &value.value else { return None };
        if found.iter().any(|(known, _)| *known == text.as_str()) {
            return None;
        }
        found.push((text.as_str(), item));
    }
    Some(found)
}

fn get<'n>(entries: &Entries<'n>, key: &str) -> Option<&'n Node> {
    entries.iter().find(|(own, _)| *own == key).map(|(_, node)| *node)
}

/// Keys of both, in the order of the first, then of the second.
fn keys<'n>(a: &Entries<'n>, b: &Entries<'n>) -> Vec<&'n str> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in a.iter().chain(b) {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    keys
}

fn placed(tiers: Option<&Node>) -> Vec<Placed<'_>> {
    let Some(Value::List(tiers)) = tiers.map(|tiers| &tiers.value) else {
        return Vec::new();
    };
    let mut placed = Vec::new();
    for (tier, node) in (1..).zip(tiers) {
        let Some(Value::List(plugins)) = get(&entries(node), "plugins").map(|plugins| &plugins.value) else {
            continue;
        };
        for node in plugins {
            if let Some(Value::String(name)) = get(&entries(node), "name").map(|name| &name.value) {
                let name = name.clone();
                placed.push(Placed { name, tier, node });
            }
        }
    }
    placed
}

fn arguments(plugin: &Node) -> String {
    match get(&entries(plugin), "arguments") {
        Some(arguments) => format!(", arguments {}", inline(&arguments.value)),
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
fn hook(key: &str) -> Option<&'static str> {
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
fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| inline(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| format!("{}: {}", inline(&key.value), inline(&value.value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(before: &str, after: &str) -> Vec<String> {
        changes(before, after).unwrap().iter().map(Change::line).collect()
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
                "+ plugin gang: tier 2",
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
