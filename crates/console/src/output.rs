//! Output: lines, tables and numbers with units for people, protobuf JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;

use indicatif::{ProgressBar, ProgressStyle};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde::Serialize;

pub use crate::table::TextTable;
use pumice_protocol::visible_text;

use crate::{ColorMode, CommandError, schema, table};
use pumice_engine::model::quantity::readable_bytes;
use pumice_protocol::v1 as pb;

/// Colour of standard output and of standard error. Unset: no colour.
static COLORED_STREAMS: OnceLock<[bool; 2]> = OnceLock::new();

/// Sets the colour of both streams, once.
pub fn set_color(when: ColorMode, refused: bool) {
    let terminals = [io::stdout().is_terminal(), io::stderr().is_terminal()];
    // Only the first call counts: it has the flag of the command line.
    let _ = COLORED_STREAMS.set(terminals.map(|terminal| uses_color(when, refused, terminal)));
}

fn uses_color(when: ColorMode, refused: bool, terminal: bool) -> bool {
    match when {
        ColorMode::Auto => terminal && !refused,
        ColorMode::Always => true,
        ColorMode::Never => false,
    }
}

/// True if standard output is coloured.
fn stdout_is_colored() -> bool {
    COLORED_STREAMS.get().is_some_and(|[out, _]| *out)
}

