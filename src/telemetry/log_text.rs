//! Log lines that callers cannot forge, lengthen or multiply.

use std::fmt::{self, Display, Write as _};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pumice_protocol::is_disguise;
use tokio::time::Instant;
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

/// Longest text of one field, in bytes.
const TEXT_BYTES: usize = 1_000;
/// Shortest time between two warnings of one kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Text for a log line: on one line, of bounded length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogText<T>(pub(crate) T);

impl<T: Display> Display for LogText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = LineWriter {
            inner: f,
            left: TEXT_BYTES,
        };
        write!(line, "{}", self.0)
    }
}

/// Writer that escapes what ends or disguises a line, and cuts long texts.
struct LineWriter<'a> {
    inner: &'a mut dyn fmt::Write,
    left: usize,
}

impl fmt::Write for LineWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.left == 0 {
                return Ok(());
            }
            self.left = self.left.saturating_sub(c.len_utf8());
            if self.left == 0 {
                self.inner.write_char('…')?;
            } else if is_disguise(c) {
                write!(self.inner, "{}", c.escape_default())?;
            } else {
                self.inner.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Writes one field of a line for people.
pub(super) fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = LogText(format_args!("{value:?}"));
    match field.name() {
        "message" => write!(writer, "{value}"),
        name => write!(writer, "{name}={value}"),
    }
}

/// Writer of lines that are JSON objects: cuts their long texts, and escapes what disguises text. Each write is one line.
#[derive(Debug)]
pub(super) struct JsonLineWriter<W>(pub(super) W);

impl<W: io::Write> io::Write for JsonLineWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match bounded_json(line) {
            Some(bounded) => self.0.write_all(&bounded)?,
            None => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Line with its texts as [`LogText`] writes them; `None`: it is short and hides nothing.
fn bounded_json(line: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    if text.len() <= TEXT_BYTES && !text.trim_end().chars().any(is_disguise) {
        return None;
    }
    let mut object = serde_json::from_str(text).ok()?;
    bound_texts(&mut object);
    let mut bounded = serde_json::to_vec(&object).ok()?;
    bounded.push(b'\n');
    Some(bounded)
}

fn bound_texts(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = LogText(&*text).to_string(),
        serde_json::Value::Array(values) => values.iter_mut().for_each(bound_texts),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(bound_texts),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// Gate that lets one warning of its kind pass in ten seconds, and adds up the suppressed warnings.
#[derive(Debug)]
pub(crate) struct WarningGate {
    begun: Instant,
    /// Time from the begin to the end of the present silence, in milliseconds.
    silent_until: AtomicU64,
    suppressed: AtomicU64,
}

impl WarningGate {
    /// Gate that lets the first warning pass.
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            silent_until: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Number of suppressed warnings since the last passed warning, if this warning passes.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(self.begun.elapsed())
    }

    fn pass_at(&self, now: Duration) -> Option<u64> {
        let until = self.silent_until.load(Ordering::Relaxed);
        let next = milliseconds(now + WARNING_INTERVAL);
        let passes = milliseconds(now) >= until
            && self
                .silent_until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if passes {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line_and_is_cut() {
        assert_eq!(
            LogText("a\nb\u{1b}[0m\u{202e}c").to_string(),
            "a\\nb\\u{1b}[0m\\u{202e}c"
        );
        let long = LogText("é".repeat(1 << 20)).to_string();
        assert!(long.len() <= TEXT_BYTES + 3 && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn a_json_line_is_cut_text_by_text_and_stays_json() {
        let written = |line: &serde_json::Value| {
            let mut lines = Vec::new();
            io::Write::write_all(&mut JsonLineWriter(&mut lines), format!("{line}\n").as_bytes()).unwrap();
            String::from_utf8(lines).unwrap()
        };
        let short = serde_json::json!({"message": "a\nb", "count": 1});
        assert_eq!(written(&short), format!("{short}\n"));
        let hidden = serde_json::json!({"message": "a\u{202e}b", "spans": [{"name": "\u{9b}x"}]});
        assert_eq!(
            written(&hidden),
            "{\"message\":\"a\\\\u{202e}b\",\"spans\":[{\"name\":\"\\\\u{9b}x\"}]}\n"
        );
        let long = written(&serde_json::json!({"a": "x".repeat(1 << 20), "b": "\"".repeat(1 << 20), "n": 7}));
        assert!(long.len() < 4 * TEXT_BYTES && long.ends_with('\n'), "{}", long.len());
        let read: serde_json::Value = serde_json::from_str(&long).unwrap();
        assert_eq!(read["n"], 7);
    }

    #[test]
    fn one_warning_passes_in_ten_seconds() {
        let gate = WarningGate::new();
        let passed = [0, 1, 9, 10, 11].map(|second| gate.pass_at(Duration::from_secs(second)));
        assert_eq!(passed, [Some(0), None, None, Some(2), None]);
    }
}
