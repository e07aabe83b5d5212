//! Workload of a simulation: an initial cluster, and jobs that arrive one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::SimulateArgs;
use super::rules::CandidatePolicy;
use pumice_console::import_files::{ImportedFiles, ReleaseFiles};
use pumice_console::{CommandError, LocalServices, output, state_check};
use pumice_engine::cards::CARD_NAME_ANNOTATION;
use pumice_kubernetes::object::{DEFAULT_QUEUE, plain_queue};
use pumice_protocol::v1 as pb;

/// An initial cluster, and the jobs to place on it.
#[derive(Debug)]
pub(super) struct Workload {
    /// Nodes, queues, jobs, and the tasks that are placed already.
    pub(super) initial_cluster: pb::Cluster,
    /// Jobs in the order of their arrival; at the same second, by name.
    pub(super) arrivals: Vec<ArrivingJob>,
    /// True if tasks name acceptable cards.
    pub(super) has_card_names: bool,
    /// Time of the first arrival, in seconds since 1970.
    pub(super) start_time: i64,
}

impl Workload {
    /// Time in seconds since 1970 of a number of seconds after the first arrival.
    pub(super) fn time_at(&self, seconds: f64) -> i64 {
        let whole = Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |time| time.as_secs());
        self.start_time.saturating_add_unsigned(whole)
    }
}

/// The waiting tasks of one job, or one task without a job.
#[derive(Debug, Clone)]
pub(super) struct ArrivingJob {
    /// The job, if its record is known.
    pub(super) job: Option<pb::Job>,
    /// Tasks of the job, by name.
    pub(super) tasks: Vec<pb::Task>,
    /// Seconds after the first arrival.
    pub(super) arrival_seconds: f64,
    /// Run time in seconds. Absent: unknown, the job stays.
    pub(super) run_seconds: Option<f64>,
}

/// Reads the files for each policy by the rules of its release; under `--strict` warnings about them are errors.
pub(super) fn read_workloads(
    args: &SimulateArgs,
    services: &dyn LocalServices,
    candidates: &[CandidatePolicy],
) -> Result<Vec<Arc<Workload>>, CommandError> {
    let files = ReleaseFiles::read(&args.files, args.derivation)?;
    let mut known: Vec<(Rc<ImportedFiles>, Arc<Workload>)> = Vec::new();
    let mut workloads = Vec::new();
    for candidate in candidates {
        let imported = files.under(candidate.release)?;
        let workload = match known.iter().find(|(own, _)| Rc::ptr_eq(own, &imported)) {
            Some((_, workload)) => Arc::clone(workload),
            None => Arc::new(workload_of(ImportedFiles::clone(&imported), args, services)?),
        };
        known.push((imported, Arc::clone(&workload)));
        workloads.push(workload);
    }
    Ok(workloads)
}

fn workload_of(
    imported: ImportedFiles,
    args: &SimulateArgs,
    services: &dyn LocalServices,
) -> Result<Workload, CommandError> {
    let imported = imported.checked(services);
    imported.report();
    state_check::refuse_strict(args.strict, imported.warnings.len(), ": nothing was simulated")?;
    Ok(split_waiting(
        imported.cluster,
        &imported.run_seconds,
        args.arrival_speedup,
        args.cycles.is_some(),
    ))
}

