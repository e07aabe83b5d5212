//! Jobs of Volcano and pods without a group: what becomes of them beside observed pods and pod groups.

use super::tests::{item, read};
use super::*;

/// Job of two pods with the uid `u`, in a phase.
fn volcano_job(phase: &str) -> String {
    format!(
        "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: j, namespace: x, uid: u}}, spec: {{schedulerName: \
         volcano, tasks: [{{name: w, replicas: 2, template: {{spec: {{containers: []}}}}}}]}}, status: {{state: {{phase: \
         {phase}}}}}}}\n---\n"
    )
}

fn pod_of_group(name: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: x, annotations: {{{annotations}}}}}, spec: \
         {{schedulerName: volcano, nodeName: n1, containers: []}}, status: {{phase: Running}}}}\n---\n"
    )
}

/// Jobs and tasks with their jobs of a dump, in both orders of its objects.
fn names(objects: &[String]) -> (Vec<String>, Vec<(String, String)>) {
    let read_in = |objects: &mut dyn Iterator<Item = &String>| {
        let text: String = objects.map(String::as_str).collect();
        let imported = read(&[&text]).finish();
        assert_eq!((imported.rejected.len(), imported.warnings.len()), (0, 0));
        let jobs = imported.cluster.jobs.into_iter().map(|job| job.name).collect();
        let tasks = imported.cluster.tasks.into_iter();
        (jobs, tasks.map(|task| (task.name, task.job)).collect())
    };
    let forward = read_in(&mut objects.iter());
    assert_eq!(forward, read_in(&mut objects.iter().rev()));
    forward
}

#[test]
fn observed_pods_and_pod_groups_outrank_those_that_a_volcano_job_would_get() {
    let group = |name: &str, owner: &str| {
        format!(
            "{{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: {name}, namespace: x{owner}}}, spec: \
             {{minMember: 2}}}}\n---\n"
        )
    };
    let owner = ", ownerReferences: [{kind: Job, apiVersion: batch.volcano.sh/v1alpha1, name: j}]";
    let pod = pod_of_group("j-w-0", "scheduling.k8s.io/group-name: j-u");
    let task = |name: &str, job: &str| (name.to_owned(), job.to_owned());
    for group in [group("j-u", ""), group("other", owner)] {
        let (jobs, tasks) = names(&[volcano_job("Running"), group.clone(), pod.clone()]);
        assert_eq!((jobs.len(), tasks), (1, vec![task("x/j-w-0", "x/j-u")]), "{group}");
        assert_eq!(names(&[volcano_job("Pending"), group]).1, []);
    }
    // Volcano groups pods of plain Jobs, too, and such a group has a plain Job of that name as owner.
    let plain = owner.replace("batch.volcano.sh/v1alpha1", "batch/v1");
    let (jobs, tasks) = names(&[volcano_job("Pending"), group("podgroup-1", &plain)]);
    assert_eq!((jobs.len(), tasks.len()), (2, 2));
    // The pods stand alone: their group is the Job's.
    let named = pod_of_group("j-w-0", "scheduling.k8s.io/group-name: made, volcano.sh/job-name: j");
    for (pod, of) in [(pod, "x/j-u"), (named, "x/made")] {
        let (jobs, tasks) = names(&[volcano_job("Running"), pod]);
        assert_eq!((jobs, tasks), (vec![of.to_owned()], vec![task("x/j-w-0", of)]));
    }
    let (jobs, tasks) = names(&[volcano_job("Pending")]);
    assert_eq!(
        (jobs, tasks),
        (
            vec!["x/j".to_owned()],
            vec![task("x/j-w-0", "x/j"), task("x/j-w-1", "x/j")]
        )
    );
    for phase in ["Completed", "Failed", "Aborted", "Terminated", "Completing"] {
        assert_eq!(names(&[volcano_job(phase)]), (Vec::new(), Vec::new()), "{phase}");
    }
}

#[test]
fn what_cannot_be_read_is_not_replaced_by_what_a_job_would_get() {
    let text = |more: &str| volcano_job("Running") + more;
    let pod = pod_of_group("j-w-0", "").replace("containers: []", "containers: [{resources: {requests: {cpu: x}}}]");
    let imported = read(&[&text(&pod)]).finish();
    let of = |imported: &ImportedRecords| {
        let unreadable = imported
            .unreadable
            .iter()
            .map(|own| own.name.clone())
            .collect::<Vec<_>>();
        let tasks = imported
            .cluster
            .tasks
            .iter()
            .map(|task| task.name.clone())
            .collect::<Vec<_>>();
        (unreadable, tasks)
    };
    assert_eq!(of(&imported), (vec!["x/j-w-0".to_owned()], vec!["x/j-w-1".to_owned()]));
    let group = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: j-u, namespace: x}, spec: {minMember: \
                 many}}\n";
    let imported = read(&[&text(group)]).finish();
    assert_eq!(of(&imported), (vec!["x/j-u".to_owned()], Vec::new()));
    assert_eq!(imported.cluster.jobs, []);
    // A pod that names no group is what it is.
    let tasks = read(&[&text(&pod_of_group("j-w-0", ""))]).finish().cluster.tasks;
    assert_eq!(tasks.len(), 2);
    assert_eq!((tasks[0].node.as_str(), tasks[0].job.as_str()), ("n1", ""));
}

