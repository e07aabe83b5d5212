//! Tests of loading, checking and printing documents.

use proptest::prelude::*;

use super::emit::{effective_document, loaded_document, to_yaml, unified_diff};
use super::{
    Compatibility, Diagnostic, DiagnosticReport, DocumentPath, LoadOptions, LoadedSpec, Mark, PluginArguments,
    PolicySpec, Severity, Switch, YamlLimits, YamlNode, YamlValue, load, yaml,
};

const SERVED: [&str; 3] = ["resource-strategy-fit", "binpack", "drf"];

fn load_as(text: &str, compatibility: Compatibility) -> LoadedSpec {
    let options = LoadOptions {
        limits: YamlLimits::default(),
        compatibility,
        served: &SERVED,
    };
    load(text, &options)
}

fn loaded(text: &str) -> LoadedSpec {
    load_as(text, Compatibility::Corrected)
}

fn spec(text: &str) -> PolicySpec {
    let LoadedSpec { spec, report } = loaded(text);
    assert!(!report.has_errors(), "{:?}", report.diagnostics);
    spec.unwrap()
}

/// Lines `line:column code path`, one per diagnostic.
fn diagnostic_lines(report: &DiagnosticReport) -> Vec<String> {
    let show = |f: &Diagnostic| format!("{}:{} {} {}", f.line, f.column, f.code, f.path);
    report.diagnostics.iter().map(show).collect()
}

/// Document of seed 004, unchanged.
const INDENTED: &str = "       actions: \"enqueue, reclaim, allocate, backfill, preempt\"
       tiers:
       - plugins:
           - name: resource-strategy-fit
             arguments:
               sra.policy: retention
               sra.resources: nvidia.com/t4, nvidia.com/a10
               sra.retention.weight: 2
";

#[test]
fn a_document_that_starts_indented_loads() {
    let spec = spec(INDENTED);
    assert_eq!(spec.actions, ["enqueue", "reclaim", "allocate", "backfill", "preempt"]);
    let plugin = &spec.tiers[0][0];
    assert_eq!(plugin.name, "resource-strategy-fit");
    assert_eq!(plugin.at.mark, Mark { line: 4, column: 20 });
    assert_eq!(plugin.at.path, "tiers[0].plugins[0].name");
    let arguments = plugin.arguments.as_ref().unwrap();
    assert_eq!(arguments.get("sra.retention.weight").unwrap().lenient_int(), Some(2));
    assert_eq!(arguments.get("sra.policy").unwrap().as_string(), Some("retention"));
}

#[test]
fn all_errors_are_reported_at_once_in_the_loaders_order() {
    let text = "\
actions: enqueue, allocat,
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
  - name: proportion
    enablePredicate: 1
    enableNodeOrder: 'true'
    arguments: [1]
  - [x]
metrics: {a: {b: c}}
";
    let report = loaded(text).report;
    assert_eq!(
        diagnostic_lines(&report),
        [
            "6:22 TYPE_INVALID tiers[0].plugins[1].enablePredicate",
            "7:22 TYPE_INVALID tiers[0].plugins[1].enableNodeOrder",
            "8:16 TYPE_INVALID tiers[0].plugins[1].arguments",
            "9:5 TYPE_INVALID tiers[0].plugins[2]",
            "10:14 TYPE_INVALID metrics.a",
            "4:12 PLUGINS_CONFLICT tiers[0].plugins[0].name",
            "1:10 ACTION_UNKNOWN actions",
            "1:10 ACTION_UNKNOWN actions",
            "9:5 PLUGIN_UNKNOWN tiers[0].plugins[2]",
        ]
    );
    assert!(
        report.diagnostics[6].message.contains("empty item") || report.diagnostics[7].message.contains("empty item")
    );
    assert_eq!(report.diagnostics[0].message, "expected a bool, found the integer `1`");
}

