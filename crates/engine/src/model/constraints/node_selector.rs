//! Terms of node selectors.

use std::sync::Arc;

use super::validity::{is_label_value, is_qualified_name};
use crate::held_bytes::held_bytes;
use crate::model::text_map::{TextMap, find_text};

/// Only field of a node that a selector may name.
const NAME_FIELD: &str = "metadata.name";

/// Name and labels of a node, which a selector reads.
#[derive(Clone, Copy, Debug)]
pub struct NodeLabels<'a> {
    /// Name of the node, for requirements on `metadata.name`.
    pub name: &'a str,
    /// Labels of the node, for requirements on labels.
    pub labels: &'a TextMap,
}

/// Requirement on one label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SelectorRequirement {
    /// Name of the label or field.
    pub key: Arc<str>,
    /// Operator, as it was written.
    pub operator: Arc<str>,
    /// Values to compare with, such as `a` and `b`. Empty for `Exists` and `DoesNotExist`.
    pub values: Vec<Arc<str>>,
}

held_bytes! { SelectorRequirement { key, operator, values } }

impl SelectorRequirement {
    /// True if Kubernetes accepts the requirement on a label: a valid operator with the right number of values, a
    /// qualified name as key, and valid label values. For example, `Exists` must not have values.
    pub fn is_valid(&self) -> bool {
        let values = match &*self.operator {
            "In" | "NotIn" => !self.values.is_empty(),
            "Exists" | "DoesNotExist" => self.values.is_empty(),
            "Gt" | "Lt" => matches!(&*self.values, [value] if parse_integer(value).is_some()),
            _ => false,
        };
        values && is_qualified_name(&self.key) && self.values.iter().all(|value| is_label_value(value))
    }

    /// True if a label of this value meets the requirement; `None`: the label is missing. The requirement is valid.
    pub fn is_met_by(&self, label: Option<&str>) -> bool {
        let is_listed = |label: &str| self.values.iter().any(|value| **value == *label);
        match &*self.operator {
            "In" => label.is_some_and(is_listed),
            "NotIn" => !label.is_some_and(is_listed),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => self.compare(label).is_some_and(std::cmp::Ordering::is_gt),
            "Lt" => self.compare(label).is_some_and(std::cmp::Ordering::is_lt),
            _ => false,
        }
    }

    /// Comparison of a label with the only value, both as integers.
    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let value = self.values.first()?;
        Some(parse_integer(label?)?.cmp(&parse_integer(value)?))
    }

    /// True if the requirement is a valid one on a field: `In` or `NotIn` with one value.
    fn is_valid_field(&self) -> bool {
        matches!(&*self.operator, "In" | "NotIn") && self.values.len() == 1
    }

    /// True if the node's field meets the requirement, which is valid. A field that no node has is empty.
    fn is_met_by_field(&self, node_name: &str) -> bool {
        let field = if *self.key == *NAME_FIELD { node_name } else { "" };
        let is_equal = self.values.first().is_some_and(|value| **value == *field);
        is_equal == (*self.operator == *"In")
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        visit(&mut self.key);
        visit(&mut self.operator);
        self.values.iter_mut().for_each(visit);
    }
}

/// Decimal integer of 64 bits with an optional sign, as Go's `ParseInt` reads it in base 10.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Term of a node selector. A node must meet all its requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    pub match_expressions: Vec<SelectorRequirement>,
    /// Requirements on fields.
    pub match_fields: Vec<SelectorRequirement>,
}

impl NodeSelectorTerm {
    /// True if the term has no requirement; it matches no node.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    /// True if every requirement is valid. A term that is not matches no node.
    pub fn is_valid(&self) -> bool {
        self.match_expressions.iter().all(SelectorRequirement::is_valid)
            && self.match_fields.iter().all(SelectorRequirement::is_valid_field)
    }

    /// True if the term matches a node. For many nodes, check first that the term is valid and not empty.
    pub fn matches(&self, node: NodeLabels<'_>) -> bool {
        !self.is_empty() && self.is_valid() && self.meets_all(node)
    }

    /// True if the node meets all requirements of a valid term.
    fn meets_all(&self, node: NodeLabels<'_>) -> bool {
        let mut expressions = self.match_expressions.iter();
        expressions.all(|own| own.is_met_by(find_text(node.labels, &own.key))) && self.fields_match(node.name)
    }

