//! Actions of a document: their order, and their arguments.

use std::sync::Arc;

use super::{CompileOptions, DecisionKind, Policy, compile};

/// Diagnostics as `code path: message`, and the policy.
fn checked(document: &str) -> (Vec<String>, Arc<Policy>) {
    let compiled = compile(document, &CompileOptions::default()).unwrap();
    let lines = compiled.report.diagnostics.iter();
    let lines = lines.map(|found| format!("{} {}: {}", found.code, found.path, found.message));
    (lines.collect(), compiled.policy)
}

/// Document with these actions and arguments.
fn document(actions: &str, rest: &str) -> String {
    format!("actions: \"{actions}\"\ntiers: [{{plugins: [{{name: gang}}]}}]\n{rest}")
}

fn diagnostics(actions: &str, rest: &str) -> Vec<String> {
    checked(&document(actions, rest)).0
}

#[test]
fn an_action_that_evicts_before_allocate_gets_a_warning() {
    for actions in [
        "enqueue, allocate, backfill, reclaim, preempt",
        "allocate, reclaim",
        "enqueue, allocate, backfill",
        "backfill",
    ] {
        assert_eq!(diagnostics(actions, ""), Vec::<String>::new(), "{actions}");
    }
    for (actions, warnings) in [
        ("enqueue, reclaim, allocate, preempt", 1),
        ("preempt, reclaim, allocate", 2),
        ("gangreclaim, allocate", 1),
        ("enqueue, preempt", 1),
    ] {
        for compatibility in ["corrected", "upstream"] {
            let found = diagnostics(actions, &format!("pumice: {{compatibility: {compatibility}}}\n"));
            assert_eq!(found.len(), warnings, "{actions} {compatibility}");
            assert!(found.iter().all(|line| line.starts_with("ACTION_ORDER actions: ")));
        }
    }
    assert!(diagnostics("enqueue, reclaim, allocate", "")[0].contains("put `allocate` before `reclaim`"));
    assert!(diagnostics("enqueue, preempt", "")[0].contains("`preempt` runs without `allocate`"));
}

#[test]
fn every_argument_of_an_action_is_evaluated_or_named() {
    let of = |action: &str, arguments: &str| {
        let own = format!("configurations:\n- name: {action}\n  arguments: {{{arguments}}}\n");
        diagnostics("allocate, backfill, preempt, reclaim", &own)
    };
    for action in ["allocate", "backfill", "preempt", "reclaim"] {
        assert_eq!(of(action, "predicateErrorCacheEnable: false"), Vec::<String>::new());
    }
    assert_eq!(
        of("preempt", "enableTopologyAwarePreemption: false"),
        Vec::<String>::new()
    );
    for (action, arguments, wanted) in [
        ("preempt", "enableTopologyAwarePreemption: true", "is not evaluated"),
        ("preempt", "enableTopologyAwarePreemption: \"true\"", "is not evaluated"),
        (
            "preempt",
            "enableTopologyAwarePreemption: sometimes",
            "is a bool, found a string",
        ),
        (
            "preempt",
            "minCandidateNodesPercentage: 10",
            "only with `enableTopologyAwarePreemption: true`",
        ),
        (
            "allocate",
            "predicateErrorCacheEnabled: true",
            "did you mean `predicateErrorCacheEnable`?",
        ),
        (
            "reclaim",
            "enableTopologyAwarePreemption: true",
            "reads no argument `enableTopologyAwarePreemption`",
        ),
        ("enqueue", "anything: 1", "reads no argument `anything`"),
        ("gangpreempt", "maxDomains: 1", "is not simulated"),
        ("nonsense", "enableEverything: true", "(`enableEverything`)"),
        ("alocate", "x: 1", "did you mean `allocate`?"),
    ] {
        let found = of(action, arguments);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "{found:?} where {wanted}"
        );
    }
    let both = of(
        "preempt",
        "enableTopologyAwarePreemption: true, minCandidateNodesAbsolute: 1",
    );
    assert!(both.len() == 2 && both[1].contains("is not evaluated, as"), "{both:?}");
    let twice = "configurations: [{name: allocate}, {name: allocate, arguments: {x: 1}}]\n";
    let found = diagnostics("allocate", twice);
    assert!(
        found.len() == 1 && found[0].contains("the first entry counts"),
        "{found:?}"
    );
}

#[test]
fn what_is_not_evaluated_is_named_beside_results_of_cycles() {
    let effects = |actions: &str, rest: &str, kind: DecisionKind| -> Vec<String> {
        let (_, policy) = checked(&document(actions, rest));
        let unserved = policy.unserved_plugins().iter().filter(|own| own.takes_part_in(kind));
        unserved.map(|own| own.name.to_string()).collect()
    };
    let on = "configurations: [{name: preempt, arguments: {enableTopologyAwarePreemption: true}}]\n";
    let named = effects("allocate, preempt", on, DecisionKind::Session);
    assert_eq!(named, ["preempt.enableTopologyAwarePreemption"]);
    for (actions, rest, kind) in [
        ("allocate, preempt", on, DecisionKind::Victims),
        ("allocate", on, DecisionKind::Session),
        ("allocate, preempt", "", DecisionKind::Session),
    ] {
        assert_eq!(effects(actions, rest, kind), Vec::<String>::new(), "{actions}");
    }
}

#[test]
fn the_first_arguments_of_an_action_decide_about_its_cache_of_errors() {
    let uses = |configurations: &str| {
        let (_, policy) = checked(&document("allocate, preempt", configurations));
        ["allocate", "preempt"].map(|action| policy.spec().uses_error_cache(action))
    };
    assert_eq!(uses(""), [true, true]);
    let twice = "configurations: [{name: allocate, arguments: {predicateErrorCacheEnable: false}}, {name: allocate, arguments: \
                 {predicateErrorCacheEnable: true}}]\n";
    assert_eq!(uses(twice), [false, true]);
}
