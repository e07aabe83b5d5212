//! Requests that name plugins, switches of the policy, and what a result leaves out.

use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::ledger::{ask, confirm};
use crate::support::records::{amounts, full_sync, hypothetical_task, job, node, nodes, queue, session_ref, task};

fn server(document: &str, cluster: pb::Cluster) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    reload(&server, document);
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    server
}

fn reload(server: &EmbeddedServer, document: &str) {
    let request = pb::ReloadPolicyRequest {
        document: document.to_owned(),
        ..pb::ReloadPolicyRequest::default()
    };
    server.wire.reload_policy(request).unwrap();
}

fn tier(plugins: &str) -> String {
    format!("{{actions: \"enqueue, allocate\", tiers: [{{plugins: [{plugins}]}}]}}")
}

fn names(plugins: &[&str]) -> Vec<String> {
    plugins.iter().map(|name| (*name).to_owned()).collect()
}

fn left_out(named: &[pb::NotEvaluated]) -> Vec<&str> {
    named.iter().map(|own| own.name.as_str()).collect()
}

#[test]
fn a_session_judges_by_the_state_that_only_a_filter_reads() {
    let grouped = |name: &str, group: &str| pb::Node {
        labels: [("volcano.sh/nodegroup-name".to_owned(), group.to_owned())].into(),
        ..node(name, &[("cpu", "16"), ("memory", "64Gi")])
    };
    let parent = pb::Queue {
        affinity: Some(Box::new(pb::QueueAffinity {
            node_group_affinity: Some(pb::NodeGroupLists {
                required: names(&["a"]),
                ..pb::NodeGroupLists::default()
            }),
            ..pb::QueueAffinity::default()
        })),
        parent: "root".to_owned(),
        ..queue("parent")
    };
    let child = pb::Queue {
        parent: "parent".to_owned(),
        ..queue("child")
    };
    let cluster = pb::Cluster {
        nodes: vec![grouped("a1", "a"), grouped("b1", "b")],
        queues: vec![queue("root"), parent, child],
        jobs: vec![job("ns/j", "child")],
        tasks: vec![task("ns/t", "ns/j", &[("cpu", "1")])],
        ..pb::Cluster::default()
    };
    let server = server(
        &tier("{name: binpack}, {name: nodegroup, enableHierarchy: true}"),
        cluster,
    );
    let opened = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    for plugins in [&[][..], &["nodegroup"]] {
        let fit = |against| {
            let request = pb::FilterRequest {
                against,
                tasks: vec![pb::Task {
                    name: "ns/t".to_owned(),
                    ..pb::Task::default()
                }],
                plugins: names(plugins),
                ..pb::FilterRequest::default()
            };
            let items = server.wire.filter(request).unwrap().result.unwrap().items;
            items[0].fit.clone().unwrap_or_default().names
        };
        assert_eq!(fit(None), ["a1"], "{plugins:?}");
        let session = session_ref(&opened.session, 0, Vec::new());
        assert_eq!(fit(Some(session)), ["a1"], "in a session: {plugins:?}");
    }
}

#[test]
fn no_switch_and_no_name_changes_what_the_filter_on_resources_ignores() {
    const OFF: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/foo]}}]
  plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}
";
    const ARGUMENTS: &str = "arguments: {ignoredResources: [example.com/foo]}";
    let cluster = nodes(vec![node("n", &[("cpu", "8"), ("memory", "32Gi"), ("pods", "9")])]);
    let on = tier(&format!("{{name: binpack}}, {{name: NodeResourcesFit, {ARGUMENTS}}}"));
    let off = tier(&format!(
        "{{name: binpack}}, {{name: NodeResourcesFit, enablePredicate: false, {ARGUMENTS}}}"
    ));
    for (document, asked) in [
        (&*on, &[][..]),
        (&on, &["NodeResourcesFit"]),
        (&on, &["binpack"]),
        (&off, &[]),
        (&off, &["NodeResourcesFit"]),
        (OFF, &[]),
    ] {
        let server = server(document, cluster.clone());
        let fits = |resource: &str| {
            let request = pb::FilterRequest {
                tasks: vec![hypothetical_task(&[("cpu", "1"), (resource, "1")])],
                plugins: names(asked),
                ..pb::FilterRequest::default()
            };
            server.wire.filter(request).unwrap().result.unwrap().items[0].fit_count == 1
        };
        assert!(fits("example.com/foo"), "{asked:?} of {document}");
        assert!(!fits("example.com/other"), "{asked:?} of {document}");
    }
}

