//! Tests of kube-scheduler's documents: enabled plugins, errors, and the printed form.

use crate::policy::{Compatibility, CompileOptions, CompiledPolicy, Diagnostic, ErrorCode, Policy, Severity, compile};

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
const SCARCE: &str = "pluginConfig: [{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpu]}}]";

fn with(compatibility: Compatibility, document: &str) -> Result<CompiledPolicy, Vec<Diagnostic>> {
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    compile(document, &options).map_err(|report| report.diagnostics)
}

fn read(document: &str) -> Result<CompiledPolicy, Vec<Diagnostic>> {
    with(Compatibility::Corrected, document)
}

/// Document of one profile.
fn profile(body: &str) -> String {
    format!("{HEAD}profiles:\n- {body}\n  {SCARCE}\n")
}

fn scorers(policy: &Policy) -> Vec<(String, i32)> {
    let hooks = policy.hooks().scorers.iter();
    hooks.map(|hook| (hook.name.to_string(), hook.weight)).collect()
}

fn scarce(body: &str) -> Option<i32> {
    let compiled = read(&profile(body)).unwrap();
    let scorers = scorers(&compiled.policy);
    scorers
        .into_iter()
        .find(|(name, _)| name == "ScarceResourceAvoidance")
        .map(|(_, weight)| weight)
}

#[test]
fn plugins_are_enabled_as_kube_scheduler_enables_them() {
    let on = "{name: ScarceResourceAvoidance, weight: 5}";
    for (plugins, weight) in [
        (format!("multiPoint: {{enabled: [{on}]}}"), Some(5)),
        (
            "multiPoint: {enabled: [{name: ScarceResourceAvoidance}]}".to_owned(),
            Some(1),
        ),
        (
            "multiPoint: {enabled: [{name: ScarceResourceAvoidance, weight: 0}]}".to_owned(),
            Some(1),
        ),
        (
            format!("multiPoint: {{enabled: [{on}]}}, score: {{disabled: [{{name: ScarceResourceAvoidance}}]}}"),
            None,
        ),
        (
            format!("multiPoint: {{enabled: [{on}]}}, score: {{disabled: [{{name: '*'}}]}}"),
            None,
        ),
        (
            format!(
                "multiPoint: {{enabled: [{on}]}}, \
                 score: {{disabled: [{{name: '*'}}], enabled: [{{name: ScarceResourceAvoidance, weight: 7}}]}}"
            ),
            Some(7),
        ),
        (
            format!("multiPoint: {{disabled: [{{name: '*'}}], enabled: [{on}]}}"),
            Some(5),
        ),
        (
            format!("preScore: {{enabled: [{on}]}}, score: {{enabled: [{on}]}}"),
            Some(5),
        ),
        (format!("preScore: {{enabled: [{on}]}}"), None),
        ("multiPoint: {enabled: [{name: NodeResourcesFit}]}".to_owned(), None),
    ] {
        assert_eq!(scarce(&format!("plugins: {{{plugins}}}")), weight, "{plugins}");
    }
}

#[test]
fn a_query_names_one_of_several_profiles() {
    let plugin = |name| format!("plugins: {{multiPoint: {{disabled: [{{name: '*'}}], enabled: [{{name: {name}}}]}}}}");
    let document = format!(
        "{HEAD}profiles:\n- {{schedulerName: a, {}}}\n- {{schedulerName: b, {}}}\n",
        plugin("ScarceResourceAvoidance"),
        plugin("NodeResourcesFitPlus"),
    );
    let policy = read(&document).unwrap().policy;
    let own = |name: &str| scorers(policy.profile(name).unwrap().unwrap());
    assert_eq!(own("a"), [("ScarceResourceAvoidance".to_owned(), 1)]);
    assert_eq!(own("b"), [("NodeResourcesFitPlus".to_owned(), 1)]);
    let message = |name: &str| policy.profile(name).unwrap_err().to_string();
    assert_eq!(message(""), "the policy has several profiles; name one of: a, b");
    assert_eq!(message("c"), "the policy has no profile `c`; it has: a, b");
    let one = read(&profile(&plugin("ScarceResourceAvoidance"))).unwrap().policy;
    assert!(one.profile("").unwrap().is_none(), "itself");
    assert!(one.profile("default-scheduler").unwrap().is_some());
    let volcano = read("actions: allocate\n").unwrap().policy;
    assert_eq!(
        volcano.profile("a").unwrap_err().to_string(),
        "the policy has no profiles, and so none named `a`"
    );
}