#[test]
fn an_action_of_a_fork_is_named_with_the_remedy() {
    let report = loaded("actions: enqueue, gpupack, mypreempt\ntiers: [{plugins: [{name: drf}]}]\n").report;
    let messages: Vec<&str> = report.diagnostics.iter().map(|found| &*found.message).collect();
    let remedy = "if it is your own scheduler's action, remove it here";
    let known = "enqueue, allocate, backfill, preempt, reclaim, shuffle, gangpreempt, gangreclaim";
    assert_eq!(
        messages,
        [
            format!("unknown action `gpupack`: {remedy}; known are: {known}"),
            format!("unknown action `mypreempt`: {remedy}; did you mean `preempt`?"),
        ]
    );
}

#[test]
fn keys_that_volcano_ignores_silently_get_a_warning() {
    let text = "\
actions: enqueue
Tiers: []
tiers:
- plugin: []
  plugins:
  - name: binpak
    enabledNodeOrder: false
    enableJoborder: false
    arguments: {a: 1, a: 2, m: {k: 1, k: 2}}
  - name: drf
    enablePredicate: NULL
  - name: drf
  -
- -plugins:
actions: enqueue, enqueue
configurations: [{Name: x}]
";
    let report = loaded(text).report;
    assert_eq!(
        diagnostic_lines(&report),
        [
            "2:1 KEY_UNKNOWN Tiers",
            "4:3 KEY_UNKNOWN tiers[0].plugin",
            "6:11 PLUGIN_UNKNOWN tiers[0].plugins[0].name",
            "7:5 SWITCH_PREFIX tiers[0].plugins[0].enabledNodeOrder",
            "8:5 KEY_UNKNOWN tiers[0].plugins[0].enableJoborder",
            "9:23 KEY_DUPLICATE tiers[0].plugins[0].arguments.a",
            "9:39 KEY_DUPLICATE tiers[0].plugins[0].arguments.m.k",
            "11:22 SWITCH_NULL tiers[0].plugins[1].enablePredicate",
            "12:11 PLUGIN_DUPLICATE tiers[0].plugins[2].name",
            "13:4 PLUGIN_UNKNOWN tiers[0].plugins[3]",
            "14:3 KEY_UNKNOWN tiers[1].-plugins",
            "14:3 TIER_EMPTY tiers[1]",
            "15:1 KEY_DUPLICATE actions",
            "15:10 ACTION_DUPLICATE actions",
            "16:19 KEY_UNKNOWN configurations[0].Name",
        ]
    );
    assert!(
        report
            .diagnostics
            .iter()
            .all(|diagnostic| diagnostic.severity == Severity::Warning)
    );
    assert!(report.diagnostics[2].message.ends_with("did you mean `binpack`?"));
    assert!(
        report.diagnostics[3]
            .message
            .ends_with("Volcano spells it `enableNodeOrder`")
    );
    assert!(
        report.diagnostics[4]
            .message
            .ends_with("did you mean `enableJobOrder`?")
    );
    let mut strict = report;
    strict.finish(true);
    assert!(strict.has_errors() && strict.warnings().next().is_none());
}

#[test]
fn merged_keys_are_no_duplicates() {
    let text = "\
actions: enqueue
tiers:
- plugins:
  - &p {name: drf, enableJobOrder: false, arguments: {a: 1}}
- plugins:
  - {<<: *p, name: binpack, arguments: {a: 2}}
";
    let LoadedSpec { spec, report } = loaded(text);
    assert_eq!(diagnostic_lines(&report), [""; 0]);
    let plugin = &spec.unwrap().tiers[1][0];
    assert_eq!(plugin.switches.effective(Switch::JobOrder), Some(false));
    assert_eq!(
        plugin.arguments.as_ref().unwrap().get("a").unwrap().lenient_int(),
        Some(2)
    );
}

#[test]
fn unserved_plugins_are_listed_once_each() {
    let text = "actions: enqueue\ntiers: [{plugins: [{name: rescheduling}, {name: binpack}]}, {plugins: [{name: rescheduling}, {name: x}]}]\n";
    let report = loaded(text).report;
    let listed: Vec<_> = report
        .unserved_plugins
        .iter()
        .map(|p| (p.name.as_str(), p.known_upstream))
        .collect();
    assert_eq!(listed, [("rescheduling", true), ("x", false)]);
}

