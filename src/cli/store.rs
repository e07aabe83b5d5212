//! `pumice store`: the durable state of a stopped server, checked, written as text, and read from it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sha2::{Digest as _, Sha256};

use super::store_records::{ExportLine, HeadLine, hexadecimal};
use crate::app::{open_etcd, open_kubernetes};
use crate::config::{EtcdSettings, StoreSettings, etcd_members, etcd_prefix, log_name, log_namespace};
use pumice_console::{CommandError, output};
use pumice_live::ClusterAccess;
use pumice_state::store::{DiskStore, LogHead, Store, StoredState};

/// Beginning of the name of a store in the Kubernetes API.
const KUBERNETES: &str = "kubernetes:";
/// Longest line of an export, in bytes: a policy document, escaped.
const LINE_BYTES: u64 = 64 << 20;

/// Commands about durable state.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Check every page and every record, as the server does at startup
    Check(CheckArgs),
    /// Export all records as JSON lines
    Export(ExportArgs),
    /// Create a store from an export: in an empty directory, in etcd or in the Kubernetes API
    Import(ImportArgs),
}

/// Store that a command reads or writes.
#[derive(Debug, Args)]
struct StorePlace {
    /// Store: `data_dir` of the server, such as /var/lib/pumice; comma-separated addresses of etcd members, such as
    /// `https://etcd-0:2379,https://etcd-1:2379`; or `kubernetes:NAMESPACE/NAME` for a store in the Kubernetes API
    #[arg(value_name = "STORE")]
    store: String,
    /// Prefix of the keys in etcd [default: /pumice/]
    #[arg(long, value_name = "KEY")]
    etcd_prefix: Option<String>,
    /// CA certificate that signed the certificates of etcd (PEM)
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_certificate: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    etcd_key: Option<PathBuf>,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password of the etcd user
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Kubeconfig of a store in the Kubernetes API [default: KUBECONFIG, ~/.kube/config or the service account of the
    /// pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: current context]
    #[arg(long, value_name = "NAME")]
    kubernetes_context: Option<String>,
}

impl StorePlace {
    /// Directory of the store; `None`: it is in etcd or in the Kubernetes API.
    fn folder(&self) -> Option<&Path> {
        let is_shared = ["http://", "https://", KUBERNETES];
        let is_shared = is_shared.iter().any(|begin| self.store.starts_with(begin));
        (!is_shared).then(|| Path::new(&self.store))
    }

    /// Opens a store that several servers share.
    fn open_shared(&self) -> Result<Box<dyn Store>, CommandError> {
        match self.store.strip_prefix(KUBERNETES) {
            Some(name) => self.open_kubernetes(name),
            None => self.open_etcd(),
        }
    }

    /// Opens the log of this name in the Kubernetes API; the name may have a namespace before it.
    fn open_kubernetes(&self, name: &str) -> Result<Box<dyn Store>, CommandError> {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let mut settings = StoreSettings::default();
        settings.kubernetes.namespace = log_namespace(namespace).map_err(CommandError::failed)?;
        settings.kubernetes.name = log_name(name).map_err(CommandError::failed)?;
        let access = ClusterAccess {
            kubeconfig: self.kubeconfig.clone(),
            context: self.kubernetes_context.clone(),
        };
        open_kubernetes(&settings, &access, "").map_err(CommandError::failed)
    }

    fn open_etcd(&self) -> Result<Box<dyn Store>, CommandError> {
        let members: Vec<String> = self.store.split(',').map(str::to_owned).collect();
        let mut settings = EtcdSettings {
            members: etcd_members(&members).map_err(CommandError::failed)?,
            ca: self.etcd_ca.clone(),
            certificate: self.etcd_certificate.clone(),
            key: self.etcd_key.clone(),
            user: self.etcd_user.clone().unwrap_or_default(),
            password_file: self.etcd_password_file.clone(),
            ..EtcdSettings::default()
        };
        if let Some(given) = &self.etcd_prefix {
            settings.prefix = etcd_prefix(given).map_err(CommandError::failed)?;
        }
        let settings = StoreSettings {
            etcd: settings,
            ..StoreSettings::default()
        };
        open_etcd(&settings, "").map_err(CommandError::failed)
    }

    /// Store that is there; its content, which is checked on the way.
    fn load(&self) -> Result<StoredState, CommandError> {
        let mut store = match self.folder() {
            None => self.open_shared()?,
            Some(folder) => {
                if !DiskStore::exists(folder) {
                    return Err(CommandError::file_error(folder, &"there is no store"));
                }
                Box::new(DiskStore::open(folder).map_err(CommandError::failed)?)
            }
        };
        let (state, head) = store.load().map_err(CommandError::failed)?;
        if self.folder().is_none() && head == LogHead::default() {
            return Err(CommandError::failed(format!("{}: there is no store", self.store)));
        }
        Ok(state)
    }

    /// Store that is made, and that is not there yet.
    fn make(&self) -> Result<Box<dyn Store>, CommandError> {
        let Some(folder) = self.folder() else {
            let mut store = self.open_shared()?;
            if store.head().map_err(CommandError::failed)? != LogHead::default() {
                let other = if self.store.starts_with(KUBERNETES) {
                    "name"
                } else {
                    "prefix"
                };
                let message = format!("error: {} has a store already; give another {other}", self.store);
                return Err(CommandError::message(message));
            }
            return Ok(store);
        };
        if DiskStore::exists(folder) {
            return Err(CommandError::message(format!(
                "error: {} has a store already; name an empty directory, or move that one away",
                folder.display()
            )));
        }
        Ok(Box::new(DiskStore::open(folder).map_err(CommandError::failed)?))
    }
}

/// Arguments of `pumice store check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    place: StorePlace,
    /// Repair a shared log as far as it proves what is true. Stop its servers first, or restart them afterwards
    #[arg(long)]
    repair: bool,
    /// Also go on without entries that cannot be read
    #[arg(long, requires = "repair")]
    accept_loss: bool,
}

