//! TLS and mTLS: who is let in, and what the command line needs for it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pumice_protocol::ConnectOptions;

use super::authority::{TestAuthority, ask, pumice, runtime};
use crate::support::process::{err, out};
use crate::support::program::{LoggedProcess, command};
use crate::support::{TestDirectory, until};

#[test]
fn only_a_certificate_of_the_authority_is_let_in() {
    let authority = TestAuthority::new(&["admin"]);
    let other = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let runtime = runtime();
    let asked = |options: &ConnectOptions| runtime.block_on(ask(options));
    let right = authority.options(program.grpc, Some("admin"));
    asked(&right).unwrap();

    let mut stranger = right.clone();
    stranger.tls.certificate = None;
    let mut foreign = right.clone();
    foreign.tls.certificate = other.options(program.grpc, Some("admin")).tls.certificate;
    let mut plain = ConnectOptions::new(program.grpc.to_string());
    plain.server = format!("http://{}", program.grpc);
    let mut expired = right.clone();
    expired.tls.certificate = Some(expired_certificate(&authority));
    // A certificate of the server's own use is none of a client.
    let mut misused = right.clone();
    misused.tls.certificate = Some((authority.read("server.crt"), authority.read("server.key")));
    for (what, options) in [
        ("none", stranger),
        ("of another authority", foreign),
        ("plain text", plain),
        ("expired", expired),
        ("for another use", misused),
    ] {
        assert!(asked(&options).is_err(), "{what}");
    }
    // And the client looks at the server's.
    let mut trusting = right.clone();
    trusting.tls.authorities = Some(other.read("ca.crt"));
    let refused = asked(&trusting).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    let mut named = right.clone();
    named.tls.server_name = Some("elsewhere".to_owned());
    assert!(asked(&named).is_err());
    asked(&right).unwrap();
}

/// Certificate of a client that ended a day ago, by the authority of the folder.
fn expired_certificate(authority: &TestAuthority) -> (Vec<u8>, Vec<u8>) {
    use rustls::pki_types::pem::PemObject as _;
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&authority.read("ca.key")).unwrap();
    let key = rcgen::KeyPair::try_from(&key).unwrap();
    let own = rcgen::CertificateParams::default();
    let id = own.key_identifier(&key);
    let [a, b, c, d, ..] = id[..] else { panic!("{id:?}") };
    let id = format!("{a:02x}{b:02x}{c:02x}{d:02x}");
    let mut own = own;
    own.distinguished_name = rcgen::DistinguishedName::new();
    own.distinguished_name
        .push(rcgen::DnType::CommonName, format!("Pumice authority {id}"));
    let issuer = rcgen::Issuer::new(own, key);
    let mut params = rcgen::CertificateParams::new(vec!["admin".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (
        pem("CERTIFICATE", certificate.der()),
        pem("PRIVATE KEY", &key.serialize_der()),
    )
}

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    pem::encode(&pem::Pem::new(label, der)).into_bytes()
}

#[test]
fn certificates_may_be_optional_and_plain_text_may_be_served_beside_tls() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&["--tls-client-auth", "optional", "--insecure"]);
    let runtime = runtime();
    for options in [
        authority.options(program.grpc, None),
        authority.options(program.grpc, Some("admin")),
        ConnectOptions::new(program.grpc.to_string()),
    ] {
        runtime.block_on(ask(&options)).unwrap();
    }
    assert_eq!(crate::support::probe(program.http, "/readyz"), Some(200));
}

