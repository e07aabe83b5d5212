//! Every key and every named value of the documents below is misspelt, one at a time: each time a diagnostic suggests
//! the right one.

use super::{CompileOptions, compile};

const VOLCANO: &str = "\
actions: enqueue, allocate
tiers:
- plugins:
  - name: drf
    enableHierarchy: true
    enabledVictim: false
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.cpu: 5
      binpack.memory: 1
      binpack.resources: -
      binpack.resources.example.com/foo: 2
- plugins:
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources:
        cpu: {type: MostAllocated, weight: 1}
        memory: {type: LeastAllocated, weight: 1}
      sra:
        enable: true
        resources: -
        weight: 10
        resourceWeight: {example.com/foo: 1}
      proportional:
        enable: true
        resources: -
        resourceProportion: {example.com/foo.cpu: 4, example.com/foo.memory: 8}
  - name: capacity-card
    arguments:
      cardUnlimitedCpuMemory: true
      cardHierarchy: true
      mixedCards: true
      nodeOrderByQuota: true
      cardVictims: false
      overCommitFactor: 2
      allowServiceTypeByPodOwnerReferences: false
      nodeOrderWeight: 2
  - name: predicates
configurations:
- name: allocate
  arguments: {}
metrics:
  type: prometheus
  address: 1
  interval: 30
  tls.insecureSkipVerify: 1
pumice:
  compatibility: corrected
";

const KUBERNETES: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: -
  plugins:
    multiPoint:
      enabled:
      - name: NodeResourcesFitPlus
        weight: 2
      - name: ScarceResourceAvoidance
      disabled: []
  pluginConfig:
  - name: NodeResourcesFitPlus
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitPlusArgs
      resources:
        cpu: {type: MostAllocated, weight: 1}
        memory: {type: LeastAllocated, weight: 1}
  - name: ScarceResourceAvoidance
    args:
      resources: []
pumice:
  compatibility: upstream
";

/// Words of a document that start with a letter, with the position of each.
fn words(text: &str) -> Vec<(usize, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
    let mut words = Vec::new();
    let mut begin = None;
    for (at, c) in text.char_indices() {
        match begin {
            None if c.is_ascii_alphabetic() => begin = Some(at),
            Some(first) if !is_part(c) => {
                words.push((first, text.get(first..at).unwrap()));
                begin = None;
            }
            _ => {}
        }
    }
    words
}

/// A letter left out, one too many, two swapped, and the other case with a dash.
fn misspellings(word: &str) -> Vec<String> {
    let middle = word.len() / 2;
    let (head, tail) = word.split_at(middle);
    let mut swapped: Vec<char> = word.chars().collect();
    swapped.swap(middle - 1, middle);
    let all = [
        format!("{head}{}", tail.chars().skip(1).collect::<String>()),
        format!("{head}x{tail}"),
        swapped.into_iter().collect(),
        format!("{}-", word.to_uppercase()),
    ];
    all.into_iter().filter(|other| other != word).collect()
}

fn assert_every_misspelling_is_noticed(document: &str) {
    let document = document.replace(": -\n", ": example.com/foo\n");
    for (at, word) in words(&document) {
        // Names of the operator's own: a list of resources, and the name of a scheduler.
        let (head, tail) = document.split_at(at);
        if head.ends_with("resources: ") || head.ends_with("schedulerName: ") {
            continue;
        }
        let (_, tail) = tail.split_at(word.len());
        for misspelt in misspellings(word) {
            let text = format!("{head}{misspelt}{tail}");
            let report = match compile(&text, &CompileOptions::default()) {
                Ok(compiled) => compiled.report,
                Err(report) => report,
            };
            let said = report.diagnostics.iter().any(|diagnostic| {
                ["did you mean", "expected", "Volcano spells it"]
                    .iter()
                    .any(|hint| diagnostic.message.contains(&format!("{hint} `{word}`")))
            });
            assert!(said, "`{misspelt}` for `{word}`: {:#?}", report.diagnostics);
        }
    }
}

#[test]
fn every_misspelt_key_and_value_of_a_volcano_document_is_noticed() {
    let report = compile(
        &VOLCANO.replace(": -\n", ": example.com/foo\n"),
        &CompileOptions::default(),
    );
    let report = report.unwrap().report;
    assert_eq!(report.diagnostics, [], "the document itself is faultless");
    assert_every_misspelling_is_noticed(VOLCANO);
}

#[test]
fn every_misspelt_key_and_value_of_a_kubernetes_document_is_noticed() {
    assert_every_misspelling_is_noticed(KUBERNETES);
}

#[test]
fn a_switch_of_a_drf_document_is_found_wherever_it_is_written() {
    let messages = |plugin: &str| -> String {
        let text = format!("actions: allocate\ntiers:\n- plugins:\n  - {plugin}\n");
        let report = compile(&text, &CompileOptions::default()).unwrap().report;
        report.warnings().map(ToString::to_string).collect()
    };
    let beside = messages("{name: drf, hierarchyEnable: true}");
    assert!(beside.contains("did you mean `enableHierarchy`?"), "{beside}");
    for key in ["hierarchyEnable", "enableHierarchy", "enableHierachy"] {
        let below = messages(&format!("{{name: drf, arguments: {{{key}: true}}}}"));
        assert!(
            below.contains("did you mean `enableHierarchy`? It is a switch: write it beside `arguments`"),
            "{below}"
        );
    }
}

#[test]
fn a_document_in_another_wrapping_or_with_tabs_says_what_to_give() {
    let errors = |text: &str| -> String {
        let report = compile(text, &CompileOptions::default()).unwrap_err();
        report.errors().map(ToString::to_string).collect()
    };
    let values = errors("custom:\n  scheduler_config_override: |\n    actions: allocate\n");
    assert!(
        values.contains("give the text below `custom.scheduler_config_override`"),
        "{values}"
    );
    let tabs = errors("actions: allocate\ntiers:\n- plugins:\n\t- name: gang\n");
    assert!(tabs.contains("a tab cannot indent; write spaces"), "{tabs}");
}

#[test]
fn an_argument_with_one_part_too_many_names_the_argument() {
    let text = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n    arguments: {binpack.cpu.weight: 1, \
                binpack.resources: example.com/a, binpack.resources.example.com/a.weight: 2}\n";
    let report = compile(text, &CompileOptions::default()).unwrap().report;
    let messages: String = report.warnings().map(ToString::to_string).collect();
    for known in ["binpack.cpu", "binpack.resources.example.com/a"] {
        assert!(messages.contains(&format!("did you mean `{known}`?")), "{messages}");
    }
}
