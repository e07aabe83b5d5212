//! First inputs of the targets: small valid ones, from which the fuzzer goes on.

use std::collections::BTreeMap;

use prost::Message;
use pumice::fuzz_entries::frame;
use pumice::server::pb;
use pumice_state::store::fuzz_entries::store_bytes;

use crate::choices::noise;
use crate::messages::{CHANGES, DECISIONS, KUBE_VERBS, VOLCANO_VERBS};
use crate::support::records::{delta, full_sync, job, node, queue, task, task_on_node};
use crate::targets;

/// Input of a target, with the name of its file.
#[derive(Clone, Debug)]
pub struct SeedInput {
    /// Name of the target.
    pub target: &'static str,
    /// Name of the file.
    pub name: String,
    /// Bytes of the input.
    pub bytes: Vec<u8>,
}

/// Records with two nodes, a tree of queues, and jobs.
pub fn cluster() -> pb::Cluster {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut big = node("n1", &[("cpu", "16"), ("memory", "64Gi"), ("nvidia.com/gpu", "4")]);
    big.labels = BTreeMap::from([
        text("nvidia.com/gpu.product", "A"),
        text("nvidia.com/gpu.count", "4"),
        text("nvidia.com/gpu.memory", "40960"),
        text("zone", "a"),
    ]);
    let small = node("n2", &[("cpu", "1500m"), ("memory", "2Gi")]);
    let mut quota = queue("q");
    quota.annotations = BTreeMap::from([
        text("volcano.sh/card.quota", "{\"A\": 4}"),
        text("volcano.sh/hierarchy", "root/a"),
        text("volcano.sh/hierarchy-weights", "1/2"),
    ]);
    let running = task("default/r", "default/j", &[("cpu", "1"), ("memory", "1Gi")]);
    pb::Cluster {
        nodes: vec![big, small],
        queues: vec![quota],
        jobs: vec![job("default/j", "q")],
        tasks: vec![
            task_on_node(running, pb::TaskStatus::Running, "n1"),
            task("default/t", "default/j", &[("cpu", "2"), ("nvidia.com/gpu", "1")]),
        ],
        ..pb::Cluster::default()
    }
}

fn inline() -> pb::EvaluationRef {
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(pb::InlineSnapshot {
            cluster: Some(cluster()),
            ..pb::InlineSnapshot::default()
        }))),
        ..pb::EvaluationRef::default()
    }
}

/// Message behind the number of its method.
fn call(methods: &[&str], name: &str, message: &impl Message) -> Vec<u8> {
    let number = methods
        .iter()
        .position(|path| path.ends_with(&format!("/{name}")))
        .unwrap();
    [&[u8::try_from(number).unwrap()], &message.encode_to_vec()[..]].concat()
}

fn asked() -> pb::Task {
    task(
        "",
        "default/j",
        &[("cpu", "500m"), ("memory", "1Gi"), ("nvidia.com/gpu", "1")],
    )
}

#[expect(clippy::too_many_lines, reason = "one request after the other, each short")]
fn decisions() -> Vec<(&'static str, Vec<u8>)> {
    let ask = |name: &'static str, message: Vec<u8>| (name, message);
    let set = || pb::NameSet { names: Vec::new() };
    let score = |against: Option<pb::EvaluationRef>| pb::ScoreRequest {
        against,
        tasks: vec![asked()],
        with_filter: true,
        with_parts: true,
        limit: Some(2),
        ..pb::ScoreRequest::default()
    };
    let group = pb::TaskGroup {
        task: Some(asked()),
        count: Some(2),
        ..pb::TaskGroup::default()
    };
    let victims = pb::VictimGroup {
        preemptor: Some(task("default/t", "default/j", &[("cpu", "1")])),
        candidates: vec![task("default/r", "default/j", &[("cpu", "1")])],
        ..pb::VictimGroup::default()
    };
    let subject = pb::AdmitSubject {
        subject: Some(pb::admit_subject::Subject::Job(job("default/j", "q"))),
        attempt: 0,
    };
    let filter = pb::FilterRequest {
        tasks: vec![asked()],
        resource_fit: pb::ResourceFit::FutureIdle.into(),
        ..pb::FilterRequest::default()
    };
    let order = pb::OrderRequest {
        queues: Some(set()),
        jobs: Some(set()),
        tasks: Some(set()),
        with_tree: true,
        ..pb::OrderRequest::default()
    };
    let place = pb::PlaceRequest {
        against: Some(inline()),
        groups: vec![group],
        ..pb::PlaceRequest::default()
    };
    let admit = pb::AdmitRequest {
        items: vec![subject],
        ..pb::AdmitRequest::default()
    };
    let select = pb::SelectVictimsRequest {
        kind: pb::VictimKind::Preempt.into(),
        groups: vec![victims],
        ..pb::SelectVictimsRequest::default()
    };
    vec![
        ask("filter", call(&DECISIONS, "Filter", &filter)),
        ask("score", call(&DECISIONS, "Score", &score(None))),
        ask("score-inline", call(&DECISIONS, "Score", &score(Some(inline())))),
        ask("place-inline", call(&DECISIONS, "Place", &place)),
        ask("admit", call(&DECISIONS, "Admit", &admit)),
        ask("order", call(&DECISIONS, "Order", &order)),
        ask("victims", call(&DECISIONS, "SelectVictims", &select)),
        ask("nodes", call(&DECISIONS, "ListNodes", &pb::ListNodesRequest::default())),
        ask(
            "policy",
            call(&DECISIONS, "GetPolicy", &pb::GetPolicyRequest::default()),
        ),
    ]
}

