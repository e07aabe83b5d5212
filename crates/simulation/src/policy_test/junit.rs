//! Report of policy tests in the XML of `JUnit`: a suite per file, a case per case. Written by hand: a crate for these 60 lines brought four
//! others, and cost as much to build as this crate.

use std::fmt::Write as _;

use super::{CaseOutcome, mismatch_text};

/// Text as a value of an attribute or as content of an element. XML 1.0 has no way to write most control characters, so each of
/// them is a question mark.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            c if c.is_control() && !('\u{80}'..='\u{9f}').contains(&c) => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Attributes with the numbers of cases and failures.
fn counts(outcomes: &[&CaseOutcome]) -> String {
    let failures = outcomes.iter().filter(|one| !one.mismatches.is_empty()).count();
    format!(
        "tests=\"{}\" skipped=\"0\" failures=\"{failures}\" errors=\"0\"",
        outcomes.len()
    )
}

/// The report. Cases of one file are next to each other.
pub(super) fn report(outcomes: &[CaseOutcome]) -> String {
    let all: Vec<&CaseOutcome> = outcomes.iter().collect();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"pumice policy test\" {}>\n",
        counts(&all)
    );
    for suite in all.chunk_by(|one, next| one.file == next.file) {
        let file = suite.first().map(|one| escape(&one.file)).unwrap_or_default();
        // Writing into a text does not fail.
        let _ = writeln!(xml, "  <testsuite name=\"{file}\" {}>", counts(suite));
        for one in suite {
            let _ = write!(xml, "    <testcase name=\"{}\" classname=\"{file}\"", escape(&one.name));
            let Some(first) = one.mismatches.first() else {
                xml.push_str("/>\n");
                continue;
            };
            let message = format!(
                "line {}, {}: expected {}, got {}",
                first.line, first.subject, first.expected, first.actual
            );
            let details: Vec<String> = one.mismatches.iter().map(mismatch_text).collect();
            let _ = writeln!(
                xml,
                ">\n      <failure message=\"{}\" type=\"mismatch\">{}</failure>\n    </testcase>",
                escape(&message),
                escape(&details.join("\n"))
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(file: &str, name: &str) -> CaseOutcome {
        CaseOutcome {
            file: file.to_owned(),
            name: name.to_owned(),
            ..CaseOutcome::default()
        }
    }

    #[test]
    fn each_file_is_a_suite_and_texts_are_escaped() {
        let xml = report(&[
            outcome("a.yaml", "1 < 2 & \"x\"\u{7}"),
            outcome("a.yaml", "b"),
            outcome("c.yaml", "d"),
        ]);
        assert!(
            xml.contains("<testcase name=\"1 &lt; 2 &amp; &quot;x&quot;?\" classname=\"a.yaml\"/>"),
            "{xml}"
        );
        assert_eq!(xml.matches("<testsuite ").count(), 2, "{xml}");
        assert!(
            xml.contains("<testsuite name=\"a.yaml\" tests=\"2\" skipped=\"0\" failures=\"0\""),
            "{xml}"
        );
    }
}
