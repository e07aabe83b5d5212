//! JSON of an encoded message.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use prost_types::{Duration, Timestamp};

use super::{DURATION, TIMESTAMP};

/// Error: a type that neither the protocol nor the details of errors have.
const OTHER_TYPE: &str = "a field of a type that the protocol does not use";

/// Value of a field on the wire.
#[derive(Clone, Copy)]
enum WireValue<'b> {
    /// Varint, or a number of 8 bytes.
    Number(u64),
    Bytes(&'b [u8]),
}

/// Writes an encoded message as protobuf JSON: fields by their JSON names, without those that are absent.
///
/// # Errors
/// The bytes are not a message of this type, or the output fails.
pub(in crate::server) fn write_json(
    out: &mut impl Write,
    message: &MessageDescriptor,
    mut bytes: &[u8],
) -> io::Result<()> {
    match message.full_name() {
        DURATION => return write_text(out, &Duration::decode(bytes).map_err(unreadable)?.to_string()),
        TIMESTAMP => return write_text(out, &Timestamp::decode(bytes).map_err(unreadable)?.to_string()),
        _ => out.write_all(b"{")?,
    }
    let mut open: Option<FieldDescriptor> = None;
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).map_err(unreadable)?;
        let value = wire_value(&mut bytes, wire_type)?;
        let Some(field) = message.get_field(number) else {
            continue;
        };
        if let Some(before) = &open {
            let [_, end] = brackets(before);
            out.write_all(if before.number() == number { b"" } else { end })?;
            out.write_all(b",")?;
        }
        if open.as_ref().is_none_or(|before| before.number() != number) {
            let [begin, _] = brackets(&field);
            write_text(out, field.json_name())?;
            out.write_all(b":")?;
            out.write_all(begin)?;
        }
        write_element(out, &field, value)?;
        open = Some(field);
    }
    if let Some(last) = &open {
        let [_, end] = brackets(last);
        out.write_all(end)?;
    }
    out.write_all(b"}")
}

/// Characters before and after the values of a field.
fn brackets(field: &FieldDescriptor) -> [&'static [u8]; 2] {
    if field.is_map() {
        [b"{", b"}"]
    } else if field.is_list() {
        [b"[", b"]"]
    } else {
        [b"", b""]
    }
}

/// Writes a value of a field: the only one, one of a list, several packed ones, or an entry of a map.
fn write_element(out: &mut impl Write, field: &FieldDescriptor, value: WireValue<'_>) -> io::Result<()> {
    match (field.kind(), value) {
        (Kind::Message(entry), WireValue::Bytes(bytes)) if field.is_map() => write_entry(out, &entry, bytes),
        (Kind::Message(inner), WireValue::Bytes(bytes)) => write_json(out, &inner, bytes),
        (Kind::String, WireValue::Bytes(bytes)) => write_text(out, std::str::from_utf8(bytes).map_err(unreadable)?),
        (Kind::Bytes, WireValue::Bytes(bytes)) => write_text(out, &STANDARD.encode(bytes)),
        (kind, WireValue::Number(number)) => write_number(out, &kind, number),
        (kind, WireValue::Bytes(mut packed)) => {
            let mut is_first = true;
            while !packed.is_empty() {
                let WireValue::Number(number) = wire_value(&mut packed, kind.wire_type())? else {
                    return Err(unreadable("text in a packed list"));
                };
                if !is_first {
                    out.write_all(b",")?;
                }
                write_number(out, &kind, number)?;
                is_first = false;
            }
            Ok(())
        }
    }
}

/// Writes an entry of a map whose keys are texts and whose values are scalars. Both may be absent on the wire.
fn write_entry(out: &mut impl Write, entry: &MessageDescriptor, mut bytes: &[u8]) -> io::Result<()> {
    let value_field = entry.map_entry_value_field();
    let is_number = value_field.kind().wire_type() != WireType::LengthDelimited;
    let (mut key, mut value) = (
        "",
        if is_number {
            WireValue::Number(0)
        } else {
            WireValue::Bytes(b"")
        },
    );
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).map_err(unreadable)?;
        match (number, wire_value(&mut bytes, wire_type)?) {
            (1, WireValue::Bytes(text)) => key = std::str::from_utf8(text).map_err(unreadable)?,
            (2, read) => value = read,
            _ => {}
        }
    }
    write_text(out, key)?;
    out.write_all(b":")?;
    write_element(out, &value_field, value)
}

/// Next value of this type.
fn wire_value<'b>(bytes: &mut &'b [u8], wire_type: WireType) -> io::Result<WireValue<'b>> {
    let short = || unreadable("a value is cut off");
    match wire_type {
        WireType::Varint => decode_varint(bytes).map(WireValue::Number).map_err(unreadable),
        WireType::SixtyFourBit => {
            let (number, rest) = bytes.split_first_chunk().ok_or_else(short)?;
            *bytes = rest;
            Ok(WireValue::Number(u64::from_le_bytes(*number)))
        }
        WireType::LengthDelimited => {
            let length = decode_varint(bytes).map_err(unreadable)?;
            let left = *bytes;
            let content = usize::try_from(length)
                .ok()
                .and_then(|length| left.split_at_checked(length));
            let (content, rest) = content.ok_or_else(short)?;
            *bytes = rest;
            Ok(WireValue::Bytes(content))
        }
        WireType::ThirtyTwoBit | WireType::StartGroup | WireType::EndGroup => Err(unreadable(OTHER_TYPE)),
    }
}

/// Writes a number. JSON's numbers are exact up to 2^53, so integers of 64 bits are texts.
fn write_number(out: &mut impl Write, kind: &Kind, number: u64) -> io::Result<()> {
    match kind {
        Kind::Double if f64::from_bits(number).is_finite() => Ok(serde_json::to_writer(out, &f64::from_bits(number))?),
        Kind::Double => write_text(out, infinity(f64::from_bits(number))),
        Kind::Int32 => write!(out, "{}", number.cast_signed()),
        Kind::Sint32 => write!(out, "{}", (number >> 1).cast_signed() ^ -(number & 1).cast_signed()),
        Kind::Uint32 => write!(out, "{number}"),
        Kind::Int64 => write!(out, "\"{}\"", number.cast_signed()),
        Kind::Uint64 | Kind::Fixed64 => write!(out, "\"{number}\""),
        Kind::Bool => write!(out, "{}", number != 0),
        Kind::Enum(names) => {
            let number = i32::try_from(number.cast_signed()).map_err(unreadable)?;
            match names.get_value(number) {
                Some(value) => write_text(out, value.name()),
                None => write!(out, "{number}"),
            }
        }
        Kind::Float | Kind::Sint64 | Kind::Fixed32 | Kind::Sfixed32 | Kind::Sfixed64 => Err(unreadable(OTHER_TYPE)),
        Kind::String | Kind::Bytes | Kind::Message(_) => Err(unreadable("a number in the place of a text")),
    }
}

/// Name of a number that JSON does not have.
fn infinity(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