#[test]
fn the_command_line_takes_files_from_flags_variables_and_profiles() {
    let authority = TestAuthority::new(&["admin"]);
    let program = authority.serve(&[]);
    let (server, metrics) = (program.grpc.to_string(), format!("https://{}", program.http));
    let profile = format!(
        "default: lab\nprofiles:\n  lab: {{server: 'https://{server}', metrics: '{metrics}', ca: ca.crt, certificate: admin.crt, key: admin.key, server_name: localhost}}\n"
    );
    std::fs::write(authority.path("config.yaml"), profile).unwrap();
    let profiles = authority.path("config.yaml");
    let shown = pumice(&profiles, &["state", "show"]);
    assert!(shown.status.success(), "{}", err(&shown));

    let none = TestDirectory::new();
    let none = none.file("config.yaml", "");
    let [ca, certificate, key] = ["ca.crt", "admin.crt", "admin.key"].map(|file| authority.text(file));
    let asked = |arguments: &[&str]| {
        let mut all = vec!["state", "show", "--server", &server];
        all.extend(arguments);
        pumice(&none, &all)
    };
    let trust = ["--ca", &ca, "--server-name", "localhost"];
    let full = asked(&[&trust[..], &["--certificate", &certificate, "--key", &key]].concat());
    assert!(full.status.success(), "{}", err(&full));
    let stranger = asked(&trust);
    assert_eq!(stranger.status.code(), Some(3), "{}", err(&stranger));
    assert!(err(&stranger).contains("--certificate and --key"), "{}", err(&stranger));
    let half = asked(&[&trust[..], &["--key", &key]].concat());
    assert_eq!(half.status.code(), Some(2));
    assert!(
        err(&half).contains("--certificate and --key belong together"),
        "{}",
        err(&half)
    );
    let gone = asked(&["--ca", "/nowhere/ca.crt"]);
    assert!(err(&gone).contains("/nowhere/ca.crt"), "{}", err(&gone));
    let unknown = pumice(&none, &["state", "show", "--server", &format!("https://{server}")]);
    assert!(err(&unknown).contains("--ca FILE"), "{}", err(&unknown));
}

#[test]
fn kubectl_pumice_speaks_tls_and_expects_the_name_of_the_service() {
    let authority = TestAuthority::new(&["admin"]);
    let issued = authority.issue(&["--name", "pumice.there.svc"]);
    assert!(issued.status.success(), "{}", err(&issued));
    let program = authority.serve(&[]);
    // The plugin finds kubectl and pumice on the search path.
    let folder = TestDirectory::new();
    let port = program.grpc.port();
    let forward = format!("#!/bin/sh\necho 'Forwarding from 127.0.0.1:{port} -> 7461'\nexec sleep 60\n");
    let kubectl = folder.file("kubectl", &forward);
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pumice"), folder.0.join("pumice")).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.0.display());
    let shown = |variables: &[(&str, &str)]| {
        let plugin = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kubectl-pumice");
        let mut command = std::process::Command::new("bash");
        command.args([plugin, "state", "show"]).env_clear().env("PATH", &path);
        command.envs(variables.iter().copied()).env("PUMICE_NAMESPACE", "there");
        command.output().unwrap()
    };
    let [ca, certificate, key] = ["ca.crt", "admin.crt", "admin.key"].map(|file| authority.text(file));
    let client = [("PUMICE_CERTIFICATE", &*certificate), ("PUMICE_KEY", &*key)];
    let full = shown(&[&client[..], &[("PUMICE_CA", &*ca)]].concat());
    assert!(full.status.success(), "{}", err(&full));
    assert!(out(&full).contains("policies: default"), "{}", out(&full));
    let named = |name: &str| shown(&[&client[..], &[("PUMICE_CA", &*ca), ("PUMICE_SERVER_NAME", name)]].concat());
    assert!(named("localhost").status.success());
    assert!(!named("other.there.svc").status.success());
    // Without the variables it speaks plain text, which this server does not take.
    assert!(!shown(&[]).status.success());
    // The authorities of this machine do not know the test's own.
    let unknown = shown(&[&client[..], &[("PUMICE_TLS", "1")]].concat());
    assert!(
        !unknown.status.success() && err(&unknown).contains("--ca FILE"),
        "{}",
        err(&unknown)
    );
}

#[test]
fn other_machines_are_served_without_tls_only_if_that_was_said() {
    let folder = TestDirectory::new();
    let file = |text: &str| folder.file("settings.yaml", text);
    let print = |path: &Path, flags: &[&str]| {
        let output = command()
            .args(["serve", "--config"])
            .arg(path)
            .arg("--print-config")
            .args(flags)
            .output()
            .unwrap();
        (output.status.success(), err(&output))
    };
    let open = "grpc_address: 0.0.0.0:7461\nhttp_address: '[::]:7462'\n";
    let (good, said) = print(&file(open), &[]);
    assert!(
        !good && said.contains("other machines reach `0.0.0.0:7461`") && said.contains("`[::]:7462`"),
        "{said}"
    );
    assert!(
        said.contains("pumice certs init DIR") && said.contains("insecure: true"),
        "{said}"
    );
    let (good, said) = print(&file(open), &["--insecure=http"]);
    assert!(
        !good && said.contains("grpc_address") && !said.contains("`[::]:7462`"),
        "{said}"
    );
    for flags in [
        &["--insecure"][..],
        &["--insecure=true"],
        &["--tls-certificate", "c", "--tls-key", "k"],
    ] {
        let (good, said) = print(&file(open), flags);
        assert!(good, "{flags:?}: {said}");
    }
    assert!(print(&file(&format!("{open}insecure: true\n")), &[]).0);
    for (settings, problem) in [
        ("tls_key: k\n", "there is no `tls_certificate`"),
        ("tls_certificate: c\n", "there is no `tls_key`"),
        ("tls_client_ca: c\n", "over TLS only"),
        ("insecure: perhaps\n", "not one of `false`"),
        ("tls_client_auth: maybe\n", "not one of `optional`"),
        ("grpc_socket_mode: 0660\n", "in quotes"),
        ("otlp_endpoint: https://collector:4317\n", "otlp_ca"),
    ] {
        let (good, said) = print(&file(settings), &[]);
        assert!(!good && said.contains(problem), "{settings}: {said}");
    }
}

