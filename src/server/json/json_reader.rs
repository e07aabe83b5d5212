//! Encoding of a message that is written as JSON.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Display};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{DURATION, TIMESTAMP};
use pumice_engine::policy::suggestion;

/// Base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Longest part of a value that an error shows, in characters.
const SHOWN_CHARS: usize = 40;

/// Error of a message that is written as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct JsonError {
    /// Path of the field, such as `tasks[3].requests`; empty: the message itself.
    pub(in crate::server) field: String,
    /// Reason, with line and column.
    pub(in crate::server) message: String,
    /// Address of the text of the value.
    address: usize,
}

impl JsonError {
    fn at(value: &RawValue, message: impl Display) -> Self {
        Self {
            field: String::new(),
            message: message.to_string(),
            address: value.get().as_ptr().addr(),
        }
    }

    /// Error of a value inside a message or a list, at this step of the path.
    fn inside(mut self, step: impl Display) -> Self {
        self.field = format!("{step}{}", self.field);
        self
    }

    /// Error with line and column of the value in the whole text.
    fn located(self, text: &str) -> Self {
        let before = text
            .get(..self.address.saturating_sub(text.as_ptr().addr()))
            .unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let (row, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
        Self {
            field: self.field.trim_start_matches('.').to_owned(),
            message: format!("{} at line {row} column {column}", self.message),
            ..self
        }
    }
}

/// Encodes a message that is written as protobuf JSON. `most`: largest number of bytes.
///
/// # Errors
/// The text is not JSON, or not a message of this type: it has an unknown field, or a value of another type or range. The
/// encoded message is too large.
pub(in crate::server) fn encode_json(
    json: &[u8],
    message: &MessageDescriptor,
    most: usize,
) -> Result<Vec<u8>, JsonError> {
    let broken = |message: String| JsonError {
        field: String::new(),
        message,
        address: 0,
    };
    let text = std::str::from_utf8(json).map_err(|error| broken(error.to_string()))?;
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    let mut reader = JsonReader { wire: Vec::new(), most };
    match reader.message(message, whole) {
        Ok(()) => Ok(reader.wire),
        Err(error) => Err(error.located(text)),
    }
}

/// Encoded bytes so far.
pub(super) struct JsonReader {
    pub(super) wire: Vec<u8>,
    /// Most bytes.
    pub(super) most: usize,
}

/// Parts of a value whose syntax was checked before.
fn parts<'v, T: Deserialize<'v>>(value: &'v RawValue, expected: &str) -> Result<T, JsonError> {
    serde_json::from_str(value.get())
        .map_err(|_| JsonError::at(value, format!("{} is not {expected}", shown(value.get()))))
}

/// Members of an object in the order of the text; a name may be there twice.
struct Members<'v>(Vec<(String, &'v RawValue)>);

impl<'v> Deserialize<'v> for Members<'v> {
    fn deserialize<D: Deserializer<'v>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'v> Visitor<'v> for MemberVisitor {
    type Value = Members<'v>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'v>>(self, mut map: A) -> Result<Members<'v>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Members of an object by name.
