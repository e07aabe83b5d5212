//! Reads a `KubeSchedulerConfiguration` as strictly as kube-scheduler does: every fault, with its place.

use super::super::args::Arguments;
use super::super::findings::{Path, Report, Severity, code, shorten};
use super::super::load::{LoadOptions, pumice};
use super::super::slip;
use super::super::yaml::{Decoder, Mark, Node, ReadError, Tree, Value};
use super::{API_GROUP, API_VERSION, Entry, KIND, KubeSpec, POINTS, PluginConfig, PluginSet, Profile, SERVED, field};

/// Most characters of a text that a message shows.
const SHOWN: usize = 60;

/// What a top-level field holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Read elsewhere, or of no account here.
    Anything,
    Integer,
    Bool,
}

const TOP: [(&str, Holds); 14] = [
    ("apiVersion", Holds::Anything),
    ("kind", Holds::Anything),
    ("parallelism", Holds::Integer),
    ("leaderElection", Holds::Anything),
    ("clientConnection", Holds::Anything),
    ("enableProfiling", Holds::Bool),
    ("enableContentionProfiling", Holds::Bool),
    ("percentageOfNodesToScore", Holds::Integer),
    ("podInitialBackoffSeconds", Holds::Integer),
    ("podMaxBackoffSeconds", Holds::Integer),
    ("profiles", Holds::Anything),
    ("extenders", Holds::Anything),
    ("delayCacheUntilActive", Holds::Bool),
    (PUMICE, Holds::Anything),
];
const PUMICE: &str = "pumice";

/// True if the text is such a document, rather than Volcano's.
pub(in super::super) fn is_one(text: &str, options: &LoadOptions<'_>) -> bool {
    if !text.contains(KIND) && !text.contains(API_GROUP) {
        return false;
    }
    let Ok(tree) = Tree::read(text, &options.limits) else {
        return false;
    };
    let root = tree
        .root()
        .and_then(|root| Decoder::new(&tree, &options.limits).node(root).ok());
    let says = |key: &str, wanted: &dyn Fn(&str) -> bool| {
        let value = root.as_ref().and_then(|root| field(root, key)).map(|node| &node.value);
        matches!(value, Some(Value::String(text)) if wanted(text))
    };
    says("kind", &|text| text == KIND) || says("apiVersion", &|text| text.starts_with(API_GROUP))
}

/// Reads the document; `None` if it is no YAML.
pub(in super::super) fn load(text: &str, options: &LoadOptions<'_>, report: &mut Report) -> Option<KubeSpec> {
    match read(text, options, report) {
        Ok(spec) => spec,
        Err(error) => {
            *report = Report::default();
            report.read_error(error);
            None
        }
    }
}

fn read(text: &str, options: &LoadOptions<'_>, report: &mut Report) -> Result<Option<KubeSpec>, ReadError> {
    let tree = Tree::read(text, &options.limits)?;
    let mut decoder = Decoder::new(&tree, &options.limits);
    let Some(root) = tree.root() else { return Ok(None) };
    let document = decoder.node(root)?;
    for duplicate in &decoder.duplicates {
        let at = super::At {
            mark: duplicate.mark,
            path: duplicate.path.clone(),
        };
        report.fault(code::DUPLICATE_KEY, &at, "this key stands twice in its map");
    }
    let mut reader = Reader {
        report,
        json: text.trim_start().starts_with('{'),
    };
    let mut spec = KubeSpec {
        profiles: Vec::new(),
        pumice: None,
        document: without_pumice(&document),
    };
    reader.document(&document, &mut spec);
    if let Some(next) = Tree::read_second(text, &options.limits)? {
        let mut decoder = Decoder::new(&next, &options.limits);
        if let Some(root) = next.root() {
            let node = decoder.node(root)?;
            reader.second_document(&node, &mut spec);
        }
    }
    Ok(Some(spec))
}

fn without_pumice(document: &Node) -> Node {
    let mut document = document.clone();
    if let Value::Map(pairs) = &mut document.value {
        pairs.retain(|(key, _)| !matches!(&key.value, Value::String(text) if text == PUMICE));
    }
    document
}

struct Reader<'r> {
    report: &'r mut Report,
    /// Written as JSON, where `2.0` is no integer.
    json: bool,
}

