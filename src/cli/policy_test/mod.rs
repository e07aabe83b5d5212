//! `pumice policy test`: files of cases, judged in this process by the service's own code.

mod case;
mod compare;
mod expect;
mod yaml;

use std::path::{Path, PathBuf};

use clap::Args;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use regex::Regex;
use serde_json::json;

use super::local::Local;
use super::{Failure, Format, output};
use crate::server::pb;
use case::{Case, Question};
use compare::{Answer, Mismatch};

/// Arguments of `pumice policy test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Files of cases, or folders: every .yaml and .yml below that has `cases`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only cases whose `FILE: NAME` matches
    #[arg(long, value_name = "REGEX")]
    run: Option<Regex>,
    /// Also write a report in the form of `JUnit`
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// How the outcome is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// How one case came out.
#[derive(Debug)]
struct Outcome {
    file: String,
    line: u32,
    name: String,
    mismatches: Vec<Mismatch>,
}

/// Runs it.
pub(super) async fn run(args: TestArgs) -> Result<(), Failure> {
    let mut local = Local::start().await?;
    let mut outcomes = Vec::new();
    for path in files(&args.files)? {
        let shown = path.display().to_string();
        let text = super::state_load::text(&path)?;
        let cases = match case::read(&path, &text)? {
            Ok(cases) => cases,
            Err(fault) => {
                outcomes.push(unreadable(shown, &fault));
                continue;
            }
        };
        for case in cases {
            let full = format!("{shown}: {}", case.name);
            if args.run.as_ref().is_none_or(|run| run.is_match(&full)) {
                outcomes.push(judge(&mut local, &shown, case).await);
            }
        }
    }
    if let Some(file) = &args.junit {
        std::fs::write(file, junit(&outcomes)?).map_err(|error| Failure::file(file, &error))?;
    }
    show(&outcomes, args.output)?;
    let failed = outcomes.iter().filter(|one| !one.mismatches.is_empty()).count();
    match (outcomes.len(), failed) {
        (0, _) => Err(Failure::said("error: there is no case to run")),
        (_, 0) => Ok(()),
        (_, failed) => Err(Failure::said(format!(
            "error: {} failed",
            output::count(failed, "case")
        ))),
    }
}

