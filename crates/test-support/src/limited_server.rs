//! `pumice serve` with limits that are no settings: tests lower them, to reach them with little. The test program starts itself
//! as this server, so that the program of users needs no door for tests.

use std::process::Command;

use clap::{Args as _, FromArgMatches as _};
use pumice::config::ServeArgs;
use pumice::limits::{Limit, limits};
use tokio::signal::unix::{SignalKind, signal};

/// Flags of the server, one a line.
const FLAGS: &str = "PUMICE_TEST_FLAGS";

/// Limit that a flag such as `--stalled-ms` names; `None`: it is a flag of `serve`.
fn fixed_limit(flag: &str) -> Option<Limit> {
    let name = flag.strip_prefix("--")?.replace('-', "_");
    limits().find(|limit| limit.name() == name && limit.range().is_none())
}

/// Lets a command of the program serve with these flags. If one of them is a limit that is no setting, this test program
/// takes the place of the program.
pub(crate) fn serve_command(mut command: Command, flags: &[&str]) -> Command {
    let all = [&["--grpc-address", "127.0.0.1:0", "--log-format", "json"], flags].concat();
    if flags.iter().all(|flag| fixed_limit(flag).is_none()) {
        command.arg("serve").args(all);
        return command;
    }
    let mut own = Command::new(std::env::current_exe().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => own.env(name, value),
            None => own.env_remove(name),
        };
    }
    own.args(["limited_server", "--exact", "--ignored", "--nocapture", "--quiet"]);
    own.env(FLAGS, all.join("\n"));
    own
}

/// Number of a value such as `300` or `64Mi`.
fn number(value: &str) -> u64 {
    let (digits, shift) = [("Ki", 10), ("Mi", 20)]
        .into_iter()
        .find_map(|(suffix, shift)| Some((value.strip_suffix(suffix)?, shift)))
        .unwrap_or((value, 0));
    digits.parse::<u64>().unwrap() << shift
}

/// Serves with the flags and limits of `serve_command` until it is terminated. Test programs that lower limits call it in an
/// ignored test named `limited_server`.
#[expect(clippy::disallowed_methods, reason = "the flags come by the environment of a test")]
pub fn limited_server() {
    let Ok(flags) = std::env::var(FLAGS) else { return };
    let mut settings = vec!["serve"];
    let mut lowered = Vec::new();
    let mut flags = flags.lines();
    while let Some(flag) = flags.next() {
        match fixed_limit(flag) {
            Some(limit) => lowered.push((limit, number(flags.next().unwrap()))),
            None => settings.push(flag),
        }
    }
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let args = ServeArgs::from_arg_matches(&command.get_matches_from(settings)).unwrap();
    let mut config = args.resolve().unwrap().config;
    for (limit, value) in lowered {
        limit.set(&mut config.limits, value);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        let shutdown = async move {
            terminated.recv().await;
        };
        let _traces = pumice::telemetry::start_logging(&config.log_options()).unwrap();
        pumice::app::serve(config, shutdown).await.unwrap();
    });
}
