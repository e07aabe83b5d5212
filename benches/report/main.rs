//! Measurements of the service, engine and wire: `report [--quick] [--portable FILE] [--program FILE] [--out FILE]` measures,
//! prints a table and writes a flat JSON object; `report calls` measures only calls beside a bare server; `report page FILE`
//! writes them into the page and its drawing.
#![expect(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

mod bare;
mod calls;
mod changes;
mod deltas;
mod engine;
mod floor;
mod grpc;
mod load;
mod machine;
mod measurements;
mod page;
mod print;
mod security;
mod server;
mod sessions;
mod shapes;
mod storm;

#[path = "../fixtures"]
mod fixtures {
    pub(crate) mod bare_service;
    pub(crate) mod clock;
    pub(crate) mod cycle;
    pub(crate) mod fair_share;
    pub(crate) mod gang;
    pub(crate) mod jobs;
    pub(crate) mod paths;
    pub(crate) mod pods;
    pub(crate) mod queue_quota;
    pub(crate) mod records;
    pub(crate) mod shared_devices;
    pub(crate) mod single_plugin;
    pub(crate) mod stored_verdicts;
    pub(crate) mod task_class;
}

use std::io::Write as _;
use std::path::PathBuf;

use measurements::MeasurementReport;
use mimalloc::MiMalloc;

/// The program's: the bare server has it as well.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Arguments of the program.
#[derive(Debug, Default)]
struct ReportArguments {
    quick: bool,
    /// True if only calls beside a bare server are measured.
    calls_only: bool,
    portable: Option<PathBuf>,
    out: Option<PathBuf>,
    page: Option<PathBuf>,
    /// Program that is measured.
    program: Option<PathBuf>,
}

impl ReportArguments {
    fn read(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(argument) = given.next() {
            let mut file = || {
                given
                    .next()
                    .map(PathBuf::from)
                    .ok_or(format!("{argument} needs a file"))
            };
            match argument.as_str() {
                "--quick" => arguments.quick = true,
                "calls" => arguments.calls_only = true,
                "--program" => arguments.program = Some(file()?),
                "--portable" => arguments.portable = Some(file()?),
                "--out" => arguments.out = Some(file()?),
                "page" => arguments.page = Some(file()?),
                // Flag that cargo passes to benches.
                "--bench" => {}
                _ => return Err(format!("unknown argument `{argument}`")),
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1).peekable();
    if given.next_if_eq(bare::COMMAND).is_some() {
        return bare::serve(&given.next().unwrap_or_default());
    }
    let arguments = ReportArguments::read(given)?;
    if let Some(program) = arguments.program {
        server::PROGRAM.get_or_init(|| program);
    }
    if let Some(file) = &arguments.page {
        return page::write(&MeasurementReport::read(file)?);
    }
    let mut report = MeasurementReport::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    machine::describe(&mut report, arguments.quick);
    if arguments.calls_only {
        runtime.block_on(grpc::measure_beside_bare(&mut report, arguments.quick));
        writeln!(std::io::stdout(), "{}", print::measured(&report))?;
        return Ok(());
    }
    if let Some(file) = &arguments.portable {
        engine::take_portable(&mut report, &std::fs::read_to_string(file)?);
    }
    log_progress("the engine, on one thread");
    engine::measure(&mut report, arguments.quick);
    log_progress("questions over gRPC");
    runtime.block_on(grpc::measure(&mut report, arguments.quick));
    log_progress("TLS and roles");
    runtime.block_on(security::measure(&mut report, arguments.quick));
    log_progress("loading over gRPC");
    runtime.block_on(load::measure(&mut report, arguments.quick));
    report.derive();
    writeln!(std::io::stdout(), "{}", print::for_people(&report))?;
    if let Some(file) = &arguments.out {
        report.write(file)?;
        log_progress(&format!("written to {}", file.display()));
    }
    let missing = report.missing();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("not measured: {}", missing.join(", ")).into())
}

/// Reports progress to whoever waits.
fn log_progress(what: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{what}");
}
