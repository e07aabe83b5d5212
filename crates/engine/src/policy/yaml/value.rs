//! Typed values with their positions in the text.

/// Position in a document: line and column in characters, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Number of the line, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
}

impl Mark {
    /// Start of a document: the position of absent values, and of values that come from no text.
    pub const START: Mark = Mark { line: 1, column: 1 };
}

impl Default for Mark {
    fn default() -> Self {
        Mark::START
    }
}

/// Value and its position.
#[derive(Debug, Clone)]
pub struct YamlNode {
    /// Value itself.
    pub value: YamlValue,
    /// Position of its first character.
    pub mark: Mark,
}

impl YamlNode {
    /// Value that comes from no text.
    pub fn new(value: YamlValue) -> Self {
        YamlNode {
            value,
            mark: Mark::START,
        }
    }
}

/// Value with its YAML 1.1 type.
#[derive(Debug, Clone)]
pub enum YamlValue {
    /// Null: an empty value, `~` or `null`.
    Null,
    /// True or false.
    Bool(bool),
    /// Integer within signed 64 bits.
    Int(i64),
    /// Larger integer within unsigned 64 bits.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// A text.
    String(String),
    /// List of values, such as `[a, b]`.
    List(Vec<YamlNode>),
    /// Map in the order of the text. Keys are unique and are neither lists nor maps.
    Map(Vec<(YamlNode, YamlNode)>),
}

impl YamlValue {
    /// Text of a string. `None`: a value of another type.
    pub fn as_text(&self) -> Option<&str> {
        if let YamlValue::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// Items of a list. `None`: a value of another type.
    pub fn as_items(&self) -> Option<&[YamlNode]> {
        if let YamlValue::List(items) = self {
            Some(items)
        } else {
            None
        }
    }

    /// Keys and values of a map. `None`: a value of another type.
    pub fn as_pairs(&self) -> Option<&[(YamlNode, YamlNode)]> {
        if let YamlValue::Map(pairs) = self {
            Some(pairs)
        } else {
            None
        }
    }

    /// Keys and values of a map whose keys are texts. `None`: another value.
    pub fn as_named_pairs(&self) -> Option<&[(YamlNode, YamlNode)]> {
        let pairs = self.as_pairs()?;
        pairs
            .iter()
            .all(|(key, _)| key.value.as_text().is_some())
            .then_some(pairs)
    }

    /// Name of the type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            YamlValue::Null => "null",
            YamlValue::Bool(_) => "a bool",
            YamlValue::Int(_) | YamlValue::UInt(_) => "an integer",
            YamlValue::Float(_) => "a float",
            YamlValue::String(_) => "a string",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// True if the values are equal, positions aside. Floats compare bit for bit, all NaN are equal, and the order of a
    /// map's keys does not matter.
    pub fn same(&self, other: &YamlValue) -> bool {
        match (self, other) {
            (YamlValue::List(a), YamlValue::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.value.same(&b.value))
            }
            (YamlValue::Map(a), YamlValue::Map(b)) => same_map(a, b),
            (YamlValue::Float(a), YamlValue::Float(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (YamlValue::Null, YamlValue::Null) => true,
            (YamlValue::Bool(a), YamlValue::Bool(b)) => a == b,
            (YamlValue::Int(a), YamlValue::Int(b)) => a == b,
            (YamlValue::UInt(a), YamlValue::UInt(b)) => a == b,
            (YamlValue::String(a), YamlValue::String(b)) => a == b,
            _ => false,
        }
    }
}

fn same_map(a: &[(YamlNode, YamlNode)], b: &[(YamlNode, YamlNode)]) -> bool {
    let mut left: Vec<&(YamlNode, YamlNode)> = b.iter().collect();
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            let at = left
                .iter()
                .position(|(k, v)| k.value.same(&key.value) && v.value.same(&value.value));
            at.map(|at| left.swap_remove(at)).is_some()
        })
}

/// Scalar key in an order of its own, to find equal keys of one map. Keys of different types differ; -0.0 equals 0.0,
/// and NaN equals nothing (`None`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScalarKey {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(u64),
    String(String),
}

impl ScalarKey {
    pub(crate) fn of(value: &YamlValue) -> Option<ScalarKey> {
        match value {
            YamlValue::Null => Some(ScalarKey::Null),
            YamlValue::Bool(b) => Some(ScalarKey::Bool(*b)),
            YamlValue::Int(n) => Some(ScalarKey::Int(*n)),
            YamlValue::UInt(n) => Some(ScalarKey::UInt(*n)),
            // The addition of zero turns -0.0 into 0.0.
            YamlValue::Float(x) => (!x.is_nan()).then(|| ScalarKey::Float((x + 0.0).to_bits())),
            YamlValue::String(s) => Some(ScalarKey::String(s.clone())),
            YamlValue::List(_) | YamlValue::Map(_) => None,
        }
    }
}

/// True if both would be the same key of a map.
#[cfg(test)]
pub(crate) fn same_key(a: &YamlValue, b: &YamlValue) -> bool {
    ScalarKey::of(a).is_some_and(|a| ScalarKey::of(b) == Some(a))
}
