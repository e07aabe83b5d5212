//! Reads YAML with the line of everything: maps whose unknown keys are faults, and records by the protocol's own names.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Wire};

use crate::engine::policy::slip;
use crate::engine::policy::{Mark, Node, Value};

/// Something in a file that cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn at(mark: Mark, message: impl Into<String>) -> Self {
        Fault {
            line: mark.line,
            column: mark.column,
            message: message.into(),
        }
    }
}

/// Read, or why not.
pub(super) type Read<T> = Result<T, Fault>;

/// A map whose keys are taken one by one; those that are left are unknown.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    pub(super) mark: Mark,
    what: String,
    left: Vec<(&'n str, Mark, &'n Node)>,
    asked: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The keys of a map; `what` says what it stands for.
    pub(super) fn of(node: &'n Node, what: &str) -> Read<Self> {
        let Value::Map(pairs) = &node.value else {
            return Err(wrong(node, what, "a map"));
        };
        let mut left = Vec::new();
        for (key, value) in pairs {
            let Value::String(name) = &key.value else {
                return Err(wrong(key, &format!("a key of {what}"), "a text"));
            };
            left.push((name.as_str(), key.mark, value));
        }
        Ok(Fields {
            mark: node.mark,
            what: what.to_owned(),
            left,
            asked: Vec::new(),
        })
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.asked.push(key);
        let at = self.left.iter().position(|(name, ..)| *name == key)?;
        Some(self.left.swap_remove(at).2)
    }

    /// The value of a key and the place of the key.
    pub(super) fn take_marked(&mut self, key: &'static str) -> Option<(Mark, &'n Node)> {
        self.asked.push(key);
        let at = self.left.iter().position(|(name, ..)| *name == key)?;
        let (_, mark, node) = self.left.swap_remove(at);
        Some((mark, node))
    }

    /// Refuses keys that nobody took.
    pub(super) fn end(self) -> Read<()> {
        let first = self.left.into_iter().min_by_key(|(_, mark, _)| *mark);
        match first {
            None => Ok(()),
            Some((name, mark, _)) => Err(Fault::at(mark, unknown(name, &self.what, &self.asked))),
        }
    }
}

fn unknown(name: &str, what: &str, known: &[&str]) -> String {
    match slip::nearest(name, known) {
        Some(meant) => format!("{what} has no `{name}`; did you mean `{meant}`?"),
        None => format!("{what} has no `{name}`; it has {}", known.join(", ")),
    }
}

fn wrong(node: &Node, what: &str, wanted: &str) -> Fault {
    Fault::at(node.mark, format!("{what} is {}, not {wanted}", node.value.kind()))
}

pub(super) fn text(node: &Node, what: &str) -> Read<String> {
    let Value::String(text) = &node.value else {
        return Err(wrong(node, what, "a text; write it in quotes"));
    };
    Ok(text.clone())
}

pub(super) fn flag(node: &Node, what: &str) -> Read<bool> {
    let Value::Bool(flag) = node.value else {
        return Err(wrong(node, what, "true or false"));
    };
    Ok(flag)
}

pub(super) fn number(node: &Node, what: &str) -> Read<f64> {
    match node.value {
        Value::Int(number) => Ok(number as f64),
        Value::UInt(number) => Ok(number as f64),
        Value::Float(number) => Ok(number),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::List(_) | Value::Map(_) => {
            Err(wrong(node, what, "a number"))
        }
    }
}

pub(super) fn whole(node: &Node, what: &str) -> Read<i64> {
    let Value::Int(number) = node.value else {
        return Err(wrong(node, what, "a whole number"));
    };
    Ok(number)
}

/// Null, or a number from 0.
pub(super) fn optional_count(node: &Node, what: &str) -> Read<Option<u64>> {
    if matches!(node.value, Value::Null) {
        return Ok(None);
    }
    let number = whole(node, what)?;
    let count = u64::try_from(number).map_err(|_| wrong(node, what, "a number from 0"));
    count.map(Some)
}

pub(super) fn list<'n>(node: &'n Node, what: &str) -> Read<&'n [Node]> {
    let Value::List(items) = &node.value else {
        return Err(wrong(node, what, "a list"));
    };
    Ok(items)
}

pub(super) fn texts(node: &Node, what: &str) -> Read<Vec<String>> {
    list(node, what)?.iter().map(|item| text(item, what)).collect()
}

/// A map by name; `read` reads a value.
pub(super) fn by_name<T>(node: &Node, what: &str, read: impl Fn(&Node, &str) -> Read<T>) -> Read<BTreeMap<String, T>> {
    let Value::Map(pairs) = &node.value else {
        return Err(wrong(node, what, "a map"));
    };
    let entry = |(key, value): &(Node, Node)| Ok((text(key, &format!("a key of {what}"))?, read(value, what)?));
    pairs.iter().map(entry).collect()
}

