//! `pumice policy diff`: differences between two policies as they take effect, and the tasks that they touch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::document_diff::{self, DocumentChange};
use super::local_services::ProgramServices;
use super::policy_cycles::{self, JobDifference};
use super::policy_impact::{self, PolicyImpact};
use crate::server::convert::policy::policy_report;
use pumice_console::output::TextTable;
use pumice_console::{ClientArgs, CommandError, LocalServices as _, OutputFormat, args, files, import_files, output};
use pumice_engine::policy::{Compatibility, CompileOptions, Release, YamlLimits, compile};
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
    title: String,
    /// Document with every default; reading it gives the same document.
    pub(super) effective: String,
    report: pb::PolicyReport,
    /// Release that the policy follows; of `corrected` the newest.
    release: Release,
}

/// Runs the command. Returns whether the policies are the same.
pub(super) async fn run(args: DiffPolicyArgs) -> Result<bool, CommandError> {
    let mut server = None;
    let [before, after] = compared(&args, &mut server).await?;
    let mut cycles = None;
    let impact = if args.state || !args.cluster.is_empty() {
        let [old, cluster] = clusters(&args, [&before, &after], &mut server).await?;
        let states = [old, cluster.clone()].map(|cluster| ProgramServices.read_cluster(cluster));
        if let [Some(old), Some(new)] = states {
            cycles = policy_cycles::compare([&before.effective, &after.effective], [old, new])?;
        }
        let tasks = match &args.task {
            Some(file) => {
                let imported = import_files::read(std::slice::from_ref(file), args.derivation)?;
                imported.report();
                imported.cluster.tasks
            }
            None => policy_impact::pending_tasks(&cluster),
        };
        let profile = args.policy_profile.as_deref().unwrap_or_default();
        Some(policy_impact::compute_impact([&before.effective, &after.effective], profile, cluster, &tasks).await?)
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
        let [from, to] = releases.map(|release| document.under(release));
        return Ok([from?, to?]);
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

/// The cluster as each policy reads it: amounts of pods in files follow the release.
async fn clusters(
    args: &DiffPolicyArgs,
    policies: [&ComparedPolicy; 2],
    server: &mut Option<ClientConnection>,
) -> Result<[pb::Cluster; 2], CommandError> {
    if args.state {
        let read = super::records::ClusterRecords::read(open_connection(args, server).await?).await?;
        return Ok([read.cluster.clone(), read.cluster]);
    }
    let read = |policy: &ComparedPolicy| import_cluster(&args.cluster, args.derivation.of_release(policy.release));
    Ok([read(policies[0])?, read(policies[1])?])
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

/// Records of files; all that is odd about them goes to standard error.
fn import_cluster(files: &[PathBuf], amount_rules: AmountRules) -> Result<pb::Cluster, CommandError> {
    let imported = import_files::read(files, amount_rules)?.checked(&ProgramServices);
    imported.report();
    Ok(imported.cluster)
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
        _ => document_policy(given, &files::read_text(path)?),
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
        effective: policy.effective_document.clone(),
        report: report.clone(),
        release: Release::default(),
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
            release: release_of(&policy.effective_document),
            effective: policy.effective_document,
            report: reply.report.unwrap_or_default(),
        }
    }

    /// The same policy under a release.
    fn under(&self, compatibility: Compatibility) -> Result<Self, CommandError> {
        let line = |line: &str| match line.split_once("compatibility: ") {
            Some((indent, _)) if indent.trim().is_empty() => format!("{indent}compatibility: {}", compatibility.name()),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = self.effective.lines().map(line).collect();
        let title = format!("{} under {}", self.title, compatibility.name());
        document_policy(&title, &format!("{}\n", lines.join("\n")))
    }
}

/// Release that an effective document follows.
fn release_of(effective: &str) -> Release {
    let compiled = compile(effective, &CompileOptions::default());
    compiled.map_or_else(
        |_| Release::default(),
        |compiled| compiled.policy.compatibility().release(),
    )
}

fn document_policy(given: &str, text: &str) -> Result<ComparedPolicy, CommandError> {
    let options = CompileOptions {
        limits: YamlLimits::default(),
        compatibility: Compatibility::default(),
        strict: false,
    };
    match compile(text, &options) {
        Ok(compiled) => Ok(ComparedPolicy {
            title: given.to_owned(),
            release: compiled.policy.compatibility().release(),
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
        let mut changes = before.release.changes_between(after.release).peekable();
        if changes.peek().is_some() {
            output::line("rules that differ between the releases, with the change upstream:")?;
        }
        for (number, text) in changes {
            output::line(&format!("  {number}: {text}"))?;
        }
        if let Some(effect) = &self.impact {
            effect.show()?;
        }
        self.show_cycles()
    }

    fn show_cycles(&self) -> Result<(), CommandError> {
        let Some(jobs) = &self.cycles else { return Ok(()) };
        if jobs.is_empty() {
            return output::line("a whole cycle ends alike for every job");
        }
        output::line("a whole cycle ends differently for these jobs:")?;
        let mut table = TextTable::new(["JOB", "BEFORE", "AFTER"]);
        for own in jobs {
            table.row([own.job.clone(), own.before.text(), own.after.text()]);
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
            "rules": self.before.release.changes_between(self.after.release).collect::<Vec<_>>(),
            "cycleDifferences": self.cycles,
        })
    }
}
