//! Documents that people write: YAML, policies, settings.

use std::fmt::Write as _;

use pumice::config::{ServerConfig, settings};
use pumice_engine::model::ErrorCode;
use pumice_engine::policy::emit::{loaded_document, to_yaml};
use pumice_engine::policy::yaml::{self, YamlLimits, YamlNode, YamlValue};
use pumice_engine::policy::{Compatibility, CompileOptions, compile};

use crate::choices::{split_choice, text};
use crate::go_program::GoProgram;

/// Reads a document; what was read and written again reads as the same.
pub fn read_yaml(data: &[u8]) {
    let text = text(data);
    let Ok(node) = yaml::read(&text, &YamlLimits::default()) else {
        return;
    };
    let written = to_yaml(&node.value);
    let limits = YamlLimits {
        bytes: usize::MAX,
        ..YamlLimits::default()
    };
    let again = yaml::read(&written, &limits).unwrap_or_else(|error| panic!("{error}: {written:?} of {text:?}"));
    assert!(again.value.same(&node.value), "{written:?} of {text:?}");
}

/// Compiles a policy under a choice of compatibility; the document that was loaded compiles to itself.
pub fn read_policy(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let options = CompileOptions {
        compatibility: Compatibility::KINDS[usize::from(choice) % Compatibility::KINDS.len()],
        ..CompileOptions::default()
    };
    let text = text(rest);
    let compiled = match compile(&text, &options) {
        Ok(compiled) => compiled,
        Err(report) => {
            assert!(!report.diagnostics.is_empty(), "refused without a reason: {text:?}");
            return;
        }
    };
    if compiled.policy.spec().actions.is_empty() {
        // A configuration of kube-scheduler, which has profiles instead of actions and is shown in another way.
        return;
    }
    let shown = loaded_document(compiled.policy.spec());
    let again = compile(&shown, &options).unwrap_or_else(|report| panic!("{:?}: {shown}", report.diagnostics));
    assert_eq!(loaded_document(again.policy.spec()), shown);
}

/// Sets a setting to a value, and shows it.
pub fn read_settings(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let all: Vec<_> = settings().collect();
    let setting = &all[usize::from(choice) % all.len()];
    let text = text(rest);
    let values: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let mut config = ServerConfig::default();
    if setting.set(&mut config, &values).is_ok() {
        let shown = setting.show(&config);
        assert!(shown.len() <= rest.len() * 8 + 4_096, "{}: {shown}", setting.name);
    }
    let _ = pumice::fuzz_entries::read_grpc_timeout(&text);
}

/// Compares the reader with gopkg.in/yaml.v2.
pub fn compare_yaml(data: &[u8]) {
    let document = text(data);
    let own = match yaml::read(&document, &YamlLimits::default()) {
        // The library has no such limit.
        Err(error) if error.code == ErrorCode::YamlLimit => return,
        Err(_) => "error".to_owned(),
        Ok(node) => written(&node),
    };
    GoProgram::compare("yaml", &document, own, |own, theirs, document| {
        // Refused here on purpose, see docs/compatibility.md.
        let on_purpose = theirs.contains("bytes") || document.starts_with("\u{feff}\u{feff}");
        own == theirs || (on_purpose && own == "error")
    });
}

/// A value in the notation of the Go program.
fn written(node: &YamlNode) -> String {
    match &node.value {
        YamlValue::Null => "~".to_owned(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Int(value) => format!("i{value}"),
        YamlValue::UInt(value) => format!("u{value}"),
        YamlValue::Float(value) if value.is_nan() => "nan".to_owned(),
        YamlValue::Float(value) => format!("f{:016x}", value.to_bits()),
        YamlValue::String(value) => value.bytes().fold("s".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        }),
        YamlValue::List(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            format!("[{}]", items.join(","))
        }
        YamlValue::Map(pairs) => {
            let mut pairs: Vec<String> = pairs
                .iter()
                .map(|(key, value)| format!("{}:{}", written(key), written(value)))
                .collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(","))
        }
    }
}
