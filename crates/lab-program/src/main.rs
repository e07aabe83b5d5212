//! The program `pumice-lab`: it measures a running server, repeats published experiments, searches policies, computes
//! bounds for placements, and writes the man pages. The service and its command line do not need its libraries.

mod bound;
mod commands;
mod curves;
mod experiments;
mod man;
mod reproduce;
mod tune;

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    pumice::cli::run_program::<commands::LabCommand>()
}
