//! Printer of documents: as loaded, as effective, and the difference between two.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use imara_diff::{Algorithm, Diff, InternedInput, Interner, Token, UnifiedDiffConfig, UnifiedDiffPrinter};

use super::args::PluginArguments;
use super::compatibility::Compatibility;
use super::spec::{PluginSpec, PolicySpec, PumiceSection};
use super::switch::Switch;
use super::yaml::{YamlNode, YamlValue, is_plain_text};

/// Length above which a key is written with `?`, since readers look for its `:` within 1,024 characters.
const MAX_SIMPLE_KEY_CHARS: usize = 1000;

/// Document as it was read: typed values without defaults and repairs. It reads back to the same values. Comments,
/// anchors and parts without effect are not printed.
pub fn loaded_document(spec: &PolicySpec) -> String {
    document(spec, spec.pumice, &|plugin: &PluginSpec, _, _| {
        let switches = Switch::ALL
            .into_iter()
            .filter_map(|s| plugin.switches.written(s).map(|on| (s, on)));
        (switches.collect(), plugin.arguments.as_ref().map(arguments_value))
    })
}

/// Effective document with every switch and the compatibility. The two switches without a default are written as false.
/// `arguments` returns the effective arguments of a plugin by tier and position; `None` leaves them unchanged.
pub fn effective_document(
    spec: &PolicySpec,
    compatibility: Compatibility,
    arguments: &dyn Fn(usize, usize, &PluginSpec) -> Option<YamlValue>,
) -> String {
    document(
        spec,
        Some(PumiceSection {
            compatibility: Some(compatibility),
        }),
        &|plugin: &PluginSpec, tier, place| {
            let switches = Switch::ALL.into_iter().map(|s| (s, plugin.switches.is_on(s)));
            let effective = arguments(tier, place, plugin);
            (
                switches.collect(),
                effective.or_else(|| plugin.arguments.as_ref().map(arguments_value)),
            )
        },
    )
}

/// Callback that returns the switches and the arguments to print for a plugin of a tier.
type PluginParts<'f> = dyn Fn(&PluginSpec, usize, usize) -> (Vec<(Switch, bool)>, Option<YamlValue>) + 'f;

fn document(spec: &PolicySpec, pumice: Option<PumiceSection>, parts: &PluginParts<'_>) -> String {
    let mut fields = vec![pair("actions", YamlValue::String(spec.actions.join(", ")))];
    fields.extend(pumice.map(pumice_pair));
    let tiers = spec.tiers.iter().enumerate().map(|(tier, plugins)| {
        let plugins = plugins.iter().enumerate().map(|(place, plugin)| {
            let (switches, arguments) = parts(plugin, tier, place);
            let mut fields = vec![pair("name", text(&plugin.name))];
            fields.extend(
                switches
                    .into_iter()
                    .map(|(switch, on)| pair(switch.key(), YamlValue::Bool(on))),
            );
            fields.extend(arguments.map(|arguments| pair("arguments", arguments)));
            YamlNode::new(YamlValue::Map(fields))
        });
        YamlNode::new(YamlValue::Map(vec![pair(
            "plugins",
            YamlValue::List(plugins.collect()),
        )]))
    });
    fields.push(pair("tiers", YamlValue::List(tiers.collect())));
    if !spec.configurations.is_empty() {
        let all = spec.configurations.iter().map(|configuration| {
            let mut fields = vec![pair("name", text(&configuration.name))];
            fields.extend(
                configuration
                    .arguments
                    .as_ref()
                    .map(|a| pair("arguments", arguments_value(a))),
            );
            YamlNode::new(YamlValue::Map(fields))
        });
        fields.push(pair("configurations", YamlValue::List(all.collect())));
    }
    fields.extend(
        spec.metrics
            .as_ref()
            .map(|metrics| pair("metrics", metrics_value(metrics))),
    );
    to_yaml(&YamlValue::Map(fields))
}

pub(super) fn text(text: &str) -> YamlValue {
    YamlValue::String(text.to_owned())
}

pub(super) fn pair(key: &str, value: YamlValue) -> (YamlNode, YamlNode) {
    (YamlNode::new(text(key)), YamlNode::new(value))
}

/// Section of a document that is about Pumice.
pub(super) fn pumice_pair(PumiceSection { compatibility }: PumiceSection) -> (YamlNode, YamlNode) {
    let section = compatibility.map(|own| pair("compatibility", text(own.name())));
    pair("pumice", YamlValue::Map(section.into_iter().collect()))
}

fn arguments_value(arguments: &PluginArguments) -> YamlValue {
    YamlValue::Map(
        arguments
            .iter()
            .map(|(key, argument)| pair(key, argument.value().clone()))
            .collect(),
    )
}

fn metrics_value(metrics: &BTreeMap<String, String>) -> YamlValue {
    YamlValue::Map(metrics.iter().map(|(key, value)| pair(key, text(value))).collect())
}

/// YAML text of a value, which reads back to the same value.
pub fn to_yaml(value: &YamlValue) -> String {
    let mut out = String::new();
    print_content(&mut out, value, 0);
    out
}

