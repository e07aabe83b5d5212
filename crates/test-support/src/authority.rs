//! An authority for tests, made by the program, and clients that use it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use pumice::server::pb;
use pumice_protocol::{ClientConnection, ClientTls, ConnectOptions};
use tokio::runtime::Runtime;

use crate::TestDirectory;
use crate::program::{LoggedProcess, command};

/// Folder with an authority, made by `pumice certs init`.
pub struct TestAuthority {
    folder: TestDirectory,
}

impl TestAuthority {
    /// Authority with certificates of the server and of these clients.
    pub fn new(clients: &[&str]) -> Self {
        let folder = TestDirectory::new();
        let mut arguments = vec!["certs".to_owned(), "init".to_owned(), folder.0.display().to_string()];
        for client in clients {
            arguments.extend(["--client".to_owned(), (*client).to_owned()]);
        }
        let output = command().args(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.0.join(file)
    }

    pub fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).unwrap()
    }

    /// Puts content in a file's place in one step.
    pub fn replace(&self, file: &str, content: &[u8]) {
        let new = self.path(".replacement");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.path(file)).unwrap();
    }

    /// Runs `pumice certs issue` in the folder.
    pub fn issue(&self, arguments: &[&str]) -> Output {
        command()
            .args(["certs", "issue"])
            .arg(&self.folder.0)
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Server with TLS that asks callers for certificates.
    pub fn serve(&self, more: &[&str]) -> LoggedProcess {
        let files = [self.text("server.crt"), self.text("server.key"), self.text("ca.crt")];
        let [certificate, key, authority] = &files;
        let mut flags = vec![
            "--tls-certificate",
            certificate,
            "--tls-key",
            key,
            "--tls-client-ca",
            authority,
            "--tls-poll-ms",
            "20",
        ];
        flags.extend(more);
        LoggedProcess::serve(&flags)
    }

    /// Connection to a server as this client; `None`: without a certificate.
    pub fn options(&self, address: SocketAddr, client: Option<&str>) -> ConnectOptions {
        let pair = |client: &str| (self.read(&format!("{client}.crt")), self.read(&format!("{client}.key")));
        ConnectOptions {
            server: address.to_string(),
            tls: ClientTls {
                authorities: Some(self.read("ca.crt")),
                certificate: client.map(pair),
                server_name: Some("localhost".to_owned()),
            },
            token: None,
        }
    }
}

/// Runtime of a test's clients.
pub fn runtime() -> Runtime {
    Runtime::new().unwrap()
}

/// One small call over a new connection; the error is a text.
pub async fn ask(options: &ConnectOptions) -> Result<pb::GetServerInfoResponse, String> {
    let mut connection = ClientConnection::open_with(options)
        .await
        .map_err(|error| error.to_string())?;
    // A connection that the server ends while the call is sent may leave the call without a reply.
    let call = connection.state.get_server_info(pb::GetServerInfoRequest {});
    let reply = tokio::time::timeout(Duration::from_secs(10), call).await;
    reply
        .map_err(|_| "no reply within 10 s".to_owned())?
        .map(tonic::Response::into_inner)
        .map_err(|status| status.to_string())
}

/// Runs `pumice` with these arguments and a file of profiles.
pub fn pumice(profiles: &Path, arguments: &[&str]) -> Output {
    command()
        .env("PUMICE_CLIENT_CONFIG", profiles)
        .args(arguments)
        .output()
        .unwrap()
}