#[test]
fn the_pumice_section_accepts_compatibility_only() {
    let text = "pumice: {compatibility: upstream}\nactions: enqueue\ntiers: [{plugins: [{name: drf, enablePredicate: Null}]}]\n";
    let spec = spec(text);
    assert_eq!(spec.compatibility(Compatibility::Corrected), Compatibility::UPSTREAM);
    assert_eq!(spec.tiers[0][0].switches.written(Switch::Predicate), Some(false));
    let corrected = load_as(&text.replace("upstream", "corrected"), Compatibility::UPSTREAM)
        .spec
        .unwrap();
    assert_eq!(corrected.tiers[0][0].switches.written(Switch::Predicate), None);
    for (section, problem) in [
        ("{compatibility: Upstream}", "1:25 PUMICE_SECTION pumice.compatibility"),
        ("{compatibility: true}", "1:25 PUMICE_SECTION pumice.compatibility"),
        ("{mode: upstream}", "1:10 PUMICE_SECTION pumice.mode"),
        ("[upstream]", "1:9 PUMICE_SECTION pumice"),
    ] {
        let report = loaded(&format!("pumice: {section}\nactions: enqueue\n")).report;
        assert_eq!(diagnostic_lines(&report), [problem], "{section}");
        assert!(report.has_errors());
    }
}

#[test]
fn a_document_without_actions_is_rejected() {
    for text in ["", "~", "tiers: []", "actions:", "actions: ' '", "{}"] {
        assert_eq!(
            loaded(text).report.diagnostics[0].code.name(),
            "ACTIONS_MISSING",
            "{text:?}"
        );
    }
    assert_eq!(
        diagnostic_lines(&loaded("actions: [enqueue]").report),
        ["1:10 TYPE_INVALID actions"]
    );
    assert_eq!(diagnostic_lines(&loaded("drf").report), ["1:1 TYPE_INVALID "]);
}

#[test]
fn an_unreadable_text_has_one_diagnostic() {
    let LoadedSpec { spec, report } = loaded("actions: enqueue\ntiers:\n- plugins:\n\t- name: drf\n");
    assert!(spec.is_none());
    assert_eq!(diagnostic_lines(&report), ["4:1 YAML_SYNTAX "]);
}

#[test]
fn diagnostics_beyond_the_cap_are_counted() {
    let text = (0..3000).fold("actions: enqueue\n".to_owned(), |text, i| format!("{text}k{i}: 1\n"));
    let report = loaded(&text).report;
    assert_eq!((report.diagnostics.len(), report.omitted), (1000, 2000));
    let plugins = format!(
        "actions: enqueue\ntiers: [{{plugins: [{}]}}]",
        "{name: drf},".repeat(501)
    );
    assert_eq!(loaded(&plugins).report.diagnostics[0].code.name(), "YAML_LIMIT");
}

#[test]
fn switches_have_volcanos_defaults() {
    let spec = spec("actions: enqueue\ntiers: [{plugins: [{name: drf}]}]\n");
    let switches = &spec.tiers[0][0].switches;
    let unset: Vec<_> = Switch::ALL
        .into_iter()
        .filter(|s| switches.effective(*s).is_none())
        .map(Switch::key)
        .collect();
    assert_eq!(unset, ["enableHierarchy", "enabledClusterOrder"]);
    assert!(switches.is_on(Switch::Predicate) && !switches.is_on(Switch::Hierarchy));
}