/// Layout of a printed value.
enum YamlLayout<'v> {
    Map(&'v [(YamlNode, YamlNode)]),
    List(&'v [YamlNode]),
    Line(String),
}

impl<'v> YamlLayout<'v> {
    fn of(value: &'v YamlValue) -> Self {
        let pairs = value.as_pairs().filter(|pairs| !pairs.is_empty());
        let items = value.as_items().filter(|items| !items.is_empty());
        match (pairs, items) {
            (Some(pairs), _) => YamlLayout::Map(pairs),
            (_, Some(items)) => YamlLayout::List(items),
            (None, None) => YamlLayout::Line(scalar(value)),
        }
    }
}

/// Prints a value after an indentation that is already printed.
fn print_content(out: &mut String, value: &YamlValue, indent: usize) {
    match YamlLayout::of(value) {
        YamlLayout::Map(pairs) => print_map(out, pairs, indent),
        YamlLayout::List(items) => print_list(out, items, indent),
        YamlLayout::Line(line) => {
            out.push_str(&line);
            out.push('\n');
        }
    }
}

fn print_map(out: &mut String, pairs: &[(YamlNode, YamlNode)], indent: usize) {
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        let key = scalar(&key.value);
        if key.chars().count() > MAX_SIMPLE_KEY_CHARS {
            out.push_str("? ");
            out.push_str(&key);
            out.push('\n');
            pad(out, indent);
        } else {
            out.push_str(&key);
        }
        out.push(':');
        match YamlLayout::of(&value.value) {
            YamlLayout::Map(pairs) => {
                out.push('\n');
                pad(out, indent + 1);
                print_map(out, pairs, indent + 1);
            }
            // List items begin at the column of the key.
            YamlLayout::List(items) => {
                out.push('\n');
                pad(out, indent);
                print_list(out, items, indent);
            }
            YamlLayout::Line(line) => {
                out.push(' ');
                out.push_str(&line);
                out.push('\n');
            }
        }
    }
}

/// Prints items after an indentation that is already printed.
fn print_list(out: &mut String, items: &[YamlNode], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        out.push_str("- ");
        print_content(out, &item.value, indent + 1);
    }
}

fn pad(out: &mut String, indent: usize) {
    for _ in 0..indent {
        out.push_str("  ");
    }
}

/// Text of a scalar, or of an empty list or map, on one line.
fn scalar(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "null".to_owned(),
        YamlValue::Bool(b) => b.to_string(),
        YamlValue::Int(n) => n.to_string(),
        YamlValue::UInt(n) => n.to_string(),
        YamlValue::Float(x) if x.is_nan() => ".nan".to_owned(),
        YamlValue::Float(x) if x.is_infinite() => if *x > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
        // This form always has a point or an exponent, so it reads back as a float.
        YamlValue::Float(x) => format!("{x:?}"),
        YamlValue::String(text) if is_plain(text) => text.clone(),
        YamlValue::String(text) => quoted(text),
        YamlValue::List(_) => "[]".to_owned(),
        YamlValue::Map(_) => "{}".to_owned(),
    }
}

/// True if the text may be written without quotes, for this reader and for people.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'_' | b'-'))
        && is_plain_text(text)
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' => escape(&mut out, 'x', 2, c),
            '\u{feff}' | '\u{fffe}' | '\u{ffff}' => escape(&mut out, 'u', 4, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn escape(out: &mut String, letter: char, digits: usize, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\{letter}{:0digits$X}", u32::from(c));
}

/// Difference between two texts, line by line in the form of `diff -u`; empty if there is none.
pub fn unified_diff(before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let input = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let printer = DocumentDiffPrinter(&input.interner);
    let hunks = diff.unified_diff(&printer, UnifiedDiffConfig::default(), &input);
    format!("--- before\n+++ after\n{hunks}")
}

/// Printer of changed lines and three unchanged ones around them.
struct DocumentDiffPrinter<'d>(&'d Interner<&'d str>);

impl DocumentDiffPrinter<'_> {
    fn write_lines(&self, sign: char, tokens: &[Token], out: &mut impl fmt::Write) -> fmt::Result {
        for &token in tokens {
            let line = self.0[token];
            write!(out, "{sign}{line}")?;
            if !line.ends_with('\n') {
                out.write_str("\n\\ No newline at end of file\n")?;
            }
        }
        Ok(())
    }
}

impl UnifiedDiffPrinter for DocumentDiffPrinter<'_> {
    fn display_header(
        &self,
        mut out: impl fmt::Write,
        before_start: u32,
        after_start: u32,
        before_length: u32,
        after_length: u32,
    ) -> fmt::Result {
        // Lines are numbered from 1; an empty range is named by the line before it.
        let first = |start: u32, length: u32| start + u32::from(length > 0);
        writeln!(
            out,
            "@@ -{},{before_length} +{},{after_length} @@",
            first(before_start, before_length),
            first(after_start, after_length)
        )
    }

    fn display_context_token(&self, mut out: impl fmt::Write, token: Token) -> fmt::Result {
        self.write_lines(' ', &[token], &mut out)
    }

    fn display_hunk(&self, mut out: impl fmt::Write, before: &[Token], after: &[Token]) -> fmt::Result {
        self.write_lines('-', before, &mut out)?;
        self.write_lines('+', after, &mut out)
    }
}