/// All files, those of folders by path; files of a folder without cases are passed over, and counted.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut passed_over = 0;
    for path in given {
        if path.is_dir() {
            let mut found = Vec::new();
            below(path, &mut found)?;
            found.sort();
            for file in found {
                let text = std::fs::read_to_string(&file).map_err(|error| Failure::file(&file, &error))?;
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

fn below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::file(folder, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| Failure::file(folder, &error))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        // A link to a folder may lead round in a circle.
        if path.is_dir() && !path.is_symlink() {
            below(&path, found)?;
        } else if matches!(ending, Some("yaml" | "yml")) {
            found.push(path);
        }
    }
    Ok(())
}

fn unreadable(file: String, fault: &yaml::Fault) -> Outcome {
    Outcome {
        file,
        line: fault.line,
        name: "the file".to_owned(),
        mismatches: vec![Mismatch {
            line: fault.line,
            what: format!("column {}", fault.column),
            expected: "a file of cases".to_owned(),
            got: fault.message.clone(),
        }],
    }
}

async fn judge(local: &mut Local, file: &str, case: Case) -> Outcome {
    let mismatches = match ask(local, &case).await {
        Ok(answer) => compare::check(&case.expected, &answer),
        Err(failure) => vec![Mismatch {
            line: case.line,
            what: "question".to_owned(),
            expected: "an answer".to_owned(),
            got: failure.to_string(),
        }],
    };
    Outcome {
        file: file.to_owned(),
        line: case.line,
        name: case.name,
        mismatches,
    }
}

async fn ask(local: &mut Local, case: &Case) -> Result<Answer, Failure> {
    let inline = pb::Inline {
        cluster: Some(case.ground.cluster.clone()),
        policy_document: case.ground.document.clone(),
        profile: case.ground.profile.clone(),
        compatibility: case.ground.compatibility.clone(),
    };
    let ground = Some(pb::Ground {
        ground: Some(pb::ground::Ground::Inline(inline)),
        ..pb::Ground::default()
    });
    let decisions = &mut local.connection.decisions;
    let nothing = || Failure::said("error: no answer came");
    match case.question.clone() {
        Question::Filter(request) => {
            let reply = decisions
                .filter(pb::FilterRequest { ground, ..request })
                .await?
                .into_inner();
            let item = reply.answer.unwrap_or_default().items.into_iter().next();
            item.map(Answer::Filter).ok_or_else(nothing)
        }
        Question::Score(request) => {
            let reply = decisions
                .score(pb::ScoreRequest { ground, ..request })
                .await?
                .into_inner();
            let item = reply.answer.unwrap_or_default().items.into_iter().next();
            item.map(Answer::Score).ok_or_else(nothing)
        }
        Question::Admit(request) => {
            let reply = decisions
                .admit(pb::AdmitRequest { ground, ..request })
                .await?
                .into_inner();
            let item = reply.answer.unwrap_or_default().items.into_iter().next_back();
            item.map(Answer::Admit).ok_or_else(nothing)
        }
        Question::Order(request) => {
            let reply = decisions
                .order(pb::OrderRequest { ground, ..request })
                .await?
                .into_inner();
            Ok(Answer::Order(reply.answer.unwrap_or_default()))
        }
        Question::Victims(request) => {
            let candidates = request.groups.iter().flat_map(|group| &group.candidates);
            let names = candidates.map(|task| task.name.clone()).collect();
            let request = pb::SelectVictimsRequest { ground, ..request };
            let reply = decisions.select_victims(request).await?.into_inner();
            let item = reply.answer.unwrap_or_default().items.into_iter().next();
            item.map(|item| Answer::Victims(item, names)).ok_or_else(nothing)
        }
    }
}

fn show(outcomes: &[Outcome], format: Format) -> Result<(), Failure> {
    let failed = outcomes.iter().filter(|one| !one.mismatches.is_empty()).count();
    if format == Format::Json {
        let case = |one: &Outcome| {
            json!({
                "file": one.file,
                "line": one.line,
                "name": one.name,
                "passed": one.mismatches.is_empty(),
                "mismatches": one.mismatches,
            })
        };
        let cases: Vec<_> = outcomes.iter().map(case).collect();
        let all = json!({ "passed": outcomes.len() - failed, "failed": failed, "cases": cases });
        return output::line(&format!("{all:#}"));
    }
    for one in outcomes {
        if one.mismatches.is_empty() {
            output::line(&format!("ok    {}: {}", one.file, one.name))?;
            continue;
        }
        output::line(&format!("FAIL  {}:{}: {}", one.file, one.line, one.name))?;
        for mismatch in &one.mismatches {
            output::line(&told(mismatch))?;
        }
    }
    output::line(&format!("{} passed, {failed} failed", outcomes.len() - failed))
}

fn told(mismatch: &Mismatch) -> String {
    let Mismatch {
        line,
        what,
        expected,
        got,
    } = mismatch;
    format!("        line {line}, {what}\n          expected  {expected}\n          got       {got}")
}

/// A suite per file, a case per case.
fn junit(outcomes: &[Outcome]) -> Result<String, Failure> {
    let mut report = Report::new("pumice policy test");
    let mut suites: Vec<TestSuite> = Vec::new();
    for one in outcomes {
        let mut status = TestCaseStatus::success();
        if let Some(first) = one.mismatches.first() {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let details: Vec<String> = one.mismatches.iter().map(told).collect();
            status
                .set_message(format!(
                    "line {}, {}: expected {}, got {}",
                    first.line, first.what, first.expected, first.got
                ))
                .set_type("mismatch")
                .set_description(details.join("\n"));
        }
        let mut case = TestCase::new(one.name.clone(), status);
        case.set_classname(one.file.clone());
        match suites.last_mut() {
            Some(suite) if suite.name.as_str() == one.file => drop(suite.add_test_case(case)),
            _ => {
                let mut suite = TestSuite::new(one.file.clone());
                suite.add_test_case(case);
                suites.push(suite);
            }
        }
    }
    report.add_test_suites(suites);
    let text = report.to_string();
    text.map_err(|error| Failure::said(format!("error: the report: {error}")))
}
