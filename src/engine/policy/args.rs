//! Arguments of a plugin: upstream's lenient accessors, and strict typed reading with places.

use std::collections::BTreeMap;

use super::findings::{At, Path, Report, code, shorten};
use super::spec::Compatibility;
use super::yaml::{Mark, Node, Value};

/// Most characters of a key that a message shows.
const SHOWN: usize = 60;

/// The arguments of one plugin or action: keys as written, values typed.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    entries: Vec<(String, Mark, Node)>,
    index: BTreeMap<String, usize>,
    mark: Mark,
    path: Path,
}

impl Arguments {
    /// No arguments, for a block that stands at `mark`.
    pub fn new(mark: Mark, path: Path) -> Self {
        Arguments {
            entries: Vec::new(),
            index: BTreeMap::new(),
            mark,
            path,
        }
    }

    /// Sets an argument; a key that was there keeps its place. Returns whether it was there.
    pub fn set(&mut self, key: String, mark: Mark, value: Node) -> bool {
        if let Some(entry) = self.index.get(&key).and_then(|&at| self.entries.get_mut(at)) {
            entry.1 = mark;
            entry.2 = value;
            return true;
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, mark, value));
        false
    }

    /// Where the block stands.
    pub fn at(&self) -> At {
        self.path.at(self.mark)
    }

    /// Is there no argument?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One argument, by its exact key.
    pub fn get(&self, key: &str) -> Option<Argument<'_>> {
        let (_, _, node) = self.index.get(key).and_then(|&at| self.entries.get(at))?;
        Some(Argument {
            node,
            path: self.path.key(key),
        })
    }

    /// All arguments in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Argument<'_>)> {
        self.entries.iter().map(|(key, _, node)| {
            (
                key.as_str(),
                Argument {
                    node,
                    path: self.path.key(key),
                },
            )
        })
    }

    /// Where the key of an argument stands.
    pub fn key_at(&self, key: &str) -> At {
        let entry = self.index.get(key).and_then(|&at| self.entries.get(at));
        self.path.key(key).at(entry.map_or(self.mark, |(_, mark, _)| *mark))
    }

    /// What upstream's `GetInt` takes: an integer, nothing else.
    pub fn get_int(&self, key: &str) -> Option<i64> {
        self.get(key)?.lenient_int()
    }

    /// What upstream's `GetFloat64` takes: a float or an integer.
    pub fn get_float(&self, key: &str) -> Option<f64> {
        self.get(key)?.lenient_float()
    }

    /// What upstream's `GetBool` takes: a bool, or a string such as `true`, `T`, `1`, `false`, `F`, `0`.
    pub fn get_bool(&self, key: &str) -> Option<bool> {
        self.get(key)?.lenient_bool()
    }

    /// A string argument; `None` for any other type.
    pub fn get_string(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_string()
    }

    /// Warns of every key for which `known` is false.
    pub fn warn_unknown(&self, report: &mut Report, plugin: &str, known: impl Fn(&str) -> bool) {
        for (key, mark, _) in self.entries.iter().filter(|(key, ..)| !known(key)) {
            let message = format!("`{plugin}` has no argument `{}`; it has no effect", shorten(key, SHOWN));
            report.warning(code::ARGUMENT_UNKNOWN_KEY, &self.path.key(key).at(*mark), message);
        }
    }
}

/// A value below `arguments`, with its place.
#[derive(Debug, Clone)]
pub struct Argument<'a> {
    node: &'a Node,
    path: Path,
}

