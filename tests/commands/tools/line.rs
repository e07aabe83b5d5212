//! Exit codes, profiles, colour, completions and manual.

use std::process::{Command, Output};

use super::{TestDirectory, err, out, pumice};
use crate::support::EmbeddedServer;

const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump.yaml");

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn exit_codes_are_what_the_help_says() {
    let help = out(&pumice(&["--help"]).output().unwrap());
    for line in [
        "0  success",
        "1  negative result",
        "2  invalid command line",
        "3  the server",
    ] {
        assert!(help.contains(line), "{help}");
    }
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    for (arguments, expected) in [
        (&["state", "show", "--server", &address][..], 0),
        (&["filter", "--cpu", "4x", "--server", &address], 1),
        (&["policy", "rollback", "99", "--server", &address], 1),
        (&["filter", "--server", &address], 2),
        (&["filter", "--cpu", "1", "--server", "https://127.0.0.1:1"], 2),
        (&["filter", "--cpu", "1", "--server", "no address"], 2),
        (&["filter", "--cpu", "1", "--server", "127.0.0.1:1"], 3),
    ] {
        let output = pumice(arguments).output().unwrap();
        assert_eq!(code(&output), expected, "{arguments:?}: {}", err(&output));
        assert_eq!(expected == 0, err(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case after another, each short")]
fn a_flag_goes_before_the_environment_before_the_profile_before_the_default() {
    let folder = TestDirectory::named("profiles");
    let server = EmbeddedServer::start();
    let file = folder.path().join("pumice").join("config.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(
        &file,
        format!(
            "default: gone\nprofiles:\n  gone: {{server: '127.0.0.1:1'}}\n  lab: {{server: '{}', output: json, policy: \
             volcano}}\n",
            server.grpc
        ),
    )
    .unwrap();
    let address = server.grpc.to_string();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = pumice(arguments);
        command
            .env("XDG_CONFIG_HOME", folder.path())
            .envs(variables.iter().copied());
        command.output().unwrap()
    };
    let show = ["state", "show"];
    assert_eq!(code(&run(&show, &[])), 3, "the file's default");
    let asked = run(&["state", "show", "--profile", "lab"], &[]);
    assert!(
        out(&asked).starts_with('{'),
        "server and output of the profile: {}",
        err(&asked)
    );
    assert_eq!(
        code(&run(&show, &[("PUMICE_PROFILE", "lab")])),
        0,
        "a variable names a profile"
    );
    let both = run(&["state", "show", "--profile", "gone"], &[("PUMICE_PROFILE", "lab")]);
    assert_eq!(code(&both), 3, "a flag names it before a variable");
    let variable = run(&["state", "show", "--profile", "gone"], &[("PUMICE_SERVER", &address)]);
    assert_eq!(
        code(&variable),
        0,
        "the environment before the profile: {}",
        err(&variable)
    );
    let flag = ["state", "show", "--profile", "gone", "--server", &address];
    assert_eq!(
        code(&run(&flag, &[("PUMICE_SERVER", "127.0.0.1:1")])),
        0,
        "a flag before all"
    );
    let table = run(&["state", "show", "--profile", "lab", "-o", "table"], &[]);
    assert!(out(&table).starts_with("pumice "), "{}", out(&table));
    let policy = run(&["filter", "--cpu", "1", "--profile", "lab"], &[]);
    assert!(
        err(&policy).contains("POLICY_UNKNOWN"),
        "asked under the profile's policy: {}",
        err(&policy)
    );
    let policy = run(&["policy", "get", "--profile", "lab"], &[]);
    assert!(
        err(&policy).contains("POLICY_UNKNOWN"),
        "the profile's policy is meant: {}",
        err(&policy)
    );
}

#[test]
fn profile_errors_are_usage_errors_with_a_position() {
    let folder = TestDirectory::named("profile-faults");
    let file = folder.path().join("clients.yaml");
    std::fs::write(&file, "profiles:\n  lab: {sever: x}\n").unwrap();
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| pumice(arguments).env("PUMICE_CLIENT_CONFIG", file).output().unwrap();
    let faulty = run(&["state", "show"]);
    assert_eq!(code(&faulty), 2);
    assert!(err(&faulty).contains("clients.yaml:2:9: "), "{}", err(&faulty));
    assert!(err(&faulty).contains("`server` was meant?"), "{}", err(&faulty));
    assert_eq!(
        code(&run(&["completions", "bash"])),
        0,
        "what asks no server reads no profiles"
    );
    std::fs::write(file, "profiles:\n  lab:\n").unwrap();
    let unknown = run(&["state", "show", "--profile", "lob"]);
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("there are: lab"), "{}", err(&unknown));
    let nowhere = pumice(&["state", "show", "--profile", "lab"]).output().unwrap();
    assert_eq!(code(&nowhere), 2);
}

#[test]
fn colour_is_for_terminals() {
    let server = EmbeddedServer::start();
    let address = server.grpc.to_string();
    let run = |arguments: &[&str]| pumice(arguments).args(["--server", &address]).output().unwrap();
    let load = run(&["state", "load", DUMP]);
    assert_eq!(code(&load), 0);
    assert!(
        !err(&load).contains('\r'),
        "no bar where no terminal is: {}",
        err(&load)
    );
    let plain = run(&["state", "show", "nodes"]);
    assert!(!out(&plain).contains('\u{1b}'), "{}", out(&plain));
    let coloured = run(&["state", "show", "nodes", "--color", "always"]);
    assert!(out(&coloured).contains("\u{1b}[1m NODE"), "{}", out(&coloured));
    let failed = run(&["filter", "--cpu", "4x", "--color", "always"]);
    assert!(err(&failed).contains("\u{1b}[1;31merror"), "{}", err(&failed));
    assert!(!err(&run(&["filter", "--cpu", "4x"])).contains('\u{1b}'));
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder = TestDirectory::named("completions");
    let script = folder.path().join("pumice.bash");
    std::fs::write(&script, pumice(&["completions", "bash"]).output().unwrap().stdout).unwrap();
    let complete = |words: &str, at: u32| {
        let text = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={at}; _pumice pumice \"${{COMP_WORDS[{at}]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &text]).output().unwrap();
        assert_eq!(err(&output), "");
        out(&output).trim().to_owned()
    };
    assert_eq!(complete("pumice sco", 1), "score");
    assert_eq!(complete("pumice policy ro", 2), "rollback");
    assert_eq!(complete("pumice score --resou", 2), "--resource-fit");
    for (shell, sign) in [
        ("zsh", "#compdef pumice"),
        ("fish", "complete -c pumice"),
        ("elvish", "edit:completion"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = pumice(&["completions", shell]).output().unwrap();
        assert!(out(&output).contains(sign), "{shell}");
    }
    assert_eq!(code(&pumice(&["completions", "csh"]).output().unwrap()), 2);
}
