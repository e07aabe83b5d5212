//! Typed values with their places in the text.

/// A place in a document, counted from 1 in lines and characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Line, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
}

impl Mark {
    /// The start of a document: for what is missing from it, and for values that come from no text.
    pub const START: Mark = Mark { line: 1, column: 1 };
}

impl Default for Mark {
    fn default() -> Self {
        Mark::START
    }
}

/// A value and where it begins.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it begins.
    pub mark: Mark,
}

impl Node {
    /// A value that comes from no text.
    pub fn new(value: Value) -> Self {
        Node {
            value,
            mark: Mark::START,
        }
    }
}

/// A value as the YAML 1.1 rules type it.
#[derive(Debug, Clone)]
pub enum Value {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number that fits a signed 64-bit integer.
    Int(i64),
    /// A whole number above the largest signed 64-bit integer.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// A text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the text; keys differ from each other and are no lists or maps.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What people call this kind of value.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a bool",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Float(_) => "a float",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Is this the same value, marks aside? Floats are compared bit for bit, any two NaN are the
    /// same, and maps do not depend on the order of their keys.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.value.same(&b.value))
            }
            (Value::Map(a), Value::Map(b)) => same_map(a, b),
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::UInt(a), Value::UInt(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            _ => false,
        }
    }
}

fn same_map(a: &[(Node, Node)], b: &[(Node, Node)]) -> bool {
    let mut left: Vec<&(Node, Node)> = b.iter().collect();
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            let at = left
                .iter()
                .position(|(k, v)| k.value.same(&key.value) && v.value.same(&value.value));
            at.map(|at| left.swap_remove(at)).is_some()
        })
}

/// A scalar key in an order of its own, so that equal keys of one map are found.
/// Keys of different types differ; -0.0 equals 0.0, and NaN equals nothing (`None`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(u64),
    String(String),
}

impl Key {
    pub(crate) fn of(value: &Value) -> Option<Key> {
        match value {
            Value::Null => Some(Key::Null),
            Value::Bool(b) => Some(Key::Bool(*b)),
            Value::Int(n) => Some(Key::Int(*n)),
            Value::UInt(n) => Some(Key::UInt(*n)),
            // Adding zero turns -0.0 into 0.0.
            Value::Float(x) => (!x.is_nan()).then(|| Key::Float((x + 0.0).to_bits())),
            Value::String(s) => Some(Key::String(s.clone())),
            Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// Would these two be the same key of a map?
#[cfg(test)]
pub(crate) fn same_key(a: &Value, b: &Value) -> bool {
    Key::of(a).is_some_and(|a| Key::of(b) == Some(a))
}
