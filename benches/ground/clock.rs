//! How long a path takes: the shortest and the middle one of many runs, in rounds.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::{Duration, Instant};

/// Runs that are timed together last at least so long, so that the clock itself does not count.
const AT_LEAST: Duration = Duration::from_micros(20);

/// Times of a run within one round, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) shortest: f64,
    pub(crate) median: f64,
}

/// Runs for so long, at least three times.
pub(crate) fn round(run: &mut dyn FnMut(), budget: Duration) -> Round {
    let together = together(run);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < 3 || begin.elapsed() < budget {
        let started = Instant::now();
        for _ in 0..together {
            run();
        }
        times.push(started.elapsed().as_nanos() as f64 / f64::from(together));
    }
    times.sort_unstable_by(f64::total_cmp);
    Round {
        shortest: times.first().copied().unwrap_or_default(),
        median: median(&times),
    }
}

/// How many runs are timed together.
fn together(run: &mut dyn FnMut()) -> u32 {
    let mut together = 1;
    loop {
        let started = Instant::now();
        for _ in 0..together {
            run();
        }
        if started.elapsed() >= AT_LEAST || together >= 1 << 16 {
            return together;
        }
        together *= 2;
    }
}

/// The middle of sorted figures, 0 of none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The middle one of the rounds' shortest times, and of their medians.
pub(crate) fn middle(rounds: &[Round]) -> [f64; 2] {
    let of: [fn(&Round) -> f64; 2] = [|round| round.shortest, |round| round.median];
    of.map(|of| {
        let mut figures: Vec<f64> = rounds.iter().map(of).collect();
        figures.sort_unstable_by(f64::total_cmp);
        median(&figures)
    })
}
