//! `pumice policy diff`: differences between two policies as they take effect, and the tasks that they touch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::document_diff::{self, DocumentChange};
use super::local_services::ProgramServices;
use super::policy_cycles::{self, JobDifference};
use super::policy_impact::{self, PolicyImpact};
use super::policy_witness;
use crate::server::convert::policy::policy_report;
use pumice_console::import_files::{ImportedFiles, ReleaseFiles};
use pumice_console::output::TextTable;
use pumice_console::{ClientArgs, CommandError, OutputFormat, args, files, import_files, output};
use pumice_engine::policy::{
    Compatibility, CompileOptions, CompiledPolicy, DiagnosticReport, Release, ReleaseChange, compile,
};
use pumice_kubernetes::import::AmountRules;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Arguments of `pumice policy diff`.
#[derive(Debug, Args)]
pub(super) struct DiffPolicyArgs {
    /// Document (`-`: standard input), or a stored version as NAME@VERSION, such as default@3 or default@active
    #[arg(value_name = "BEFORE")]
    before: String,
    /// Document or version to compare with; without it, BEFORE is the new document and default@active the old one
    #[arg(value_name = "AFTER")]
    after: Option<String>,
    /// Compare BEFORE with itself under two releases, such as `volcano-1.15.1..volcano-ed72c7c81`: what an upgrade changes
    #[arg(long, value_name = "FROM..TO", conflicts_with = "after", value_parser = release_range)]
    release: Option<[Compatibility; 2]>,
    /// Also show, for the cluster in these files, which tasks get other best nodes, which jobs get other quotas or
    /// ranks, and what a whole cycle does otherwise. File formats as for `state load`
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    cluster: Vec<PathBuf>,
    /// Also show, for the state of the server, which tasks get other best nodes, which jobs get other quotas or ranks, and
    /// what a whole cycle does otherwise
    #[arg(long)]
    state: bool,
    /// Also write a policy test into this folder for each rule by which a job ends differently: a small part of the cluster,
    /// with what each policy does in it
    #[arg(long, value_name = "DIR")]
    witnesses: Option<PathBuf>,
    /// Evaluate the pods of this file; without it, the pending tasks of the cluster
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    /// Rules for the requests of pods in files
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = args::amount_rules_parser())]
    derivation: AmountRules,
    /// Profile of both policies; required for a `KubeSchedulerConfiguration` with several profiles
    #[arg(long, value_name = "NAME")]
    policy_profile: Option<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// One of the two policies.
#[derive(Debug)]
pub(super) struct ComparedPolicy {
    pub(super) title: String,
    /// Document with every default; reading it gives the same document.
    pub(super) effective: String,
    /// Document as loaded, without the compatibility that it sets.
    pub(super) loaded: String,
    report: pb::PolicyReport,
    pub(super) compatibility: Compatibility,
}

/// Runs the command. Returns whether the policies are the same.
pub(super) async fn run(args: DiffPolicyArgs) -> Result<bool, CommandError> {
    let mut server = None;
    let [before, after] = compared(&args, &mut server).await?;
    let mut cycles = None;
    let impact = if args.state || !args.cluster.is_empty() {
        let read = ComparedCluster::read(&args, &mut server).await?;
        read.report(after.compatibility.release())?;
        cycles = policy_cycles::compare([&before, &after], &read)?;
        if let (Some(folder), Some(differences)) = (&args.witnesses, &cycles) {
            policy_witness::write([&before, &after], &read, differences, folder)?;
        }
        let former = read.under(before.compatibility.release())?;
        let cluster = read.under(after.compatibility.release())?;
        let tasks = match &args.task {
            Some(file) => {
                let rules = args.derivation.of_release(after.compatibility.release());
                let imported = import_files::read(std::slice::from_ref(file), rules)?;
                imported.report();
                imported.cluster.tasks
            }
            None => policy_impact::pending_tasks(&cluster),
        };
        let documents = [before.effective.as_str(), &after.effective];
        let profile = args.policy_profile.as_deref().unwrap_or_default();
        Some(policy_impact::compute_impact(documents, profile, [former, cluster], &tasks).await?)
    } else if args.task.is_some() {
        return Err(CommandError::Usage(
            "error: --task needs a cluster: --cluster FILE or --state".to_owned(),
        ));
    } else {
        None
    };
    let mut found = PolicyDiff::new(before, after, impact)?;
    found.cycles = cycles;
    match args.client.output {
        OutputFormat::Table => found.show()?,
        OutputFormat::Json => output::line(&format!("{:#}", found.json()))?,
    }
    Ok(found.changes.is_empty())
}

