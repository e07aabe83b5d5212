//! Tests of the reader's rules, each with the smallest text that shows it.

use proptest::prelude::*;

use super::{Mark, YamlLimits, YamlNode, YamlValue, read};

fn limits() -> YamlLimits {
    YamlLimits::default()
}

fn value(text: &str) -> YamlValue {
    read(text, &limits())
        .unwrap_or_else(|error| panic!("{text:?}: {error}"))
        .value
}

fn read_error(text: &str) -> (&'static str, Mark) {
    let error = read(text, &limits()).expect_err(text);
    (error.code.name(), error.mark)
}

fn string(text: &str) -> YamlValue {
    YamlValue::String(text.to_owned())
}

fn map(pairs: &[(YamlValue, YamlValue)]) -> YamlValue {
    YamlValue::Map(
        pairs
            .iter()
            .map(|(k, v)| (YamlNode::new(k.clone()), YamlNode::new(v.clone())))
            .collect(),
    )
}

#[track_caller]
fn same(text: &str, expected: &YamlValue) {
    let got = value(text);
    assert!(got.same(expected), "{text:?} is {got:?}, expected {expected:?}");
}

#[test]
fn bools_and_null_are_words_of_yaml_1_1() {
    for text in [
        "y",
        "Y",
        "yes",
        "Yes",
        "YES",
        "true",
        "True",
        "TRUE",
        "on",
        "On",
        "ON",
        "!!bool 'yes'",
    ] {
        same(text, &YamlValue::Bool(true));
    }
    for text in [
        "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
    ] {
        same(text, &YamlValue::Bool(false));
    }
    for text in ["", "~", "null", "Null", "NULL", "!!null ''"] {
        same(text, &YamlValue::Null);
    }
}

#[test]
fn plain_numbers_have_the_forms_of_yaml_1_1() {
    for (text, n) in [
        ("010", 8),
        ("0o10", 8),
        ("0O17", 15),
        ("0x1F", 31),
        ("-0X_1f", -31),
        ("0b101", 5),
        ("0b-11", -3),
        ("1__0", 10),
        ("+7", 7),
        ("-0", 0),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("!!int '5'", 5),
        ("!<tag:yaml.org,2002:int> 7", 7),
    ] {
        same(text, &YamlValue::Int(n));
    }
    same("9223372036854775808", &YamlValue::UInt(1 << 63));
    same("18446744073709551615", &YamlValue::UInt(u64::MAX));
    for (text, x) in [
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
        ("-9223372036854775809", -9_223_372_036_854_775_809.0),
        ("08", 8.0),
        ("1e3", 1000.0),
        ("1.e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_0.5", 10.5),
        (".5_0", 0.5),
        ("-0.0", -0.0),
        (".inf", f64::INFINITY),
        ("-.INF", f64::NEG_INFINITY),
        (".NaN", f64::NAN),
        ("!!float 5", 5.0),
    ] {
        same(text, &YamlValue::Float(x));
    }
}

#[test]
fn what_looks_like_a_number_elsewhere_is_a_text_here() {
    for text in [
        "yEs",
        "_1",
        "0xG",
        "0b2",
        "0o9",
        "0x",
        "1e400",
        "-1e400",
        "inf",
        "NaN",
        ".iNF",
        "0x1p4",
        "._5",
        ".",
        "+",
        "1e",
        "1:30",
        "2026-01-01",
        "16Gi",
        "500m",
        "=",
        "<<",
        "+.Nan",
    ] {
        same(text, &string(text));
    }
    same("'yes'", &string("yes"));
    same("\"5\"", &string("5"));
    same("! 5", &string("5"));
    same("!!str 5", &string("5"));
    same("!custom 5", &string("5"));
    same("!!binary aGk=", &string("hi"));
    same("!!timestamp 2026-1-2", &string("2026-1-2"));
}

#[test]
fn a_value_that_contradicts_its_tag_is_rejected() {
    for text in [
        "!!int 1.5",
        "!!int ''",
        "!!bool 1",
        "!!bool oN",
        "!!null x",
        "!!float 9223372036854775808",
        "!!binary '***'",
        "!!timestamp abc",
        "!!timestamp 2026-02-30",
    ] {
        assert_eq!(read_error(text), ("YAML_TAG", Mark::START), "{text}");
    }
}