/// Arguments of `pumice store export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    place: StorePlace,
    /// File to write; must not exist yet [default: standard output]
    #[arg(short = 'f', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `pumice store import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    place: StorePlace,
    /// File written by `pumice store export`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also accept an export that was edited after it was written
    #[arg(long)]
    changed: bool,
}

/// Runs the command.
pub(super) fn run(command: &StoreCommand) -> Result<(), CommandError> {
    match command {
        StoreCommand::Check(args) => check(args),
        StoreCommand::Export(args) => export(args),
        StoreCommand::Import(args) => import(args),
    }
}

fn check(args: &CheckArgs) -> Result<(), CommandError> {
    if args.repair && args.place.folder().is_none() {
        let mut store = args.place.open_shared()?;
        let repaired = store.repair(args.accept_loss).map_err(CommandError::failed)?;
        for line in repaired {
            output::line(&format!("{}: {line}", args.place.store))?;
        }
    }
    let state = args.place.load()?;
    output::line(&format!(
        "{}: every record is whole: {}",
        args.place.store,
        counts(&state)
    ))
}

fn counts(state: &StoredState) -> String {
    let StoredState {
        reservations,
        tombstones,
        assumptions,
        policies,
        policy_files,
        sources,
    } = state;
    format!(
        "{} reservations, {} ended ones, {} committed placements, {} versions of policies, {} policy files, {} live sources",
        reservations.len(),
        tombstones.len(),
        assumptions.len(),
        policies.len(),
        policy_files.len(),
        sources.len()
    )
}

fn export(args: &ExportArgs) -> Result<(), CommandError> {
    let state = args.place.load()?;
    let lines = ExportLine::of(&state);
    let mut text = TextDigest::default();
    let head = HeadLine::new(lines.len()).to_line();
    match &args.out {
        None => {
            let mut out = std::io::stdout().lock();
            text.write_all(&mut out, &head, &lines)?;
        }
        Some(path) => {
            let at = |error: std::io::Error| CommandError::file_error(path, &error);
            let mut file = BufWriter::new(private_file(path).map_err(at)?);
            text.write_all(&mut file, &head, &lines)?;
            file.into_inner()
                .map_err(std::io::IntoInnerError::into_error)
                .and_then(|file| file.sync_all())
                .map_err(at)?;
            output::note(&format!("wrote {}: {}", path.display(), counts(&state)));
        }
    }
    Ok(())
}

/// A new file that others cannot read: names of jobs, queues and callers are in it.
fn private_file(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Digest of the lines so far.
#[derive(Default)]
struct TextDigest(Sha256);

impl TextDigest {
    fn write_all(
        &mut self,
        out: &mut dyn std::io::Write,
        head: &str,
        lines: &[ExportLine],
    ) -> Result<(), CommandError> {
        self.write(out, head)?;
        for line in lines {
            self.write(out, &line.to_line())?;
        }
        let (records, sha256) = (lines.len(), self.finish());
        let end = ExportLine::End { records, sha256 }.to_line();
        out.write_all(end.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    fn write(&mut self, out: &mut dyn std::io::Write, line: &str) -> std::io::Result<()> {
        self.0.update(line.as_bytes());
        out.write_all(line.as_bytes())
    }

    fn finish(&mut self) -> String {
        let digest = std::mem::take(&mut self.0).finalize();
        hexadecimal(&digest)
    }
}

fn import(args: &ImportArgs) -> Result<(), CommandError> {
    let state = read_export(&args.file, args.changed)?;
    let mut store = args.place.make()?;
    let counted = counts(&state);
    store
        .append_to_head(&state.clone().into_writes())
        .map_err(CommandError::failed)?;
    let stored = store.content().map_err(CommandError::failed)?;
    if stored != state {
        return Err(CommandError::message(format!(
            "error: {}: the store does not hold what {} says; two of its records have one name",
            args.place.store,
            args.file.display()
        )));
    }
    output::line(&format!("made {}: {counted}", args.place.store))
}

/// Reads a whole export.
fn read_export(path: &Path, changed: bool) -> Result<StoredState, CommandError> {
    let problem =
        |line: usize, message: &str| CommandError::message(format!("error: {}:{line}: {message}", path.display()));
    let file = File::open(path).map_err(|error| CommandError::file_error(path, &error))?;
    let mut reader = BufReader::new(file);
    let (mut state, mut digest, mut number) = (StoredState::default(), TextDigest::default(), 0);
    let mut records = 0;
    loop {
        let mut line = String::new();
        let read = (&mut reader).take(LINE_BYTES).read_line(&mut line);
        number += 1;
        if read.map_err(|error| CommandError::file_error(path, &error))? == 0 {
            return Err(problem(number, "the export was cut: its last line, `end`, is missing"));
        }
        if number == 1 {
            HeadLine::check(&line).map_err(|message| problem(number, &message))?;
        } else {
            let record = ExportLine::read(&line).map_err(|message| problem(number, &message))?;
            if let ExportLine::End {
                records: written,
                sha256,
            } = &record
            {
                if !changed && *written != records {
                    let message = format!(
                        "{written} records were written, and {records} are there; --changed takes them all the same"
                    );
                    return Err(problem(number, &message));
                }
                if !changed && *sha256 != digest.finish() {
                    let message = "the lines are not those that were written; --changed takes them all the same";
                    return Err(problem(number, message));
                }
                state.sort();
                return Ok(state);
            }
            record.add_to(&mut state);
            records += 1;
        }
        digest.0.update(line.as_bytes());
    }
}