/// The two policies: two documents, or one under two releases.
async fn compared(
    args: &DiffPolicyArgs,
    server: &mut Option<ClientConnection>,
) -> Result<[ComparedPolicy; 2], CommandError> {
    if let Some(releases) = args.release {
        let document = load_policy(&args.before, args, server).await?;
        let under = |compatibility: Compatibility| {
            let title = format!("{} under {}", document.title, compatibility.name());
            document_policy(&title, document.compile(compatibility))
        };
        let [from, to] = releases;
        return Ok([under(from)?, under(to)?]);
    }
    let (before, after) = match &args.after {
        Some(after) => (args.before.as_str(), after.as_str()),
        None => ("default@active", args.before.as_str()),
    };
    Ok([
        load_policy(before, args, server).await?,
        load_policy(after, args, server).await?,
    ])
}

/// Cluster for the comparison: the records of the server, or files whose pods are read by the release of each policy.
#[derive(Debug)]
pub(super) enum ComparedCluster {
    State(Box<pb::Cluster>),
    Files(ReleaseFiles),
}

impl ComparedCluster {
    async fn read(args: &DiffPolicyArgs, server: &mut Option<ClientConnection>) -> Result<Self, CommandError> {
        if args.state {
            let read = super::records::ClusterRecords::read(open_connection(args, server).await?).await?;
            return Ok(Self::State(Box::new(read.cluster)));
        }
        Ok(Self::Files(ReleaseFiles::read(&args.cluster, args.derivation)?))
    }

    /// The cluster as a release reads it.
    pub(super) fn under(&self, release: Release) -> Result<pb::Cluster, CommandError> {
        Ok(match self {
            Self::State(cluster) => (**cluster).clone(),
            Self::Files(files) => files.under(release)?.cluster.clone(),
        })
    }

    /// Prints the warnings about the files, as a release reads them, to standard error.
    fn report(&self, release: Release) -> Result<(), CommandError> {
        if let Self::Files(files) = self {
            ImportedFiles::clone(&*files.under(release)?)
                .checked(&ProgramServices)
                .report();
        }
        Ok(())
    }
}

/// Reads `FROM..TO`.
fn release_range(text: &str) -> Result<[Compatibility; 2], String> {
    let known = || Compatibility::ALL.map(Compatibility::name).join(", ");
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("expected FROM..TO, each one of {}", known()))?;
    let read = |name: &str| Compatibility::from_name(name).ok_or_else(|| format!("`{name}` is not one of {}", known()));
    Ok([read(from)?, read(to)?])
}

async fn open_connection<'c>(
    args: &DiffPolicyArgs,
    server: &'c mut Option<ClientConnection>,
) -> Result<&'c mut ClientConnection, CommandError> {
    let open = match server.take() {
        Some(open) => open,
        None => args.client.connect().await?,
    };
    Ok(server.insert(open))
}

async fn load_policy(
    given: &str,
    args: &DiffPolicyArgs,
    server: &mut Option<ClientConnection>,
) -> Result<ComparedPolicy, CommandError> {
    let path = Path::new(given);
    match given.rsplit_once('@') {
        Some((name, version)) if !path.exists() => {
            let version = match version {
                "" | "active" => 0,
                number => number.parse().map_err(|_| {
                    CommandError::Usage(format!(
                        "error: `{given}`: `{number}` is no version; write NAME@7 or NAME@active"
                    ))
                })?,
            };
            stored_policy(name, version, open_connection(args, server).await?).await
        }
        _ if given != "-" && !path.exists() => Err(CommandError::Usage(format!(
            "error: `{given}` is no file; a stored version is written NAME@VERSION"
        ))),
        _ => document_policy(given, compile(&files::read_text(path)?, &CompileOptions::default())),
    }
}