#[test]
fn the_scanner_follows_libyaml_where_yaml_1_2_differs() {
    // Line breaks of YAML 1.1.
    same(
        "a: 1\u{85}b: 2",
        &map(&[(string("a"), YamlValue::Int(1)), (string("b"), YamlValue::Int(2))]),
    );
    same("a: 1\u{2028}b: 2\r\nc: 3\rd: 4", &value("{a: 1, b: 2, c: 3, d: 4}"));
    // A byte order mark counts at the very start only.
    same("\u{feff}a: 1", &value("a: 1"));
    same(
        "a: 1\n\u{feff}b: 2",
        &map(&[
            (string("a"), YamlValue::Int(1)),
            (string("\u{feff}b"), YamlValue::Int(2)),
        ]),
    );
    same("\"\\x41\\u263a\\_\\N\\L\"", &string("A☺\u{a0}\u{85}\u{2028}"));
    same(
        "nvidia.com/gpu*: 1",
        &map(&[(string("nvidia.com/gpu*"), YamlValue::Int(1))]),
    );
    for (text, line, column) in [
        ("a: \"\\/\"", 1, 6),
        ("*/gpu: 1", 1, 2),
        ("*: 1", 1, 2),
        ("a:\n\t- b", 2, 1),
        ("%YAML 1.2\n---\na: 1", 1, 1),
        ("%FOO bar\n---\na: 1", 1, 5),
        ("a: @x", 1, 4),
        ("a: b: c", 1, 5),
        ("a: \"b", 1, 4),
        ("a: [b", 2, 1),
        ("a: 1\n b: 2", 2, 3),
        ("a: \u{1}", 1, 4),
        ("a: b\u{7f}", 1, 5),
    ] {
        assert_eq!(read_error(text), ("YAML_SYNTAX", Mark { line, column }), "{text:?}");
    }
}

#[test]
fn only_the_first_document_is_read() {
    same("a\n---\n[", &string("a"));
    same("a\n...\n@", &string("a"));
    same("---\n---\na", &YamlValue::Null);
    assert_eq!(read_error("...\n").0, "YAML_SYNTAX");
    // The reference checks characters in windows of 512 bytes, ahead of its reading position.
    assert_eq!(read_error("a\n---\n\u{1}").0, "YAML_SYNTAX");
    same(&format!("a\n---\n#{}\u{1}", "x".repeat(600)), &string("a"));
}

#[test]
fn merges_count_at_their_position() {
    let base = "- &a {x: 1, z: 1}\n- &b {x: 2, w: 2}\n- ";
    for (merged, x) in [
        ("{x: 9, <<: *a}", 1),
        ("{<<: *a, x: 9}", 9),
        ("{<<: *a, <<: *b}", 2),
        ("{<<: [*a, *b]}", 1),
        ("{<<: [*b, *a]}", 2),
        ("{<<: {x: 7}}", 7),
        ("{! <<: *a}", 1),
        ("{!!merge '<<': *a}", 1),
    ] {
        let YamlValue::List(items) = value(&format!("{base}{merged}")) else {
            panic!("a list")
        };
        let YamlValue::Map(pairs) = &items[2].value else {
            panic!("a map")
        };
        let found = pairs
            .iter()
            .find(|(key, _)| key.value.same(&string("x")))
            .map(|(_, value)| &value.value);
        assert!(
            found.is_some_and(|found| found.same(&YamlValue::Int(x))),
            "{merged}: {found:?}"
        );
    }
    same("{'<<': 1}", &map(&[(string("<<"), YamlValue::Int(1))]));
    for text in ["<<: 5", "<<:", "<<: [5]", "- &l [{a: 1}]\n- <<: *l"] {
        assert_eq!(read_error(text).0, "YAML_MERGE", "{text}");
    }
}

#[test]
fn later_keys_win_and_keys_keep_their_type() {
    same(
        "{1: a, '1': b, 1.0: c, y: d, 1: e}",
        &value("{1: e, '1': b, 1.0: c, true: d}"),
    );
    same("{0.0: a, -0.0: b}", &map(&[(YamlValue::Float(-0.0), string("b"))]));
    let YamlValue::Map(pairs) = value("{.nan: a, .nan: b}") else {
        panic!("a map")
    };
    assert_eq!(pairs.len(), 2, "NaN equals nothing");
    assert_eq!(read_error("{[1]: a}").0, "YAML_KEY");
    assert_eq!(read_error("{{a: b}: c}").0, "YAML_KEY");
}

#[test]
fn an_alias_refers_to_the_latest_anchor() {
    same("[&x 1, *x, &x 2, *x]", &value("[1, 1, 2, 2]"));
    same("[&x , *x]", &value("[~, ~]"));
    for text in ["*nope", "[*x, &x 1]", "&x [*x]", "&x {a: *x}"] {
        assert_eq!(read_error(text).0, "YAML_ALIAS", "{text}");
    }
}

