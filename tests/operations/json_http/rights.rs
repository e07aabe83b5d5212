//! Roles, the audit log and certificates for calls as JSON.

use pumice::config::ServerConfig;

use super::{call_with, exchange};
use crate::support::{EmbeddedServer, TestDirectory, document, until};

const IDENTITIES: &str = "
identities:
- {name: reader, token_file: reader.token, roles: [read]}
- {name: operator, token_file: operator.token, roles: [admin]}
open: [probes]
";

#[test]
fn a_call_needs_its_role_and_the_audit_log_has_it() {
    let folder = TestDirectory::new();
    folder.file("reader.token", "reader-token-0123456789\n");
    folder.file("operator.token", "operator-token-0123456789\n");
    let audit = folder.path().join("audit.log");
    let config = ServerConfig {
        identities_file: Some(folder.file("identities.yaml", IDENTITIES)),
        audit_log: Some(audit.clone()),
        ..ServerConfig::on_free_ports()
    };
    let server = EmbeddedServer::with(config);
    let reload = serde_json::json!({ "name": "batch", "document": document("json") }).to_string();
    let ask = |path: &str, token: &str, body: &str| {
        let header = ("Authorization", token);
        call_with(server.http, path, &[header], body.as_bytes())
    };
    let (reader, operator) = ("Bearer reader-token-0123456789", "Bearer operator-token-0123456789");
    let reply = ask("StateService/ListNodes", "", "{}");
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (401, "unauthenticated"),
        "{}",
        reply.text()
    );
    assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
    // Whoever may not call learns nothing about the request.
    let reply = ask("PolicyService/ReloadPolicy", reader, "not JSON");
    assert_eq!((reply.status, reply.code().as_str()), (403, "permission_denied"));
    assert_eq!(reply.detail("google.rpc.ErrorInfo")["reason"], "ROLE_MISSING");
    assert_eq!(ask("StateService/ListNodes", reader, "{}").status, 200);
    assert_eq!(ask("PolicyService/ReloadPolicy", operator, &reload).status, 200);
    let known = ask("StateService/WhoAmI", reader, "{}").json();
    assert_eq!(
        (&known["identity"], &known["roles"]),
        (&"reader".into(), &serde_json::json!(["read"]))
    );
    assert_eq!(ask("StateService/WhoAmI", "", "{}").status, 200, "open to everybody");
    // A page of another site cannot know a token, and nobody else's token has roles.
    for (token, status) in [(reader, 200), ("Bearer t", 401), ("", 403)] {
        let headers = [("Host", "pumice.example"), ("Authorization", token)];
        let reply = call_with(server.http, "StateService/ListNodes", &headers, b"{}");
        assert_eq!(reply.status, status, "{token}: {}", reply.text());
    }
    let console = exchange(server.http, "GET /console/", &[("Host", "localhost")], b"");
    assert_eq!(console.status, 200, "its files have no data");
    until("the audit log has the calls", || {
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        let has = |words: [&str; 3]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        has(["refused", "\"reader\"", "/pumice.v1.PolicyService/ReloadPolicy"])
            && has(["refused", "\"anonymous\"", "/pumice.v1.StateService/ListNodes"])
            && has(["reload-policy", "\"operator\"", "done"])
    });
    let text = std::fs::read_to_string(&audit).unwrap();
    assert!(!text.contains("token-0123456789"), "{text}");
}