///
/// # Errors
/// The value is not an object, or a name is there twice.
fn members(value: &RawValue) -> Result<BTreeMap<String, &RawValue>, JsonError> {
    let Members(list) = parts(value, "an object")?;
    let mut members = BTreeMap::new();
    for (name, value) in list {
        match members.entry(name) {
            Entry::Vacant(free) => _ = free.insert(value),
            Entry::Occupied(first) => return Err(JsonError::at(value, format!("`{}` is there twice", first.key()))),
        }
    }
    Ok(members)
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

impl JsonReader {
    /// Writes the fields of a message, which have their JSON names or those of the protocol files.
    fn message(&mut self, message: &MessageDescriptor, value: &RawValue) -> Result<(), JsonError> {
        let mut chosen = Vec::new();
        for (name, value) in members(value)? {
            let written = self.field(message, &name, value, &mut chosen);
            written.map_err(|error| error.inside(format_args!(".{name}")))?;
        }
        Ok(())
    }

    /// Writes a field. `chosen`: names of the choices whose field is there.
    fn field(
        &mut self,
        message: &MessageDescriptor,
        name: &str,
        value: &RawValue,
        chosen: &mut Vec<String>,
    ) -> Result<(), JsonError> {
        let named = message.get_field_by_json_name(name);
        let Some(field) = named.or_else(|| message.get_field_by_name(name)) else {
            let fields: Vec<_> = message.fields().collect();
            let known: Vec<&str> = fields.iter().map(FieldDescriptor::json_name).collect();
            let hint = suggestion::hint(name, &known);
            return Err(JsonError::at(
                value,
                format!("{} has no such field{hint}", message.name()),
            ));
        };
        if value.get() == "null" {
            return Ok(());
        }
        let choice = field
            .containing_oneof()
            .map_or_else(|| field.name().to_owned(), |choice| choice.name().to_owned());
        if chosen.contains(&choice) {
            return Err(JsonError::at(value, format!("`{choice}` is there already")));
        }
        chosen.push(choice);
        let (number, kind) = (field.number(), field.kind());
        if let Some(entry) = kind.as_message().filter(|_| field.is_map()) {
            return self.entries(number, entry, value);
        }
        if !field.is_list() {
            return self.value(number, &kind, value);
        }
        let elements: Vec<&RawValue> = parts(value, "an array")?;
        for (index, element) in elements.into_iter().enumerate() {
            let written = self.value(number, &kind, element);
            written.map_err(|error| error.inside(format_args!("[{index}]")))?;
        }
        Ok(())
    }

    /// Writes the entries of a map, whose keys are texts.
    fn entries(&mut self, number: u32, entry: &MessageDescriptor, value: &RawValue) -> Result<(), JsonError> {
        let kind = entry.map_entry_value_field().kind();
        for (key, value) in members(value)? {
            let written = self.delimited(number, |reader| {
                reader.bytes(1, key.as_bytes());
                reader.value(2, &kind, value)
            });
            written.map_err(|error| error.inside(format_args!("[{key}]")))?;
        }
        Ok(())
    }

    /// Writes one value of a field.
    pub(super) fn value(&mut self, number: u32, kind: &Kind, value: &RawValue) -> Result<(), JsonError> {
        let name = kind.as_message().map(MessageDescriptor::full_name);
        match (kind, name) {
            (Kind::Message(inner), Some(name)) if ![DURATION, TIMESTAMP].contains(&name) => {
                self.delimited(number, |reader| reader.message(inner, value))?;
            }
            _ => {
                let quoted: Option<String> = serde_json::from_str(value.get()).ok();
                let text = quoted.as_deref().unwrap_or(value.get());
                let written = self.scalar(number, kind, text, quoted.is_some());
                let wrong = |expected| JsonError::at(value, format!("{} is not {expected}", shown(value.get())));
                written.map_err(wrong)?;
            }
        }
        if self.wire.len() > self.most {
            return Err(JsonError::at(
                value,
                format!("the message has more than {} bytes here", self.most),
            ));
        }
        Ok(())
    }

    /// Writes a message with its length, which is known only afterwards.
    fn delimited(
        &mut self,
        number: u32,
        write: impl FnOnce(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        encode_key(number, WireType::LengthDelimited, &mut self.wire);
        let start = self.wire.len();
        write(self)?;
        let end = self.wire.len();
        encode_varint((end - start) as u64, &mut self.wire);
        let prefix = self.wire.len() - end;
        if let Some(content) = self.wire.get_mut(start..) {
            content.rotate_right(prefix);
        }
        Ok(())
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        encode_key(number, WireType::LengthDelimited, &mut self.wire);
        encode_varint(bytes.len() as u64, &mut self.wire);
        self.wire.extend_from_slice(bytes);
    }

    /// Writes a scalar. `is_quoted`: the text has quotes. The error names what the text is not.
    fn scalar(&mut self, number: u32, kind: &Kind, text: &str, is_quoted: bool) -> Result<(), String> {
        let integer = |least: i128, most: i128| {
            let value = whole_number(text).filter(|value| (least..=most).contains(value));
            let bits = value.and_then(|value| {
                i64::try_from(value)
                    .map(i64::cast_unsigned)
                    .or_else(|_| value.try_into())
                    .ok()
            });
            bits.ok_or_else(|| format!("an integer from {least} to {most}"))
        };
        let quoted = Some(text).filter(|_| is_quoted);
        let bits = match kind {
            Kind::String | Kind::Bytes | Kind::Message(_) => {
                let (bytes, expected) = text_bytes(kind, text);
                let bytes = bytes.filter(|_| is_quoted).ok_or(expected)?;
                self.bytes(number, &bytes);
                return Ok(());
            }
            Kind::Double => {
                let is_named = quoted.is_some_and(|text| ["NaN", "Infinity", "-Infinity"].contains(&text));
                let value = text.parse().ok().filter(|value: &f64| is_named || value.is_finite());
                value.ok_or("a number")?.to_bits()
            }
            Kind::Bool if !is_quoted && ["true", "false"].contains(&text) => (text == "true").into(),
            Kind::Bool => return Err("true or false".to_owned()),
            Kind::Enum(names) if is_quoted => {
                let unknown = || {
                    let known: Vec<_> = names.values().collect();
                    let known: Vec<&str> = known.iter().map(prost_reflect::EnumValueDescriptor::name).collect();
                    format!("a value of {}{}", names.name(), suggestion::hint(text, &known))
                };
                let value = names.get_value_by_name(text).ok_or_else(unknown)?;
                i64::from(value.number()).cast_unsigned()
            }
            Kind::Int32 | Kind::Enum(_) => integer(i32::MIN.into(), i32::MAX.into())?,
            Kind::Sint32 => {
                let value = integer(i32::MIN.into(), i32::MAX.into())?.cast_signed();
                // As protobuf writes it: small numbers of both signs are short.
                ((value << 1) ^ (value >> 63)).cast_unsigned()
            }
            Kind::Uint32 => integer(0, u32::MAX.into())?,
            Kind::Int64 => integer(i64::MIN.into(), i64::MAX.into())?,
            Kind::Uint64 | Kind::Fixed64 => integer(0, u64::MAX.into())?,
            Kind::Float | Kind::Sint64 | Kind::Fixed32 | Kind::Sfixed32 | Kind::Sfixed64 => {
                return Err("of a type of this protocol".to_owned());
            }
        };
        encode_key(number, kind.wire_type(), &mut self.wire);
        if kind.wire_type() == WireType::SixtyFourBit {
            self.wire.extend(bits.to_le_bytes());
        } else {
            encode_varint(bits, &mut self.wire);
        }
        Ok(())
    }
}

/// Bytes that a text stands for, and what it has to be.
fn text_bytes(kind: &Kind, text: &str) -> (Option<Vec<u8>>, &'static str) {
    match kind.as_message().map(MessageDescriptor::full_name) {
        Some(DURATION) => (
            text.parse()
                .ok()
                .map(|duration: prost_types::Duration| duration.encode_to_vec()),
            "a duration such as \"1.5s\"",
        ),
        Some(_) => (
            text.parse()
                .ok()
                .map(|time: prost_types::Timestamp| time.encode_to_vec()),
            "a time such as \"2026-11-30T12:00:00Z\"",
        ),
        None if *kind == Kind::Bytes => (
            BASE64.decode(text.replace('-', "+").replace('_', "/")).ok(),
            "a text in base64",
        ),
        None => (Some(text.as_bytes().to_vec()), "a text"),
    }
}

/// Integer as digits, or as a number with a fraction of zero, such as `1e3`, as far as such numbers are exact.
fn whole_number(text: &str) -> Option<i128> {
    let exact = |value: &f64| value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    let wide = || text.parse::<f64>().ok().filter(exact);
    text.parse().ok().or_else(|| format!("{:.0}", wide()?).parse().ok())
}
