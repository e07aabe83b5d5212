//! Reads YAML with the line of everything: maps whose unknown keys are faults, and records by the protocol's own names.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Wire};

use pumice_engine::policy::suggestion;
use pumice_engine::policy::{Mark, YamlNode, YamlValue};

/// Something in a file that cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaseFileError {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) message: String,
}

impl CaseFileError {
    pub(super) fn at(mark: Mark, message: impl Into<String>) -> Self {
        CaseFileError {
            line: mark.line,
            column: mark.column,
            message: message.into(),
        }
    }
}

/// Read, or why not.
pub(super) type CaseFileResult<T> = Result<T, CaseFileError>;

/// Map whose keys are consumed one by one. Keys that remain are unknown.
#[derive(Debug)]
pub(super) struct MapFields<'n> {
    pub(super) mark: Mark,
    subject: String,
    remaining: Vec<(&'n str, Mark, &'n YamlNode)>,
    known_keys: Vec<&'static str>,
}

impl<'n> MapFields<'n> {
    /// Keys of a map. `what` describes the map in error messages.
    pub(super) fn of(node: &'n YamlNode, what: &str) -> CaseFileResult<Self> {
        let YamlValue::Map(pairs) = &node.value else {
            return Err(wrong_type(node, what, "a map"));
        };
        let mut left = Vec::new();
        for (key, value) in pairs {
            let YamlValue::String(name) = &key.value else {
                return Err(wrong_type(key, &format!("a key of {what}"), "a text"));
            };
            left.push((name.as_str(), key.mark, value));
        }
        Ok(MapFields {
            mark: node.mark,
            subject: what.to_owned(),
            remaining: left,
            known_keys: Vec::new(),
        })
    }

    /// The value of a key, if it is there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'n YamlNode> {
        self.take_marked(key).map(|(_, node)| node)
    }

    /// The value of a key as `read` reads it, if it is there. Messages name the key.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: fn(&YamlNode, &str) -> CaseFileResult<T>,
    ) -> CaseFileResult<Option<T>> {
        self.take(key).map(|node| read(node, &format!("`{key}`"))).transpose()
    }

    /// The value of a key and the place of the key.
    pub(super) fn take_marked(&mut self, key: &'static str) -> Option<(Mark, &'n YamlNode)> {
        self.known_keys.push(key);
        let at = self.remaining.iter().position(|(name, ..)| *name == key)?;
        let (_, mark, node) = self.remaining.swap_remove(at);
        Some((mark, node))
    }

    /// Fails if keys were not consumed.
    pub(super) fn finish(self) -> CaseFileResult<()> {
        let first = self.remaining.into_iter().min_by_key(|(_, mark, _)| *mark);
        match first {
            None => Ok(()),
            Some((name, mark, _)) => Err(CaseFileError::at(
                mark,
                unknown_key(name, &self.subject, &self.known_keys),
            )),
        }
    }
}

fn unknown_key(name: &str, what: &str, known: &[&str]) -> String {
    match suggestion::nearest_name(name, known) {
        Some(meant) => format!("{what} has no `{name}`; did you mean `{meant}`?"),
        None => format!("{what} has no `{name}`; it has {}", known.join(", ")),
    }
}

fn wrong_type(node: &YamlNode, what: &str, wanted: &str) -> CaseFileError {
    CaseFileError::at(node.mark, format!("{what} is {}, not {wanted}", node.value.kind()))
}

pub(super) fn text(node: &YamlNode, what: &str) -> CaseFileResult<String> {
    let YamlValue::String(text) = &node.value else {
        return Err(wrong_type(node, what, "a text; write it in quotes"));
    };
    Ok(text.clone())
}

pub(super) fn boolean(node: &YamlNode, what: &str) -> CaseFileResult<bool> {
    let YamlValue::Bool(flag) = node.value else {
        return Err(wrong_type(node, what, "true or false"));
    };
    Ok(flag)
}

pub(super) fn number(node: &YamlNode, what: &str) -> CaseFileResult<f64> {
    match node.value {
        YamlValue::Int(number) => Ok(number as f64),
        YamlValue::UInt(number) => Ok(number as f64),
        YamlValue::Float(number) => Ok(number),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::String(_) | YamlValue::List(_) | YamlValue::Map(_) => {
            Err(wrong_type(node, what, "a number"))
        }
    }
}