/// A message of the protocol: fields by their names (`min_member` or `minMember`), amounts as a plain map, enumerations
/// by the word that follows their prefix (`running`), times as text.
pub(super) fn message(node: &Node, of: &MessageDescriptor, what: &str) -> Read<DynamicMessage> {
    let Value::Map(pairs) = &node.value else {
        return Err(wrong(node, what, "a map"));
    };
    let mut message = DynamicMessage::new(of.clone());
    for (key, value) in pairs {
        let name = text(key, &format!("a key of {what}"))?;
        let field = of.get_field_by_name(&name).or_else(|| of.get_field_by_json_name(&name));
        let Some(field) = field else {
            let known: Vec<String> = of.fields().map(|field| field.name().to_owned()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(Fault::at(key.mark, unknown(&name, what, &known)));
        };
        // Null is as good as nothing.
        if matches!(value.value, Value::Null) && !is_amounts(&field) {
            continue;
        }
        let wire = wire(value, &field, &format!("`{name}`"))?;
        let set = message.try_set_field(&field, wire);
        set.map_err(|error| Fault::at(value.mark, format!("`{name}`: {error}")))?;
    }
    Ok(message)
}

fn is_amounts(field: &FieldDescriptor) -> bool {
    field
        .kind()
        .as_message()
        .is_some_and(|of| of.full_name() == "pumice.v1.ResourceList")
}

fn wire(node: &Node, field: &FieldDescriptor, what: &str) -> Read<Wire> {
    if field.is_map() {
        let entries = by_name(node, what, text)?;
        let entries = entries
            .into_iter()
            .map(|(key, text)| (MapKey::String(key), Wire::String(text)));
        return Ok(Wire::Map(entries.collect()));
    }
    if field.is_list() {
        let items = list(node, what)?.iter().map(|item| one(item, &field.kind(), what));
        return Ok(Wire::List(items.collect::<Read<_>>()?));
    }
    one(node, &field.kind(), what)
}

fn one(node: &Node, kind: &Kind, what: &str) -> Read<Wire> {
    match kind {
        Kind::Message(of) if of.full_name() == "pumice.v1.ResourceList" => amounts(node, of, what),
        Kind::Message(of) if of.full_name() == "google.protobuf.Timestamp" => time(node, of, what),
        Kind::Message(of) => message(node, of, what).map(Wire::Message),
        Kind::Enum(of) => word(node, of, what),
        Kind::Bool => flag(node, what).map(Wire::Bool),
        Kind::Double => number(node, what).map(Wire::F64),
        Kind::Int32 | Kind::Sint32 => {
            let number = whole(node, what)?;
            let number = i32::try_from(number).map_err(|_| wrong(node, what, "a number of 32 bits"))?;
            Ok(Wire::I32(number))
        }
        Kind::String => text(node, what).map(Wire::String),
        Kind::Float
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint64
        | Kind::Bytes
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64 => Err(Fault::at(node.mark, format!("{what} cannot be written here"))),
    }
}

/// Amounts: a map from resource to quantity; null is an empty list.
fn amounts(node: &Node, of: &MessageDescriptor, what: &str) -> Read<Wire> {
    let quantity = |node: &Node, what: &str| match &node.value {
        Value::String(text) => Ok(text.clone()),
        Value::Int(number) => Ok(number.to_string()),
        Value::UInt(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => Err(wrong(node, what, "a quantity")),
    };
    let items = if matches!(node.value, Value::Null) {
        BTreeMap::new()
    } else {
        by_name(node, what, quantity)?
    };
    let mut list = DynamicMessage::new(of.clone());
    let items = items
        .into_iter()
        .map(|(name, text)| (MapKey::String(name), Wire::String(text)));
    let set = list.try_set_field_by_name("items", Wire::Map(items.collect()));
    set.map_err(|error| Fault::at(node.mark, format!("{what}: {error}")))?;
    Ok(Wire::Message(list))
}

fn time(node: &Node, of: &MessageDescriptor, what: &str) -> Read<Wire> {
    let written = text(node, what)?;
    let time: prost_types::Timestamp = written
        .parse()
        .map_err(|_| wrong(node, what, "a time such as 2026-01-31T12:00:00Z"))?;
    let mut message = DynamicMessage::new(of.clone());
    let set = message.try_set_field_by_name("seconds", Wire::I64(time.seconds));
    set.map_err(|error| Fault::at(node.mark, format!("{what}: {error}")))?;
    Ok(Wire::Message(message))
}

/// A value of an enumeration, by its whole name or by what makes it differ from the others.
fn word(node: &Node, of: &EnumDescriptor, what: &str) -> Read<Wire> {
    let written = text(node, what)?;
    let asked = written.to_uppercase();
    let names: Vec<(String, i32)> = of
        .values()
        .map(|value| (value.name().to_owned(), value.number()))
        .collect();
    let prefix = common_prefix(names.iter().map(|(name, _)| name.as_str()));
    let short = |name: &str| name.get(prefix..).unwrap_or(name).to_owned();
    let found = names.iter().find(|(name, _)| *name == asked || short(name) == asked);
    let Some((_, number)) = found else {
        let known: Vec<String> = names.iter().map(|(name, _)| short(name).to_lowercase()).collect();
        let known = known.join(", ");
        return Err(Fault::at(
            node.mark,
            format!("{what} is `{written}`, not one of {known}"),
        ));
    };
    Ok(Wire::EnumNumber(*number))
}

fn common_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> usize {
    let first = names.next().unwrap_or_default();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let common = names.map(|name| shared(first, name)).min().unwrap_or(0);
    // Words stay whole.
    first
        .get(..common)
        .and_then(|text| text.rfind('_'))
        .map_or(0, |at| at + 1)
}