impl<'a> Argument<'a> {
    /// The value.
    pub fn value(&self) -> &'a Value {
        &self.node.value
    }

    /// Where it stands.
    pub fn at(&self) -> At {
        self.path.at(self.node.mark)
    }

    /// Is it null?
    pub fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// The text, if it is a string.
    pub fn as_string(&self) -> Option<&'a str> {
        if let Value::String(text) = self.value() {
            Some(text)
        } else {
            None
        }
    }

    /// See [`Arguments::get_int`].
    pub fn lenient_int(&self) -> Option<i64> {
        if let Value::Int(n) = self.value() {
            Some(*n)
        } else {
            None
        }
    }

    /// See [`Arguments::get_float`].
    pub fn lenient_float(&self) -> Option<f64> {
        match self.value() {
            Value::Float(x) => Some(*x),
            Value::Int(n) => Some(*n as f64),
            Value::Null | Value::Bool(_) | Value::UInt(_) | Value::String(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// See [`Arguments::get_bool`].
    pub fn lenient_bool(&self) -> Option<bool> {
        match self.value() {
            Value::Bool(b) => Some(*b),
            Value::String(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
                "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            Value::Null | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    // Strict reading, as upstream decodes a block into a structure: null is the zero value, a float
    // is cut to an integer, any other type is a fault. `None` means that a fault was reported.

    fn mismatch<T>(&self, expected: &str, report: &mut Report) -> Option<T> {
        let message = format!("expected {expected}, found {}", self.value().kind());
        report.fault(code::ARGUMENT_TYPE, &self.at(), message);
        None
    }

    /// An integer. Fractions are cut off. A number that does not fit is a fault under `corrected`;
    /// under `upstream` it becomes what it becomes on the reference's machine.
    pub fn decode_int(&self, compatibility: Compatibility, report: &mut Report) -> Option<i64> {
        let upstream = compatibility == Compatibility::Upstream;
        let (fits, wrapped) = match self.value() {
            Value::Null => (true, 0),
            Value::Int(n) => (true, *n),
            Value::UInt(n) => (false, n.cast_signed()),
            Value::Float(x) => cut(*x),
            Value::Bool(_) | Value::String(_) | Value::List(_) | Value::Map(_) => {
                return self.mismatch("an integer", report);
            }
        };
        if fits || upstream {
            return Some(wrapped);
        }
        report.fault(
            code::ARGUMENT_RANGE,
            &self.at(),
            "the number does not fit a signed 64-bit integer",
        );
        None
    }

    /// A float; integers are taken, too.
    pub fn decode_float(&self, report: &mut Report) -> Option<f64> {
        match self.value() {
            Value::Null => Some(0.0),
            Value::Int(n) => Some(*n as f64),
            Value::UInt(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Bool(_) | Value::String(_) | Value::List(_) | Value::Map(_) => self.mismatch("a number", report),
        }
    }

    /// A bool.
    pub fn decode_bool(&self, report: &mut Report) -> Option<bool> {
        match self.value() {
            Value::Null => Some(false),
            Value::Bool(b) => Some(*b),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::String(_) | Value::List(_) | Value::Map(_) => {
                self.mismatch("a bool", report)
            }
        }
    }

    /// A string.
    pub fn decode_string(&self, report: &mut Report) -> Option<&'a str> {
        match self.value() {
            Value::Null => Some(""),
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => {
                self.mismatch("a string", report)
            }
        }
    }

    /// A map; null counts as an empty one (see [`Argument::is_null`]).
    pub fn decode_map(&self, report: &mut Report) -> Option<ArgumentMap<'a>> {
        let pairs = match self.value() {
            Value::Null => &[],
            Value::Map(pairs) => pairs.as_slice(),
            Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::String(_) | Value::List(_) => {
                return self.mismatch("a map", report);
            }
        };
        Some(ArgumentMap {
            pairs,
            at: self.at(),
            path: self.path.clone(),
        })
    }
}

/// The integer part, and whether it fits; if not, what the reference's machine makes of it.
fn cut(x: f64) -> (bool, i64) {
    /// 2^63, the first float above every signed 64-bit integer.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let fits = (-LIMIT..LIMIT).contains(&x);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to fit; the fraction is meant to go"
    )]
    let whole = if fits { x as i64 } else { i64::MIN };
    (fits, whole)
}

/// A map below `arguments`.
#[derive(Debug, Clone)]
pub struct ArgumentMap<'a> {
    pairs: &'a [(Node, Node)],
    at: At,
    path: Path,
}

impl<'a> ArgumentMap<'a> {
    /// Where the map stands.
    pub fn at(&self) -> &At {
        &self.at
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// A field of a structure: its exact name first, else the first key that differs in case only.
    pub fn field(&self, name: &str) -> Option<Argument<'a>> {
        let exact = self.texts().find(|(key, _)| *key == name);
        exact
            .or_else(|| self.texts().find(|(key, _)| same_ignoring_case(key, name)))
            .map(|(_, argument)| argument)
    }

    fn texts(&self) -> impl Iterator<Item = (&'a str, Argument<'a>)> + '_ {
        self.pairs.iter().filter_map(|(key, node)| match &key.value {
            Value::String(text) => Some((
                text.as_str(),
                Argument {
                    node,
                    path: self.path.key(text),
                },
            )),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::UInt(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Map(_) => None,
        })
    }

    /// All entries of a map whose keys are names, in the order of the document. A key that is no
    /// string is a fault (and left out); so `y: 1`, whose key is a bool, is noticed. Null is "".
    pub fn entries(&self, report: &mut Report) -> Vec<(&'a str, Argument<'a>)> {
        let mut entries = Vec::with_capacity(self.pairs.len());
        for (key, node) in self.pairs {
            match &key.value {
                Value::String(text) => entries.push((
                    text.as_str(),
                    Argument {
                        node,
                        path: self.path.key(text),
                    },
                )),
                Value::Null => entries.push((
                    "",
                    Argument {
                        node,
                        path: self.path.key(""),
                    },
                )),
                other @ (Value::Bool(_)
                | Value::Int(_)
                | Value::UInt(_)
                | Value::Float(_)
                | Value::List(_)
                | Value::Map(_)) => {
                    let mut path = self.path.clone();
                    path.push_value(other);
                    let message = format!("expected a string as key, found {}; put it in quotes", other.kind());
                    report.fault(code::ARGUMENT_TYPE, &path.at(key.mark), message);
                }
            }
        }
        entries
    }

    /// Warns of every key that is none of these fields, case aside.
    pub fn warn_unknown(&self, report: &mut Report, fields: &[&str]) {
        for (key, _) in self.pairs {
            let mut path = self.path.clone();
            path.push_value(&key.value);
            let message = if let Value::String(text) = &key.value {
                if fields.iter().any(|field| same_ignoring_case(text, field)) {
                    continue;
                }
                format!("unknown key `{}`; it has no effect", shorten(text, SHOWN))
            } else {
                format!(
                    "the key is {}, not a string, and has no effect; put it in quotes",
                    key.value.kind()
                )
            };
            report.warning(code::ARGUMENT_UNKNOWN_KEY, &path.at(key.mark), message);
        }
    }
}

fn same_ignoring_case(a: &str, b: &str) -> bool {
    a.chars()
        .flat_map(char::to_lowercase)
        .eq(b.chars().flat_map(char::to_lowercase))
}
