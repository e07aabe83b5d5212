//! Cost of TLS and of roles: calls on connections that are kept, with and without them, and handshakes.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ClientTls, ConnectOptions};
use tokio::task::JoinSet;

use super::fixtures::clock;
use super::grpc::fill;
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes;

/// Number of calls under way together.
const AT_ONCE: usize = 16;
/// Number of connections that these share.
const CONNECTIONS: usize = 4;
/// Identity of the client, by its certificate.
const IDENTITIES: &str =
    "identities:\n- name: bench\n  certificates: [bench]\n  roles: [decide, sync, admin]\n  sources: ['*']\n";

/// Calls and processor time of one round.
#[derive(Clone, Copy, Debug)]
struct RoundCost {
    per_second: f64,
    cpu_us_per_call: f64,
}

/// Server with what connects to it.
struct SecuredServer {
    process: BenchServer,
    options: ConnectOptions,
    connections: Vec<ClientConnection>,
}

impl SecuredServer {
    async fn start(flags: &[String], tls: ClientTls) -> Self {
        let process = BenchServer::start_with(flags);
        let address = process.address();
        let scheme = if tls.authorities.is_some() { "https" } else { "http" };
        let options = ConnectOptions {
            server: address.replacen("http", scheme, 1),
            tls,
            token: None,
        };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(ClientConnection::open_with(&options).await.expect("a connection"));
        }
        if let Some(first) = connections.first() {
            fill(first).await;
        }
        Self {
            process,
            options,
            connections,
        }
    }

    /// Asks for a while, many calls at a time. `best`: for the best of all nodes; otherwise for nothing.
    async fn round(&self, best: bool, lasting: Duration) -> RoundCost {
        let (before, begin) = (self.process.cpu_seconds(), Instant::now());
        let mut callers: JoinSet<u32> = JoinSet::new();
        for connection in self.connections.iter().cycle().take(AT_ONCE) {
            let (mut client, request) = (connection.decisions.clone(), shapes::best());
            callers.spawn(async move {
                let mut calls = 0;
                while begin.elapsed() < lasting {
                    if best {
                        client.score(request.clone()).await.expect("a response");
                    } else {
                        client.filter(pb::FilterRequest::default()).await.expect("a response");
                    }
                    calls += 1;
                }
                calls
            });
        }
        let calls = f64::from(callers.join_all().await.iter().sum::<u32>());
        let spent = self.process.cpu_seconds_since(before);
        RoundCost {
            per_second: calls / begin.elapsed().as_secs_f64(),
            cpu_us_per_call: spent * 1e6 / calls,
        }
    }

    /// Processor time of the server for a new connection with one empty call, in milliseconds.
    async fn connection_ms(&self, connections: u32) -> f64 {
        let before = self.process.cpu_seconds();
        for _ in 0..connections {
            let mut client = ClientConnection::open_with(&self.options).await.expect("a connection");
            client
                .decisions
                .filter(pb::FilterRequest::default())
                .await
                .expect("a response");
        }
        let spent = self.process.cpu_seconds_since(before);
        spent * 1e3 / f64::from(connections)
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    clock::median(&values)
}

/// Measures servers without TLS, with TLS, and with TLS and roles, in rounds one after the other.
pub(crate) async fn measure(report: &mut MeasurementReport, quick: bool) {
    let (rounds, lasting, connections) = if quick {
        (2, Duration::from_millis(100), 20)
    } else {
        (7, Duration::from_millis(1_500), 400)
    };
    let folder = std::env::temp_dir().join(format!("pumice-report-tls-{}", std::process::id()));
    let (flags, identities, tls) = certificates(&folder);
    let servers = [
        SecuredServer::start(&[], ClientTls::default()).await,
        SecuredServer::start(&flags, tls.clone()).await,
        SecuredServer::start(&[flags.clone(), identities].concat(), tls).await,
    ];
    drop(std::fs::remove_dir_all(&folder));
    let [plain, secured, with_roles] = &servers;
    for (name, best) in [("empty", false), ("best", true)] {
        let (mut slower, mut tls_us, mut roles_us) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let without = plain.round(best, lasting).await;
            let with = secured.round(best, lasting).await;
            let checked = with_roles.round(best, lasting).await;
            slower.push((1.0 - with.per_second / without.per_second) * 100.0);
            tls_us.push(with.cpu_us_per_call - without.cpu_us_per_call);
            roles_us.push(checked.cpu_us_per_call - with.cpu_us_per_call);
        }
        report.put(format!("tls_{name}_slower_percent"), middle(slower));
        report.put(format!("tls_{name}_cpu_us_per_call"), middle(tls_us));
        report.put(format!("roles_{name}_cpu_us_per_call"), middle(roles_us));
    }
    let handshake = secured.connection_ms(connections).await - plain.connection_ms(connections).await;
    report.put("tls_handshake_cpu_ms", handshake);
}

/// Makes an authority, and certificates of a server and a client. Returns the server's flags, those for roles, and the client's TLS.
fn certificates(folder: &Path) -> (Vec<String>, Vec<String>, ClientTls) {
    drop(std::fs::remove_dir_all(folder));
    let made = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["certs", "init"])
        .arg(folder)
        .args(["--client", "bench"])
        .output()
        .expect("the program runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = |file: &str| folder.join(file).display().to_string();
    let read = |file: &str| std::fs::read(folder.join(file)).expect("a file of the authority");
    std::fs::write(folder.join("identities.yaml"), IDENTITIES).expect("a file of identities");
    let flag = |name: &str, file: &str| [name.to_owned(), path(file)];
    let flags = [
        flag("--tls-certificate", "server.crt"),
        flag("--tls-key", "server.key"),
        flag("--tls-client-ca", "ca.crt"),
    ];
    let tls = ClientTls {
        authorities: Some(read("ca.crt")),
        certificate: Some((read("bench.crt"), read("bench.key"))),
        server_name: Some("localhost".to_owned()),
    };
    (
        flags.concat(),
        flag("--identities-file", "identities.yaml").to_vec(),
        tls,
    )
}