#[test]
fn values_know_where_they_begin() {
    let node = read("é: [a,\n  &x {k: v}]", &limits()).unwrap();
    let YamlValue::Map(pairs) = &node.value else {
        panic!("a map")
    };
    let (key, list) = &pairs[0];
    assert_eq!(key.mark, Mark { line: 1, column: 1 });
    assert_eq!(list.mark, Mark { line: 1, column: 4 });
    let YamlValue::List(items) = &list.value else {
        panic!("a list")
    };
    assert_eq!(items[1].mark, Mark { line: 2, column: 3 });
}

#[test]
fn content_that_is_no_text_is_refused() {
    assert_eq!(read_error("a: !!binary kGa=").0, "YAML_TAG");
    assert_eq!(read_error("\u{feff}\u{feff}a: 1\nb: 2").0, "YAML_SYNTAX");
}

/// Texts whose cost would grow far beyond their size, or that are themselves too large.
#[test]
fn expansion_bombs_are_rejected_by_their_limit() {
    let laughs = (b'b'..=b'k').fold("a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, c| {
        let (c, p) = (char::from(c), char::from(c - 1));
        format!("{text}{c}: &{c} [*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p}]\n")
    });
    let merges = laughs
        .replace("[x,x,x,x,x,x,x,x,x]", "{x: 1}")
        .replace('[', "{<<: [")
        .replace(']', "]}");
    let chain = (1..1000).fold("- &a0 [x]\n".to_owned(), |text, i| {
        format!("{text}- &a{i} [*a{}]\n", i - 1)
    });
    let repeated = format!("- &a '{}'\n- [{}]", "x".repeat(100_000), "*a,".repeat(1000));
    for (what, text) in [
        ("aliases", laughs),
        ("merges", merges),
        ("a chain of aliases", chain),
        ("text repeated by aliases", repeated),
        ("lists", "[".repeat(1 << 20)),
        ("maps", "{a: ".repeat(1 << 18)),
        ("items", "- ".repeat(1 << 19)),
        ("keys", "? ".repeat(1 << 19)),
        ("values", format!("[{}]", "x,".repeat(150_000))),
        ("bytes", "x".repeat((1 << 20) + 1)),
    ] {
        assert_eq!(read_error(&text).0, "YAML_LIMIT", "{what}");
    }
    // A long name of a tag on many values is not concatenated for each of them.
    value(&format!(
        "%TAG !e! {}\n---\n[{}]",
        "a".repeat(400_000),
        "!e!x 1,".repeat(30_000)
    ));
}

#[test]
fn long_texts_are_read_window_by_window() {
    let text = (0..20_000).fold(String::new(), |text, i| format!("{text}- é{i}\n"));
    let node = read(&text, &limits()).unwrap();
    let YamlValue::List(items) = &node.value else {
        panic!("a list")
    };
    for (i, item) in (0..).zip(items) {
        assert!(item.value.same(&string(&format!("é{i}"))));
        assert_eq!(item.mark, Mark { line: i + 1, column: 3 });
    }
    assert_eq!(
        read_error(&format!("{text}\u{7f}")).1,
        Mark {
            line: 20_001,
            column: 1
        }
    );
}

#[test]
fn nesting_up_to_the_limit_is_read() {
    value(&format!("{}{}", "[".repeat(64), "]".repeat(64)));
    assert_eq!(
        read_error(&format!("{}{}", "[".repeat(65), "]".repeat(65))).0,
        "YAML_LIMIT"
    );
}

/// Pieces of text that have a meaning to a scanner.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(": "),
        Just("- "),
        Just("? "),
        Just("\n"),
        Just("\n  "),
        Just("\t"),
        Just("#"),
        Just("["),
        Just("]"),
        Just("{"),
        Just("}"),
        Just(","),
        Just("&a "),
        Just("*a "),
        Just("<<: "),
        Just("!!int "),
        Just("'"),
        Just("\""),
        Just("|"),
        Just(">-\n"),
        Just("---\n"),
        Just("...\n"),
        Just("\\"),
        Just("%"),
        Just("a"),
        Just("1"),
        Just("~"),
        Just("\u{feff}"),
        Just("\u{2028}"),
        Just("é"),
        Just(" "),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>(), pieces in pieces(), bytes in any::<Vec<u8>>()) {
        let small = YamlLimits { bytes: 4096, depth: 8, nodes: 64, reads: 64, read_bytes: 4096 };
        for text in [text.as_str(), pieces.as_str(), &String::from_utf8_lossy(&bytes)] {
            let _ = read(text, &limits());
            let _ = read(text, &small);
        }
    }
}
