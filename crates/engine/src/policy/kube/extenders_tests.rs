//! Resources that extenders manage and the scheduler ignores.

use crate::policy::{CompileOptions, Policy, compile};

/// Document with these extenders and arguments of a profile.
fn document(extenders: &str, configs: &str) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{{schedulerName: s, pluginConfig: \
         [{configs}]}}]\nextenders: [{extenders}]\n"
    )
}

fn ignored(policy: &Policy) -> Vec<&'static str> {
    let names = ["example.com/a", "example.com/b", "example.com/c", "cpu"];
    names.into_iter().filter(|name| policy.ignores_resource(name)).collect()
}

fn ignored_by(document: &str) -> Vec<&'static str> {
    let compiled = compile(document, &CompileOptions::default()).unwrap();
    // What is printed means the same.
    let again = compile(&compiled.effective_document, &CompileOptions::default()).unwrap();
    assert_eq!(ignored(&compiled.policy), ignored(&again.policy));
    ignored(&compiled.policy)
}

const OF_TWO: &str = "{urlPrefix: a, filterVerb: filter, managedResources: [{name: example.com/a, ignoredByScheduler: true}]}, {urlPrefix: \
                      b, weight: 1, managedResources: [{name: example.com/b, ignoredByScheduler: false}, {name: cpu, ignoredByScheduler: \
                      true}]}";
const OWN: &str = "{name: NodeResourcesFit, args: {ignoredResources: [example.com/c]}}";

#[test]
fn the_scheduler_ignores_what_an_extender_says() {
    assert_eq!(ignored_by(&document(OF_TWO, "")), ["example.com/a"]);
    assert_eq!(ignored_by(&document("", OWN)), ["example.com/c"]);
    // The reference forgets those of the profile.
    assert_eq!(ignored_by(&document(OF_TWO, OWN)), ["example.com/a", "example.com/c"]);
    let upstream = format!("{}pumice: {{compatibility: upstream}}\n", document(OF_TWO, OWN));
    assert_eq!(ignored_by(&upstream), ["example.com/a"]);
}

#[test]
fn extenders_are_read_as_strictly_as_by_the_scheduler() {
    let errors = |extenders: &str| {
        let report = compile(&document(extenders, ""), &CompileOptions::default()).unwrap_err();
        let errors = report
            .errors()
            .map(|error| format!("{}: {}", error.path, error.message));
        errors.collect::<Vec<_>>().join("; ")
    };
    let managed = |resources: &str| errors(&format!("{{urlPrefix: a, managedResources: [{resources}]}}"));
    for (found, wanted) in [
        (
            managed("{name: example.com/a, ignoredByScheduler: 1}"),
            "expected a bool",
        ),
        (managed("{ignoredByScheduler: true}"), "needs a `name`"),
        (
            managed("{name: example.com/a}, {name: example.com/a}"),
            "two extenders manage `example.com/a`",
        ),
        (managed("{name: a b, ignoredByScheduler: true}"), "`a b`"),
        (
            managed("{name: example.com/a, ignoreByScheduler: true}"),
            "did you mean `ignoredByScheduler`?",
        ),
        (errors("{urlPrefix: a, filterVerbs: x}"), "did you mean `filterVerb`?"),
        (errors("{urlPrefix: a, weight: x}"), "expected an integer"),
    ] {
        assert!(found.contains(wanted), "{found} where {wanted}");
    }
}
