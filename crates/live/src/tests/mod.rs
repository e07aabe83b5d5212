//! Random scripts: what an API server does, right and wrong, against what the watch makes of it.
//!
//! Once all is well, the source has what a fresh load has. No record goes whose object nobody deleted. What hides the changes of a
//! resource is reported. This crate's times are a hundredth in its tests ([`paced`](crate::times::paced)), and many scripts run at a time.
//! `PUMICE_LIVE_SCRIPTS` is their number, `PUMICE_LIVE_SEED` the first.

mod api;
mod source;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::api::{ApiProblem, ApiScript};
use self::source::ScriptSource;
use crate::cluster_watch::{ClusterWatch, SILENCE, WatchOptions};
use crate::condition::ClusterCondition;
use crate::credentials::{ClusterAccess, SharedClient};
use crate::resource_watch::{ListStep, ResourceWatch, WatchMessage};
use crate::resources::{ResourceScope, scopes};
use crate::times::paced;

/// Scripts that run at a time.
const AT_A_TIME: usize = 150;
/// Time in which a state that hides changes has to be reported: 150 s, with room for a machine that is busy.
const REPORTED: Duration = Duration::from_secs(6);
/// Time in which all has to be well again, with the same room.
const HEALED: Duration = Duration::from_secs(20);
/// Most requests of a script: a watch that fails at once is not begun again without a wait.
const REQUESTS: usize = 1_000;

/// Numbers that look random and follow from a seed.
struct ScriptNumbers(u64);

impl ScriptNumbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// Resources that scripts change and break.
const RESOURCES: [&str; 7] = [
    "nodes",
    "pods",
    "queues",
    "podgroups.scheduling.volcano.sh",
    "podgroups.scheduling.k8s.io",
    "services",
    "namespaces",
];

fn resource(name: &str) -> ResourceScope {
    let mut all = scopes(&[]).into_iter();
    all.find(|scope| scope.resource.name().starts_with(name)).unwrap()
}

fn any_resource(numbers: &mut ScriptNumbers) -> ResourceScope {
    resource(numbers.pick::<&str>(&RESOURCES))
}

/// Name and content of a random object of a resource.
fn object(scope: &ResourceScope, numbers: &mut ScriptNumbers) -> (String, Value) {
    let (number, size) = (numbers.below(3), numbers.below(8) + 1);
    let kind = scope.resource.kind.name();
    let metadata =
        |name: &str| json!({"name": name, "namespace": "web", "uid": name, "labels": {"app": format!("a{size}")}});
    match kind {
        "Node" => {
            let name = format!("n{number}");
            let allocatable = json!({"cpu": size.to_string(), "pods": "110"});
            (
                name.clone(),
                json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}}),
            )
        }
        "Queue" => {
            let name = format!("q{number}");
            (
                name.clone(),
                json!({"metadata": {"name": name}, "spec": {"weight": size}}),
            )
        }
        "PodGroup" => {
            let initial = if scope.resource.group == "scheduling.k8s.io" {
                "w"
            } else {
                "g"
            };
            let name = format!("{initial}{number}");
            (
                format!("web/{name}"),
                json!({"metadata": metadata(&name), "spec": {"minMember": size, "queue": "q0"}}),
            )
        }
        "Service" => {
            let name = format!("s{number}");
            (
                format!("web/{name}"),
                json!({"metadata": metadata(&name), "spec": {"selector": {"app": format!("a{size}")}}}),
            )
        }
        "Namespace" => {
            let name = format!("team{number}");
            (
                name.clone(),
                json!({"metadata": {"name": name, "labels": {"size": size.to_string()}}}),
            )
        }
        _ => {
            let name = format!("p{number}");
            let containers = json!([{"name": "c", "resources": {"requests": {"cpu": size.to_string()}}}]);
            let spec = json!({"schedulerName": "volcano", "containers": containers});
            (
                format!("web/{name}"),
                json!({"metadata": metadata(&name), "spec": spec, "status": {"phase": "Pending"}}),
            )
        }
    }
}