async fn stored_policy(
    name: &str,
    version: u64,
    server: &mut ClientConnection,
) -> Result<ComparedPolicy, CommandError> {
    let request = pb::GetPolicyRequest {
        name: name.to_owned(),
        version,
    };
    let reply = server.policies.get_policy(request).await?.into_inner();
    Ok(ComparedPolicy::stored(reply))
}

/// Prints how the effect of a policy changed with the version that a reload or a rollback put in force, or would put in
/// force in a dry run: what `policy diff` prints of the two. Returns the diagnostics that this did not print.
pub(super) fn show_change(
    before: Option<pb::GetPolicyResponse>,
    after: (&pb::Policy, &pb::PolicyReport),
    after_title: String,
) -> Result<Vec<pb::Diagnostic>, CommandError> {
    let (policy, report) = after;
    let Some(before) = before else {
        return Ok(report.diagnostics.clone());
    };
    let before = ComparedPolicy::stored(before);
    let after = ComparedPolicy {
        title: after_title,
        ..ComparedPolicy::stored(pb::GetPolicyResponse {
            policy: Some(policy.clone()),
            report: Some(report.clone()),
        })
    };
    let shown: Vec<pb::Diagnostic> = diagnostics_only_in(report, &before.report)
        .into_iter()
        .cloned()
        .collect();
    PolicyDiff::new(before, after, None)?.show()?;
    let others = report
        .diagnostics
        .iter()
        .filter(|diagnostic| !shown.contains(diagnostic));
    Ok(others.cloned().collect())
}

impl ComparedPolicy {
    fn stored(reply: pb::GetPolicyResponse) -> Self {
        let policy = reply.policy.unwrap_or_default();
        ComparedPolicy {
            title: format!("{}@{}", policy.name, policy.version),
            compatibility: compatibility_of(&policy.effective_document),
            loaded: without_compatibility(&policy.loaded_document),
            effective: policy.effective_document,
            report: reply.report.unwrap_or_default(),
        }
    }

    /// Compiles the document as if it named this compatibility.
    pub(super) fn compile(&self, compatibility: Compatibility) -> Result<CompiledPolicy, DiagnosticReport> {
        let options = CompileOptions {
            compatibility,
            ..CompileOptions::default()
        };
        compile(&self.loaded, &options)
    }
}

/// A loaded document without its section `pumice`, in which nothing stands but the compatibility.
fn without_compatibility(loaded: &str) -> String {
    let mut is_of_section = false;
    let mut rest = String::new();
    for line in loaded.lines() {
        is_of_section = line.starts_with("pumice:") || is_of_section && line.starts_with(' ');
        if !is_of_section {
            rest.push_str(line);
            rest.push('\n');
        }
    }
    rest
}

/// Compatibility that an effective document names.
fn compatibility_of(effective: &str) -> Compatibility {
    let compiled = compile(effective, &CompileOptions::default());
    compiled.map_or_else(|_| Compatibility::default(), |compiled| compiled.policy.compatibility())
}

fn document_policy(
    given: &str,
    compiled: Result<CompiledPolicy, DiagnosticReport>,
) -> Result<ComparedPolicy, CommandError> {
    match compiled {
        Ok(compiled) => Ok(ComparedPolicy {
            title: given.to_owned(),
            loaded: without_compatibility(&compiled.loaded_document),
            compatibility: compiled.policy.compatibility(),
            effective: compiled.effective_document,
            report: policy_report(&compiled.report),
        }),
        // A document without effect has no difference: that is another exit code than 1.
        Err(found) => {
            let mut lines: Vec<String> = found
                .diagnostics
                .iter()
                .map(|diagnostic| format!("{given}:{diagnostic}"))
                .collect();
            lines.push(format!("error: {given}: a server would reject it"));
            Err(CommandError::Usage(lines.join("\n")))
        }
    }
}