/// Text in a style, such as `1;31`, if the stream has colour.
fn styled(style: &str, text: &str, coloured: bool) -> String {
    if coloured {
        format!("\u{1b}[{style}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Writes the error of a command to standard error.
pub fn error(failure: &CommandError) {
    note(&failure.to_string());
}

/// Lines with their first word, such as `error`, in colour.
fn highlighted(text: &str, coloured: bool) -> String {
    let line = |line: &str| {
        let word = line.split_once(": ").map(|(word, _)| word);
        let style = match word {
            Some("error") => "1;31",
            Some("refused" | "warning") => "33",
            Some("hint" | "note") => "36",
            _ => return line.to_owned(),
        };
        let (word, rest) = line.split_once(':').unwrap_or((line, ""));
        format!("{}:{rest}", styled(style, word, coloured))
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a line to standard output. Names come from anywhere: what a terminal would obey is escaped.
pub fn line(text: &str) -> Result<(), CommandError> {
    write(&format!("{}\n", visible_text(text)))
}

/// Writes a stored document to standard output: to a file or pipe as it is.
pub fn document(text: &str) -> Result<(), CommandError> {
    if io::stdout().is_terminal() {
        line(text)
    } else {
        write(&format!("{text}\n"))
    }
}

/// Writes a text to standard output, wrapped to the width of the terminal.
pub fn paragraph(text: &str) -> Result<(), CommandError> {
    match table::output_width() {
        Some(width) => line(&table::wrap(text, width, 2)),
        None => line(text),
    }
}

/// Writes a text to standard output. A closed pipe, for example from `| head`, is not an error.
pub fn write(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Longest line of a note, in bytes: it may quote a file.
const NOTE_BYTES: usize = 2_000;

/// Writes a line to standard error. A failed write is ignored.
pub fn note(text: &str) {
    let coloured = COLORED_STREAMS.get().is_some_and(|[_, err]| *err);
    let lines: Vec<String> = text.lines().map(|line| cut(&visible_text(line), NOTE_BYTES)).collect();
    let _ = writeln!(io::stderr(), "{}", highlighted(&lines.join("\n"), coloured));
}

/// Text of at most this many bytes, and a sign if it is cut.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let (begin, _) = text.split_at(text.floor_char_boundary(most));
    format!("{begin}…")
}

/// Progress bar on standard error for work of `steps` steps; on a terminal only.
pub fn progress(steps: u64, what: &'static str) -> ProgressBar {
    if steps < 2 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // A template that does not parse leaves the plain bar.
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style).with_message(what)
}

/// Writes a table to standard output.
pub fn table(rows: &TextTable) -> Result<(), CommandError> {
    let mut lines = rows.lines(table::output_width());
    if let Some(head) = lines.first_mut() {
        *head = styled("1", head, stdout_is_colored());
    }
    write(&format!("{}\n", lines.join("\n")))
}

/// Writes the report of a command as JSON.
pub fn report<T: Serialize>(report: &T) -> Result<(), CommandError> {
    line(&serde_json::to_string_pretty(report).map_err(CommandError::failed)?)
}

/// Writes a reply as protobuf JSON.
pub fn json<M: Message + Name>(message: &M) -> Result<(), CommandError> {
    line(&String::from_utf8_lossy(&json_bytes(message)?))
}

/// A reply as protobuf JSON, for a command that adds to it.
pub fn json_value<M: Message + Name>(message: &M) -> Result<serde_json::Value, CommandError> {
    serde_json::from_slice(&json_bytes(message)?).map_err(not_json::<M>)
}

fn json_bytes<M: Message + Name>(message: &M) -> Result<Vec<u8>, CommandError> {
    let mut dynamic = DynamicMessage::new(schema::message(M::NAME)?);
    dynamic.transcode_from(message).map_err(not_json::<M>)?;
    let options = SerializeOptions::new().stringify_64_bit_integers(true);
    let mut serializer = serde_json::Serializer::pretty(Vec::new());
    dynamic
        .serialize_with_options(&mut serializer, &options)
        .map_err(not_json::<M>)?;
    Ok(serializer.into_inner())
}

fn not_json<M: Name>(error: impl std::fmt::Display) -> CommandError {
    CommandError::message(format!("error: {} as JSON: {error}", M::NAME))
}

/// Number with at most three digits after the point, without trailing zeros.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Bytes as a quantity: `64Gi`, or `8G` where only the decimal unit is exact.
pub fn bytes(value: f64) -> String {
    readable_bytes(value)
}

/// Amount of a response, in whole units.
pub fn amount(amount: &pb::Amount) -> String {
    match amount.resource.as_str() {
        "memory" => bytes(amount.value),
        "pods" => number(amount.value),
        _ => number(amount.value / 1000.0),
    }
}

/// Amount with its unit, such as `12 cores` and `4Gi`.
pub fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "bytes" => bytes(value),
        "cores" | "cards" if value == 1.0 => format!("1 {}", unit.trim_end_matches('s')),
        unit => format!("{} {unit}", number(value)),
    }
}

/// Measurement of a reason, with its unit.
pub fn measurement(measurement: &pb::Measurement) -> String {
    format!(
        "{} {}",
        measurement.name,
        with_unit(measurement.value, &measurement.unit)
    )
}

/// Names up to a number, and how many more there are.
pub fn first_names<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Prints where a change is stored.
pub fn durability(durability: pb::Durability) -> Result<(), CommandError> {
    match durability {
        pb::Durability::Unspecified => Ok(()),
        pb::Durability::Memory => {
            line("durability: MEMORY (a restart of the server loses this change; `data_dir` makes it durable)")
        }
        pb::Durability::Disk | pb::Durability::Etcd | pb::Durability::Kubernetes => {
            let name = durability.as_str_name().trim_start_matches("DURABILITY_");
            line(&format!("durability: {name}"))
        }
    }
}

/// Duration in seconds, milliseconds or microseconds.
pub fn duration(seconds: f64) -> String {
    if seconds == 0.0 {
        "0 s".to_owned()
    } else if seconds >= 10.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 0.01 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds >= 0.001 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}

/// Number of things, such as `1 warning` and `2 warnings`.
pub fn count(number: usize, thing: &str) -> String {
    if number == 1 {
        format!("1 {thing}")
    } else {
        format!("{number} {thing}s")
    }
}

/// Problem with its field, message and reason code.
pub fn problem(problem: &pb::Problem) -> String {
    let place = if problem.field.is_empty() {
        String::new()
    } else {
        format!("{}: ", problem.field)
    };
    format!("{place}{} ({})", problem.message, problem.reason)
}

/// Diagnostic of a policy, in the format of the engine.
pub fn diagnostic(diagnostic: &pb::Diagnostic) -> String {
    let severity = match diagnostic.severity() {
        pb::Severity::Error => "error",
        pb::Severity::Warning | pb::Severity::Unspecified => "warning",
    };
    let place = if diagnostic.line == 0 {
        String::new()
    } else {
        format!("{}:{}: ", diagnostic.line, diagnostic.column)
    };
    let path = if diagnostic.path.is_empty() {
        String::new()
    } else {
        format!("{}: ", diagnostic.path)
    };
    format!("{place}{severity} {}: {path}{}", diagnostic.code, diagnostic.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(937.5), "937.5");
        assert_eq!(number(200.0), "200");
        assert_eq!(number(-0.0), "0");
        assert_eq!(number(1.0 / 3.0), "0.333");
    }

    #[test]
    fn bytes_take_the_largest_unit() {
        assert_eq!(bytes(0.0), "0");
        assert_eq!(bytes(512.0), "512");
        assert_eq!(bytes(68_719_476_736.0), "64Gi");
        assert_eq!(bytes(8e9), "8G", "as it is written where that is exact");
        assert_eq!(bytes(500e6), "500M");
        assert_eq!(bytes(1024.0 * 1000.0), "1000Ki");
        assert_eq!(bytes(8e9 + 1.0), "7.45Gi", "neither is exact");
        assert_eq!(bytes(1_688_849_860_263_936.0), "1.5Pi");
    }

    #[test]
    fn color_is_for_terminals_and_can_be_disabled() {
        assert!(uses_color(ColorMode::Auto, false, true));
        assert!(!uses_color(ColorMode::Auto, false, false), "a pipe or file");
        assert!(!uses_color(ColorMode::Auto, true, true), "NO_COLOR");
        assert!(
            uses_color(ColorMode::Always, true, false),
            "a flag goes before the environment"
        );
        assert!(!uses_color(ColorMode::Never, false, true));
    }

    #[test]
    fn the_first_word_of_a_line_is_highlighted() {
        let text = "refused: node a\nerror: 1 record refused: b";
        assert_eq!(highlighted(text, false), text);
        assert_eq!(
            highlighted(text, true),
            "\u{1b}[33mrefused\u{1b}[0m: node a\n\u{1b}[1;31merror\u{1b}[0m: 1 record refused: b"
        );
        assert_eq!(highlighted("default:3: a", true), "default:3: a");
    }

    #[test]
    fn a_long_line_of_a_note_is_cut() {
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("aé", 2), "a…");
    }

    #[test]
    fn durations_are_short() {
        let times = [0.0, 0.000_123, 0.001_234, 0.0567, 1.234, 59.96].map(duration);
        assert_eq!(times, ["0 s", "123 µs", "1.23 ms", "57 ms", "1.23 s", "60.0 s"]);
    }

    #[test]
    fn json_is_protobuf_json() {
        let reply = pb::ScoreResponse {
            result: Some(pb::ScoreResult {
                items: vec![pb::ScoreItem {
                    totals: vec![937.5],
                    ..pb::ScoreItem::default()
                }],
            }),
            ..pb::ScoreResponse::default()
        };
        assert_eq!(
            json_value(&reply).unwrap(),
            serde_json::json!({ "result": { "items": [{ "totals": [937.5] }] } })
        );
    }
}