#[test]
fn documents_are_printed_as_loaded_and_as_effective() {
    let text = "\
# comment
actions: enqueue,allocate
tiers:
- plugins:
  - name: drf
    enableJobOrder: no
    arguments: {y: 010, list: [1.0, ~, 'yes'], m: {y: 1}}
-
metrics: {a: 5}
";
    let spec = spec(text);
    assert_eq!(
        loaded_document(&spec),
        "\
actions: \"enqueue, allocate\"
tiers:
- plugins:
  - name: drf
    enableJobOrder: false
    arguments:
      \"y\": 8
      list:
      - 1.0
      - null
      - \"yes\"
      m:
        true: 1
- plugins: []
metrics:
  a: \"5\"
"
    );
    let effective = effective_document(&spec, Compatibility::Corrected, &|_, _, _| {
        Some(YamlValue::Map(vec![(
            YamlNode::new(YamlValue::String("a".into())),
            YamlNode::new(YamlValue::Int(1)),
        )]))
    });
    let again = self::spec(&effective);
    assert_eq!(again.compatibility(Compatibility::UPSTREAM), Compatibility::Corrected);
    let (before, after) = (&spec.tiers[0][0], &again.tiers[0][0]);
    assert!(
        Switch::ALL
            .into_iter()
            .all(|s| before.switches.is_on(s) == after.switches.is_on(s))
    );
    assert!(Switch::ALL.into_iter().all(|s| after.switches.written(s).is_some()));
    assert_eq!(
        after.arguments.as_ref().unwrap().get("a").unwrap().lenient_int(),
        Some(1)
    );
}

#[test]
fn differences_are_unified_diffs() {
    assert_eq!(unified_diff("a\n", "a\n"), "");
    let shown = unified_diff("a\nb\nc\n", "a\nx\nc\n");
    assert_eq!(shown, "--- before\n+++ after\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
    assert_eq!(
        unified_diff("a\n", "a\nb"),
        "--- before\n+++ after\n@@ -1,1 +1,2 @@\n a\n+b\n\\ No newline at end of file\n"
    );
    assert_eq!(unified_diff("", "b\n"), "--- before\n+++ after\n@@ -0,0 +1,1 @@\n+b\n");
    // Of large changes the form is the same.
    let (old, new) = ("b\n".repeat(3000), "x\n".repeat(3000));
    let shown = unified_diff(&format!("a\n{old}c\n"), &format!("a\n{new}c\n"));
    assert!(shown.starts_with("--- before\n+++ after\n@@ -1,3002 +1,3002 @@\n a\n-b\n"));
    assert!(shown.ends_with("+x\n c\n"));
}

fn arguments(text: &str) -> PluginArguments {
    let spec = spec(&format!(
        "actions: enqueue\ntiers: [{{plugins: [{{name: drf, arguments: {text}}}]}}]\n"
    ));
    spec.tiers[0][0].arguments.clone().unwrap()
}

#[test]
fn lenient_accessors_take_what_upstreams_take() {
    let all = arguments("{i: 5, f: 5.0, u: 9223372036854775808, s: '5', t: 't', w: 'yes', b: on, z: ~}");
    let read = |key: &str| {
        let argument = all.get(key).unwrap();
        (
            argument.lenient_int(),
            argument.lenient_float(),
            argument.lenient_bool(),
        )
    };
    assert_eq!(read("i"), (Some(5), Some(5.0), None));
    assert_eq!(read("f"), (None, Some(5.0), None));
    for key in ["u", "s", "w", "z"] {
        assert_eq!(read(key), (None, None, None), "{key}");
    }
    assert_eq!(read("t"), (None, None, Some(true)));
    assert_eq!(read("b"), (None, None, Some(true)));
}

#[test]
fn strict_decoding_truncates_floats_and_locates_errors() {
    let all = arguments("{a: 2.7, b: -0.5, c: ~, d: 1e300, e: 'x', m: {Weight: 3, y: 1, extra: 2}}");
    let mut report = DiagnosticReport::default();
    let int = |key: &str, compatibility, report: &mut DiagnosticReport| {
        all.get(key).unwrap().decode_int(compatibility, report)
    };
    for compatibility in Compatibility::KINDS {
        assert_eq!(int("a", compatibility, &mut report), Some(2));
        assert_eq!(int("b", compatibility, &mut report), Some(0));
        assert_eq!(int("c", compatibility, &mut report), Some(0));
    }
    assert_eq!(int("d", Compatibility::UPSTREAM, &mut report), Some(i64::MIN));
    assert_eq!(diagnostic_lines(&report), [""; 0]);
    assert_eq!(int("d", Compatibility::Corrected, &mut report), None);
    assert_eq!(int("e", Compatibility::Corrected, &mut report), None);
    let map = all.get("m").unwrap().decode_map(&mut report).unwrap();
    assert_eq!(map.field("weight").unwrap().lenient_int(), Some(3));
    assert_eq!(map.entries(&mut report).len(), 2);
    map.warn_unknown(&mut report, &["weight"]);
    all.warn_unknown(&mut report, "drf", &["b"], |key| key != "a");
    report.finish(false);
    let path = "tiers[0].plugins[0].arguments";
    let codes: Vec<_> = diagnostic_lines(&report)
        .iter()
        .map(|f| f.split_once(' ').unwrap().1.replace(path, ""))
        .collect();
    assert_eq!(
        codes,
        [
            "ARGUMENT_RANGE .d",
            "ARGUMENT_TYPE .e",
            "ARGUMENT_TYPE .m.true",
            "ARGUMENT_UNKNOWN_KEY .a",
            "ARGUMENT_UNKNOWN_KEY .m.true",
            "ARGUMENT_UNKNOWN_KEY .m.extra",
        ]
    );
}

#[test]
fn paths_are_written_as_people_would() {
    let mut path = DocumentPath::default();
    path.push_key("tiers");
    path.push_index(0);
    assert_eq!(
        path.key("nvidia.com/gpu").key("").index(2).to_string(),
        "tiers[0][\"nvidia.com/gpu\"][\"\"][2]"
    );
}

fn scalars() -> impl Strategy<Value = YamlValue> {
    prop_oneof![
        Just(YamlValue::Null),
        any::<bool>().prop_map(YamlValue::Bool),
        any::<i64>().prop_map(YamlValue::Int),
        (1_u64 << 63..).prop_map(YamlValue::UInt),
        any::<f64>().prop_map(YamlValue::Float),
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-0.0), Just(1e16), Just(1.0)].prop_map(YamlValue::Float),
        any::<String>().prop_map(YamlValue::String),
        "[ -~\u{80}-\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}\n\t\r]{0,12}".prop_map(YamlValue::String),
        "y|no|~|null|1_0|0x1|1e3|<<|[.]inf|2026-01-01|=|-|a: b|'|\"|#|x{1010}".prop_map(YamlValue::String),
    ]
}