#[test]
fn the_pumice_section_may_be_in_either_document() {
    let body = profile("schedulerName: x");
    for document in [
        format!("{body}pumice: {{compatibility: upstream}}\n"),
        format!("{body}---\npumice: {{compatibility: upstream}}\n"),
        format!("{body}...\n---\npumice:\n  compatibility: upstream\n"),
    ] {
        let compiled = read(&document).unwrap();
        assert_eq!(
            compiled.policy.compatibility().name(),
            "kube-scheduler-1.36",
            "{document}"
        );
    }
    let both = format!("{body}pumice: {{}}\n---\npumice: {{}}\n");
    assert_eq!(read(&both).unwrap_err()[0].code, ErrorCode::PumiceSection);
    let odd = read(&format!("{body}---\nactions: allocate\n")).unwrap();
    let odd = odd
        .report
        .diagnostics
        .iter()
        .find(|diagnostic| diagnostic.code == ErrorCode::KeyUnknown);
    assert_eq!(odd.unwrap().line, 7);
}

#[test]
fn all_errors_are_reported_with_their_locations() {
    let document = format!(
        "{HEAD}parallelism: many\nprofile: []\nprofiles:\n- schedulerName: x\n  plugins:\n    multiPoint:\n      enabled:\n      \
         - name: NodeResourcesFitPlus\n        weigth: 2\n      - name: NodeResourcesFitPlus\n    filter:\n      enabled:\n      \
         - name: ScarceResourceAvoidance\n  pluginConfig:\n  - name: NodeResourcesFitPlus\n    args:\n      resources:\n        \
         cpu: {{type: MostAllocated, Weight: 1}}\n        memory: {{type: 5, weight: 1.5}}\n"
    );
    let diagnostics = read(&document).unwrap_err();
    let problems: Vec<(u32, &str)> = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .map(|diagnostic| (diagnostic.line, diagnostic.path.as_str()))
        .collect();
    let args = "profiles[0].pluginConfig[0].args.resources";
    let mut expected = vec![
        (3, "parallelism".to_owned()),
        (4, "profile".to_owned()),
        (11, "profiles[0].plugins.multiPoint.enabled[0].weigth".to_owned()),
        (12, "profiles[0].plugins.multiPoint.enabled[1].name".to_owned()),
        (15, "profiles[0].plugins.filter.enabled[0].name".to_owned()),
        (20, format!("{args}[\"cpu\"].Weight")),
        (21, format!("{args}[\"memory\"].type")),
    ];
    expected.sort();
    let mut found: Vec<(u32, String)> = problems
        .into_iter()
        .map(|(line, path)| (line, path.to_owned()))
        .collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn invalid_documents_are_rejected() {
    let two = |a: &str, b: &str| format!("{HEAD}profiles: [{{schedulerName: {a}}}, {{schedulerName: {b}}}]\n");
    for (document, wanted) in [
        (two("x", "x"), ErrorCode::Profile),
        (two("x", "''"), ErrorCode::Profile),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n".to_owned(),
            ErrorCode::TypeInvalid,
        ),
        (
            format!("{HEAD}kind: KubeSchedulerConfiguration\n"),
            ErrorCode::KeyDuplicate,
        ),
        (format!("{HEAD}profiles: {{}}\n"), ErrorCode::TypeInvalid),
        (format!("{HEAD}profiles: [\n"), ErrorCode::YamlSyntax),
        (format!("{HEAD}pumice: {{strict: true}}\n"), ErrorCode::PumiceSection),
        (
            profile("plugins: {score: {enabled: [{name: ScarceResourceAvoidance}]}}"),
            ErrorCode::Profile,
        ),
        (
            format!("{HEAD}profiles: [{{pluginConfig: [{{name: X}}, {{name: X}}]}}]\n"),
            ErrorCode::PluginDuplicate,
        ),
    ] {
        let diagnostics = read(&document).map(drop).unwrap_err();
        assert!(
            diagnostics.iter().any(|diagnostic| diagnostic.code == wanted),
            "{document}\n{diagnostics:?}"
        );
    }
    // Kube-scheduler accepts it and rejects every pod later.
    let late = profile("plugins: {score: {enabled: [{name: ScarceResourceAvoidance}]}}");
    let compiled = with(Compatibility::UPSTREAM, &late).unwrap();
    assert!(compiled.report.diagnostics[0].message.contains("but not at `preScore`"));
}