pub(super) fn integer(node: &YamlNode, what: &str) -> CaseFileResult<i64> {
    let YamlValue::Int(number) = node.value else {
        return Err(wrong_type(node, what, "a whole number"));
    };
    Ok(number)
}

/// Null, or a number from 0.
pub(super) fn optional_count(node: &YamlNode, what: &str) -> CaseFileResult<Option<u64>> {
    if matches!(node.value, YamlValue::Null) {
        return Ok(None);
    }
    let number = integer(node, what)?;
    let count = u64::try_from(number).map_err(|_| wrong_type(node, what, "a number from 0"));
    count.map(Some)
}

pub(super) fn list<'n>(node: &'n YamlNode, what: &str) -> CaseFileResult<&'n [YamlNode]> {
    let YamlValue::List(items) = &node.value else {
        return Err(wrong_type(node, what, "a list"));
    };
    Ok(items)
}

pub(super) fn texts(node: &YamlNode, what: &str) -> CaseFileResult<Vec<String>> {
    list(node, what)?.iter().map(|item| text(item, what)).collect()
}

/// A map by name; `read` reads a value.
pub(super) fn by_name<T>(
    node: &YamlNode,
    what: &str,
    read: impl Fn(&YamlNode, &str) -> CaseFileResult<T>,
) -> CaseFileResult<BTreeMap<String, T>> {
    let YamlValue::Map(pairs) = &node.value else {
        return Err(wrong_type(node, what, "a map"));
    };
    let entry = |(key, value): &(YamlNode, YamlNode)| Ok((text(key, &format!("a key of {what}"))?, read(value, what)?));
    pairs.iter().map(entry).collect()
}