fn values() -> impl Strategy<Value = YamlValue> {
    scalars().prop_recursive(4, 40, 6, |inner| {
        let node = inner.prop_map(YamlNode::new);
        let list = prop::collection::vec(node.clone(), 0..6).prop_map(YamlValue::List);
        let pairs = prop::collection::vec((scalars().prop_map(YamlNode::new), node), 0..6);
        let map = pairs.prop_map(|pairs| {
            let mut distinct: Vec<(YamlNode, YamlNode)> = Vec::new();
            for (key, value) in pairs {
                if !distinct
                    .iter()
                    .any(|(known, _)| yaml::same_key(&known.value, &key.value))
                {
                    distinct.push((key, value));
                }
            }
            YamlValue::Map(distinct)
        });
        prop_oneof![list, map]
    })
}

proptest! {
    #[test]
    fn printed_values_read_back_unchanged(value in values()) {
        let text = to_yaml(&value);
        let again = yaml::read(&text, &YamlLimits::default()).unwrap();
        prop_assert!(again.value.same(&value), "{text}\n{again:?}");
    }

    #[test]
    fn loaded_documents_load_again(value in values(), name in any::<String>(), key in any::<String>(), on in any::<bool>()) {
        let mut spec = spec(INDENTED);
        let plugin = &mut spec.tiers[0][0];
        plugin.name = name;
        plugin.switches.set(Switch::BestNode, Some(on));
        let mut arguments = PluginArguments::default();
        arguments.set(key.clone(), Mark::START, YamlNode::new(value.clone()));
        plugin.arguments = Some(arguments);
        let printed = loaded_document(&spec);
        let again = self::spec(&printed);
        prop_assert_eq!(&again.tiers[0][0].name, &spec.tiers[0][0].name);
        prop_assert_eq!(again.tiers[0][0].switches, spec.tiers[0][0].switches);
        prop_assert!(again.tiers[0][0].arguments.as_ref().unwrap().get(&key).unwrap().value().same(&value));
        prop_assert_eq!(loaded_document(&again), printed);
    }
}