#[test]
fn whole_floats_are_integers_in_yaml_and_not_in_json() {
    let document = |weight: &str| {
        format!(
            "{{\"apiVersion\": \"kubescheduler.config.k8s.io/v1\", \"kind\": \"KubeSchedulerConfiguration\", \"profiles\": \
             [{{\"pluginConfig\": [{{\"name\": \"NodeResourcesFitPlus\", \"args\": {{\"resources\": \
             {{\"cpu\": {{\"type\": \"MostAllocated\", \"weight\": {weight}}}}}}}}}]}}]}}"
        )
    };
    assert!(read(&document("2")).is_ok());
    assert!(read(&document("2.0")).is_err());
    assert!(read(&document("1e2")).is_err());
    // With such a number the text is no JSON any more.
    for weight in ["2.0", "1e2", "null"] {
        assert!(read(&format!("---\n{}", document(weight))).is_ok(), "{weight}");
    }
    for weight in ["1.5", "\"2\"", "true", "9223372036854775808", "1e19"] {
        assert!(read(&format!("---\n{}", document(weight))).is_err(), "{weight}");
    }
}

#[test]
fn unserved_and_unknown_plugins_are_reported() {
    let document = profile(
        "plugins: {multiPoint: {enabled: [{name: NodeResourceFitPlus}, {name: Coscheduling}, {name: binpack}]}}",
    );
    let compiled = read(&document).unwrap();
    let strangers: Vec<(&str, bool, Option<&str>)> = compiled
        .report
        .unserved_plugins
        .iter()
        .map(|own| (own.name.as_str(), own.known_upstream, own.did_you_mean.as_deref()))
        .collect();
    assert_eq!(
        strangers,
        [
            ("NodeResourceFitPlus", false, Some("NodeResourcesFitPlus")),
            ("Coscheduling", true, None),
            ("binpack", false, None),
        ]
    );
}

#[test]
fn the_effective_document_reads_back_to_itself() {
    let document = format!(
        "{HEAD}parallelism: 16\nprofiles:\n- plugins: {{multiPoint: {{enabled: [{{name: NodeResourcesFitPlus, weight: 3}}]}}}}\n  \
         pluginConfig:\n  - name: NodeResourcesFitPlus\n    args: {{resources: {{cpu: {{type: MostAllocated, weight: 2.0}}}}}}\n  \
         - name: Coscheduling\n    args: {{x: 1}}\n"
    );
    let compiled = read(&document).unwrap();
    let effective = &compiled.effective_document;
    for part in [
        "schedulerName: default-scheduler",
        "weight: 2\n",
        "compatibility: corrected",
        "parallelism: 16",
    ] {
        assert!(effective.contains(part), "{part} in\n{effective}");
    }
    let again = read(effective).unwrap();
    assert_eq!(again.effective_document, *effective);
    assert_eq!(again.loaded_document, *effective);
    assert_eq!(scorers(&again.policy), scorers(&compiled.policy));
    let loaded = read(&compiled.loaded_document).unwrap();
    assert_eq!(loaded.loaded_document, compiled.loaded_document);
}