/// A message of the protocol: fields by their names (`min_member` or `minMember`), amounts as a plain map, enumerations
/// by the word that follows their prefix (`running`), times as text.
pub(super) fn message(node: &YamlNode, of: &MessageDescriptor, what: &str) -> CaseFileResult<DynamicMessage> {
    let YamlValue::Map(pairs) = &node.value else {
        return Err(wrong_type(node, what, "a map"));
    };
    let mut message = DynamicMessage::new(of.clone());
    for (key, value) in pairs {
        let name = text(key, &format!("a key of {what}"))?;
        let field = of.get_field_by_name(&name).or_else(|| of.get_field_by_json_name(&name));
        let Some(field) = field else {
            let known: Vec<String> = of.fields().map(|field| field.name().to_owned()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(CaseFileError::at(key.mark, unknown_key(&name, what, &known)));
        };
        // Null is as good as nothing.
        if matches!(value.value, YamlValue::Null) && !is_amounts(&field) {
            continue;
        }
        let wire = field_value(value, &field, &format!("`{name}`"))?;
        let set = message.try_set_field(&field, wire);
        set.map_err(|error| CaseFileError::at(value.mark, format!("`{name}`: {error}")))?;
    }
    Ok(message)
}

fn is_amounts(field: &FieldDescriptor) -> bool {
    field
        .kind()
        .as_message()
        .is_some_and(|of| of.full_name() == "pumice.v1.ResourceList")
}

fn field_value(node: &YamlNode, field: &FieldDescriptor, what: &str) -> CaseFileResult<Wire> {
    if field.is_map() {
        let entries = by_name(node, what, text)?;
        let entries = entries
            .into_iter()
            .map(|(key, text)| (MapKey::String(key), Wire::String(text)));
        return Ok(Wire::Map(entries.collect()));
    }
    if field.is_list() {
        let items = list(node, what)?
            .iter()
            .map(|item| single_value(item, &field.kind(), what));
        return Ok(Wire::List(items.collect::<CaseFileResult<_>>()?));
    }
    single_value(node, &field.kind(), what)
}

fn single_value(node: &YamlNode, kind: &Kind, what: &str) -> CaseFileResult<Wire> {
    match kind {
        Kind::Message(of) if of.full_name() == "pumice.v1.ResourceList" => amounts(node, of, what),
        Kind::Message(of) if of.full_name() == "google.protobuf.Timestamp" => timestamp(node, of, what),
        Kind::Message(of) => message(node, of, what).map(Wire::Message),
        Kind::Enum(of) => enum_value(node, of, what),
        Kind::Bool => boolean(node, what).map(Wire::Bool),
        Kind::Double => number(node, what).map(Wire::F64),
        Kind::Int32 | Kind::Sint32 => {
            let number = integer(node, what)?;
            let number = i32::try_from(number).map_err(|_| wrong_type(node, what, "a number of 32 bits"))?;
            Ok(Wire::I32(number))
        }
        Kind::Uint32 => {
            let number = integer(node, what)?;
            let number = u32::try_from(number).map_err(|_| wrong_type(node, what, "a number of 32 bits from 0"))?;
            Ok(Wire::U32(number))
        }
        Kind::Int64 => integer(node, what).map(Wire::I64),
        Kind::String => text(node, what).map(Wire::String),
        Kind::Float
        | Kind::Uint64
        | Kind::Sint64
        | Kind::Bytes
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64 => Err(CaseFileError::at(node.mark, format!("{what} cannot be written here"))),
    }
}

/// Amounts: a map from resource to quantity; null is an empty list.
fn amounts(node: &YamlNode, of: &MessageDescriptor, what: &str) -> CaseFileResult<Wire> {
    let quantity = |node: &YamlNode, what: &str| match &node.value {
        YamlValue::String(text) => Ok(text.clone()),
        YamlValue::Int(number) => Ok(number.to_string()),
        YamlValue::UInt(number) => Ok(number.to_string()),
        YamlValue::Float(number) => Ok(number.to_string()),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::List(_) | YamlValue::Map(_) => {
            Err(wrong_type(node, what, "a quantity"))
        }
    };
    let items = if matches!(node.value, YamlValue::Null) {
        BTreeMap::new()
    } else {
        by_name(node, what, quantity)?
    };
    let mut list = DynamicMessage::new(of.clone());
    let items = items
        .into_iter()
        .map(|(name, text)| (MapKey::String(name), Wire::String(text)));
    let set = list.try_set_field_by_name("items", Wire::Map(items.collect()));
    set.map_err(|error| CaseFileError::at(node.mark, format!("{what}: {error}")))?;
    Ok(Wire::Message(list))
}

fn timestamp(node: &YamlNode, of: &MessageDescriptor, what: &str) -> CaseFileResult<Wire> {
    let written = text(node, what)?;
    let time: prost_types::Timestamp = written
        .parse()
        .map_err(|_| wrong_type(node, what, "a time such as 2026-01-31T12:00:00Z"))?;
    let mut message = DynamicMessage::new(of.clone());
    let set = message.try_set_field_by_name("seconds", Wire::I64(time.seconds));
    set.map_err(|error| CaseFileError::at(node.mark, format!("{what}: {error}")))?;
    Ok(Wire::Message(message))
}

/// A value of an enumeration, by its whole name or by what makes it differ from the others.
fn enum_value(node: &YamlNode, of: &EnumDescriptor, what: &str) -> CaseFileResult<Wire> {
    let written = text(node, what)?;
    let asked = written.to_uppercase();
    let names = short_enum_names(of);
    let whole = of.get_value_by_name(&asked).map(|value| value.number());
    let found = names.iter().find(|(name, _)| *name == asked).map(|(_, number)| *number);
    let Some(number) = whole.or(found) else {
        let known: Vec<String> = names.iter().map(|(name, _)| name.to_lowercase()).collect();
        let known = known.join(", ");
        return Err(CaseFileError::at(
            node.mark,
            format!("{what} is `{written}`, not one of {known}"),
        ));
    };
    Ok(Wire::EnumNumber(number))
}

/// Values of an enumeration, by what makes their names differ from each other.
pub(super) fn short_enum_names(of: &EnumDescriptor) -> Vec<(String, i32)> {
    let names: Vec<(String, i32)> = of
        .values()
        .map(|value| (value.name().to_owned(), value.number()))
        .collect();
    let prefix = common_prefix(names.iter().map(|(name, _)| name.as_str()));
    let short = |name: String| name.get(prefix..).map(str::to_owned).unwrap_or(name);
    names.into_iter().map(|(name, number)| (short(name), number)).collect()
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
