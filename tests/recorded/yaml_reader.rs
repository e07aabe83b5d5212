//! The reader of YAML against gopkg.in/yaml.v2, with which Volcano reads its configuration: over mutated documents both
//! read the same values, or both refuse.
#![expect(clippy::print_stdout, reason = "the line is the report of `make yaml`")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pumice_engine::model::ErrorCode;
use pumice_engine::policy::yaml::{self, YamlLimits, YamlValue};

/// Number of mutated documents.
const DOCUMENTS: u64 = 20_000;
/// Largest share of documents that may be beyond a limit of ours, which the library does not have.
const MOST_LIMITED: usize = 100;

/// Small documents with the parts of the language that policies hardly use.
const FEATURES: &[&str] = &[
    "a: &x {b: 1, c: [2, 3]}\nd: {<<: *x, b: 4}\n",
    "base: &base\n  k: v\nlist:\n- <<: [*base, {m: n}]\n- *base\n",
    "text: |2-\n    two\n     more\nfolded: >+\n  a\n  b\n\n   c\n\nend: x\n",
    "? - complex\n: 1\n? plain\n: 2\n",
    "%YAML 1.1\n%TAG ! tag:example.org,2002:\n--- !!map\na: !!str 1\nb: !!int '0x1F'\nc: !!float 5\nd: !!binary aGk=\n...\nrest\n",
    "n: [010, 0o17, 0b101, 1_000, +7, -0, .5, 5., 1e3, .inf, -.INF, .NaN, 08, 1:30, 0x, 2001-12-14t21:59:43.10-05:00]\n",
    "w: [y, N, yes, No, on, OFF, true, False, ~, null, Null, '', \"\", yEs]\n",
    "s: \"\\x41\\u00e9\\U0001F600\\n\\t\\e\\_\\N\\L \\\n  next\"\nt: 'it''s\n\n  two lines'\n",
    "a: b: c\n",
    "- - - a\n  -\n   - b\n- {a, b: , c: d, ? e : f, \"g\":h}\n- [a: b, [c], ]\n",
    "a: 1\na: 2\n1: x\n1.0: y\ntrue: z\n~: w\n",
    "# comment\nkey:   value # and more\nother: a#b\nurl: http://x:80/#y\n",
    "a:\n\t- b\n",
    "\u{feff}bom: 1\n",
    "a: \u{85}b\u{2028}c\n",
];

/// Pieces that mutations put in.
const PIECES: &[&str] = &[
    ": ",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "\n- ",
    "  ",
    " ",
    "\t",
    "\r\n",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "!!str ",
    "!!bool ",
    "!t ",
    "'",
    "\"",
    "\\",
    "|",
    ">",
    "|-",
    ">2",
    "#",
    " #",
    "{",
    "}",
    "[",
    "]",
    ",",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "%",
    "@",
    "`",
    "0x1F",
    "1:30",
    "~",
    "yes",
    "null",
    "1e400",
    "-",
    ":",
    "é",
    "\u{85}",
    "\u{feff}",
    "\u{2029}",
    "\u{0}",
    "\u{7f}",
    "=",
    "18446744073709551616",
];