struct PolicyDiff {
    before: ComparedPolicy,
    after: ComparedPolicy,
    changes: Vec<DocumentChange>,
    impact: Option<PolicyImpact>,
    /// Jobs that a whole cycle treats differently. `None`: no cycle was compared.
    cycles: Option<Vec<JobDifference>>,
}

/// Diagnostics that only one side has, compared without line numbers.
fn diagnostics_only_in<'f>(own: &'f pb::PolicyReport, other: &pb::PolicyReport) -> Vec<&'f pb::Diagnostic> {
    let key = |diagnostic: &pb::Diagnostic| {
        (
            diagnostic.code.clone(),
            diagnostic.path.clone(),
            diagnostic.message.clone(),
        )
    };
    let others: BTreeSet<_> = other.diagnostics.iter().map(key).collect();
    own.diagnostics
        .iter()
        .filter(|diagnostic| !others.contains(&key(diagnostic)))
        .collect()
}

impl PolicyDiff {
    fn new(
        before: ComparedPolicy,
        after: ComparedPolicy,
        impact: Option<PolicyImpact>,
    ) -> Result<PolicyDiff, CommandError> {
        let changes = document_diff::changes(&before.effective, &after.effective)
            .map_err(|error| CommandError::message(format!("error: an effective document: {error}")))?;
        Ok(PolicyDiff {
            before,
            after,
            changes,
            impact,
            cycles: None,
        })
    }

    fn show(&self) -> Result<(), CommandError> {
        let (before, after) = (&self.before, &self.after);
        if self.changes.is_empty() {
            output::line(&format!("{} and {} take effect alike", before.title, after.title))?;
        } else {
            output::line(&format!("{} → {}", before.title, after.title))?;
        }
        for change in &self.changes {
            output::line(&change.line())?;
        }
        for (head, diagnostics) in [
            (
                "diagnostics that go",
                diagnostics_only_in(&before.report, &after.report),
            ),
            (
                "diagnostics that come",
                diagnostics_only_in(&after.report, &before.report),
            ),
        ] {
            if !diagnostics.is_empty() {
                output::line(&format!("{head}:"))?;
            }
            for diagnostic in diagnostics {
                output::line(&format!("  {}", output::diagnostic(diagnostic)))?;
            }
        }
        let mut changes = self.changed_rules().peekable();
        if changes.peek().is_some() {
            output::line("rules that differ between the releases, with the change upstream:")?;
        }
        for change in changes {
            output::line(&format!("  {}", change.line()))?;
        }
        if let Some(effect) = &self.impact {
            effect.show()?;
        }
        self.show_cycles()
    }

    fn changed_rules(&self) -> impl Iterator<Item = &'static ReleaseChange> {
        let [before, after] = [&self.before, &self.after].map(|policy| policy.compatibility.release());
        before.changes_between(after)
    }

    fn show_cycles(&self) -> Result<(), CommandError> {
        let Some(jobs) = &self.cycles else { return Ok(()) };
        if jobs.is_empty() {
            return output::line("a whole cycle ends alike for every job");
        }
        output::line("a whole cycle ends differently for these jobs:")?;
        let mut table = TextTable::new(["JOB", "BEFORE", "AFTER", "BY"]);
        for own in jobs {
            table.row([own.job.clone(), own.before.text(), own.after.text(), own.cause()]);
        }
        output::table(&table)
    }

    fn json(&self) -> serde_json::Value {
        let diagnostics = |found: Vec<&pb::Diagnostic>| -> Vec<serde_json::Value> {
            let diagnostic =
                |one: &pb::Diagnostic| json!({ "code": one.code, "message": one.message, "path": one.path });
            found.into_iter().map(diagnostic).collect()
        };
        json!({
            "before": self.before.title,
            "after": self.after.title,
            "same": self.changes.is_empty(),
            "changes": self.changes,
            "diagnosticsRemoved": diagnostics(diagnostics_only_in(&self.before.report, &self.after.report)),
            "diagnosticsAdded": diagnostics(diagnostics_only_in(&self.after.report, &self.before.report)),
            "impact": self.impact,
            "rules": self.changed_rules().map(ReleaseChange::line).collect::<Vec<_>>(),
            "cycleDifferences": self.cycles,
        })
    }
}
