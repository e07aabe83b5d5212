//! Runs one hot path a given number of times and nothing else, for instruction counters: `counts PATH TIMES`, and `counts list` names the paths.
//!
//! Without arguments, as `cargo bench` and `cargo test` call it: every path, with the shortest time of a run.

mod ground;

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use pumice::engine::decide::{self, ScoreQuestion};

const NODES: u32 = 10_000;

/// Runs when no number is given.
const RUNS: usize = 400;

const PATHS: [&str; 4] = ["score_all", "score_best16", "filter", "filter_score_best16"];

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let times = arguments.get(1).and_then(|times| times.parse().ok());
    let mut out = std::io::stdout().lock();
    if arguments.first().is_some_and(|asked| asked == "list") {
        return writeln!(out, "{}", PATHS.join(" "));
    }
    for path in PATHS {
        if arguments.first().is_some_and(|asked| asked != path) {
            continue;
        }
        let shortest = run(path, times.unwrap_or(RUNS));
        let per_node = shortest as f64 / f64::from(NODES);
        writeln!(out, "{path}: {per_node:.2} ns per node of {NODES}")?;
    }
    Ok(())
}

/// The shortest run in nanoseconds.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn run(path: &str, times: usize) -> u128 {
    let (view, policy) = (ground::cluster(NODES), ground::policy());
    let all = ground::question(&view);
    let question = ScoreQuestion {
        with_filter: path == "filter_score_best16",
        limit: (path != "score_all").then_some(16),
        ..all.clone()
    };
    let mut shortest = u128::MAX;
    for _ in 0..times {
        let started = Instant::now();
        if path == "filter" {
            let _ = black_box(decide::filter(&view, &policy, black_box(&all.question)));
        } else {
            let _ = black_box(decide::score(&view, &policy, black_box(&question)));
        }
        shortest = shortest.min(started.elapsed().as_nanos());
    }
    shortest
}
