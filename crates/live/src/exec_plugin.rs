//! Credential plugins of a kubeconfig: processes that a time limit ends with all that they started.

use std::fmt;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use kube_client::config::{ExecConfig, ExecInteractiveMode};
use pumice_kubernetes::import::yaml;
use serde::Deserialize;
use serde_json::json;
use tokio::net::unix::pipe::Receiver;

use crate::requests::shortened;
use crate::times::read_time;

/// Time between looks whether a plugin has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Longest output of a plugin.
const OUTPUT_BYTES: usize = 1 << 20;

/// Credentials that a plugin gave.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginCredentials {
    pub(crate) token: Option<String>,
    /// Certificate and key, as PEM.
    pub(crate) client_certificate_data: Option<String>,
    pub(crate) client_key_data: Option<String>,
    /// Time at which they end; `None`: they do not say it.
    #[serde(default, rename = "expirationTimestamp", deserialize_with = "read_time")]
    pub(crate) end: Option<SystemTime>,
}

impl fmt::Debug for PluginCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginCredentials").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct PluginOutput {
    status: PluginCredentials,
}

/// Runs a plugin, which is ended after a time. What it writes to its standard output is never shown: tokens are there.
pub(crate) async fn run(plugin: &ExecConfig, most: Duration) -> Result<PluginCredentials, String> {
    let Some(name) = plugin.command.as_deref() else {
        return Err("the exec plugin has no `command`".to_owned());
    };
    let titled = |reason: String| format!("the exec plugin `{}` {reason}", shortened(name));
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        let reason =
            "wants a terminal (`interactiveMode: Always`), which is not there; use a plugin that works without one";
        return Err(titled(reason.to_owned()));
    }
    let started = command(name, plugin)?.spawn();
    let process = started.map_err(|error| {
        let hint = plugin
            .install_hint
            .as_deref()
            .map(|hint| format!("; {}", shortened(hint)));
        titled(format!("cannot be started: {error}{}", hint.unwrap_or_default()))
    })?;
    let has_ended = false;
    let mut running = RunningPlugin { process, has_ended };
    let ended = tokio::time::timeout(most, running.output()).await;
    let late = |_| titled(format!("was ended: it ran for {} s", most.as_secs()));
    let (status, output, said) = ended
        .map_err(late)?
        .map_err(|error| titled(format!("was ended: {error}")))?;
    if !status.success() {
        let said = shortened(String::from_utf8_lossy(&said).trim());
        return Err(titled(format!("failed ({status}); its standard error: {said}")));
    }
    credentials(&output).ok_or_else(|| titled("wrote no ExecCredential with a `status`".to_owned()))
}

/// Credentials of an output, which is JSON or YAML; an error could quote it.
fn credentials(output: &[u8]) -> Option<PluginCredentials> {
    let read: Option<PluginOutput> = serde_json::from_slice(output).ok().or_else(|| {
        let value = yaml::read(std::str::from_utf8(output).ok()?).ok()??;
        serde_json::from_value(value).ok()
    });
    read.map(|read| read.status)
}

fn command(name: &str, plugin: &ExecConfig) -> Result<Command, String> {
    let spec = match plugin.cluster.as_ref().filter(|_| plugin.provide_cluster_info) {
        Some(cluster) => {
            let cluster = serde_json::to_value(cluster).map_err(|error| error.to_string())?;
            json!({"interactive": false, "cluster": cluster})
        }
        None => json!({"interactive": false}),
    };
    let info = json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec});
    let mut command = Command::new(name);
    command.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Processes that the plugin starts are in its group, and end with it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

/// Process of a plugin, with all that it started. Dropped, all of them end.
struct RunningPlugin {
    process: Child,
    /// True once the process was seen to have ended, and its group with it: then the number of the group may be another one's.
    has_ended: bool,
}