#[test]
fn oversized_documents_are_rejected_quickly_and_documents_without_effect_get_a_warning() {
    let many = "{name: X}, ".repeat(2_000);
    let diagnostics = read(&profile(&format!("plugins: {{multiPoint: {{enabled: [{many}]}}}}"))).unwrap_err();
    assert_eq!(diagnostics[0].code, ErrorCode::YamlLimit);
    let unknown: Vec<String> = (0..20_000).map(|n| format!("parallelismm{n}: 1\n")).collect();
    let unknown = unknown.concat();
    assert!(read(&format!("{HEAD}{unknown}")).is_err());
    let none = format!("{HEAD}profiles: [{{plugins: {{multiPoint: {{disabled: [{{name: '*'}}]}}}}}}]\n");
    let idle = read(&none).unwrap();
    assert_eq!(idle.report.diagnostics[0].code, ErrorCode::Profile);
}

/// Names of the filters, and the scorers with their weights, of the only profile.
fn hooks(plugins: &str) -> (Vec<String>, Vec<(String, i32)>) {
    let policy = read(&format!("{HEAD}profiles: [{{{plugins}}}]\n")).unwrap().policy;
    let filters = policy.hooks().filters.iter();
    let filters = filters.map(|hook| hook.name.to_string()).collect();
    (filters, scorers(&policy))
}

#[test]
fn default_plugins_are_in_force_unless_disabled() {
    let all = [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
    ];
    let weights = |own: &[(&str, i32)]| -> Vec<(String, i32)> {
        own.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
    };
    let (filters, scores) = hooks("");
    assert_eq!(filters, all);
    let defaults = [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ];
    assert_eq!(scores, weights(&defaults));
    let (filters, scores) = hooks(
        "plugins: {filter: {disabled: [{name: NodePorts}]}, score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, \
         weight: 4}]}}",
    );
    assert_eq!(filters, [&all[..3], &all[4..]].concat());
    assert_eq!(scores, weights(&[("ImageLocality", 4)]));
    let (filters, scores) = hooks("plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity}]}}");
    assert_eq!(
        (filters, scores),
        (vec!["NodeAffinity".to_owned()], weights(&[("NodeAffinity", 1)]))
    );
    let (_, scores) =
        hooks("plugins: {multiPoint: {enabled: [{name: NodeAffinity, weight: 9}], disabled: [{name: ImageLocality}]}}");
    let mut changed = defaults[..6].to_vec();
    changed[1].1 = 9;
    assert_eq!(scores, weights(&changed));
}

#[test]
fn a_filter_needs_its_preparation() {
    let late = |name: &str| {
        let plugins = format!("{{multiPoint: {{disabled: [{{name: '*'}}]}}, filter: {{enabled: [{{name: {name}}}]}}}}");
        read(&format!("{HEAD}profiles: [{{plugins: {plugins}}}]\n")).map(drop)
    };
    assert_eq!(late("InterPodAffinity").unwrap_err()[0].code, ErrorCode::Profile);
    late("NodeAffinity").unwrap();
    late("TaintToleration").unwrap();
}

#[test]
fn every_argument_of_default_plugins_is_served() {
    let named = |plugins: &str| -> Vec<String> {
        let policy = read(&format!("{HEAD}profiles: [{{{plugins}}}]\n")).unwrap().policy;
        policy
            .unserved_plugins()
            .iter()
            .map(|own| own.name.to_string())
            .collect()
    };
    assert_eq!(named(""), ["DefaultPreemption"]);
    let own = "pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}, \
               {name: NodeResourcesFit, args: {ignoredResources: [example.com/a]}}]";
    assert_eq!(named(own), ["DefaultPreemption"]);
    assert!(named("plugins: {multiPoint: {disabled: [{name: '*'}]}}").is_empty());
}

