//! `pumice policy test`: runs files of cases in this process with the code of the service.

mod case;
mod compare;
mod expect;
mod junit;
mod query;
mod witness;
mod yaml;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use regex::Regex;
use serde_json::json;

use crate::cycle_outcome;
use case::PolicyTestCase;
use compare::{CaseMismatch, CaseResult};
use pumice_console::not_evaluated::{self, UnevaluatedRow, UnevaluatedSet};
use pumice_console::state_check::{self, StateWarning};
use pumice_console::{CommandError, OutputFormat, output};
use pumice_console::{LocalServer, LocalServices};
use pumice_protocol::v1 as pb;
use query::CaseQuery;
pub use witness::{RecordField, WitnessFile, record_fields, without_field};

/// Arguments of `pumice policy test`.
#[derive(Debug, Args)]
pub struct TestPolicyArgs {
    /// Files with cases, or directories: every .yaml and .yml file below that has `cases`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Run only cases whose `FILE: NAME` matches this regular expression, such as 'gang'
    #[arg(long, value_name = "REGEX")]
    run: Option<Regex>,
    /// Fail on warnings about the clusters of the cases
    #[arg(long)]
    strict: bool,
    /// Also write a `JUnit` report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

#[derive(Debug, Default)]
struct CaseOutcome {
    file: String,
    line: u32,
    name: String,
    mismatches: Vec<CaseMismatch>,
    /// Fields of the task and of nodes that the result leaves out.
    not_evaluated: Vec<UnevaluatedRow>,
}

/// Runs the cases and prints their outcomes.
pub async fn run(args: TestPolicyArgs, services: &dyn LocalServices) -> Result<(), CommandError> {
    let mut local = services.start().await?;
    let mut outcomes = Vec::new();
    let mut warning_count = 0;
    for path in case_files(&args.files)? {
        let shown = path.display().to_string();
        let text = pumice_console::files::read_text(&path)?;
        let cases = match case::read_cases(&path, &text)? {
            Ok(cases) => cases,
            Err(problem) => {
                outcomes.push(unreadable_file(shown, &problem));
                continue;
            }
        };
        let mut warnings: BTreeSet<StateWarning> = BTreeSet::new();
        for case in cases {
            let full = format!("{shown}: {}", case.name);
            if args.run.as_ref().is_none_or(|run| run.is_match(&full)) {
                warnings.extend(case.setup.import_warnings.iter().cloned());
                warnings.extend(state_check::check_cluster(&case.setup.cluster, services));
                outcomes.push(run_case(&mut local, services, &shown, case).await);
            }
        }
        let warnings: Vec<StateWarning> = warnings.into_iter().collect();
        for group in state_check::group(&warnings) {
            output::note(&format!("{shown}: {}", group.line()));
        }
        warning_count += warnings.len();
    }
    if let Some(file) = &args.junit {
        std::fs::write(file, junit::report(&outcomes)).map_err(|error| CommandError::file_error(file, &error))?;
    }
    show(&outcomes, args.output)?;
    let failed = outcomes.iter().filter(|one| !one.mismatches.is_empty()).count();
    match (outcomes.len(), failed) {
        (0, _) => Err(CommandError::message("error: there is no case to run")),
        (_, 0) => state_check::refuse_strict(args.strict, warning_count, ""),
        (_, failed) => Err(CommandError::message(format!(
            "error: {} failed",
            output::count(failed, "case")
        ))),
    }
}

/// All files; files of directories are sorted by path. Files of directories without cases are skipped, and their number
/// is reported.
fn case_files(given: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    let mut passed_over = 0;
    for path in given {
        if path.is_dir() {
            let mut found = Vec::new();
            collect_yaml_files(path, &mut found)?;
            found.sort();
            for file in found {
                let text = std::fs::read_to_string(&file).map_err(|error| CommandError::file_error(&file, &error))?;
                if case::has_cases(&text) {
                    files.push(file);
                } else {
                    passed_over += 1;
                }
            }
        } else {
            files.push(path.clone());
        }
    }
    if passed_over > 0 {
        output::note(&format!(
            "note: {} without `cases` passed over",
            output::count(passed_over, "file")
        ));
    }
    Ok(files)
}

fn collect_yaml_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), CommandError> {
    let entries = std::fs::read_dir(folder).map_err(|error| CommandError::file_error(folder, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| CommandError::file_error(folder, &error))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        // A link to a folder may lead round in a circle.
        if path.is_dir() && !path.is_symlink() {
            collect_yaml_files(&path, found)?;
        } else if matches!(ending, Some("yaml" | "yml")) {
            found.push(path);
        }
    }
    Ok(())
}

fn unreadable_file(file: String, problem: &yaml::CaseFileError) -> CaseOutcome {
    CaseOutcome {
        file,
        line: problem.line,
        name: "the file".to_owned(),
        mismatches: vec![CaseMismatch {
            line: problem.line,
            subject: format!("column {}", problem.column),
            expected: "a file of cases".to_owned(),
            actual: problem.message.clone(),
        }],
        not_evaluated: Vec::new(),
    }
}

async fn run_case(
    local: &mut LocalServer,
    services: &dyn LocalServices,
    file: &str,
    case: PolicyTestCase,
) -> CaseOutcome {
    let mut unevaluated = UnevaluatedSet::default();
    let result = evaluate_case(local, services, &case).await;
    let result = result.or_else(|failure| failure.problem().map(CaseResult::Failed).ok_or(failure));
    let mismatches = match result {
        Ok(result) => {
            unevaluated.add(result.not_evaluated(), 1);
            compare::check(&case.expected, &result)
        }
        Err(failure) => vec![CaseMismatch {
            line: case.line,
            subject: "query".to_owned(),
            expected: "a result".to_owned(),
            actual: failure.to_string(),
        }],
    };
    CaseOutcome {
        file: file.to_owned(),
        line: case.line,
        name: case.name,
        mismatches,
        not_evaluated: unevaluated.rows(),
    }
}

