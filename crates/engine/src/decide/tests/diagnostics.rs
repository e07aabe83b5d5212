//! Diagnostics of arguments whose meaning their author may not expect.

use crate::policy::{Compatibility, CompileOptions, DiagnosticReport, Severity, compile};

fn diagnostic_report(plugin: &str, arguments: &str, strict: bool, compatibility: Compatibility) -> DiagnosticReport {
    let document = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n    arguments: {arguments}\n");
    let options = CompileOptions {
        compatibility,
        strict,
        ..CompileOptions::default()
    };
    let compiled = compile(&document, &options);
    compiled.map_or_else(|report| report, |compiled| compiled.report)
}

/// Arguments, then code and path of each diagnostic.
type ExpectedDiagnostics<'a> = (&'a str, &'a [(&'a str, &'a str)]);

fn check(plugin: &str, rows: &[ExpectedDiagnostics<'_>]) {
    for (arguments, expected) in rows {
        for compatibility in Compatibility::KINDS {
            let report = diagnostic_report(plugin, arguments, false, compatibility);
            let prefix = "tiers[0].plugins[0].arguments";
            let found: Vec<(&str, &str)> = report
                .diagnostics
                .iter()
                .map(|diagnostic| (diagnostic.code.name(), diagnostic.path.strip_prefix(prefix).unwrap()))
                .collect();
            assert_eq!(
                found, *expected,
                "{arguments} {compatibility:?}: {:?}",
                report.diagnostics
            );
            assert!(
                report
                    .diagnostics
                    .iter()
                    .all(|diagnostic| diagnostic.severity == Severity::Warning)
            );
            assert!(
                report
                    .diagnostics
                    .iter()
                    .all(|diagnostic| diagnostic.line == 5 && diagnostic.column > 1)
            );
        }
        if !expected.is_empty() {
            assert!(diagnostic_report(plugin, arguments, true, Compatibility::Corrected).has_errors());
        }
    }
}

const IGNORED: &str = "ARGUMENT_IGNORED";
const INVALID: &str = "ARGUMENT_INVALID";
const UNKNOWN: &str = "ARGUMENT_UNKNOWN_KEY";

#[test]
fn silent_upstream_repairs_are_reported() {
    check(
        "resource-strategy-fit",
        &[
            (
                "{resourceStrategyFitWeight: 3, resources: {cpu: {type: MostAllocated}}}",
                &[],
            ),
            (
                "{resourceStrategyFitWeight: -1}",
                &[(IGNORED, ".resourceStrategyFitWeight")],
            ),
            (
                "{resourceStrategyFitWeight: 2.5}",
                &[(IGNORED, ".resourceStrategyFitWeight")],
            ),
            (
                "{resourceStrategyFitWeight: null}",
                &[(IGNORED, ".resourceStrategyFitWeight")],
            ),
            (
                "{ResourceStrategyFitWeight: 3}",
                &[(UNKNOWN, ".ResourceStrategyFitWeight")],
            ),
            (
                "{resources: {cpu: {type: mostallocated}}}",
                &[(INVALID, ".resources.cpu")],
            ),
            ("{resources: {cpu: {weight: 2}}}", &[(INVALID, ".resources.cpu")]),
            (
                "{resources: {cpu: {type: MostAllocated, weight: 0}}}",
                &[(IGNORED, ".resources.cpu.weight")],
            ),
            (
                "{resources: {cpu: {type: MostAllocated, wait: 2}}}",
                &[(UNKNOWN, ".resources.cpu.wait")],
            ),
            (
                "{resources: {cpu: {type: MostAllocated}, 'gpu-[a-z]+': {type: MostAllocated}}}",
                &[(IGNORED, ".resources[\"gpu-[a-z]+\"]")],
            ),
            (
                "{resources: {cpu: {type: MostAllocated}, 'nvidia.com/gpu-[1-9]*': {type: MostAllocated}}}",
                &[(IGNORED, ".resources[\"nvidia.com/gpu-[1-9]*\"]")],
            ),
            (
                "{resources: {cpu: {type: MostAllocated}, 'vendor.*/gpu': {type: MostAllocated}}}",
                &[(INVALID, ".resources[\"vendor.*/gpu\"]")],
            ),
            (
                "{resources: {'*': {type: MostAllocated}}}",
                &[(IGNORED, ".resources"), (INVALID, ".resources[\"*\"]")],
            ),
        ],
    );
}

#[test]
fn arguments_that_disable_sra_or_proportional_are_reported() {
    check(
        "resource-strategy-fit",
        &[
            ("{sra: {enable: true, weight: 1, resources: a.b/c}}", &[]),
            ("{sra: {enable: true, resources: a.b/c}}", &[(IGNORED, ".sra")]),
            ("{sra: {weight: 1, resources: a.b/c}}", &[(IGNORED, ".sra")]),
            ("{sra: {enable: true, weight: 1}}", &[(IGNORED, ".sra")]),
            (
                "{sra: {enable: true, weight: 1, resources: 'a.b/c,a.b/c'}}",
                &[(IGNORED, ".sra")],
            ),
            (
                "{sra: {enable: true, weight: 1, resources: a.b/*}}",
                &[(IGNORED, ".sra")],
            ),
            (
                "{sra: {enable: true, weight: 1, resources: a.b/c, resourceWeight: {a.b/d: 1}}}",
                &[(IGNORED, ".sra")],
            ),
            (
                "{sra: {enable: true, weight: 1, resources: a.b/c, resourceWeight: {a.b/c: -1}}}",
                &[(IGNORED, ".sra")],
            ),
            ("{proportional: {enable: true, resources: a.b/c}}", &[]),
            ("{proportional: {resources: a.b/c}}", &[(IGNORED, ".proportional")]),
            (
                "{proportional: {enable: true, resources: pods}}",
                &[(IGNORED, ".proportional")],
            ),
            (
                "{proportional: {enable: true, resources: cpu}}",
                &[(IGNORED, ".proportional")],
            ),
            (
                "{proportional: {enable: true, resources: a.b/c, resourceProportion: {a.b/c.gpu: 2}}}",
                &[(IGNORED, ".proportional")],
            ),
            (
                "{proportional: {enable: true, resources: a.b/c, resourceProportion: {a.b/c.cpu: -2}}}",
                &[(IGNORED, ".proportional")],
            ),
            (
                "{proportional: {enable: true, resources: a.b/c, resourceProportion: {a.b/c.memory: .nan}}}",
                &[(IGNORED, ".proportional")],
            ),
        ],
    );
}

#[test]
fn ignored_binpack_arguments_are_reported() {
    check(
        "binpack",
        &[
            (
                "{binpack.weight: 2, binpack.cpu: 0, binpack.resources: a.b/c, binpack.resources.a.b/c: 3}",
                &[],
            ),
            ("{binpack.weight: 2.0}", &[(IGNORED, "[\"binpack.weight\"]")]),
            ("{binpack.weight: -2}", &[(IGNORED, "[\"binpack.weight\"]")]),
            ("{binpack.weight: 9223372036854775807}", &[(IGNORED, "")]),
            ("{binpack.cpu: -2}", &[(IGNORED, "[\"binpack.cpu\"]")]),
            ("{binpack.resources: [a.b/c]}", &[(IGNORED, "[\"binpack.resources\"]")]),
            ("{binpack.resources: cpu}", &[(IGNORED, "[\"binpack.resources\"]")]),
            ("{binpack.resources: gpu}", &[(IGNORED, "[\"binpack.resources\"]")]),
            (
                "{binpack.resources.a.b/c: 3}",
                &[(UNKNOWN, "[\"binpack.resources.a.b/c\"]")],
            ),
            ("{binpack.wait: 3}", &[(UNKNOWN, "[\"binpack.wait\"]")]),
        ],
    );
}

#[test]
fn wrong_types_are_all_reported_at_once() {
    let arguments =
        "{resourceStrategyFitWeight: ten, sra: {enable: false, resources: 5}, proportional: {enable: 'yes'}}";
    let report = diagnostic_report("resource-strategy-fit", arguments, false, Compatibility::Corrected);
    let problems: Vec<(&str, u32, u32)> = report
        .errors()
        .map(|problem| (&*problem.path, problem.line, problem.column))
        .collect();
    let path = |path: &'static str| format!("tiers[0].plugins[0].arguments.{path}");
    let expected = [
        (path("resourceStrategyFitWeight"), 44),
        (path("sra.resources"), 81),
        (path("proportional.enable"), 108),
    ];
    let expected: Vec<(&str, u32, u32)> = expected
        .iter()
        .map(|(path, column)| (path.as_str(), 5, *column))
        .collect();
    assert_eq!(problems, expected);
}

#[test]
fn old_keys_are_accepted_with_a_warning() {
    for (arguments, codes) in [
        (
            "{sra.policy: retention, sra.resources: a.b/c}",
            ["ARGUMENT_LEGACY"].as_slice(),
        ),
        ("{sra.policy: retain, sra.resources: a.b/c}", &[IGNORED, IGNORED]),
        ("{sra.resources: a.b/c, sra.retention.weight: 2}", &[IGNORED, IGNORED]),
        (
            "{sra.policy: retention, sra.resources: a.b/c, sra.proportional.a.b/c.cpu: 2}",
            &["ARGUMENT_LEGACY", IGNORED],
        ),
    ] {
        let report = diagnostic_report("resource-strategy-fit", arguments, false, Compatibility::Corrected);
        let found: Vec<&str> = report
            .diagnostics
            .iter()
            .map(|diagnostic| diagnostic.code.name())
            .collect();
        assert_eq!(found, codes, "{arguments}: {:?}", report.diagnostics);
    }
    let report = diagnostic_report(
        "resource-strategy-fit",
        "{sra.policy: retention}",
        false,
        Compatibility::UPSTREAM,
    );
    assert_eq!(report.diagnostics[0].code.name(), UNKNOWN);
}