/// Takes the waiting tasks out of a cluster; `speed` divides the times between arrivals. Cycles admit the jobs themselves.
fn split_waiting(mut cluster: pb::Cluster, runs: &BTreeMap<String, u64>, speed: f64, in_cycles: bool) -> Workload {
    let waits = |task: &pb::Task| matches!(task.status(), pb::TaskStatus::Pending | pb::TaskStatus::Unspecified);
    let (mut waiting, context) = std::mem::take(&mut cluster.tasks)
        .into_iter()
        .partition::<Vec<_>, _>(waits);
    cluster.tasks = context;
    let gated = waiting.iter().filter(|task| task.gated).count();
    if gated > 0 {
        let gated = output::count(gated, "task");
        output::note(&if in_cycles {
            format!("note: {gated} with a scheduling gate: waits to the end, because nothing opens gates here")
        } else {
            format!("note: {gated} with a scheduling gate: taken as if it were open")
        });
    }
    if in_cycles {
        add_default_queue(&waiting, &mut cluster);
    }
    assign_default_jobs(&mut waiting, &mut cluster);
    let names_cards = waiting
        .iter()
        .any(|task| task.annotations.contains_key(CARD_NAME_ANNOTATION));
    let mut jobs: BTreeMap<String, pb::Job> = BTreeMap::new();
    for job in &mut cluster.jobs {
        // An arriving job counts as admitted: it is judged when it is placed.
        if !in_cycles && matches!(job.phase(), pb::JobPhase::Pending | pb::JobPhase::Unspecified) {
            job.set_phase(pb::JobPhase::Inqueue);
        }
        jobs.insert(job.name.clone(), job.clone());
    }
    // By arrival, then by name; a task without a job goes alone.
    let mut groups: BTreeMap<(i64, String, bool), Vec<pb::Task>> = BTreeMap::new();
    let mut first_of: BTreeMap<String, i64> = BTreeMap::new();
    for task in &waiting {
        let first = first_of.entry(task.job.clone()).or_insert(i64::MAX);
        *first = creation_seconds(task).min(*first);
    }
    for task in waiting {
        let key = match first_of.get(&task.job) {
            Some(first) if !task.job.is_empty() => (*first, task.job.clone(), true),
            Some(_) | None => (creation_seconds(&task), task.name.clone(), false),
        };
        groups.entry(key).or_default().push(task);
    }
    let start = groups.keys().next().map_or(0, |(at, ..)| *at);
    let arrival = |((at, ..), tasks): ((i64, String, bool), Vec<pb::Task>)| ArrivingJob {
        job: tasks.first().and_then(|task| jobs.get(&task.job)).cloned(),
        arrival_seconds: at.saturating_sub(start) as f64 / speed,
        // A job ends with its last task.
        run_seconds: tasks
            .iter()
            .map(|task| runs.get(&task.name).map(|seconds| *seconds as f64))
            .reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b)))
            .flatten(),
        tasks,
    };
    Workload {
        arrivals: groups.into_iter().map(arrival).collect(),
        initial_cluster: cluster,
        has_card_names: names_cards,
        start_time: start,
    }
}

/// Adds the queue `default`, as Volcano does when it starts, if tasks or jobs need it.
fn add_default_queue(waiting: &[pb::Task], cluster: &mut pb::Cluster) {
    let mut jobs = cluster.jobs.iter();
    let needed = waiting.iter().any(|task| task.job.is_empty()) || jobs.any(|job| job.queue == DEFAULT_QUEUE);
    if needed && !cluster.queues.iter().any(|queue| queue.name == DEFAULT_QUEUE) {
        cluster.queues.push(plain_queue(DEFAULT_QUEUE));
    }
}

/// Gives tasks without a job one of their own in the queue `default`, as Volcano does, if that queue is there.
fn assign_default_jobs(waiting: &mut [pb::Task], cluster: &mut pb::Cluster) {
    if !cluster.queues.iter().any(|queue| queue.name == DEFAULT_QUEUE) {
        return;
    }
    let known: BTreeSet<String> = cluster.jobs.iter().map(|job| job.name.clone()).collect();
    for task in waiting.iter_mut().filter(|task| task.job.is_empty()) {
        if known.contains(&task.name) {
            continue;
        }
        task.job.clone_from(&task.name);
        cluster.jobs.push(pb::Job {
            name: task.name.clone(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: task.priority,
            creation_time: task.creation_time,
            min_member: 1,
            ..pb::Job::default()
        });
    }
}

fn creation_seconds(task: &pb::Task) -> i64 {
    task.creation_time.map_or(0, |time| time.seconds)
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn task(name: &str, job: &str, at: i64, status: pb::TaskStatus) -> pb::Task {
        pb::Task {
            name: name.to_owned(),
            job: job.to_owned(),
            status: status.into(),
            creation_time: Some(Timestamp { seconds: at, nanos: 0 }),
            ..pb::Task::default()
        }
    }

    #[test]
    fn jobs_arrive_with_their_first_task_and_end_with_their_last() {
        let cluster = pb::Cluster {
            jobs: vec![pb::Job {
                name: "a/gang".to_owned(),
                ..pb::Job::default()
            }],
            tasks: vec![
                task("a/alone", "", 130, pb::TaskStatus::Pending),
                task("a/gang-0", "a/gang", 120, pb::TaskStatus::Pending),
                task("a/gang-1", "a/gang", 100, pb::TaskStatus::Pending),
                task("a/old", "", 10, pb::TaskStatus::Running),
            ],
            ..pb::Cluster::default()
        };
        let runs = [("a/gang-0".to_owned(), 5), ("a/gang-1".to_owned(), 9)].into();
        let workload = split_waiting(cluster, &runs, 2.0, false);
        let arrivals: Vec<(usize, f64, Option<f64>)> = workload
            .arrivals
            .iter()
            .map(|one| (one.tasks.len(), one.arrival_seconds, one.run_seconds))
            .collect();
        assert_eq!(arrivals, [(2, 0.0, Some(9.0)), (1, 15.0, None)]);
        assert_eq!(workload.initial_cluster.tasks.len(), 1);
        assert_eq!(workload.initial_cluster.jobs[0].phase(), pb::JobPhase::Inqueue);
        assert!(workload.arrivals[0].job.is_some() && workload.arrivals[1].job.is_none());
    }
}
