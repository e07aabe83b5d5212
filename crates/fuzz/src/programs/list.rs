//! Program that lists the targets: each with its program, its largest input, and whether it needs Go. With a folder it also writes the
//! first inputs there.

use std::path::PathBuf;

use pumice_fuzz::{PROGRAMS, seeds};

fn main() {
    for (program, targets) in PROGRAMS {
        for target in targets {
            println!("{} {program} {} {}", target.name, target.most_bytes, target.needs_go);
        }
    }
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return;
    };
    for seed in seeds::all() {
        let own = folder.join(seed.target);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join(seed.name), seed.bytes).unwrap();
    }
}
