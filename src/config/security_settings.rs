//! Settings of TLS, identities, the Unix socket and the audit log.

use super::PlainText;
use super::setting::{Setting, SettingKind};
use super::values::{
    assign, client_auth, file_bytes, file_count, file_mode, milliseconds, path, path_text, set_socket_owner,
    socket_owner_text,
};

/// Settings of who may connect, and of what is recorded of it.
pub(super) static SECURITY_SETTINGS: &[Setting] = &[
    Setting {
        name: "grpc_socket_mode",
        value_name: "MODE",
        help: "Mode of the Unix socket, octal: connecting takes the permission to write; with 0666 the permissions of its directory decide",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.grpc_socket_access.mode, file_mode(value)),
            |config| format!("0{:o}", config.grpc_socket_access.mode),
        ),
    },
    Setting {
        name: "grpc_socket_owner",
        value_name: "USER:GROUP",
        help: "Owner of the Unix socket by number, as 1000:2000, 1000 or :2000; empty: the process",
        kind: SettingKind::Single(
            |config, value| set_socket_owner(&mut config.grpc_socket_access, value),
            |config| socket_owner_text(&config.grpc_socket_access),
        ),
    },
    Setting {
        name: "tls_certificate",
        value_name: "FILE",
        help: "Certificate of the server, with those between it and its authority (PEM), for the gRPC services, probes and metrics; empty: no TLS",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.tls_certificate, Ok(path(value))),
            |config| path_text(config.tls_certificate.as_ref()),
        ),
    },
    Setting {
        name: "tls_key",
        value_name: "FILE",
        help: "Private key of that certificate (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.tls_key, Ok(path(value))),
            |config| path_text(config.tls_key.as_ref()),
        ),
    },
    Setting {
        name: "tls_client_ca",
        value_name: "FILE",
        help: "Authorities whose certificates callers show (PEM); empty: callers are asked for none",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.tls_client_ca, Ok(path(value))),
            |config| path_text(config.tls_client_ca.as_ref()),
        ),
    },
    Setting {
        name: "tls_client_auth",
        value_name: "NAME",
        help: "Whether callers of the gRPC services show a certificate of `tls_client_ca`: `required` or `optional`; of probes and metrics it is optional",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.tls_client_auth, client_auth(value)),
            |config| config.tls_client_auth.name().to_owned(),
        ),
    },
    Setting {
        name: "identities_file",
        value_name: "FILE",
        help: "File of identities with their roles (docs/tasks/roles.md); empty: every client that can connect has all roles",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.identities_file, Ok(path(value))),
            |config| path_text(config.identities_file.as_ref()),
        ),
    },
    Setting {
        name: "tls_poll_ms",
        value_name: "MS",
        help: "Period of the check for changed files of TLS and of identities; 0: never",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.tls_poll, milliseconds(value)),
            |config| config.tls_poll.as_millis().to_string(),
        ),
    },
    Setting {
        name: "insecure",
        value_name: "WHAT",
        help: "Plain text on addresses that other machines reach: `false`, `http` (probes and metrics) or `true` (everything); with TLS, connections with and without it are served then",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.insecure, PlainText::from_name(value)),
            |config| config.insecure.name().to_owned(),
        ),
    },
    Setting {
        name: "audit_log",
        value_name: "FILE",
        help: "Audit log: changes of policies, releases, forgotten sources and rejected calls, each with its caller, as JSON lines; empty: none",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.audit_log, Ok(path(value))),
            |config| path_text(config.audit_log.as_ref()),
        ),
    },
    Setting {
        name: "audit_log_bytes",
        value_name: "BYTES",
        help: "Size at which another file of the audit log begins",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.audit_log_bytes, file_bytes(value)),
            |config| config.audit_log_bytes.to_string(),
        ),
    },
    Setting {
        name: "audit_log_files",
        value_name: "COUNT",
        help: "Full files of the audit log that are kept",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.audit_log_files, file_count(value)),
            |config| config.audit_log_files.to_string(),
        ),
    },
    Setting {
        name: "otlp_ca",
        value_name: "FILE",
        help: "Authority that vouches for a collector with https:// (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.otlp_ca, Ok(path(value))),
            |config| path_text(config.otlp_ca.as_ref()),
        ),
    },
    Setting {
        name: "otlp_certificate",
        value_name: "FILE",
        help: "Certificate that the collector is shown (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.otlp_certificate, Ok(path(value))),
            |config| path_text(config.otlp_certificate.as_ref()),
        ),
    },
    Setting {
        name: "otlp_key",
        value_name: "FILE",
        help: "Private key of that certificate (PEM)",
        kind: SettingKind::Single(
            |config, value| assign(&mut config.otlp_key, Ok(path(value))),
            |config| path_text(config.otlp_key.as_ref()),
        ),
    },
];
