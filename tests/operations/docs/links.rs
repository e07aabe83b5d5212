//! Links of the pages: each leads to a file of the repository, and to a heading of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use super::{every_page, page, root};

/// Text without blocks of code, and without code in backticks.
fn without_code(text: &str) -> String {
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.extend(line.split('`').step_by(2));
        }
        prose.push('\n');
    }
    prose
}

/// Anchors of a page, as GitHub derives them from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = link_text(heading.trim())
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let before = uses.entry(anchor.clone()).or_default();
        found.insert(match *before {
            0 => anchor,
            number => format!("{anchor}-{number}"),
        });
        *before += 1;
    }
    found
}

/// A heading with the texts of its links in place of the links.
fn link_text(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, (text, after))) = rest
        .split_once('[')
        .and_then(|(before, link)| Some((before, link.split_once("](")?)))
    {
        shown.push_str(before);
        shown.push_str(text);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown + rest
}

/// Addresses of the links of a page, with the number of their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in without_code(text).lines().enumerate() {
        for part in line.split("](").skip(1) {
            if let Some((address, _)) = part.split_once(')') {
                found.push((number + 1, address.to_owned()));
            }
        }
    }
    found
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other @ (Component::Prefix(_) | Component::RootDir | Component::Normal(_)) => normal.push(other),
        }
    }
    normal
}

/// Links of all pages that lead nowhere, one a line.
pub(super) fn problems() -> String {
    let mut problems = String::new();
    for name in every_page() {
        for (line, link) in links(&page(&name)) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            if path.contains(':') {
                continue;
            }
            let folder = root().join(&name).parent().unwrap().to_owned();
            let target = if path.is_empty() {
                root().join(&name)
            } else {
                normal(&folder.join(path))
            };
            if !target.exists() {
                writeln!(problems, "{name}:{line}: there is no file {link}").unwrap();
            } else if !anchor.is_empty() && target.extension().is_some_and(|ending| ending == "md") {
                let text = std::fs::read_to_string(&target).unwrap();
                if !anchors(&text).contains(anchor) {
                    writeln!(problems, "{name}:{line}: there is no heading {link}").unwrap();
                }
            }
        }
    }
    problems
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let problems = problems();
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn links_and_headings_are_read_as_github_reads_them() {
    let text =
        "# A `b` c?\n\n[x](y.md#z) `[no](no.md)`\n```\n[no](no.md)\n# No\n```\n## A b c\n### See [this](t.md), too\n";
    assert_eq!(links(text), [(3, "y.md#z".to_owned()), (9, "t.md".to_owned())]);
    let expected = ["a-b-c", "a-b-c-1", "see-this-too"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(normal(Path::new("/a/b/../c/./d")), PathBuf::from("/a/c/d"));
}