#[test]
fn pods_and_groups_of_a_job_have_its_labels_and_annotations() {
    let text = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j, labels: {volcano.sh/preemptable: 'true'}, \
                annotations: {volcano.sh/revocable-zone: '*', other: x}}, spec: {tasks: [{name: a, template: {metadata: {labels: \
                {app: a}}, spec: {containers: []}}}]}}";
    let cluster = read(&[text]).finish().cluster;
    assert_eq!(cluster.jobs[0].annotations["volcano.sh/preemptable"], "true");
    let task = &cluster.tasks[0];
    assert_eq!(task.labels["app"], "a");
    assert_eq!(task.annotations["volcano.sh/revocable-zone"], "*");
    assert!(!task.annotations.contains_key("other"));
    let bare = "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {volcano.sh/preemptable: 'true'}, annotations: \
                {scheduling.volcano.sh/queue-name: ''}}, spec: {schedulerName: volcano, containers: []}}";
    let cluster = read(&[bare]).finish_with_own_groups().cluster;
    assert_eq!(cluster.jobs[0].annotations["volcano.sh/preemptable"], "true");
    assert_eq!(cluster.jobs[0].queue, "default");
}

#[test]
fn a_role_that_waits_for_others_says_so() {
    let text = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {tasks: [{name: a, replicas: 1, \
                template: {spec: {containers: []}}}, {name: b, replicas: 1, dependsOn: {name: [a]}, template: {spec: \
                {containers: []}}}]}}";
    let tasks = read(&[text]).finish().cluster.tasks;
    let unevaluated: Vec<&[String]> = tasks.iter().map(|task| &*task.unevaluated_fields).collect();
    assert_eq!(unevaluated, [&[][..], &["dependsOn".to_owned()][..]]);
}

#[test]
fn pods_without_a_group_get_that_of_their_controller() {
    let bare = |name: &str, scheduler: &str, metadata: &str, spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: x{metadata}}}, spec: {{schedulerName: {scheduler}, \
             containers: [{{name: c, resources: {{requests: {{cpu: 2}}}}}}]{spec}}}}}\n---\n"
        )
    };
    let owner = ", ownerReferences: [{kind: ReplicaSet, apiVersion: apps/v1, name: r, uid: r-1, controller: true}]";
    let text = bare(
        "alone",
        "volcano",
        ", uid: u-1, annotations: {scheduling.volcano.sh/queue-name: q}",
        "",
    ) + &bare("by-hand", "volcano", "", ", priorityClassName: system-node-critical")
        + &bare("kube", "default-scheduler", "", "")
        + &bare("of-set-0", "volcano", owner, ", nodeName: n1")
        + &bare("of-set-1", "volcano", owner, "");
    let cluster = read(&[&text]).finish_with_own_groups().cluster;
    let tasks: Vec<&str> = cluster.tasks.iter().map(|task| task.job.as_str()).collect();
    assert_eq!(
        tasks,
        [
            "x/podgroup-u-1",
            "x/podgroup-by-hand",
            "",
            "x/podgroup-r-1",
            "x/podgroup-r-1"
        ]
    );
    let job = |job: &pb::Job| {
        assert_eq!(
            (job.min_member, item(job.min_resources.as_ref(), "cpu")),
            (1, Some("2"))
        );
        (job.name.clone(), job.queue.clone(), job.priority, job.phase())
    };
    assert_eq!(
        cluster.jobs.iter().map(job).collect::<Vec<_>>(),
        [
            (
                "x/podgroup-by-hand".to_owned(),
                "default".to_owned(),
                2_000_001_000,
                pb::JobPhase::Pending
            ),
            (
                "x/podgroup-r-1".to_owned(),
                "default".to_owned(),
                0,
                pb::JobPhase::Running
            ),
            ("x/podgroup-u-1".to_owned(), "q".to_owned(), 0, pb::JobPhase::Pending),
        ]
    );
    // The group that the controller has made already counts.
    let made = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: podgroup-u-1, namespace: x}, spec: \
                {minMember: 3, queue: other}}";
    let cluster = read(&[&text, made]).finish_with_own_groups().cluster;
    assert_eq!((cluster.jobs[2].min_member, &*cluster.jobs[2].queue), (3, "other"));
}
