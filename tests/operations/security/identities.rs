//! Files of identities: what is wrong in them is told with its place, and a change counts at once, also on open connections.

use std::path::Path;

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ConnectOptions};
use tonic::Code;

use super::authority::{ask, runtime};
use crate::support::process::err;
use crate::support::program::{LoggedProcess, command};
use crate::support::{TestDirectory, fetch, until};

const TOKEN: &str = "aaaabbbbccccddddeeee";
const NEXT_TOKEN: &str = "ffffgggghhhhiiiijjjj";

fn refused(folder: &TestDirectory, text: &str) -> String {
    let file = folder.file("identities.yaml", text);
    let output = command()
        .args([
            "serve",
            "--grpc-address",
            "127.0.0.1:0",
            "--http-address",
            "127.0.0.1:0",
            "--identities-file",
        ])
        .arg(file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    err(&output)
}

#[test]
fn what_is_wrong_is_reported_with_its_place() {
    let folder = TestDirectory::new();
    folder.file("short.token", "abc\n");
    folder.file("empty.token", "\n");
    folder.file("blank.token", "aaaa bbbb cccc dddd eeee\n");
    for (text, said) in [
        (
            "identitys: []\n",
            "1:1: there is no key `identitys` here; `identities` was meant?",
        ),
        ("identities: {}\n", "1:13: `identities` is a list, not a map"),
        (
            "identities:\n- {roles: [read], certificates: [a]}\n",
            "2:3: an identity has a `name`",
        ),
        ("identities:\n- {name: a, roles: [read]}\n", "nobody could be it"),
        ("identities:\n- {name: a, certificates: [a]}\n", "`a` has no `roles`"),
        (
            "identities:\n- {name: a, certificates: [a], roles: [reed]}\n",
            "`read` was meant?",
        ),
        (
            "identities:\n- {name: a, certificates: [a], roles: [sync]}\n",
            "no `sources`",
        ),
        (
            "identities:\n- {name: a, certificates: [a], roles: [read], sources: [s]}\n",
            "not the role sync",
        ),
        (
            "identities:\n- {name: a, certificates: [c], roles: [read]}\n- {name: b, certificates: [c], roles: [read]}\n",
            "`c` is a certificate of `a` and of `b`",
        ),
        (
            "identities:\n- {name: a, certificates: [c], roles: [read]}\n- {name: a, certificates: [d], roles: [read]}\n",
            "two identities have the name `a`",
        ),
        (
            "identities:\n- {name: a, token_file: absent, roles: [read]}\n",
            "absent: it cannot be read",
        ),
        (
            "identities:\n- {name: a, token_file: short.token, roles: [read]}\n",
            "short.token: 1:1: a token has 16",
        ),
        (
            "identities:\n- {name: a, token_file: empty.token, roles: [read]}\n",
            "empty.token: it has no token",
        ),
        (
            "identities:\n- {name: a, token_file: blank.token, roles: [read]}\n",
            "without blanks",
        ),
        ("open: [pages]\n", "`pages` is neither `probes` nor `metrics`"),
        ("local: {roles: []}\n", "`local` has no `roles`"),
        ("- a\n", "a file of identities is a map, not a list"),
    ] {
        let found = refused(&folder, text);
        assert!(found.contains(said), "{text}\n{found}");
        assert!(!found.contains("aaaa"), "{found}");
    }
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn with_token(program: &LoggedProcess, token: Option<&str>) -> ConnectOptions {
    ConnectOptions {
        token: token.map(str::to_owned),
        ..ConnectOptions::new(program.grpc.to_string())
    }
}

#[test]
fn a_change_counts_for_the_next_call_of_an_open_connection() {
    let folder = TestDirectory::new();
    let tokens = folder.file("t", &format!("{TOKEN}\n"));
    let file = folder.file(
        "identities.yaml",
        "identities:\n- {name: a, token_file: t, roles: [read]}\n",
    );
    let path = file.display().to_string();
    let program = LoggedProcess::serve(&["--identities-file", &path, "--tls-poll-ms", "20"]);
    let runtime = runtime();
    let (old, new) = (
        with_token(&program, Some(TOKEN)),
        with_token(&program, Some(NEXT_TOKEN)),
    );
    let mut connection = runtime.block_on(ClientConnection::open_with(&old)).unwrap();
    let mut listed = || {
        let request = pb::ListNodesRequest::default();
        runtime.block_on(connection.state.list_nodes(request)).map(drop)
    };
    listed().unwrap();
    assert!(runtime.block_on(ask(&new)).is_err());
    // An old and a new token hold together while clients change.
    write(&tokens, &format!("{TOKEN}\n{NEXT_TOKEN}\n"));
    until("the new token holds", || runtime.block_on(ask(&new)).is_ok());
    listed().unwrap();
    // A file that cannot be used changes nothing.
    write(&file, "identities: nonsense\n");
    until("the rejection is told", || {
        fetch(program.http, "/readyz?verbose").1.contains("is a list")
    });
    assert!(
        fetch(program.http, "/metrics")
            .1
            .contains("pumice_identities_rejected 1")
    );
    listed().unwrap();
    // Another role counts on the open connection, and so does the end of the token.
    write(
        &file,
        "identities:\n- {name: a, token_file: t, roles: [sync], sources: ['*']}\n",
    );
    until("the role is gone", || listed().is_err());
    assert_eq!(listed().unwrap_err().code(), Code::PermissionDenied);
    write(&tokens, &format!("{NEXT_TOKEN}\n"));
    until("the token is gone", || {
        listed().unwrap_err().code() == Code::Unauthenticated
    });
    runtime.block_on(ask(&new)).unwrap();
    assert!(
        fetch(program.http, "/metrics")
            .1
            .contains("pumice_identities_rejected 0")
    );
}

#[test]
fn pages_are_open_unless_the_file_closes_them() {
    let folder = TestDirectory::new();
    folder.file("t", &format!("{TOKEN}\n"));
    let entry = "identities:\n- {name: a, token_file: t, roles: [read]}\n";
    let file = folder.file("identities.yaml", entry);
    let path = file.display().to_string();
    let program = LoggedProcess::serve(&["--identities-file", &path, "--tls-poll-ms", "20"]);
    for page in ["/livez", "/readyz", "/metrics"] {
        assert!(fetch(program.http, page).0.starts_with("http/1.1 200"), "{page}");
    }
    // Extender protocols decide, so that they are never open.
    for verb in ["/kube-scheduler/filter", "/volcano/vc/predicate"] {
        assert!(fetch(program.http, verb).0.starts_with("http/1.1 401"), "{verb}");
    }
    write(&file, &format!("{entry}open: []\n"));
    until("they are closed", || {
        fetch(program.http, "/livez").0.starts_with("http/1.1 401")
    });
    assert!(fetch(program.http, "/metrics").0.starts_with("http/1.1 401"));
    write(&file, &format!("{entry}open: [metrics]\nlocal: {{roles: [decide]}}\n"));
    until("one is open", || {
        fetch(program.http, "/metrics").0.starts_with("http/1.1 200")
    });
    assert!(
        fetch(program.http, "/livez").0.starts_with("http/1.1 200"),
        "local callers have a role"
    );
    // It is the role; only the method is not one of the protocol.
    assert!(
        fetch(program.http, "/kube-scheduler/filter")
            .0
            .starts_with("http/1.1 405")
    );
}