    /// True if the name of a node meets all requirements on fields, which are valid.
    pub fn fields_match(&self, node_name: &str) -> bool {
        self.match_fields.iter().all(|own| own.is_met_by_field(node_name))
    }

    /// Names of nodes to which the term is bound: the values that all its `In` requirements on the name have in common;
    /// `None`: it has no such requirement.
    pub fn bound_names(&self) -> Option<Vec<&Arc<str>>> {
        let is_bound = |own: &&SelectorRequirement| *own.key == *NAME_FIELD && *own.operator == *"In";
        let mut bound = self.match_fields.iter().filter(is_bound);
        let mut names: Vec<&Arc<str>> = bound.next()?.values.iter().collect();
        for own in bound {
            names.retain(|name| own.values.contains(name));
        }
        Some(names)
    }

    pub(super) fn each_text(&mut self, visit: &mut dyn FnMut(&mut Arc<str>)) {
        let requirements = self.match_expressions.iter_mut().chain(&mut self.match_fields);
        requirements.for_each(|own| own.each_text(visit));
    }
}

/// Preferred term: a matching node gets its weight as points.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredTerm {
    /// Points of a node that matches.
    pub weight: i32,
    /// Requirements that a node must meet to get the points.
    pub term: NodeSelectorTerm,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> SelectorRequirement {
        SelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        }
    }

    #[test]
    fn every_operator_meets_its_rule() {
        let cases: [(&str, &[&str], Option<&str>, bool); 16] = [
            ("In", &["a", "b"], Some("b"), true),
            ("In", &["a", "b"], Some("c"), false),
            ("In", &["a"], None, false),
            ("NotIn", &["a"], None, true),
            ("NotIn", &["a"], Some("a"), false),
            ("Exists", &[], Some(""), true),
            ("Exists", &[], None, false),
            ("DoesNotExist", &[], None, true),
            ("DoesNotExist", &[], Some(""), false),
            ("Gt", &["5"], Some("6"), true),
            ("Gt", &["5"], Some("5"), false),
            ("Gt", &["5"], Some("+007"), true),
            ("Gt", &["5"], Some("6.0"), false),
            ("Lt", &["5"], Some("-6"), true),
            ("Lt", &["5"], None, false),
            ("Lt", &["5"], Some("0x1"), false),
        ];
        for (operator, values, label, expected) in cases {
            let own = requirement("k", operator, values);
            assert!(own.is_valid(), "{own:?}");
            assert_eq!(own.is_met_by(label), expected, "{own:?} {label:?}");
        }
    }

    #[test]
    fn invalid_requirements_are_found() {
        let invalid = [
            requirement("k", "in", &["a"]),
            requirement("k", "In", &[]),
            requirement("k", "Exists", &["a"]),
            requirement("k", "Gt", &["-5"]),
            requirement("k", "Gt", &["5", "6"]),
            requirement("k", "Lt", &["x"]),
            requirement("a/b/c", "Exists", &[]),
            requirement("k", "In", &["a", "-"]),
        ];
        assert!(!invalid.iter().any(SelectorRequirement::is_valid));
    }

    #[test]
    fn fields_are_compared_with_the_name_of_the_node() {
        let labels = TextMap::default();
        let node = NodeLabels {
            name: "n1",
            labels: &labels,
        };
        let matches = |own: SelectorRequirement| {
            let term = NodeSelectorTerm {
                match_fields: vec![own],
                ..NodeSelectorTerm::default()
            };
            term.matches(node)
        };
        assert!(matches(requirement("metadata.name", "In", &["n1"])));
        assert!(!matches(requirement("metadata.name", "NotIn", &["n1"])));
        assert!(matches(requirement("other", "NotIn", &["x"])) && matches(requirement("other", "In", &[""])));
        assert!(!matches(requirement("metadata.name", "In", &["n1", "n2"])));
        assert!(!matches(requirement("metadata.name", "Exists", &[])));
        assert!(!NodeSelectorTerm::default().matches(node));
    }

    #[test]
    fn names_of_several_requirements_are_intersected() {
        let term = NodeSelectorTerm {
            match_fields: vec![
                requirement("metadata.name", "In", &["a", "b"]),
                requirement("metadata.name", "In", &["b", "c"]),
                requirement("metadata.name", "NotIn", &["b"]),
            ],
            ..NodeSelectorTerm::default()
        };
        assert_eq!(term.bound_names(), Some(vec![&Arc::from("b")]));
        assert_eq!(NodeSelectorTerm::default().bound_names(), None);
    }
}
