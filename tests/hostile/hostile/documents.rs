//! Documents and messages made to hurt: refused, with little work, and the server serves on.

use std::fmt::Write as _;

use pumice::server::pb;
use tonic::Code;

use crate::support::EmbeddedServer;
use crate::support::records::{hypothetical_task, node};

/// `name`: document.
pub(super) fn documents() -> Vec<(&'static str, String)> {
    let head = "actions: allocate\n";
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        let _ = writeln!(bomb, "a{level}: &a{level} [{before}*a{}]", level - 1);
    }
    let mut merges = "m0: &m0 {k: v}\n".to_owned();
    for level in 1..60 {
        let _ = writeln!(
            merges,
            "m{level}: &m{level} {{<<: [*m{0}, *m{0}, *m{0}], k{level}: v}}",
            level - 1
        );
    }
    let tiers = |inner: &str| format!("{head}tiers:\n- plugins:\n  - name: binpack\n    arguments:\n      {inner}\n");
    vec![
        ("aliases that multiply", format!("{head}{bomb}tiers: *a39\n")),
        (
            "merges that multiply",
            format!("{head}{merges}tiers:\n- plugins: [*m59]\n"),
        ),
        (
            "lists in lists",
            format!("{head}tiers: {}{}\n", "[".repeat(50_000), "]".repeat(50_000)),
        ),
        (
            "lists that never close",
            format!("{head}tiers: {}\n", "[".repeat(200_000)),
        ),
        (
            "maps in maps",
            tiers(&format!("x: {}1{}", "{y: ".repeat(10_000), "}".repeat(10_000))),
        ),
        (
            "blocks in blocks",
            (0..2_000).fold(head.to_owned(), |text, depth| text + &" ".repeat(depth) + "a:\n"),
        ),
        ("dashes", format!("{head}tiers:\n{}x\n", "- ".repeat(100_000))),
        ("a megabyte", tiers(&format!("x: {}", "y".repeat(2 << 20)))),
        (
            "many documents' worth of keys",
            (0..200_000).fold(head.to_owned(), |text, key| text + &format!("k{key}: 1\n")),
        ),
        ("an alias of itself", format!("{head}tiers: &t\n- *t\n")),
        ("a key without an end", format!("{head}{}: 1\n", "k".repeat(900_000))),
        (
            "quotes without an end",
            format!("{head}tiers: \"{}", "\\n".repeat(400_000)),
        ),
        (
            "anchors",
            (0..60_000).fold(head.to_owned(), |text, key| text + &format!("k{key}: &a{key} {{}}\n")),
        ),
        ("nothing but tabs", "\t".repeat(500_000)),
        ("a null byte", "actions: \u{0}\n".to_owned()),
    ]
}

#[test]
fn hostile_documents_are_rejected_and_the_server_keeps_serving() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    for (what, document) in documents() {
        let reload = pb::ReloadPolicyRequest {
            document: document.clone(),
            dry_run: true,
            ..Default::default()
        };
        let status = wire.reload_policy(reload).map(|reply| reply.report).unwrap_err();
        let refused = [Code::InvalidArgument, Code::ResourceExhausted];
        assert!(refused.contains(&status.code()), "{what}: {status:?}");
        let inline = pb::InlineSnapshot {
            policy_document: document,
            cluster: Some(pb::Cluster::default()),
            ..Default::default()
        };
        let query = pb::ScoreRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
                ..pb::EvaluationRef::default()
            }),
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            ..Default::default()
        };
        assert!(
            refused.contains(&wire.score(query).unwrap_err().code()),
            "{what}, inline"
        );
    }
    assert!(
        wire.score(pb::ScoreRequest {
            tasks: vec![hypothetical_task(&[])],
            ..Default::default()
        })
        .is_ok()
    );
}

#[test]
fn hostile_quantities_and_names_are_problems_of_their_items() {
    let server = EmbeddedServer::start();
    let long = "9".repeat(100_000);
    let hurtful = [
        &*long,
        "1e99999999999",
        "1e-99999999999",
        "١",
        "0x10",
        "NaN",
        "1Ki1",
        "--1",
    ];
    let tasks: Vec<pb::Task> = hurtful.iter().map(|text| hypothetical_task(&[("cpu", text)])).collect();
    let reply = server
        .wire
        .filter(pb::FilterRequest {
            tasks,
            ..Default::default()
        })
        .unwrap();
    for (item, text) in reply.result.unwrap_or_default().items.iter().zip(hurtful) {
        let problem = item.problem.clone().unwrap_or_else(|| panic!("{text:.20} is taken"));
        assert_eq!(problem.code, 3, "{problem:?}");
        assert!(problem.field.ends_with("requests.items[cpu]"), "{problem:?}");
        assert!(problem.message.len() < 2_000, "a message is not a copy of the input");
    }
    let names = [String::new(), "n".repeat(1 << 20)];
    for name in names {
        let batch = crate::support::records::full_sync("s", 1, crate::support::records::nodes(vec![node(&name, &[])]));
        let refused = match server.wire.apply_batch(batch) {
            Ok(outcome) => !outcome.refused.is_empty(),
            Err(status) => status.code() == Code::InvalidArgument,
        };
        assert!(refused, "a node named {name:.10}");
    }
}