/// Changes some objects of a resource, or one several times.
fn change(api: &ApiScript, scope: &ResourceScope, numbers: &mut ScriptNumbers) {
    for _ in 0..=numbers.below(4) {
        let (name, content) = object(scope, numbers);
        api.change(scope, &name, (numbers.below(3) > 0).then_some(content));
    }
}

fn start(api: &ApiScript, source: &ScriptSource) -> (JoinSet<()>, Arc<ClusterCondition>) {
    let condition = Arc::new(ClusterCondition::default());
    let options = WatchOptions {
        source: "script".to_owned(),
        source_epoch: 1,
        namespaces: Vec::new(),
        heartbeat: paced(20_000),
        silence: SILENCE,
        pod_release: pumice_engine::policy::Release::default(),
        ends_if_fenced: false,
    };
    let watch = ClusterWatch::new(
        ClusterAccess::default(),
        options,
        source.connection(),
        Arc::clone(&condition),
    );
    let watch = watch.with_client(api.client());
    let mut task = JoinSet::new();
    task.spawn(async move { drop(watch.run().await) });
    (task, condition)
}

/// Waits until something holds; else the error says what.
async fn until(limit: Duration, mut holds: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        match holds() {
            Ok(()) => return Ok(()),
            Err(error) if begin.elapsed() > limit => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn is_well(condition: &ClusterCondition) -> Result<(), String> {
    let status = condition.status();
    match (&status.behind, &status.problem) {
        (None, _) if status.not_watched().is_empty() => Ok(()),
        _ => Err(format!("not well: {status}")),
    }
}

async fn run(seed: u64) -> Result<(), String> {
    let mut numbers = ScriptNumbers(seed);
    let api = ApiScript::default();
    let source = ScriptSource::new(api.clone());
    for _ in 0..numbers.below(8) {
        change(&api, &any_resource(&mut numbers), &mut numbers);
    }
    let begins_well = numbers.below(4) > 0;
    if !begins_well {
        let scope = any_resource(&mut numbers);
        api.set_problem(&scope, Some(*numbers.pick(&ApiProblem::ALL)));
    }
    let (watching, condition) = start(&api, &source);
    if begins_well {
        until(HEALED, || is_well(&condition)).await?;
    }
    follow(&api, &source, &mut numbers).await;
    if numbers.below(3) == 0 {
        hold_problem(&api, &condition, &mut numbers).await?;
    }
    api.heal();
    until(HEALED, || is_well(&condition)).await?;
    judge(&api, &source).await?;
    drop(watching);
    Ok(())
}

/// Changes and problems of a script, one after the other.
async fn follow(api: &ApiScript, source: &ScriptSource, numbers: &mut ScriptNumbers) {
    let own = *numbers.pick(&RESOURCES);
    for _ in 0..numbers.below(14) + 2 {
        // Most of it concerns one resource.
        let focus = numbers.below(3) > 0;
        let scope = if focus { resource(own) } else { any_resource(numbers) };
        match numbers.below(10) {
            0..5 => change(api, &scope, numbers),
            5..8 => api.set_problem(&scope, Some(*numbers.pick(&ApiProblem::ALL))),
            8 => api.set_problem(&scope, None),
            _ if numbers.below(3) == 0 => source.ask_for_full_sync(),
            _ => api.forget_versions(&scope),
        }
        tokio::time::sleep(Duration::from_millis(numbers.below(50))).await;
    }
}

/// Compares what the source has with a fresh load.
async fn judge(api: &ApiScript, source: &ScriptSource) -> Result<(), String> {
    let fresh = ScriptSource::new(api.clone());
    let (loading, loaded) = start(api, &fresh);
    until(HEALED, || is_well(&loaded)).await?;
    drop(loading);
    let expected = fresh.records();
    until(HEALED, || {
        let own = source.records();
        if own == expected {
            return Ok(());
        }
        let names =
            |records: &std::collections::BTreeMap<(i32, String), Vec<u8>>| records.keys().cloned().collect::<Vec<_>>();
        let differs = expected
            .iter()
            .find(|(key, record)| own.get(*key) != Some(record))
            .map(|(key, _)| key.clone());
        Err(format!(
            "the source has {:?}, a fresh load {:?}; other: {differs:?}",
            names(&own),
            names(&expected)
        ))
    })
    .await?;
    let lost = source.lost();
    if !lost.is_empty() {
        return Err(format!("went without a deletion: {lost:?}"));
    }
    match api.requests() {
        0..REQUESTS => Ok(()),
        requests => Err(format!("{requests} requests")),
    }
}

/// Holds a problem that hides changes, until it is reported.
async fn hold_problem(
    api: &ApiScript,
    condition: &ClusterCondition,
    numbers: &mut ScriptNumbers,
) -> Result<(), String> {
    let hiding: Vec<ApiProblem> = ApiProblem::ALL
        .into_iter()
        .filter(|problem| problem.hides_changes())
        .collect();
    let (scope, problem) = (any_resource(numbers), *numbers.pick(&hiding));
    api.set_problem(&scope, Some(problem));
    let (name, content) = object(&scope, numbers);
    api.change(&scope, &name, Some(content));
    let title = scope.to_string();
    until(REPORTED, || {
        let status = condition.status();
        if status.behind.is_some() || status.to_string().contains(&title) {
            return Ok(());
        }
        Err(format!("{problem:?} of {title} is not reported: {status}"))
    })
    .await
}

/// API server with objects of a resource whose lists have a problem.
fn with_problem(name: &str, problem: ApiProblem) -> ApiScript {
    let (api, scope) = (ApiScript::default(), resource(name));
    for seed in 0..8 {
        let (name, content) = object(&scope, &mut ScriptNumbers(seed));
        api.change(&scope, &name, Some(content));
    }
    api.set_problem(&scope, Some(problem));
    api
}

#[tokio::test]
async fn objects_of_a_list_that_broke_off_go_with_their_resource() {
    let api = with_problem("podgroups.scheduling.volcano.sh", ApiProblem::UninstalledAfterOnePage);
    let source = ScriptSource::new(api.clone());
    let (_watching, condition) = start(&api, &source);
    let is_gone = || match (condition.status().not_watched().len(), source.records().len()) {
        (1, 0) => Ok(()),
        (_, held) => Err(format!("{held} records are held: {}", condition.status())),
    };
    assert_eq!(until(HEALED, is_gone).await, Ok(()));
}

#[tokio::test]
async fn objects_of_a_list_that_broke_off_stay_while_nobody_says_that_they_are_gone() {
    let groups = resource("podgroups.scheduling.volcano.sh");
    let api = with_problem("podgroups.scheduling.volcano.sh", ApiProblem::SecondPage(500));
    let source = ScriptSource::new(api.clone());
    let (_watching, condition) = start(&api, &source);
    let are_shown = |count: usize| {
        let held = source.records().len();
        (held >= count).then_some(()).ok_or_else(|| format!("{held} records"))
    };
    assert_eq!(until(HEALED, || are_shown(3)).await, Ok(()));
    api.set_problem(&groups, Some(ApiProblem::Code(403)));
    tokio::time::sleep(paced(30_000)).await;
    source.ask_for_full_sync();
    let (name, content) = object(&resource("nodes"), &mut ScriptNumbers(1));
    api.change(&resource("nodes"), &name, Some(content));
    let is_listing = || {
        condition
            .status()
            .behind
            .map(drop)
            .ok_or_else(|| "no full sync".to_owned())
    };
    assert_eq!(until(HEALED, is_listing).await, Ok(()));
    tokio::time::sleep(paced(60_000)).await;
    assert_eq!(source.lost(), []);
    api.heal();
    assert_eq!(until(HEALED, || is_well(&condition)).await, Ok(()));
    assert_eq!(judge(&api, &source).await, Ok(()));
}

#[tokio::test]
async fn a_list_is_asked_for_once_its_receiver_compares_with_it() {
    let (api, pods) = (ApiScript::default(), resource("pods"));
    let watch = ResourceWatch {
        client: Arc::new(SharedClient::ready(api.client())),
        scope: pods,
        condition: Arc::default(),
        silence: SILENCE,
    };
    let (sender, mut messages) = mpsc::channel(8);
    let following = tokio::spawn(watch.follow(None, sender));
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(
        api.requests(),
        0,
        "the receiver is busy, and may read a new object meanwhile"
    );
    let Some(WatchMessage::Listed(_, ListStep::Begin(begun))) = messages.recv().await else {
        panic!("no list begins");
    };
    begun.send(()).unwrap();
    let page = messages.recv().await;
    assert!(matches!(page, Some(WatchMessage::Listed(_, ListStep::Page(..)))));
    assert_eq!(api.requests(), 1);
    following.abort();
}

#[tokio::test]
async fn a_cluster_without_queues_keeps_the_one_that_its_jobs_name() {
    let api = ApiScript::default();
    let groups = resource("podgroups.scheduling.k8s.io");
    let (name, content) = object(&groups, &mut ScriptNumbers(0));
    api.change(&groups, &name, Some(content));
    api.set_problem(&resource("queues"), Some(ApiProblem::Uninstalled));
    let source = ScriptSource::new(api.clone());
    let (_watching, condition) = start(&api, &source);
    let is_left_out = || {
        let count = condition.status().not_watched().len();
        (count == 1)
            .then_some(())
            .ok_or_else(|| format!("{count} are left out"))
    };
    assert_eq!(until(HEALED, is_left_out).await, Ok(()));
    // The list may be on its way yet.
    let mut whole = source.records();
    let has_both = || {
        whole = source.records();
        (whole.len() == 2).then_some(()).ok_or_else(|| format!("{whole:?}"))
    };
    assert_eq!(until(HEALED, has_both).await, Ok(()));
    tokio::time::sleep(paced(30_000)).await;
    assert_eq!(source.records(), whole);
}

#[tokio::test]
async fn a_fenced_watch_goes_on_once_the_source_is_forgotten() {
    let (api, nodes) = (ApiScript::default(), resource("nodes"));
    let source = ScriptSource::new(api.clone());
    let (_watching, condition) = start(&api, &source);
    assert_eq!(until(HEALED, || is_well(&condition)).await, Ok(()));
    source.fence(true);
    for seed in 0..8 {
        let (name, content) = object(&nodes, &mut ScriptNumbers(seed));
        api.change(&nodes, &name, Some(content));
    }
    let is_reported = || {
        condition
            .status()
            .problem
            .map(drop)
            .ok_or_else(|| "no problem".to_owned())
    };
    assert_eq!(until(HEALED, is_reported).await, Ok(()));
    assert_eq!(source.records().len(), 0);
    source.fence(false);
    assert_eq!(judge(&api, &source).await, Ok(()));
    assert_eq!(until(HEALED, || is_well(&condition)).await, Ok(()));
    assert_eq!(condition.status().problem, None);
}

#[expect(clippy::disallowed_methods, reason = "how many scripts a developer asks for")]
fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn a_watch_survives_random_scripts() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (count, first) = (number_of("PUMICE_LIVE_SCRIPTS", 60), number_of("PUMICE_LIVE_SEED", 0));
    let failures = runtime.block_on(async {
        let places = Arc::new(Semaphore::new(AT_A_TIME));
        let mut scripts = JoinSet::new();
        for seed in first..first + count {
            let places = Arc::clone(&places);
            scripts.spawn(async move {
                let _place = places.acquire().await.unwrap();
                let done = tokio::spawn(run(seed)).await;
                (seed, done.unwrap_or_else(|panic| Err(panic.to_string())))
            });
        }
        let mut failures = Vec::new();
        while let Some(done) = scripts.join_next().await {
            if let (seed, Err(error)) = done.unwrap() {
                failures.push((seed, error));
            }
        }
        failures
    });
    assert!(
        failures.is_empty(),
        "{} of {count} scripts: {:#?}",
        failures.len(),
        failures.iter().take(5).collect::<Vec<_>>()
    );
}