impl RunningPlugin {
    /// Status, standard output and standard error of the plugin, once it has ended.
    async fn output(&mut self) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let Self { process, has_ended } = self;
        let output = process.stdout.take().map(|pipe| Receiver::from_owned_fd(pipe.into()));
        let errors = process.stderr.take().map(|pipe| Receiver::from_owned_fd(pipe.into()));
        let ended = async {
            loop {
                if let Some(status) = process.try_wait()? {
                    // Others of its group may hold the pipes open.
                    end_group(process);
                    *has_ended = true;
                    return Ok(status);
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::try_join!(ended, all(output.transpose()?), all(errors.transpose()?))
    }
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        end_group(&self.process);
        if let Ok(None) = self.process.try_wait() {
            // The process ends at once, unless the machine is too busy: nobody waits for that.
            let pid = rustix::process::Pid::from_child(&self.process);
            let wait = move || rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            drop(std::thread::Builder::new().spawn(wait));
        }
    }
}

/// Ends all processes of the group that a process began.
fn end_group(leader: &Child) {
    let group = rustix::process::Pid::from_child(leader);
    // An error says that there is none left.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
}

/// All that a pipe tells, up to a bound.
async fn all(pipe: Option<Receiver>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let Some(pipe) = pipe else { return Ok(text) };
    let mut part = [0; 4_096];
    loop {
        pipe.readable().await?;
        match pipe.try_read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend(part.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if text.len() > OUTPUT_BYTES {
            return Err(io::Error::other(format!("it wrote more than {OUTPUT_BYTES} bytes")));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Plugin that is this script.
    fn plugin(script: &str) -> ExecConfig {
        ExecConfig {
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            ..ExecConfig::default()
        }
    }

    async fn ran(script: &str) -> Result<PluginCredentials, String> {
        run(&plugin(script), Duration::from_secs(20)).await
    }

    /// Processes whose command line has this text.
    fn processes(text: &str) -> usize {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = all.filter_map(|own| std::fs::read_to_string(own.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(text)).count()
    }

    /// Waits until no process has this text in its command line.
    async fn gone(text: &str) {
        let begin = Instant::now();
        while processes(text) > 0 {
            assert!(begin.elapsed() < Duration::from_secs(10), "{text} runs still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_ended_with_all_that_it_started() {
        let late = run(&plugin("sleep 3600.25 & sleep 3600.25"), Duration::from_secs(1)).await;
        assert_eq!(late.unwrap_err(), "the exec plugin `sh` was ended: it ran for 1 s");
        gone("3600.25").await;
        // Whoever no longer waits for it ends it, too.
        let waiting = tokio::spawn(async { ran("sleep 3600.5 & sleep 3600.5").await });
        while processes("3600.5") < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        waiting.abort();
        gone("3600.5").await;
        // What it leaves behind holds nobody up.
        let begin = Instant::now();
        let left = ran("sleep 3600.75 & echo '{\"status\": {\"token\": \"t\"}}'")
            .await
            .unwrap();
        assert_eq!(left.token.unwrap(), "t");
        assert!(begin.elapsed() < Duration::from_secs(10));
        gone("3600.75").await;
    }

    #[tokio::test]
    async fn what_a_plugin_writes_to_its_standard_output_is_not_shown() {
        for (script, part) in [
            ("echo SECRET; exit 3", "failed (exit status: 3)"),
            (r#"echo '{"status": {"token": {"SECRET": 1}}}'"#, "no ExecCredential"),
            (
                r#"echo '{"status": {"expirationTimestamp": "SECRET"}}'"#,
                "no ExecCredential",
            ),
            (
                r#"echo '{"status": {"token": "SECRET" "other": 1}}'"#,
                "no ExecCredential",
            ),
            ("echo 'status: [SECRET'", "no ExecCredential"),
            ("printf 'SECRET\\377'", "no ExecCredential"),
            ("echo '{\"kind\": \"SECRET\"}'", "no ExecCredential"),
            ("yes SECRET", "more than 1048576 bytes"),
            ("echo SECRET; kill -9 $$", "signal: 9"),
        ] {
            let error = ran(script).await.unwrap_err();
            assert!(error.contains(part) && !error.contains("SECRET"), "{script}: {error}");
        }
        // Its standard error is for people, in one line.
        let error = ran("printf 'log in\\n\\033[1mfirst' >&2; exit 1").await.unwrap_err();
        assert!(error.ends_with("its standard error: log in  [1mfirst"), "{error}");
        let absent = ExecConfig {
            command: Some("/nowhere/plugin".to_owned()),
            install_hint: Some("brew install it".to_owned()),
            ..ExecConfig::default()
        };
        let error = run(&absent, Duration::from_secs(1)).await.unwrap_err();
        assert!(
            error.contains("`/nowhere/plugin` cannot be started") && error.ends_with("; brew install it"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_plugin_gets_its_environment_and_tells_its_credentials() {
        let yaml = ran("printf 'status:\\n  token: \"t\"\\n  expirationTimestamp: \"2100-01-01T00:00:00Z\"\\n'")
            .await
            .unwrap();
        assert_eq!(yaml.token.unwrap(), "t");
        assert!(yaml.end.is_some());
        let mut own = plugin(
            "echo \"{\\\"status\\\": {\\\"token\\\": \\\"$WHO\\\"}}\"; echo \"$KUBERNETES_EXEC_INFO\" >&2; exit $END",
        );
        own.api_version = Some("client.authentication.k8s.io/v1".to_owned());
        let variable = |name: &str, value: &str| {
            [("name", name), ("value", value)]
                .map(|(key, own)| (key.to_owned(), own.to_owned()))
                .into()
        };
        own.env = Some(vec![variable("WHO", "me"), variable("END", "0")]);
        assert_eq!(run(&own, Duration::from_secs(20)).await.unwrap().token.unwrap(), "me");
        own.env = Some(vec![variable("END", "1")]);
        let said = run(&own, Duration::from_secs(20)).await.unwrap_err();
        assert!(
            said.contains(r#""kind":"ExecCredential","spec":{"interactive":false}"#),
            "{said}"
        );
        own.interactive_mode = Some(ExecInteractiveMode::Always);
        assert!(
            run(&own, Duration::from_secs(20))
                .await
                .unwrap_err()
                .contains("wants a terminal")
        );
    }
}