fn changes() -> Vec<(&'static str, Vec<u8>)> {
    let apply = |batch: pb::Batch| call(&CHANGES, "Apply", &pb::ApplyRequest { batch: Some(batch) });
    let sync = pb::SyncRequest {
        batch: Some(full_sync("other", 1, cluster())),
    };
    let reload = pb::ReloadPolicyRequest {
        document: "actions: allocate\ntiers: [{plugins: [{name: drf}]}]\n".to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    let removed = pb::Batch {
        remove: Some(pb::Removals {
            tasks: vec!["default/t".to_owned()],
            ..pb::Removals::default()
        }),
        ..delta("kube", 2, pb::Cluster::default())
    };
    let open = pb::OpenSessionRequest {
        batch: Some(delta("kube", 3, cluster())),
        ..pb::OpenSessionRequest::default()
    };
    let commit = pb::CommitSessionRequest {
        session: Some(pb::SessionRef {
            id: "s".to_owned(),
            ..pb::SessionRef::default()
        }),
        jobs: vec!["default/j".to_owned()],
    };
    let forget = pb::ForgetSourceRequest {
        source: "other".to_owned(),
        ..pb::ForgetSourceRequest::default()
    };
    vec![
        ("full-sync", apply(full_sync("kube", 1, cluster()))),
        ("delta", apply(removed)),
        ("sync", call(&CHANGES, "Sync", &sync)),
        ("reload", call(&CHANGES, "ReloadPolicy", &reload)),
        ("open", call(&CHANGES, "OpenSession", &open)),
        ("commit", call(&CHANGES, "CommitSession", &commit)),
        ("forget", call(&CHANGES, "ForgetSource", &forget)),
    ]
}

const POD: &str = r#"{"metadata":{"name":"t","namespace":"default","uid":"u1","annotations":{"scheduling.k8s.io/group-name":"j"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"schedulerName":"volcano"},"status":{"phase":"Pending"}}"#;

fn kube_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let verb = |name: &str| u8::try_from(KUBE_VERBS.iter().position(|own| *own == name).unwrap()).unwrap();
    let body = |name: &str, text: String| [&[verb(name)], text.as_bytes()].concat();
    let whole = r#"{"metadata":{},"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}"#;
    let names = r#"["n1","n2"]"#;
    vec![
        (
            "filter-names",
            body("filter", format!(r#"{{"Pod":{POD},"Nodes":null,"NodeNames":{names}}}"#)),
        ),
        (
            "filter-nodes",
            body("filter", format!(r#"{{"Pod":{POD},"Nodes":{whole},"NodeNames":null}}"#)),
        ),
        (
            "prioritize",
            body("prioritize", format!(r#"{{"Pod":{POD},"NodeNames":{names}}}"#)),
        ),
        (
            "preempt",
            body(
                "preempt",
                format!(
                    r#"{{"Pod":{POD},"NodeNameToMetaVictims":{{"n1":{{"Pods":[{{"UID":"u9"}}],"NumPDBViolations":0}}}}}}"#
                ),
            ),
        ),
        (
            "preempt-whole",
            body(
                "preempt",
                format!(r#"{{"Pod":{POD},"NodeNameToVictims":{{"n1":{{"Pods":[{POD}],"NumPDBViolations":1}}}}}}"#),
            ),
        ),
    ]
}

fn volcano_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let task =
        format!(r#"{{"UID":"u1","Job":"default/j","Name":"t","Namespace":"default","NodeName":"n1","Pod":{POD}}}"#);
    let bodies = [
        ("onSessionOpen", "{}".to_owned()),
        ("onSessionClose", "{}".to_owned()),
        ("predicate", format!(r#"{{"task":{task},"node":{{"Name":"n1"}}}}"#)),
        (
            "prioritize",
            format!(r#"{{"task":{task},"nodes":[{{"Name":"n1"}},{{"Name":"n2"}}]}}"#),
        ),
        ("preemptable", format!(r#"{{"evictor":{task},"evictees":[{task}]}}"#)),
        ("reclaimable", format!(r#"{{"evictor":{task},"evictees":null}}"#)),
        ("jobEnqueueable", r#"{"job":{"UID":"default/j","Name":"j"}}"#.to_owned()),
        ("jobEnqueued", r#"{"job":{"UID":"default/j"}}"#.to_owned()),
        ("queueOverused", r#"{"queue":{"UID":"q","Name":"q"}}"#.to_owned()),
        ("jobReady", r#"{"job":{"UID":"default/j"}}"#.to_owned()),
        ("allocateFunc", format!(r#"{{"task":{task}}}"#)),
        ("deallocateFunc", format!(r#"{{"task":{task}}}"#)),
    ];
    let numbered = |(name, text): (&'static str, String)| {
        let verb = VOLCANO_VERBS.iter().position(|own| *own == name).unwrap();
        (name, [&[u8::try_from(verb).unwrap()], text.as_bytes()].concat())
    };
    bodies.map(numbered).to_vec()
}

const QUANTITIES: &[&str] = &[
    "100m",
    "1.5Gi\n2e3",
    "-0.5",
    "9223372036854775807\n1",
    "9223372036854775808n\n-9223372036854775808",
    "+1E",
    "7Ei\n8Ei",
];

const TEXTS: &[(&str, &[&str])] = &[
    ("quantity", QUANTITIES),
    ("quantity-plain", QUANTITIES),
    (
        "quantity-go",
        &[
            "100m",
            "1.5Gi",
            "2e3",
            "-0.5",
            "9223372036854775807",
            "-9223372036854775808n",
            "+1E",
            "8Ei",
            "1e-9",
        ],
    ),
    (
        "identities",
        &[
            "identities:\n- name: ci\n  certificates: [spiffe://x/y]\n  roles: [sync]\n  sources: ['kube*']\nlocal: {roles: [read]}\nopen: [probes]\n",
        ],
    ),
    ("tokens", &["0123456789abcdef0123456789abcdef\n\nfedcba9876543210\n"]),
    (
        "annotations",
        &[
            "\u{0}{\"A\": 4, \"B|C\": 2}\n\u{3}root/a/b\n\u{4}1/2/3\n\u{5}1h30m",
            "\u{2}{\"A\": 1}\n\u{1}A|B\n\u{9}cpu=MostAllocated",
        ],
    ),
    (
        "cards",
        &[
            "nvidia.com/gpu.product=A-SXM4\nnvidia.com/gpu.count=4\nnvidia.com/gpu.memory=40960\nnvidia.com/gpu 4000\nnvidia.com/gpu.shared 8000\nnvidia.com/mig-1g.5gb 2000",
        ],
    ),
    (
        "store-export",
        &[
            "{\"pumice-store\":{\"format\":1,\"version\":\"0.1.0\",\"records\":1}}\n{\"reservation\":{\"job\":\"ns/a\",\"uid\":\"\",\"attempt\":1,\"queue\":\"q\",\"amounts\":[{\"name\":\"cpu\",\"amount\":\"1500\"}],\"content\":\"07070707070707070707070707070707\",\"source\":\"s\",\"confirmed_ms\":1,\"lease_ms\":2,\"policy\":\"default\"}}\n{\"end\":{\"records\":1,\"sha256\":\"00\"}}\n",
            "{\"ended-reservation\":{\"job\":\"ns/b\",\"uid\":\"u\",\"attempt\":1,\"job_ended\":true}}\n{\"placement\":{\"task\":\"ns/t\",\"uid\":\"\",\"node\":\"n\",\"card\":\"\",\"devices\":5,\"session\":\"s\",\"source\":\"k\"}}\n{\"policy-file\":{\"name\":\"default\",\"fingerprint\":\"a\"}}\n",
        ],
    ),
    (
        "settings",
        &[
            "\u{0}127.0.0.1:0",
            "\u{9}info,pumice=debug",
            "\u{20}64MiB",
            "\u{5}1500ms",
        ],
    ),
];

/// Small documents with the parts of YAML that policies hardly use.
const YAML: &[&str] = &[
    "a: &x {b: 1, c: [2, 3]}\nd: {<<: *x, b: 4}\n",
    "text: |2-\n    two\n     more\nfolded: >+\n  a\n  b\n\n   c\n\nend: x\n",
    "%YAML 1.1\n%TAG ! tag:example.org,2002:\n--- !!map\na: !!str 1\nb: !!int '0x1F'\nc: !!float 5\n",
    "n: [010, 0b101, 1_000, -0, .5, 1e3, .inf, .NaN, 08, 1:30, 0x, 2001-12-14t21:59:43.10-05:00]\n",
    "w: [y, N, yes, on, OFF, true, ~, null, '', \"\", yEs]\n",
    "s: \"\\x41\\u00e9\\U0001F600\\n\\t\\e\\_ \\\n  next\"\nt: 'it''s'\n",
    "- - a\n  -\n   - b\n- {a, b: , ? e : f}\n",
];

/// Policies of the examples, as `(name, text)`.
fn examples() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let yaml = paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    yaml.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        // Comments are most of the bytes, and say nothing to a reader.
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        (
            name,
            lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes(),
        )
    })
    .collect()
}

/// All first inputs but those that take files of their own: certificates and dumps are in `corpus` already.
pub fn all() -> Vec<SeedInput> {
    let mut seeds = Vec::new();
    let mut add = |target: &'static str, name: &str, bytes: Vec<u8>| {
        seeds.push(SeedInput {
            target,
            name: name.to_owned(),
            bytes,
        });
    };
    for (target, texts) in TEXTS {
        for (number, text) in texts.iter().enumerate() {
            add(target, &format!("text-{number}"), text.as_bytes().to_vec());
        }
    }
    for (number, text) in YAML.iter().enumerate() {
        add("yaml", &format!("feature-{number}"), text.as_bytes().to_vec());
        add("yaml-go", &format!("feature-{number}"), text.as_bytes().to_vec());
    }
    for (name, text) in examples() {
        for choice in 0..2 {
            add("policy", &format!("{name}-{choice}"), [&[choice], &text[..]].concat());
        }
        add("yaml-go", &name, text);
    }
    for (name, bytes) in decisions() {
        add("decisions", name, bytes.clone());
        let framed = [&[bytes[0], 4], &b"100m"[..], &frame(&bytes[1..])].concat();
        add("frames", name, framed);
    }
    for (name, bytes) in changes() {
        add("state-calls", name, bytes);
    }
    for (name, bytes) in kube_bodies() {
        add("kube-extender", name, bytes);
    }
    for (name, bytes) in volcano_bodies() {
        add("volcano-extender", name, bytes);
    }
    add("object", "pod", [&[1], POD.as_bytes()].concat());
    add(
        "dump",
        "pods",
        format!(r#"{{"apiVersion":"v1","kind":"List","items":[{POD}]}}"#).into_bytes(),
    );
    for (number, choice) in [1, 2, 3].into_iter().enumerate() {
        add(
            "store-file",
            &format!("altered-{number}"),
            [&[choice], &noise(3, 12)[..]].concat(),
        );
    }
    let store = store_bytes(&[]).unwrap();
    add("store-rows", "header", [&[0], &store[..600.min(store.len())]].concat());
    for target in targets().filter(|target| target.differential && !target.needs_go && target.name != "quantity-plain")
    {
        for number in 0..6_u64 {
            let length = target.most_bytes >> (number % 3);
            add(target.name, &format!("noise-{number}"), noise(number + 1, length));
        }
    }
    seeds
}
