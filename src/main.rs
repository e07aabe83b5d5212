//! The process: parses the command line, runs it, and exits with its code.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {}
