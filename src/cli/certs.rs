//! `pumice certs`: an authority, and certificates that it vouches for, to begin with.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::store_records::hexadecimal;
use pumice_console::{CommandError, output};
use pumice_state::{Clock as _, SystemClock};

/// Time by which the clocks of two machines may differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_mins(5);
/// Names of every server, for callers on its machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Longest validity, in days.
const MAX_DAYS: u32 = 36_500;

/// Commands about certificates.
#[derive(Debug, Subcommand)]
pub(super) enum CertsCommand {
    /// Create a CA, a server certificate and client certificates
    Init(InitArgs),
    /// Issue a certificate with the CA of a directory; replaces the existing certificate
    Issue(IssueArgs),
}

/// Arguments of `pumice certs init`.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Directory for the files; created with mode 0700
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Further name or address of the server, such as pumice.pumice.svc; its local names, such as localhost, are always
    /// included; repeatable
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Name of a client or its SPIFFE ID; repeatable
    #[arg(long = "client", value_name = "NAME", default_value = "admin")]
    clients: Vec<String>,
    /// Days for which the CA is valid
    #[arg(long, value_name = "DAYS", default_value_t = 3_650, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    authority_days: u32,
    /// Days for which the certificates are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
}

/// Arguments of `pumice certs issue`.
#[derive(Debug, Args)]
pub(super) struct IssueArgs {
    /// Directory with ca.crt and ca.key
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name or address of the server, for a new server.crt, such as pumice.pumice.svc; repeatable
    #[arg(
        long = "name",
        value_name = "NAME",
        required_unless_present = "clients",
        conflicts_with = "clients"
    )]
    names: Vec<String>,
    /// Name of a client or its SPIFFE ID, for a new client certificate; repeatable
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Days for which the certificates are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
}

/// Owner of the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateUse {
    Server,
    Client,
}

/// Runs the command.
pub(super) fn run(command: &CertsCommand) -> Result<(), CommandError> {
    match command {
        CertsCommand::Init(args) => init(args),
        CertsCommand::Issue(args) => issue(args),
    }
}

fn init(args: &InitArgs) -> Result<(), CommandError> {
    let folder = CertificateFolder::make(&args.folder)?;
    let mut files = vec!["ca".to_owned(), "server".to_owned()];
    files.extend(args.clients.iter().map(|client| file_stem(client)));
    for (at, file) in files.iter().enumerate() {
        if files.iter().take(at).any(|other| other == file) {
            return Err(usage(&format!(
                "two certificates would have the file {file}.crt; give other names"
            )));
        }
        folder.check_absent(file)?;
    }
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let params = authority_params(&key, args.authority_days);
    let authority = params.self_signed(&key).map_err(|error| failed(&error))?;
    folder.write("ca", authority.der(), &key)?;
    let issuer = Issuer::new(params, key);
    folder.issue_server(&issuer, &args.names, args.days)?;
    folder.issue_clients(&issuer, &args.clients, args.days)?;
    folder.describe(&files, args.clients.first())
}

fn issue(args: &IssueArgs) -> Result<(), CommandError> {
    let folder = CertificateFolder(args.folder.clone());
    let issuer = folder.issuer()?;
    if !args.names.is_empty() {
        folder.issue_server(&issuer, &args.names, args.days)?;
        return output::line(&format!("wrote {}", folder.path("server.crt").display()));
    }
    folder.issue_clients(&issuer, &args.clients, args.days)?;
    for client in &args.clients {
        let path = folder.path(&format!("{}.crt", file_stem(client)));
        output::line(&format!("wrote {}", path.display()))?;
    }
    Ok(())
}

/// Parameters of the CA with this key. The CA's name depends only on the key: a directory needs only the key to issue
/// certificates.
fn authority_params(key: &KeyPair, days: u32) -> CertificateParams {
    let mut params = valid_for(days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let id = params.key_identifier(key);
    let id = hexadecimal(id.get(..4).unwrap_or(&id));
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Pumice authority {id}"));
    params
}

/// Parameters of a certificate that is valid for this time from now on.
fn valid_for(days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = rcgen::date_time_ymd(1970, 1, 1) + SystemClock::default().wall();
    params.not_before = now - CLOCK_DIFFERENCE;
    params.not_after = now + Duration::from_secs(u64::from(days.min(MAX_DAYS)) * 86_400);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

/// Name of a certificate's holder: an address, a URI such as a SPIFFE ID, or a DNS name.
fn san(name: &str) -> Result<SanType, CommandError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let wrong = |_| usage(&format!("`{name}` is no name of a certificate: it has to be ASCII"));
    if name.contains("://") {
        return name.try_into().map(SanType::URI).map_err(wrong);
    }
    let is_dns = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*');
            !label.is_empty() && label.len() <= 63 && label.chars().all(known)
        });
    if !is_dns {
        return Err(usage(&format!(
            "`{name}` is no name of a certificate: write a DNS name, an IP address, or a URI such as \
             spiffe://cluster.local/ns/volcano-system/sa/volcano-scheduler"
        )));
    }
    name.try_into().map(SanType::DnsName).map_err(wrong)
}

/// Name of the files of a client's certificate.
fn file_stem(client: &str) -> String {
    let last = client.rsplit('/').next().unwrap_or(client);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let stem: String = last.chars().map(plain).take(100).collect();
    if stem.is_empty() { "client".to_owned() } else { stem }
}