#[test]
fn a_score_does_not_evaluate_what_its_filter_would() {
    let cluster = nodes(vec![node("n", &[("cpu", "8"), ("memory", "32Gi"), ("pods", "9")])]);
    let constraints = pb::PodConstraints {
        node_selector: [("zone".to_owned(), "y".to_owned())].into(),
        ..pb::PodConstraints::default()
    };
    let selecting = pb::Task {
        requests: Some(amounts(&[("cpu", "1")])),
        constraints: Some(Box::new(constraints)),
        ..pb::Task::default()
    };
    for (switches, expected) in [
        ("", &[][..]),
        (", enableNodeOrder: false", &[]),
        (", enablePredicate: false", &["nodeSelector"]),
        (", enablePredicate: false, enableNodeOrder: false", &["nodeSelector"]),
    ] {
        let document = tier(&format!("{{name: binpack}}, {{name: NodeAffinity{switches}}}"));
        let server = server(&document, cluster.clone());
        let request = pb::FilterRequest {
            tasks: vec![selecting.clone()],
            ..pb::FilterRequest::default()
        };
        let items = server.wire.filter(request).unwrap().result.unwrap().items;
        assert_eq!(left_out(&items[0].not_evaluated), expected, "{document}");
    }
}

#[test]
fn a_named_plugin_that_waits_for_labels_is_named() {
    let labelled = pb::Node {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        ..node("n", &[("cpu", "8")])
    };
    let server = server(&tier("{name: binpack}"), nodes(vec![labelled]));
    reload(&server, &tier("{name: binpack}, {name: nodeorder}"));
    for (asked, expected) in [
        (&[][..], &["nodeorder"][..]),
        (&["nodeorder"], &["nodeorder"]),
        (&["binpack"], &[]),
    ] {
        let request = pb::ScoreRequest {
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            plugins: names(asked),
            ..pb::ScoreRequest::default()
        };
        let metadata = server.wire.score(request).unwrap().metadata.unwrap();
        assert_eq!(left_out(&metadata.not_evaluated), expected, "{asked:?}");
    }
}

#[test]
fn each_mode_of_admit_names_the_same_plugins_that_miss_the_time() {
    let cluster = pb::Cluster {
        queues: vec![queue("q")],
        jobs: vec![job("ns/j", "q")],
        ..nodes(vec![node("n", &[("cpu", "8"), ("memory", "32Gi")])])
    };
    let document = "{name: sla, arguments: {sla-waiting-time: 1h}}, {name: capacity}, {name: gang}";
    let server = server(&tier(document), cluster);
    for mode in [pb::AdmitMode::Check, pb::AdmitMode::Confirm] {
        for (asked, expected) in [(&[][..], &["sla"][..]), (&["sla"], &["sla"]), (&["capacity"], &[])] {
            let stored = pb::Job {
                name: "ns/j".to_owned(),
                ..pb::Job::default()
            };
            let request = pb::AdmitRequest {
                mode: mode.into(),
                plugins: names(asked),
                ..confirm(vec![ask(stored, 0)])
            };
            let metadata = server.wire.admit(request).unwrap().metadata.unwrap();
            assert_eq!(left_out(&metadata.not_evaluated), expected, "{mode:?} of {asked:?}");
        }
    }
}

#[test]
fn victims_and_admission_by_a_named_plugin_are_judged_without_the_constraints_of_others() {
    let cluster = pb::Cluster {
        queues: vec![queue("q")],
        jobs: vec![job("ns/j", "q")],
        ..nodes(vec![node("n", &[("cpu", "8"), ("memory", "32Gi"), ("pods", "9")])])
    };
    let constraints = pb::PodConstraints {
        node_selector: [("zone".to_owned(), "y".to_owned())].into(),
        ..pb::PodConstraints::default()
    };
    let selecting = pb::Task {
        constraints: Some(Box::new(constraints)),
        ..task("ns/t", "ns/j", &[("cpu", "1")])
    };
    for switch in ["", ", enablePredicate: false"] {
        let document = tier(&format!("{{name: capacity}}, {{name: predicates{switch}}}"));
        let server = server(&document, cluster.clone());
        let victims = pb::SelectVictimsRequest {
            kind: pb::VictimKind::Reclaim.into(),
            groups: vec![pb::VictimGroup {
                preemptor: Some(selecting.clone()),
                node: "n".to_owned(),
                ..pb::VictimGroup::default()
            }],
            plugins: names(&["capacity"]),
            ..pb::SelectVictimsRequest::default()
        };
        let items = server.wire.select_victims(victims).unwrap().result.unwrap().items;
        assert_eq!(left_out(&items[0].not_evaluated), ["nodeSelector"], "{document}");
        let admission = pb::AdmitRequest {
            mode: pb::AdmitMode::Check.into(),
            items: vec![pb::AdmitSubject {
                subject: Some(pb::admit_subject::Subject::Task(selecting.clone())),
                attempt: 0,
            }],
            plugins: names(&["capacity"]),
            ..pb::AdmitRequest::default()
        };
        let items = server.wire.admit(admission).unwrap().result.unwrap().items;
        assert_eq!(left_out(&items[0].not_evaluated), ["nodeSelector"], "{document}");
    }
}