async fn evaluate_case(
    local: &mut LocalServer,
    services: &dyn LocalServices,
    case: &PolicyTestCase,
) -> Result<CaseResult, CommandError> {
    let inline = pb::InlineSnapshot {
        cluster: Some(case.setup.cluster.clone()),
        policy_document: case.setup.document.clone(),
        profile: case.setup.profile.clone(),
        compatibility: case.setup.compatibility.clone(),
    };
    let evaluation_ref = Some(pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        ..pb::EvaluationRef::default()
    });
    let decisions = &mut local.connection.decisions;
    let result = match case.query.clone() {
        CaseQuery::Filter(mut request) => {
            request.against = evaluation_ref;
            let reply = decisions.filter(request).await?.into_inner();
            let mut items = reply.result.unwrap_or_default().items.into_iter();
            items.next().map(CaseResult::Filter)
        }
        CaseQuery::Score(mut request) => {
            request.against = evaluation_ref;
            let reply = decisions.score(request).await?.into_inner();
            let mut items = reply.result.unwrap_or_default().items.into_iter();
            items.next().map(CaseResult::Score)
        }
        CaseQuery::Place(mut request) => {
            request.against = evaluation_ref;
            let reply = decisions.place(*request).await?.into_inner();
            let mut groups = reply.result.unwrap_or_default().groups.into_iter();
            groups.next().map(CaseResult::Place)
        }
        CaseQuery::Admit(mut request) => {
            request.against = evaluation_ref;
            let reply = decisions.admit(request).await?.into_inner();
            let items = reply.result.unwrap_or_default().items;
            items.into_iter().next_back().map(CaseResult::Admit)
        }
        CaseQuery::Order(mut request) => {
            request.against = evaluation_ref;
            let reply = decisions.order(request).await?.into_inner();
            Some(CaseResult::Order(reply.result.unwrap_or_default()))
        }
        CaseQuery::Victims(mut request) => {
            request.against = evaluation_ref;
            let candidates = request.groups.iter().flat_map(|group| &group.candidates);
            let names = candidates.map(|task| task.name.clone()).collect();
            let reply = decisions.select_victims(request).await?.into_inner();
            let mut items = reply.result.unwrap_or_default().items.into_iter();
            items.next().map(|item| CaseResult::Victims(item, names))
        }
        CaseQuery::Cycle => Some(run_cycle(services, case)?),
    };
    result.ok_or_else(|| CommandError::message("error: no result came"))
}

/// Runs the cycle of a case.
fn run_cycle(services: &dyn LocalServices, case: &PolicyTestCase) -> Result<CaseResult, CommandError> {
    let setup = &case.setup;
    let policy = match setup.policy(services.built_in_policy()) {
        Ok(policy) => policy,
        Err(rejection) => return Ok(CaseResult::Failed(rejection)),
    };
    cycle_outcome::note_unsimulated_actions(&policy, &case.name);
    let cluster = services.read_cluster(setup.cluster.clone(), policy.compatibility());
    let cluster = cluster.ok_or_else(|| CommandError::message("a record of the cluster is invalid"))?;
    match cycle_outcome::run(&policy, cluster) {
        Ok(Some(outcomes)) => Ok(CaseResult::Cycle(outcomes)),
        Ok(None) => Err(CommandError::message("the policy has no actions, and so no cycle")),
        Err(problem) => Ok(CaseResult::Failed(pb::Problem {
            reason: problem.code.name().to_owned(),
            message: problem.message,
            field: problem.field,
            ..pb::Problem::default()
        })),
    }
}

fn show(outcomes: &[CaseOutcome], format: OutputFormat) -> Result<(), CommandError> {
    let failed = outcomes.iter().filter(|one| !one.mismatches.is_empty()).count();
    if format == OutputFormat::Json {
        let case = |one: &CaseOutcome| {
            json!({
                "file": one.file,
                "line": one.line,
                "name": one.name,
                "passed": one.mismatches.is_empty(),
                "mismatches": one.mismatches,
                "notEvaluated": one.not_evaluated,
            })
        };
        let cases: Vec<_> = outcomes.iter().map(case).collect();
        let all = json!({ "passed": outcomes.len() - failed, "failed": failed, "cases": cases });
        return output::line(&format!("{all:#}"));
    }
    for one in outcomes {
        if one.mismatches.is_empty() {
            output::line(&format!("ok    {}: {}", one.file, one.name))?;
            if let Some(sentence) = not_evaluated::sentence(&one.not_evaluated) {
                output::line(&format!("        {sentence}"))?;
            }
            continue;
        }
        output::line(&format!("FAIL  {}:{}: {}", one.file, one.line, one.name))?;
        for mismatch in &one.mismatches {
            output::line(&mismatch_text(mismatch))?;
        }
    }
    output::line(&format!("{} passed, {failed} failed", outcomes.len() - failed))
}

fn mismatch_text(mismatch: &CaseMismatch) -> String {
    let CaseMismatch {
        line,
        subject: what,
        expected,
        actual: got,
    } = mismatch;
    format!("        line {line}, {what}\n          expected  {expected}\n          got       {got}")
}
