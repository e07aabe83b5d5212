//! Relations of the records of files: priorities by class, and groups of tasks by the policies of their jobs. Files are
//! whole, so their records get the numbers and the groups themselves; objects that a server gets one by one keep the
//! relations instead, and the server follows them.

use super::ImportWarning;
use pumice_engine::model::{ErrorCode, GroupSelector, PriorityClassRecord, PriorityClasses};
use pumice_protocol::v1 as pb;

/// Classes as a table.
fn table<'c>(list: impl Iterator<Item = &'c pb::PriorityClass>) -> PriorityClasses {
    let mut classes = PriorityClasses::default();
    for class in list {
        classes.insert(&PriorityClassRecord {
            name: class.name.as_str().into(),
            value: class.value,
            global_default: class.global_default,
            never_preempts: class.preemption_policy() == pb::PreemptionPolicy::Never,
        });
    }
    classes
}

/// Puts the values of the classes, and the groups, into the records, in the place of the relations.
pub(super) fn apply(cluster: &mut pb::Cluster) {
    let classes = table(std::mem::take(&mut cluster.priority_classes).iter());
    for job in &mut cluster.jobs {
        let class = job.priority_class_name.take();
        if let Some(value) = class.and_then(|class| classes.value(&class)) {
            job.priority = value;
        }
    }
    // Both lists are sorted by name.
    let jobs = &cluster.jobs;
    for task in &mut cluster.tasks {
        let from_class = std::mem::take(&mut task.priority_from_class);
        if let Some(value) = from_class.then(|| classes.value(&task.priority_class_name)).flatten() {
            task.priority = value;
        }
        let has_class = from_class || !task.priority_class_name.is_empty();
        if has_class && task.preemption_policy() == pb::PreemptionPolicy::Unspecified {
            let never = classes.never_preempts(&task.priority_class_name);
            if never {
                task.set_preemption_policy(pb::PreemptionPolicy::Never);
            }
        }
        let job = jobs.binary_search_by(|job| job.name.cmp(&task.job)).ok();
        if let Some(job) = job.and_then(|place| jobs.get(place)) {
            let groups = job.sub_group_policies.iter();
            let label = |key: &str| task.labels.get(key).map(String::as_str);
            task.sub_group = groups
                .into_iter()
                .find_map(|policy| selector(policy)?.group_of(&policy.name, &label))
                .unwrap_or_default();
        }
    }
    for policy in cluster.jobs.iter_mut().flat_map(|job| &mut job.sub_group_policies) {
        (policy.label_selector, policy.match_label_keys) = (None, Vec::new());
    }
}

/// Selector of a policy. `None`: the policy does not define groups.
fn selector(policy: &pb::SubGroupPolicy) -> Option<GroupSelector> {
    let mut selector = GroupSelector::new(policy.match_label_keys.iter().map(|key| key.as_str().into()).collect())?;
    let pb::LabelSelector {
        match_labels,
        match_expressions,
    } = policy.label_selector.clone().unwrap_or_default();
    for (key, value) in match_labels {
        selector.require(key.into(), "In".into(), vec![value.into()]);
    }
    for expression in match_expressions {
        let values = expression.values.into_iter().map(Into::into).collect();
        selector.require(expression.key.into(), expression.operator.into(), values);
    }
    Some(selector)
}

/// A warning for each record whose class is not in the files.
pub(super) fn warnings<'c>(
    classes: impl Iterator<Item = &'c pb::PriorityClass>,
    jobs: impl Iterator<Item = &'c pb::Job>,
    tasks: impl Iterator<Item = &'c pb::Task>,
) -> Vec<ImportWarning> {
    let classes = table(classes);
    let jobs = jobs.filter_map(|job| Some(("job", &job.name, job.priority_class_name.as_ref()?)));
    let tasks = tasks.filter(|task| task.priority_from_class);
    let tasks = tasks.map(|task| ("task", &task.name, &task.priority_class_name));
    jobs.chain(tasks)
        .filter(|(_, _, class)| !class.is_empty() && !classes.is_known(class))
        .map(|(kind, name, class)| ImportWarning {
            code: ErrorCode::PriorityClassUnknown,
            subject: format!("{kind} {name}"),
            message: format!(
                "no PriorityClass `{class}` is in the files; {}",
                match classes.global_default() {
                    Some(value) => format!("the global default {value} counts"),
                    None => "the priority is that of a record without a class".to_owned(),
                }
            ),
        })
        .collect()
}