type Each<'f, 'r> = dyn FnMut(&mut Reader<'r>, &str, Mark, &Node, Path) + 'f;

impl<'r> Reader<'r> {
    fn wrong_type(&mut self, node: &Node, path: &Path, expected: &str) {
        let message = format!("expected {expected}, found {}", node.value.kind());
        self.report.fault(code::WRONG_TYPE, &path.at(node.mark), message);
    }

    /// Reads a map field by field; keys that are not known are faults, null is an absent value.
    fn fields(&mut self, node: &Node, path: &Path, known: &[&str], each: &mut Each<'_, 'r>) {
        let pairs = match &node.value {
            Value::Null => return,
            Value::Map(pairs) => pairs,
            Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::String(_) | Value::List(_) => {
                return self.wrong_type(node, path, "a map");
            }
        };
        for (key, value) in pairs {
            let mut inner = path.clone();
            inner.push_value(&key.value);
            let Value::String(name) = &key.value else {
                self.unknown(key.value.kind(), key.mark, &inner, known);
                continue;
            };
            if !known.contains(&name.as_str()) {
                self.unknown(name, key.mark, &inner, known);
            } else if !matches!(value.value, Value::Null) {
                each(self, name, key.mark, value, inner);
            }
        }
    }

    fn unknown(&mut self, key: &str, mark: Mark, path: &Path, known: &[&str]) {
        // Looking for the nearest key takes time, which a flood of unknown keys must not add up.
        let flooded = self.report.is_full(Severity::Fault);
        let near = if flooded { None } else { slip::nearest(key, known) };
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let message = format!("unknown key `{}`{hint}", shorten(key, SHOWN));
        self.report.fault(code::WRONG_TYPE, &path.at(mark), message);
    }

    fn items(&mut self, node: &Node, path: &Path, each: &mut dyn FnMut(&mut Reader<'r>, &Node, Path)) {
        match &node.value {
            Value::Null => {}
            Value::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    each(self, item, path.index(number));
                }
            }
            Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::String(_) | Value::Map(_) => {
                self.wrong_type(node, path, "a list");
            }
        }
    }

    fn text(&mut self, node: &Node, path: &Path) -> String {
        if let Value::String(text) = &node.value {
            return text.clone();
        }
        self.wrong_type(node, path, "a string");
        String::new()
    }

    fn integer(&mut self, node: &Node, path: &Path) -> Option<i32> {
        let number = match &node.value {
            Value::Int(number) => i32::try_from(*number).ok(),
            #[expect(clippy::cast_possible_truncation, reason = "checked to be an integer that fits")]
            Value::Float(number)
                if !self.json && number.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(number) =>
            {
                Some(*number as i32)
            }
            Value::Null
            | Value::Bool(_)
            | Value::UInt(_)
            | Value::Float(_)
            | Value::String(_)
            | Value::List(_)
            | Value::Map(_) => None,
        };
        if number.is_none() {
            self.wrong_type(node, path, "an integer of 32 bits");
        }
        number
    }

    fn document(&mut self, document: &Node, spec: &mut KubeSpec) {
        for (key, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let said = field(document, key);
            if !matches!(said.map(|node| &node.value), Some(Value::String(text)) if text == wanted) {
                let path = Path::default().key(key);
                let at = path.at(said.map_or(document.mark, |node| node.mark));
                self.report.fault(code::WRONG_TYPE, &at, format!("expected `{wanted}`"));
            }
        }
        let known = TOP.map(|(key, _)| key);
        self.fields(
            document,
            &Path::default(),
            &known,
            &mut |reader, key, _, value, path| match key {
                "profiles" => reader.items(value, &path, &mut |reader, item, path| {
                    let profile = reader.profile(item, &path);
                    spec.profiles.push(profile);
                }),
                PUMICE => spec.pumice = Some(pumice(value, &path, reader.report)),
                _ => reader.top(key, value, &path),
            },
        );
    }

    fn top(&mut self, key: &str, value: &Node, path: &Path) {
        let holds = TOP.iter().find(|(known, _)| *known == key).map(|(_, holds)| *holds);
        match holds {
            Some(Holds::Integer) => drop(self.integer(value, path)),
            Some(Holds::Bool) if !matches!(value.value, Value::Bool(_)) => self.wrong_type(value, path, "a bool"),
            Some(Holds::Bool | Holds::Anything) | None => {}
        }
    }

    /// Kubernetes reads the first document only; so ours may stand in the second.
    fn second_document(&mut self, node: &Node, spec: &mut KubeSpec) {
        let Value::Map(pairs) = &node.value else { return };
        for (key, value) in pairs {
            let mut path = Path::default();
            path.push_value(&key.value);
            if !matches!(&key.value, Value::String(text) if text == PUMICE) {
                let message = "only `pumice:` is read of the second document";
                self.report.warning(code::UNKNOWN_KEY, &path.at(key.mark), message);
            } else if spec.pumice.is_some() {
                let message = "`pumice:` stands in both documents";
                self.report.fault(code::PUMICE_SECTION, &path.at(key.mark), message);
            } else {
                spec.pumice = Some(pumice(value, &path, self.report));
            }
        }
    }

    fn profile(&mut self, node: &Node, path: &Path) -> Profile {
        const KNOWN: [&str; 4] = ["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"];
        let mut profile = Profile {
            at: path.at(node.mark),
            ..Profile::default()
        };
        self.fields(node, path, &KNOWN, &mut |reader, key, _, value, path| match key {
            "schedulerName" => {
                profile.name = reader.text(value, &path);
                profile.at = path.at(value.mark);
            }
            "plugins" => reader.fields(value, &path, &POINTS, &mut |reader, key, _, value, path| {
                let set = reader.plugin_set(value, &path);
                if let Some(point) = POINTS.iter().find(|point| **point == key) {
                    profile.plugins.insert(point, set);
                }
            }),
            "pluginConfig" => reader.items(value, &path, &mut |reader, item, path| {
                let config = reader.plugin_config(item, &path);
                profile.configs.push(config);
            }),
            _ => drop(reader.integer(value, &path)),
        });
        profile
    }

    fn plugin_set(&mut self, node: &Node, path: &Path) -> PluginSet {
        let mut set = PluginSet::default();
        self.fields(
            node,
            path,
            &["enabled", "disabled"],
            &mut |reader, key, _, value, path| {
                let list = if key == "enabled" {
                    &mut set.enabled
                } else {
                    &mut set.disabled
                };
                reader.items(value, &path, &mut |reader, item, path| {
                    list.push(reader.entry(item, &path));
                });
            },
        );
        set
    }

    fn entry(&mut self, node: &Node, path: &Path) -> Entry {
        let mut entry = Entry {
            at: path.at(node.mark),
            ..Entry::default()
        };
        self.fields(node, path, &["name", "weight"], &mut |reader, key, _, value, path| {
            if key == "name" {
                entry.name = reader.text(value, &path);
                entry.at = path.at(value.mark);
            } else {
                entry.weight = reader.integer(value, &path);
            }
        });
        entry
    }

    fn plugin_config(&mut self, node: &Node, path: &Path) -> PluginConfig {
        let mut config = PluginConfig {
            name: String::new(),
            at: path.at(node.mark),
            arguments: None,
        };
        let mut args = None;
        self.fields(node, path, &["name", "args"], &mut |reader, key, mark, value, path| {
            if key == "name" {
                config.name = reader.text(value, &path);
                config.at = path.at(value.mark);
            } else {
                args = Some((mark, value.clone(), path));
            }
        });
        // Upstream hands on what it has no type for.
        if let Some((mark, value, path)) = args.filter(|_| SERVED.contains(&config.name.as_str())) {
            config.arguments = self.arguments(mark, &value, &path);
        }
        config
    }

    fn arguments(&mut self, mark: Mark, node: &Node, path: &Path) -> Option<Arguments> {
        let Value::Map(pairs) = &node.value else {
            self.wrong_type(node, path, "a map");
            return None;
        };
        if self.json {
            self.no_floats(node, path);
        }
        let mut arguments = Arguments::new(mark, path.clone());
        for (key, value) in pairs {
            if let Value::String(name) = &key.value {
                arguments.set(name.clone(), key.mark, value.clone());
            } else {
                self.unknown(key.value.kind(), key.mark, path, &[]);
            }
        }
        Some(arguments)
    }

    /// No argument of a served plugin is a float; in YAML a whole one is read as an integer, in JSON it is not.
    fn no_floats(&mut self, node: &Node, path: &Path) {
        match &node.value {
            Value::Float(_) => self.wrong_type(node, path, "an integer"),
            Value::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.no_floats(item, &path.index(number));
                }
            }
            Value::Map(pairs) => {
                for (key, value) in pairs {
                    let mut inner = path.clone();
                    inner.push_value(&key.value);
                    self.no_floats(value, &inner);
                }
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::String(_) => {}
        }
    }
}