#[test]
#[ignore = "needs the program of tests/yaml: make yaml"]
fn agrees_with_the_library_over_mutated_documents() {
    let program = std::env::var_os("PUMICE_YAML_V2").expect("PUMICE_YAML_V2 names the built program of tests/yaml");
    let seeds = seed_documents();
    let mut numbers = RandomNumbers(20_261_123);
    let documents: Vec<String> = (0..DOCUMENTS).map(|_| mutated(&seeds, &mut numbers)).collect();
    let theirs = read_by_library(&program, &documents);
    let (mut limited, mut refused, mut differing) = (0, 0, Vec::new());
    for (document, theirs) in documents.iter().zip(&theirs) {
        let own = match yaml::read(document, &YamlLimits::default()) {
            Err(error) if error.code == ErrorCode::YamlLimit => {
                limited += 1;
                continue;
            }
            Err(_) => "error".to_owned(),
            Ok(node) => written(&node.value),
        };
        refused += usize::from(own == "error");
        // Refused here on purpose, see docs/compatibility.md.
        let refused_on_purpose = theirs.contains("bytes") || document.starts_with("\u{feff}\u{feff}");
        if own != *theirs && !(refused_on_purpose && own == "error") {
            differing.push(format!("{document:?}\n  here  {own}\n  there {theirs}"));
        }
    }
    println!(
        "{} documents: {refused} refused, {limited} beyond a limit, {} differ",
        documents.len(),
        differing.len()
    );
    assert!(limited <= MOST_LIMITED, "{limited} documents were not compared");
    assert!(
        refused > 0 && refused < documents.len(),
        "both kinds of documents must come"
    );
    assert!(
        differing.is_empty(),
        "{}",
        differing[..differing.len().min(5)].join("\n")
    );
}

/// Sequence of numbers that is always the same (`SplitMix64`).
struct RandomNumbers(u64);

impl RandomNumbers {
    /// Number below an end, which is above 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

/// The examples, the features, and pairs of features in one document.
fn seed_documents() -> Vec<String> {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut paths: Vec<_> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let yaml = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut seeds: Vec<String> = yaml.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let is_map = |feature: &&&str| feature.starts_with(char::is_alphabetic);
    for feature in FEATURES {
        // A document that is refused as it is tells little: most seeds are whole.
        seeds.extend(std::iter::repeat_n((*feature).to_owned(), 4));
        seeds.extend(
            FEATURES
                .iter()
                .filter(is_map)
                .map(|second| format!("{second}{feature}")),
        );
    }
    seeds
}

/// A seed with a few pieces put in, cut out, doubled or exchanged.
fn mutated(seeds: &[String], numbers: &mut RandomNumbers) -> String {
    let mut text: Vec<char> = seeds[numbers.below(seeds.len())].chars().collect();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(text.len() + 1);
        let end = (at + numbers.below(6)).min(text.len());
        match numbers.below(5) {
            0 => drop(text.drain(at..end)),
            1 => {
                let part = text[at..end].to_vec();
                text.splice(at..at, part);
            }
            2 if end < text.len() => text.swap(at, end),
            3 => {
                // A line is moved in or out.
                let start = text[..at]
                    .iter()
                    .rposition(|letter| *letter == '\n')
                    .map_or(0, |line| line + 1);
                if text.get(start) == Some(&' ') && numbers.below(2) == 0 {
                    text.remove(start);
                } else {
                    text.insert(start, ' ');
                }
            }
            _ => drop(text.splice(at..at, PIECES[numbers.below(PIECES.len())].chars())),
        }
    }
    text.into_iter().collect()
}

fn read_by_library(program: &OsStr, documents: &[String]) -> Vec<String> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program of tests/yaml starts");
    let mut input = child.stdin.take().unwrap();
    let lines: String = documents.iter().map(|document| hexadecimal(document) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the program of tests/yaml failed");
    let lines: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), documents.len());
    lines
}

fn hexadecimal(text: &str) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16);
    text.bytes()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .flatten()
        .collect()
}

/// A value in the notation of tests/yaml.
fn written(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "~".to_owned(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Int(value) => format!("i{value}"),
        YamlValue::UInt(value) => format!("u{value}"),
        YamlValue::Float(value) if value.is_nan() => "nan".to_owned(),
        YamlValue::Float(value) => format!("f{:016x}", value.to_bits()),
        YamlValue::String(value) => format!("s{}", hexadecimal(value)),
        YamlValue::List(items) => {
            let items: Vec<String> = items.iter().map(|item| written(&item.value)).collect();
            format!("[{}]", items.join(","))
        }
        YamlValue::Map(pairs) => {
            let pair =
                |(key, value): &(yaml::YamlNode, yaml::YamlNode)| written(&key.value) + ":" + &written(&value.value);
            let mut pairs: Vec<String> = pairs.iter().map(pair).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(","))
        }
    }
}