/// Arguments of a plugin, and the code of their error.
const INVALID_ARGUMENTS: &[(&str, &str, ErrorCode)] = &[
    (
        "InterPodAffinity",
        "{hardPodAffinityWeight: 101}",
        ErrorCode::ArgumentRange,
    ),
    (
        "InterPodAffinity",
        "{hardPodAffinityWeigth: 1}",
        ErrorCode::ArgumentUnknownKey,
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
             [{key: a, operator: Gt, values: [x]}]}]}}}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{preference: {}}]}}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {nodeAffinity: {}}}",
        ErrorCode::ArgumentUnknownKey,
    ),
    (
        "NodeResourcesFit",
        "{ignoredResourceGroups: [example.com/a]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeResourcesFit",
        "{ignoredResources: ['a b']}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}",
        ErrorCode::ArgumentRange,
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {}}]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, \
             {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "PodTopologySpread",
        "{defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "PodTopologySpread",
        "{defaultingType: Some}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeResourcesBalancedAllocation",
        "{resources: [{name: cpu, weight: 2}]}",
        ErrorCode::ArgumentRange,
    ),
    (
        "NodeResourcesBalancedAllocation",
        "{resources: [{name: cpu}, {name: cpu}]}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: Best}}",
        ErrorCode::ArgumentStrategy,
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: RequestedToCapacityRatio}}",
        ErrorCode::ArgumentInvalid,
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 1}, \
             {utilization: 5, score: 2}]}}}",
        ErrorCode::ArgumentInvalid,
    ),
];

#[test]
fn arguments_of_default_plugins_are_validated_as_kube_scheduler_validates_them() {
    let read_arguments = |name: &str, args: &str| {
        let document = format!("{HEAD}profiles: [{{pluginConfig: [{{name: {name}, args: {args}}}]}}]\n");
        read(&document).map(drop)
    };
    for (name, args, wanted) in INVALID_ARGUMENTS {
        let found = read_arguments(name, args).unwrap_err();
        let errors: Vec<ErrorCode> = found
            .iter()
            .filter(|own| own.severity == Severity::Error)
            .map(|own| own.code)
            .collect();
        assert_eq!(errors, [*wanted], "{name} {args}");
    }
    read_arguments("InterPodAffinity", "{hardPodAffinityWeight: 100}").unwrap();
    read_arguments("NodeAffinity", "{addedAffinity: {}}").unwrap();
    read_arguments("NodeResourcesFit", "{ignoredResourceGroups: [example.com]}").unwrap();
    let list = "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, \
                {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]}";
    read_arguments("PodTopologySpread", list).unwrap();
}

#[test]
fn what_came_with_a_release_is_refused_by_those_before_it() {
    let documents = [
        profile("plugins: {podGroupPostFilter: {enabled: [{name: DynamicResources}]}}"),
        profile("plugins: {multiPoint: {enabled: [{name: DeferredPodScheduling}]}}"),
    ];
    for plugin in ["TopologyPlacementGenerator", "PodGroupPodsCount"] {
        let points = format!(
            "multiPoint: {{enabled: [{{name: {plugin}}}]}}, placementGenerate: {{disabled: [{{name: NodeName}}]}}, \
             placementScore: {{disabled: [{{name: '*'}}]}}"
        );
        let document = profile(&format!("plugins: {{{points}}}"));
        with(Compatibility::from_name("kube-scheduler-1.36").unwrap(), &document)
            .unwrap_or_else(|found| panic!("{found:?}"));
    }
    for document in &documents {
        for taken in ["corrected", "kube-scheduler-1.37"] {
            let compatibility = Compatibility::from_name(taken).unwrap();
            let compiled = with(compatibility, document).unwrap_or_else(|found| panic!("{taken}: {found:?}"));
            assert_eq!(compiled.policy.compatibility(), compatibility);
            assert!(
                !compiled.report.unserved_plugins.is_empty(),
                "it is said that nobody serves them"
            );
        }
        for refused in ["upstream", "kube-scheduler-1.36"] {
            let found = with(Compatibility::from_name(refused).unwrap(), document).unwrap_err();
            let message = &found[0].message;
            assert!(message.starts_with("kube-scheduler-1.36 has no "), "{message}");
        }
        let found = with(Compatibility::from_name("volcano-1.15.1").unwrap(), document).unwrap_err();
        assert!(
            found
                .iter()
                .any(|own| own.message.contains("no release of kube-scheduler")),
            "{found:?}"
        );
    }
}
