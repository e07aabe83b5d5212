//! `pumice policy diff`: what differs between two policies as they take effect, and whom it touches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::connect::Connection;
use super::policy_change::{self, Change};
use super::policy_effect::{self, Effect};
use super::{Client, Failure, Format, output, state_load};
use crate::engine::policy::{Compatibility, CompileOptions, Limits, compile};
use crate::import::Counting;
use crate::server::convert::policy::report;
use crate::server::pb;

/// Arguments of `pumice policy diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// A document (`-`: standard input), or a stored version as NAME@VERSION; NAME@active is the one in force
    #[arg(value_name = "BEFORE")]
    before: String,
    /// Likewise; without it, BEFORE is compared with default@active as what is to come
    #[arg(value_name = "AFTER")]
    after: Option<String>,
    /// Also show whose best nodes change, in the cluster of these files (as for `state load`)
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    cluster: Vec<PathBuf>,
    /// Also show whose best nodes change, among what the server knows
    #[arg(long)]
    state: bool,
    /// Judge the pods of this file; without it, the tasks that wait in the cluster
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    /// How the amounts of pods in files are counted
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = state_load::counting())]
    derivation: Counting,
    /// Profile of both policies, if they are a `KubeSchedulerConfiguration` with several
    #[arg(long, value_name = "NAME")]
    policy_profile: Option<String>,
    #[command(flatten)]
    client: Client,
}

/// One of the two.
#[derive(Debug)]
pub(super) struct Side {
    title: String,
    /// With every default put in; it reads back to itself.
    pub(super) effective: String,
    report: pb::PolicyReport,
}

/// Runs it; true: the same.
pub(super) async fn run(args: DiffArgs) -> Result<bool, Failure> {
    let mut server = None;
    let (before, after) = match &args.after {
        Some(after) => (args.before.as_str(), after.as_str()),
        None => ("default@active", args.before.as_str()),
    };
    let before = side(before, &args, &mut server).await?;
    let after = side(after, &args, &mut server).await?;
    let changes = policy_change::changes(&before.effective, &after.effective)
        .map_err(|error| Failure::said(format!("error: an effective document: {error}")))?;
    let effect = if args.state || !args.cluster.is_empty() {
        let cluster = if args.state {
            super::records::Records::read(connection(&args, &mut server).await?)
                .await?
                .cluster
        } else {
            super::state_watch::import(&args.cluster, args.derivation)?
        };
        let tasks = match &args.task {
            Some(file) => super::state_watch::import(std::slice::from_ref(file), args.derivation)?.tasks,
            None => policy_effect::waiting(&cluster),
        };
        let profile = args.policy_profile.as_deref().unwrap_or_default();
        Some(policy_effect::effect([&before.effective, &after.effective], profile, cluster, &tasks).await?)
    } else if args.task.is_some() {
        return Err(Failure::Usage(
            "error: --task needs a cluster: --cluster FILE or --state".to_owned(),
        ));
    } else {
        None
    };
    let found = Found {
        before,
        after,
        changes,
        effect,
    };
    match args.client.output {
        Format::Table => found.show()?,
        Format::Json => output::line(&format!("{:#}", found.json()))?,
    }
    Ok(found.changes.is_empty())
}

async fn connection<'c>(args: &DiffArgs, server: &'c mut Option<Connection>) -> Result<&'c mut Connection, Failure> {
    let open = match server.take() {
        Some(open) => open,
        None => Connection::open(&args.client.server).await?,
    };
    Ok(server.insert(open))
}

async fn side(given: &str, args: &DiffArgs, server: &mut Option<Connection>) -> Result<Side, Failure> {
    let path = Path::new(given);
    match given.rsplit_once('@') {
        Some((name, version)) if !path.exists() => {
            let version = match version {
                "" | "active" => 0,
                number => number.parse().map_err(|_| {
                    Failure::Usage(format!(
                        "error: `{given}`: `{number}` is no version; write NAME@7 or NAME@active"
                    ))
                })?,
            };
            stored(name, version, connection(args, server).await?).await
        }
        _ if given != "-" && !path.exists() => Err(Failure::Usage(format!(
            "error: `{given}` is no file; a stored version is written NAME@VERSION"
        ))),
        _ => document(given, &state_load::text(path)?),
    }
}

async fn stored(name: &str, version: u64, server: &mut Connection) -> Result<Side, Failure> {
    let request = pb::GetPolicyRequest {
        name: name.to_owned(),
        version,
    };
    let reply = server.policies.get_policy(request).await?.into_inner();
    let policy = reply.policy.unwrap_or_default();
    Ok(Side {
        title: format!("{}@{}", policy.name, policy.version),
        effective: policy.effective_document,
        report: reply.report.unwrap_or_default(),
    })
}

fn document(given: &str, text: &str) -> Result<Side, Failure> {
    let options = CompileOptions {
        limits: Limits::default(),
        compatibility: Compatibility::default(),
        strict: false,
    };
    match compile(text, &options) {
        Ok(compiled) => Ok(Side {
            title: given.to_owned(),
            effective: compiled.effective_document,
            report: report(&compiled.report),
        }),
        // A document without effect has no difference: that is another exit code than 1.
        Err(found) => {
            let mut lines: Vec<String> = found
                .findings
                .iter()
                .map(|finding| format!("{given}:{finding}"))
                .collect();
            lines.push(format!("error: {given}: a server would refuse it"));
            Err(Failure::Usage(lines.join("\n")))
        }
    }
}

struct Found {
    before: Side,
    after: Side,
    changes: Vec<Change>,
    effect: Option<Effect>,
}

/// Findings of one side that the other does not have, wherever they stand.
fn only<'f>(own: &'f pb::PolicyReport, other: &pb::PolicyReport) -> Vec<&'f pb::Finding> {
    let key = |finding: &pb::Finding| (finding.code.clone(), finding.path.clone(), finding.message.clone());
    let others: BTreeSet<_> = other.findings.iter().map(key).collect();
    own.findings
        .iter()
        .filter(|finding| !others.contains(&key(finding)))
        .collect()
}

impl Found {
    fn show(&self) -> Result<(), Failure> {
        let (before, after) = (&self.before, &self.after);
        if self.changes.is_empty() {
            output::line(&format!("{} and {} take effect alike", before.title, after.title))?;
        } else {
            output::line(&format!("{} → {}", before.title, after.title))?;
        }
        for change in &self.changes {
            output::line(&change.line())?;
        }
        for (head, findings) in [
            ("findings that go", only(&before.report, &after.report)),
            ("findings that come", only(&after.report, &before.report)),
        ] {
            if !findings.is_empty() {
                output::line(&format!("{head}:"))?;
            }
            for finding in findings {
                output::line(&format!("  {}", output::finding(finding)))?;
            }
        }
        match &self.effect {
            Some(effect) => effect.show(),
            None => Ok(()),
        }
    }

    fn json(&self) -> serde_json::Value {
        let findings = |found: Vec<&pb::Finding>| -> Vec<serde_json::Value> {
            let finding = |one: &pb::Finding| json!({ "code": one.code, "message": one.message, "path": one.path });
            found.into_iter().map(finding).collect()
        };
        json!({
            "before": self.before.title,
            "after": self.after.title,
            "same": self.changes.is_empty(),
            "changes": self.changes,
            "findingsGone": findings(only(&self.before.report, &self.after.report)),
            "findingsNew": findings(only(&self.after.report, &self.before.report)),
            "decisions": self.effect,
        })
    }
}