#[test]
fn a_server_whose_files_cannot_be_used_does_not_start() {
    let authority = TestAuthority::new(&["admin"]);
    let other = TestAuthority::new(&["admin"]);
    let start = |certificate: &str, key: &str, ca: &str| {
        let output = command()
            .args([
                "serve",
                "--grpc-address",
                "127.0.0.1:0",
                "--http-address",
                "127.0.0.1:0",
            ])
            .args([
                "--tls-certificate",
                certificate,
                "--tls-key",
                key,
                "--tls-client-ca",
                ca,
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        err(&output)
    };
    let [certificate, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|file| authority.text(file));
    for (said, expected) in [
        (start("/nowhere.crt", &key, &ca), "/nowhere.crt: it cannot be read"),
        (start(&key, &key, &ca), "it has no certificate"),
        (start(&certificate, &certificate, &ca), "it has no private key"),
        (start(&certificate, &other.text("server.key"), &ca), "of one pair"),
        (start(&certificate, &key, &key), "it has no certificate"),
    ] {
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("PRIVATE KEY-----"), "{said}");
    }
}

#[test]
fn the_socket_has_the_mode_that_was_set_and_needs_no_tls() {
    let authority = TestAuthority::new(&["admin"]);
    let socket = authority.text("pumice.sock");
    let flags = ["--grpc-socket", &socket, "--grpc-socket-mode", "0600"];
    let _program = authority.serve(&flags);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    let options = ConnectOptions::new(format!("unix:{socket}"));
    runtime().block_on(ask(&options)).unwrap();
}

#[test]
fn an_authority_is_made_once_and_issues_certificates() {
    let authority = TestAuthority::new(&["admin", "spiffe://cluster.local/ns/volcano-system/sa/volcano-scheduler"]);
    for (file, expected) in [
        ("ca.key", 0o600),
        ("volcano-scheduler.key", 0o600),
        ("server.crt", 0o644),
    ] {
        let mode = std::fs::metadata(authority.path(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{file}");
    }
    let folder = authority.path("");
    let again = command().args(["certs", "init"]).arg(&folder).output().unwrap();
    assert!(
        !again.status.success() && err(&again).contains("nothing was written"),
        "{}",
        err(&again)
    );
    let (before, ca) = (authority.read("server.crt"), authority.read("ca.crt"));
    let issued = authority.issue(&["--name", "pumice.example", "--name", "10.0.0.7"]);
    assert!(
        issued.status.success() && out(&issued).contains("server.crt"),
        "{}",
        err(&issued)
    );
    assert_ne!(authority.read("server.crt"), before);
    assert_eq!(authority.read("ca.crt"), ca);
    assert!(authority.issue(&["--client", "batch"]).status.success());
    let program = authority.serve(&[]);
    let mut options = authority.options(program.grpc, Some("batch"));
    options.tls.server_name = Some("pumice.example".to_owned());
    runtime().block_on(ask(&options)).unwrap();
    let wrong = authority.issue(&["--client", "a b"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
}

#[test]
fn probes_and_metrics_have_the_same_certificate() {
    let authority = TestAuthority::new(&["admin"]);
    let program: LoggedProcess = authority.serve(&[]);
    let tls = authority.options(program.grpc, None).tls;
    let page = runtime().block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let stream = tokio::net::TcpStream::connect(program.http).await.unwrap();
        let mut stream = tls.secure(stream, "localhost").await.unwrap();
        stream
            .write_all(b"GET /readyz?verbose HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    });
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("[+] tls: the certificate is valid"),
        "{page}"
    );
    // Plain text is not served there.
    until("the connection is closed", || {
        crate::support::probe(program.http, "/livez").is_none()
    });
}
