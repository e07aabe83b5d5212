//! Schema of files of identities.

use pumice::access::Role;
use serde_json::{Value, json};

use super::{DRAFT, assert_is_current, closed_object, described};

fn texts(description: &str) -> Value {
    described(
        json!({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 1024}}),
        description,
    )
}

fn roles() -> Value {
    let names = Role::ALL.map(Role::name);
    json!({"type": "array", "minItems": 1, "items": {"enum": names}, "description": "Roles"})
}

#[test]
fn the_schema_of_identities_has_every_key() {
    let sources = || texts("Sources whose records may be sent: names, or begins of names that end in `*`");
    let text =
        |description: &str| json!({"type": "string", "minLength": 1, "maxLength": 1024, "description": description});
    let mut identity = closed_object(
        &json!({
            "name": text("Name of the identity"),
            "certificates": texts("DNS names and URIs of certificates that prove it"),
            "token_file": text("File with its tokens, one a line; a relative path begins at the folder of this file"),
            "service_accounts": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[-.a-z0-9]+/[-.a-z0-9]+$"},
                "description": "Service accounts of Kubernetes that it is, as namespace/name; with `token_review`",
            },
            "roles": roles(),
            "sources": sources(),
        }),
        &["name", "roles"],
    );
    identity["anyOf"] =
        json!([{"required": ["certificates"]}, {"required": ["token_file"]}, {"required": ["service_accounts"]}]);
    let bare = |description: &str| {
        described(
            closed_object(&json!({"roles": roles(), "sources": sources()}), &["roles"]),
            description,
        )
    };
    let mut schema = closed_object(
        &json!({
            "identities": {"type": "array", "maxItems": 10_000, "items": identity, "description": "Who may do what"},
            "local": bare("Callers without credentials on loopback and on the Unix socket"),
            "anonymous": bare("Other callers without credentials"),
            "token_review": described(
                closed_object(
                    &json!({"audiences": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 16,
                        "items": {"type": "string", "minLength": 1, "maxLength": 1024},
                        "description": "Names of this server that tokens are made for",
                    }}),
                    &["audiences"],
                ),
                "Tokens of service accounts, verified by the API server of the cluster",
            ),
            "open": {
                "type": "array",
                "items": {"enum": ["probes", "metrics"]},
                "description": "Pages that everybody may read",
            },
        }),
        &[],
    );
    schema["$schema"] = DRAFT.into();
    schema["title"] = "Identities of pumice serve".into();
    assert_is_current("identities", &schema);
}