fn usage(message: &str) -> CommandError {
    CommandError::Usage(format!("error: {message}"))
}

fn failed(error: &dyn std::fmt::Display) -> CommandError {
    CommandError::message(format!("error: a certificate cannot be made: {error}"))
}

/// Folder with an authority and its certificates.
#[derive(Debug)]
struct CertificateFolder(PathBuf);

impl CertificateFolder {
    fn make(path: &Path) -> Result<Self, CommandError> {
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(|error| CommandError::file_error(path, &error))?;
            let private = Permissions::from_mode(0o700);
            fs::set_permissions(path, private).map_err(|error| CommandError::file_error(path, &error))?;
        }
        Ok(Self(path.to_owned()))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn check_absent(&self, stem: &str) -> Result<(), CommandError> {
        for file in [format!("{stem}.crt"), format!("{stem}.key")] {
            let path = self.path(&file);
            if path.exists() {
                return Err(CommandError::message(format!(
                    "error: {} is there already; nothing was written. `pumice certs issue` replaces a certificate, another \
                     folder takes another authority",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// The authority of the folder.
    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, CommandError> {
        let path = self.path("ca.key");
        let key = fs::read(&path).map_err(|error| CommandError::file_error(&path, &error))?;
        let wrong = |error: &dyn std::fmt::Display| {
            CommandError::message(format!(
                "error: {}: no private key of an authority: {error}",
                path.display()
            ))
        };
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong(&error))?;
        let key = KeyPair::try_from(&key).map_err(|error| wrong(&error))?;
        Ok(Issuer::new(authority_params(&key, 1), key))
    }

    fn issue_server(&self, issuer: &Issuer<'_, KeyPair>, names: &[String], days: u32) -> Result<(), CommandError> {
        let mut all: Vec<&str> = LOCAL_NAMES.to_vec();
        all.extend(names.iter().map(String::as_str));
        self.issue("server", CertificateUse::Server, &all, (issuer, days))
    }

    fn issue_clients(&self, issuer: &Issuer<'_, KeyPair>, clients: &[String], days: u32) -> Result<(), CommandError> {
        for client in clients {
            self.issue(&file_stem(client), CertificateUse::Client, &[client], (issuer, days))?;
        }
        Ok(())
    }

    fn issue(
        &self,
        stem: &str,
        usage: CertificateUse,
        names: &[&str],
        (issuer, days): (&Issuer<'_, KeyPair>, u32),
    ) -> Result<(), CommandError> {
        let mut params = valid_for(days);
        params.subject_alt_names = names.iter().map(|name| san(name)).collect::<Result<_, _>>()?;
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            CertificateUse::Server => ExtendedKeyUsagePurpose::ServerAuth,
            CertificateUse::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.distinguished_name.push(DnType::CommonName, stem);
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let certificate = params.signed_by(&key, issuer).map_err(|error| failed(&error))?;
        self.write(stem, certificate.der(), &key)
    }

    /// Writes certificate and key, each whole. The key comes first: a server that reads in between keeps what it has.
    fn write(&self, stem: &str, certificate: &[u8], key: &KeyPair) -> Result<(), CommandError> {
        self.write_file(
            &format!("{stem}.key"),
            &pem_text("PRIVATE KEY", &key.serialize_der()),
            0o600,
        )?;
        self.write_file(&format!("{stem}.crt"), &pem_text("CERTIFICATE", certificate), 0o644)
    }

    fn write_file(&self, name: &str, text: &str, mode: u32) -> Result<(), CommandError> {
        let (path, new) = (self.path(name), self.path(&format!(".{name}.new")));
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(mode)
                .open(&new)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| CommandError::file_error(&path, &error))
    }

    fn describe(&self, files: &[String], client: Option<&String>) -> Result<(), CommandError> {
        let folder = self.0.display();
        for file in files {
            output::line(&format!("wrote {folder}/{file}.crt and {folder}/{file}.key"))?;
        }
        let client = client.map_or_else(String::new, |client| file_stem(client));
        output::line(&format!(
            "\nStart the server:\n  pumice serve --tls-certificate {folder}/server.crt --tls-key {folder}/server.key --tls-client-ca {folder}/ca.crt\n\
             Ask it:\n  pumice state show --server https://localhost:7461 --ca {folder}/ca.crt --certificate {folder}/{client}.crt --key {folder}/{client}.key\n\
             Keep ca.key where no server and no client reads it: who has it can be anybody."
        ))
    }
}

/// Text of a file with one value.
fn pem_text(label: &str, der: &[u8]) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(label, der), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files_and_names_of_certificates() {
        assert_eq!(
            file_stem("spiffe://cluster.local/ns/volcano/sa/volcano-scheduler"),
            "volcano-scheduler"
        );
        assert_eq!(file_stem("ops@example.com"), "ops_example_com");
        assert_eq!(file_stem("a/"), "client");
        assert!(matches!(san("10.0.0.1"), Ok(SanType::IpAddress(_))));
        assert!(matches!(san("spiffe://a/b"), Ok(SanType::URI(_))));
        assert!(matches!(san("*.pumice.svc"), Ok(SanType::DnsName(_))));
        for wrong in ["", "a b", "a..b", "ä", "spiffe://ä", "../x"] {
            assert!(san(wrong).is_err(), "{wrong}");
        }
    }
}
