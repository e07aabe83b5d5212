//! Reader of JSON objects that keeps only the fields that records are derived from, within limits.
//!
//! Unused fields need no memory. A problem in one item of a list rejects only this item: for example a duplicate key,
//! an excess of values or excessive nesting. A text that is not JSON is rejected as a whole.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::fields::FieldError;
use super::read_fields::{OBJECT, ReadFields};

/// Key by which `serde_json` hands over a number with its text.
const NUMBER_KEY: &str = "$serde_json::private::Number";

/// Depth of the fields of `metadata`, `spec` and `status`.
const IDENTITY_DEPTH: usize = 2;

/// Limits on what is read of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectLimits {
    /// Most values that are read of an object: texts, numbers, lists and objects.
    pub values: usize,
    /// Deepest nesting of values that are read.
    pub depth: usize,
}

impl Default for ObjectLimits {
    fn default() -> Self {
        ObjectLimits {
            // An object in etcd has at most 1.5 MiB, and a value takes two bytes.
            values: 1 << 20,
            depth: 64,
        }
    }
}

/// Value of an object of the API, with the fields that are read.
pub(super) struct JsonObject {
    pub(super) value: Value,
    /// First problem, by which the object is refused. `None`: it is not refused.
    pub(super) problem: Option<FieldError>,
}

/// Reads one object without its `items`. The flag is true if the object has `items`, that is, if it is a list.
///
/// # Errors
/// The text is not JSON.
pub(super) fn read_one(text: &[u8], limits: ObjectLimits) -> Result<(JsonObject, bool), serde_json::Error> {
    let reading = JsonReading::new(limits);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let seed = ValueSeed {
        reading: &reading,
        fields: ReadFields::Fields(OBJECT),
        depth: 0,
    };
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    let has_items = reading.has_items.get();
    Ok((reading.into_object(value), has_items))
}

/// Calls `each` with each item of a list and its number from 0, until `each` returns false. The text must be valid
/// JSON, which [`read_one`] checks. Returns true if `items` is a list, and false if it is `null` or missing.
///
/// # Errors
/// The text is not JSON, or `items` is not a list.
pub(super) fn read_items(
    text: &[u8],
    limits: ObjectLimits,
    each: &mut dyn FnMut(usize, JsonObject) -> bool,
) -> Result<bool, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let (mut is_stopped, mut has_items) = (false, false);
    let list = ListVisitor {
        limits,
        each,
        is_stopped: &mut is_stopped,
        has_items: &mut has_items,
    };
    match deserializer.deserialize_map(list) {
        Err(error) if !is_stopped => Err(error),
        Ok(()) | Err(_) => Ok(has_items),
    }
}

/// State of the reading of one object.
struct JsonReading {
    limits: ObjectLimits,
    values: Cell<usize>,
    has_items: Cell<bool>,
    problem: RefCell<Option<FieldError>>,
}

impl JsonReading {
    fn new(limits: ObjectLimits) -> Self {
        JsonReading {
            limits,
            values: Cell::new(0),
            has_items: Cell::new(false),
            problem: RefCell::new(None),
        }
    }

    fn into_object(self, value: Value) -> JsonObject {
        let problem = self.problem.into_inner();
        JsonObject { value, problem }
    }

    /// Notes the first problem.
    fn note(&self, problem: impl FnOnce() -> FieldError) {
        self.problem.borrow_mut().get_or_insert_with(problem);
    }

    /// True if one more value at this depth is within the limits.
    fn has_room(&self, depth: usize) -> bool {
        let count = self.values.get() + 1;
        self.values.set(count);
        let ObjectLimits {
            values: most,
            depth: deepest,
        } = self.limits;
        if count > most {
            let reason = || format!("has more than {most} values; an object of a cluster has fewer");
            self.note(|| FieldError::new("", reason()));
        }
        if depth > deepest {
            let reason = || format!("is nested deeper than {deepest} levels; an object of a cluster is not");
            self.note(|| FieldError::new("", reason()));
        }
        count <= most && depth <= deepest
    }
}

/// Deserialization seed of a value that is partly read.
#[derive(Clone, Copy)]
struct ValueSeed<'r> {
    reading: &'r JsonReading,
    fields: ReadFields,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        // The few fields of metadata, spec and status are read in any case: they say which record the object would be.
        if self.reading.has_room(self.depth) || self.depth <= IDENTITY_DEPTH {
            deserializer.deserialize_any(self)
        } else {
            deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null)
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let item = ValueSeed {
            depth: self.depth + 1,
            fields: self.fields,
            ..self
        };
        let mut list = Vec::new();
        while let Some(value) = items.next_element_seed(item)? {
            if self.reading.values.get() <= self.reading.limits.values {
                list.push(value);
            }
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key_seed(KeySeed(self))? {
            let (key, of_value) = match key {
                ObjectKey::Read(key, of_value) => (key, of_value),
                ObjectKey::Skipped => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                ObjectKey::Number => {
                    let text: String = fields.next_value()?;
                    return text.parse().map(Value::Number).map_err(A::Error::custom);
                }
            };
            let value = fields.next_value_seed(ValueSeed {
                fields: of_value,
                depth: self.depth + 1,
                ..self
            })?;
            if self.reading.values.get() > self.reading.limits.values && self.depth >= IDENTITY_DEPTH {
                continue;
            }
            match object.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(mut place) => {
                    let reason = "stands twice in its object; which value counts is unclear";
                    self.reading.note(|| FieldError::new(place.key().as_str(), reason));
                    place.insert(value);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

/// Key of an object. A field that is skipped takes no memory for its name.
enum ObjectKey {
    Read(String, ReadFields),
    Skipped,
    /// The object is the text of a number.
    Number,
}

/// Seed of a key of an object.
struct KeySeed<'r>(ValueSeed<'r>);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = ObjectKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectKey, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = ObjectKey;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<ObjectKey, E> {
        let Self(object) = self;
        if key == NUMBER_KEY {
            return Ok(ObjectKey::Number);
        }
        if object.depth == 0 && key == "items" {
            object.reading.has_items.set(true);
        }
        let fields = object.fields.field(key);
        Ok(fields.map_or(ObjectKey::Skipped, |fields| ObjectKey::Read(key.to_owned(), fields)))
    }
}

/// Visitor of a list of objects.
struct ListVisitor<'e> {
    limits: ObjectLimits,
    each: &'e mut dyn FnMut(usize, JsonObject) -> bool,
    is_stopped: &'e mut bool,
    has_items: &'e mut bool,
}

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            if key == "items" {
                fields.next_value_seed(ItemsSeed(&mut self))?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Seed of the items of a list.
struct ItemsSeed<'s, 'e>(&'s mut ListVisitor<'e>);

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("`items` with a list of objects")
    }

    /// `null`: a list of nothing, as the API server writes it.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        *self.0.has_items = true;
        for number in 0.. {
            let reading = JsonReading::new(self.0.limits);
            let seed = ValueSeed {
                reading: &reading,
                fields: ReadFields::Fields(OBJECT),
                depth: 0,
            };
            let Some(value) = items.next_element_seed(seed)? else {
                break;
            };
            if !(self.0.each)(number, reading.into_object(value)) {
                *self.0.is_stopped = true;
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}
