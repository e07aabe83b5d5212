//! Releases of the schedulers that policies can follow exactly, and what each decides otherwise than the newest.

use crate::model::{ClusterState, ErrorCode, Problem, TaskRecord};

/// Release of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Release {
    /// `upstream`: the newest Volcano, or kube-scheduler 1.36 for a `KubeSchedulerConfiguration`.
    #[default]
    Default,
    /// Volcano v1.14.4, with Kubernetes 1.34.
    Volcano1144,
    /// Volcano v1.15.1, with Kubernetes 1.35.
    Volcano1151,
    /// Volcano at commit ed72c7c81, with Kubernetes 1.36.
    VolcanoEd72c7c81,
    /// kube-scheduler 1.36 (v1.36.3 is compared).
    KubeScheduler136,
    /// kube-scheduler 1.37 (v1.37.2 is compared).
    KubeScheduler137,
    /// A release with some of its rules exchanged, which shows what single changes do. No document names it.
    Trial(TrialRules),
}

/// Rules of a trial: bit N is true if the trial has change N of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrialRules(u32);

/// Scheduler whose releases policies follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleasedScheduler {
    /// Volcano: documents with tiers.
    Volcano,
    /// kube-scheduler: documents with profiles.
    KubeScheduler,
}

impl ReleasedScheduler {
    /// Release that `upstream` means in its documents.
    pub fn default_release(self) -> Release {
        match self {
            Self::Volcano => Release::VolcanoEd72c7c81,
            Self::KubeScheduler => Release::KubeScheduler136,
        }
    }

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volcano => "Volcano",
            Self::KubeScheduler => "kube-scheduler",
        }
    }
}

impl Release {
    /// Name in documents, such as `volcano-1.15.1`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "upstream",
            Self::Volcano1144 => "volcano-1.14.4",
            Self::Volcano1151 => "volcano-1.15.1",
            Self::VolcanoEd72c7c81 => "volcano-ed72c7c81",
            Self::KubeScheduler136 => "kube-scheduler-1.36",
            Self::KubeScheduler137 => "kube-scheduler-1.37",
            Self::Trial(_) => "trial",
        }
    }

    /// Scheduler of the release; `None`: a release of any.
    pub fn scheduler(self) -> Option<ReleasedScheduler> {
        match self {
            Self::Default | Self::Trial(_) => None,
            Self::Volcano1144 | Self::Volcano1151 | Self::VolcanoEd72c7c81 => Some(ReleasedScheduler::Volcano),
            Self::KubeScheduler136 | Self::KubeScheduler137 => Some(ReleasedScheduler::KubeScheduler),
        }
    }

    /// Changes that one of two releases has and the other one has not.
    pub fn changes_between(self, other: Self) -> impl Iterator<Item = &'static ReleaseChange> {
        let (own, other) = (self.rules(), other.rules());
        CHANGES
            .iter()
            .filter(move |change| change.is_in(own) != change.is_in(other))
    }

    /// The release with these changes as another has them, or has them not.
    #[must_use]
    pub fn with_changes<'c>(self, changes: impl IntoIterator<Item = &'c ReleaseChange>, other: Self) -> Self {
        let mut rules = self.rules();
        for change in changes {
            *(change.rule)(&mut rules) = change.is_in(other.rules());
        }
        let bits = CHANGES.iter().enumerate();
        Self::Trial(TrialRules(bits.fold(0, |bits, (place, change)| {
            bits | u32::from(change.is_in(rules)) << place
        })))
    }

    /// True if the amounts of every pod are the same by both releases.
    pub fn reads_pods_as(self, other: Self) -> bool {
        PodRules::from(self) == PodRules::from(other)
    }

    /// Rules by which the release differs from the newest.
    pub fn rules(self) -> ReleaseRules {
        match self {
            Self::Volcano1144 => VOLCANO_1_14,
            Self::Volcano1151 => VOLCANO_1_15,
            Self::Default | Self::VolcanoEd72c7c81 | Self::KubeScheduler136 => NEWEST,
            Self::KubeScheduler137 => KUBE_SCHEDULER_1_37,
            Self::Trial(TrialRules(bits)) => {
                let mut rules = NEWEST;
                for (place, change) in CHANGES.iter().enumerate() {
                    *(change.rule)(&mut rules) = bits >> place & 1 == 1;
                }
                rules
            }
        }
    }
}

/// Rules of a release for the amounts of pods. Two releases with the same rules read every pod alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRules {
    /// Resources of the pod replace the sum over containers, and overhead is added after init containers.
    pub reads_pod_level_resources: bool,
    /// An in-place resize changes amounts at pod level.
    pub resizes_pod_level: bool,
    /// Balanced allocation reads pod-level resources of the task.
    pub balances_pod_level_resources: bool,
}

impl From<Release> for PodRules {
    fn from(release: Release) -> Self {
        let rules = release.rules();
        Self {
            reads_pod_level_resources: rules.reads_pod_level_resources,
            resizes_pod_level: rules.resizes_pod_level,
            balances_pod_level_resources: rules.balances_pod_level_resources,
        }
    }
}

impl Default for PodRules {
    fn default() -> Self {
        Self::from(Release::default())
    }
}

/// Rules in which releases differ. Each field is a change of upstream, and is true from the release that has the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a change that a release has or has not"
)]
pub struct ReleaseRules {
    /// A minimum is reserved after all plugins voted for the job, and not by the vote of `proportion` or `capacity` (#5339).
    pub reserves_after_votes: bool,
    /// Holdings of an Inqueue job enter the amounts of its queue once (#5100, #5130).
    pub counts_inqueue_once: bool,
    /// A task whose only gate is Volcano's queue gate is part of the minimum of its job (#5033).
    pub counts_queue_gated: bool,
    /// Resources of the pod replace the sum over containers, and overhead is added after init containers (#5020).
    pub reads_pod_level_resources: bool,
    /// `capacity` reads `ancestorReclaimLevel` (#5115).
    pub reads_ancestor_reclaim_level: bool,
    /// `capacity` reclaims in the order of the victims' queue, and not in the order of the candidates (#5115).
    pub reclaims_in_victim_order: bool,
    /// `capacity` asks the queue's limit when a task is to preempt (#5250).
    pub preempts_within_limit: bool,
    /// Equal jobs' victims are ordered by their tasks (#5115).
    pub orders_victims_by_task: bool,
    /// The actions `gangpreempt` and `gangreclaim`, and votes on the victims of a gang (#5250).
    pub has_gang_actions: bool,
    /// Preempt and reclaim undo the evictions on a node that does not suffice, and reclaim looks before it evicts (#5010, #5067).
    pub undoes_vain_evictions: bool,
    /// Preempt asks the filters again after each eviction (#5843).
    pub filters_after_eviction: bool,
    /// A pod whose eviction is undone stays off its node for filters and scores of Kubernetes: its volumes cannot be reserved again,
    /// and the release stops there.
    pub loses_unevicted_pods: bool,
    /// `nodeorder` scores all candidates together, normalised over them (#5497).
    pub scores_candidates_together: bool,
    /// Balanced allocation scores the change that the task makes (Kubernetes 1.36).
    pub scores_balance_change: bool,
    /// An in-place resize changes amounts at pod level (Kubernetes 1.36).
    pub resizes_pod_level: bool,
    /// Image locality adds images of image volumes (Kubernetes 1.36).
    pub counts_volume_images: bool,
    /// Image volumes widen the range of image locality as containers do (kube-scheduler 1.37).
    pub ranges_volume_images: bool,
    /// A selector of namespaces of the pod itself selects the namespaces that it matches, and no others (kube-scheduler 1.37).
    pub closes_namespace_selectors: bool,
    /// The extension point `podGroupPostFilter` and the plugin `DeferredPodScheduling` (kube-scheduler 1.37).
    pub has_deferred_scheduling: bool,
    /// Balanced allocation reads pod-level resources of the task (#5287).
    pub balances_pod_level_resources: bool,
    /// The reason of the taint filter names no taint (Kubernetes 1.35).
    pub hides_taint_in_reason: bool,
    /// `nodegroup` reads `enablePreferredOrder` (#5110).
    pub reads_preferred_order: bool,
    /// `nodegroup` reads the limits of a queue's node groups (#5461).
    pub limits_node_groups: bool,
    /// A boolean argument may be written as text (#5058).
    pub reads_booleans_in_text: bool,
    /// Victims whose job is in no session are skipped, where the release before crashes (#4982).
    pub skips_orphans: bool,
    /// A task on a node that is being deleted counts for the phase of its job (#5796).
    pub counts_terminating: bool,
}

impl ReleaseRules {
    /// Checks that the jobs of all candidates are in the session, with their queues.
    ///
    /// # Errors
    /// One is not, and the release crashes there.
    pub(crate) fn check_orphans(
        &self,
        cluster_state: &ClusterState,
        candidates: &[&TaskRecord],
    ) -> Result<(), Problem> {
        if self.skips_orphans {
            return Ok(());
        }
        let has_job = |task: &&&TaskRecord| {
            let job = cluster_state.jobs().get(&task.job);
            job.is_some_and(|job| cluster_state.queues().contains(&job.record.queue))
        };
        let Some(orphan) = candidates.iter().find(|task| !has_job(task)) else {
            return Ok(());
        };
        let message = format!(
            "candidate `{}` belongs to no job; the reference panics here",
            orphan.name
        );
        Err(Problem::new(ErrorCode::ReferencePanics, "candidates", message))
    }
}

/// Change of the upstream project by which releases differ.
#[derive(Debug)]
pub struct ReleaseChange {
    /// Name of the rule among [`ReleaseRules`].
    name: &'static str,
    rule: fn(&mut ReleaseRules) -> &mut bool,
    /// Number of the change in its project, such as `#5339`.
    pub number: &'static str,
    /// Decision of a release that has the change.
    pub text: &'static str,
}

impl ReleaseChange {
    /// Name of the rule for files, such as `reserves-after-votes`.
    pub fn slug(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Number and text in one line.
    pub fn line(&self) -> String {
        format!("{}: {}", self.number, self.text)
    }

    fn is_in(&self, mut rules: ReleaseRules) -> bool {
        *(self.rule)(&mut rules)
    }
}

const fn change(
    name: &'static str,
    rule: fn(&mut ReleaseRules) -> &mut bool,
    number: &'static str,
    text: &'static str,
) -> ReleaseChange {
    ReleaseChange {
        name,
        rule,
        number,
        text,
    }
}

const CHANGES: &[ReleaseChange] = &[
    change(
        "reserves_after_votes",
        |own| &mut own.reserves_after_votes,
        "#5339",
        "a job's minimum is reserved after all plugins voted for it",
    ),
    change(
        "counts_inqueue_once",
        |own| &mut own.counts_inqueue_once,
        "#5100",
        "what an Inqueue job holds counts once in its queue",
    ),
    change(
        "counts_queue_gated",
        |own| &mut own.counts_queue_gated,
        "#5033",
        "a task behind Volcano's queue gate counts in its job's minimum",
    ),
    change(
        "reads_pod_level_resources",
        |own| &mut own.reads_pod_level_resources,
        "#5020",
        "spec.resources of pods counts, and overhead after init containers",
    ),
    change(
        "reads_ancestor_reclaim_level",
        |own| &mut own.reads_ancestor_reclaim_level,
        "#5115",
        "capacity reads ancestorReclaimLevel",
    ),
    change(
        "reclaims_in_victim_order",
        |own| &mut own.reclaims_in_victim_order,
        "#5115",
        "capacity reclaims in the order in which victims are evicted",
    ),
    change(
        "preempts_within_limit",
        |own| &mut own.preempts_within_limit,
        "#5250",
        "capacity lets no task preempt beyond its queue's capability",
    ),
    change(
        "orders_victims_by_task",
        |own| &mut own.orders_victims_by_task,
        "#5115",
        "victims of equal jobs go in the order of their tasks",
    ),
    change(
        "has_gang_actions",
        |own| &mut own.has_gang_actions,
        "#5250",
        "the actions gangpreempt and gangreclaim",
    ),
    change(
        "undoes_vain_evictions",
        |own| &mut own.undoes_vain_evictions,
        "#5010, #5067",
        "evictions that do not suffice are undone, and reclaim looks first",
    ),
    change(
        "filters_after_eviction",
        |own| &mut own.filters_after_eviction,
        "#5843",
        "preempt asks the filters again after each eviction",
    ),
    change(
        "loses_unevicted_pods",
        |own| &mut own.loses_unevicted_pods,
        "Volcano 1.15",
        "a pod whose eviction is undone is not seen again in its session",
    ),
    change(
        "scores_candidates_together",
        |own| &mut own.scores_candidates_together,
        "#5497",
        "nodeorder scales node affinity over the candidates",
    ),
    change(
        "scores_balance_change",
        |own| &mut own.scores_balance_change,
        "Kubernetes 1.36",
        "balanced allocation scores the change by the pod",
    ),
    change(
        "resizes_pod_level",
        |own| &mut own.resizes_pod_level,
        "Kubernetes 1.36",
        "a resize of amounts at pod level counts",
    ),
    change(
        "counts_volume_images",
        |own| &mut own.counts_volume_images,
        "Kubernetes 1.36",
        "image volumes count for image locality",
    ),
    change(
        "ranges_volume_images",
        |own| &mut own.ranges_volume_images,
        "Kubernetes 1.37",
        "image volumes widen the range of image locality",
    ),
    change(
        "closes_namespace_selectors",
        |own| &mut own.closes_namespace_selectors,
        "Kubernetes 1.37",
        "a selector of namespaces that one without labels matches no longer selects all",
    ),
    change(
        "has_deferred_scheduling",
        |own| &mut own.has_deferred_scheduling,
        "Kubernetes 1.37",
        "the extension point podGroupPostFilter and the plugin DeferredPodScheduling",
    ),
    change(
        "balances_pod_level_resources",
        |own| &mut own.balances_pod_level_resources,
        "#5287",
        "balanced allocation reads spec.resources of the pod",
    ),
    change(
        "hides_taint_in_reason",
        |own| &mut own.hides_taint_in_reason,
        "Kubernetes 1.35",
        "the reason of the taint filter names no taint",
    ),
    change(
        "reads_preferred_order",
        |own| &mut own.reads_preferred_order,
        "#5110",
        "nodegroup reads enablePreferredOrder",
    ),
    change(
        "limits_node_groups",
        |own| &mut own.limits_node_groups,
        "#5461",
        "nodegroup reads limits of a queue's node groups",
    ),
    change(
        "reads_booleans_in_text",
        |own| &mut own.reads_booleans_in_text,
        "#5058",
        "a boolean argument may be a text",
    ),
    change(
        "skips_orphans",
        |own| &mut own.skips_orphans,
        "#4982",
        "victims whose job is in no session are skipped",
    ),
    change(
        "counts_terminating",
        |own| &mut own.counts_terminating,
        "#5796",
        "a job keeps its phase while its pods terminate on their nodes",
    ),
];

const NEWEST: ReleaseRules = ReleaseRules {
    reserves_after_votes: true,
    counts_inqueue_once: true,
    counts_queue_gated: true,
    reads_pod_level_resources: true,
    reads_ancestor_reclaim_level: true,
    reclaims_in_victim_order: true,
    preempts_within_limit: true,
    orders_victims_by_task: true,
    has_gang_actions: true,
    undoes_vain_evictions: true,
    filters_after_eviction: true,
    loses_unevicted_pods: true,
    scores_candidates_together: true,
    scores_balance_change: true,
    resizes_pod_level: true,
    counts_volume_images: true,
    ranges_volume_images: false,
    closes_namespace_selectors: false,
    has_deferred_scheduling: false,
    balances_pod_level_resources: true,
    hides_taint_in_reason: true,
    reads_preferred_order: true,
    limits_node_groups: true,
    reads_booleans_in_text: true,
    skips_orphans: true,
    counts_terminating: true,
};

const VOLCANO_1_15: ReleaseRules = ReleaseRules {
    reserves_after_votes: false,
    filters_after_eviction: false,
    scores_balance_change: false,
    resizes_pod_level: false,
    counts_volume_images: false,
    balances_pod_level_resources: false,
    limits_node_groups: false,
    counts_terminating: false,
    ..NEWEST
};

const VOLCANO_1_14: ReleaseRules = ReleaseRules {
    counts_inqueue_once: false,
    counts_queue_gated: false,
    reads_pod_level_resources: false,
    reads_ancestor_reclaim_level: false,
    reclaims_in_victim_order: false,
    preempts_within_limit: false,
    orders_victims_by_task: false,
    has_gang_actions: false,
    undoes_vain_evictions: false,
    loses_unevicted_pods: false,
    scores_candidates_together: false,
    hides_taint_in_reason: false,
    reads_preferred_order: false,
    reads_booleans_in_text: false,
    skips_orphans: false,
    ..VOLCANO_1_15
};

const KUBE_SCHEDULER_1_37: ReleaseRules = ReleaseRules {
    ranges_volume_images: true,
    closes_namespace_selectors: true,
    has_deferred_scheduling: true,
    ..NEWEST
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_among_the_changes() {
        let fields = format!("{NEWEST:?}").matches(": ").count();
        assert_eq!(fields, CHANGES.len());
        let count = |one: Release, other: Release| one.changes_between(other).count();
        assert_eq!(count(Release::Volcano1144, Release::Volcano1151), 15);
        assert_eq!(count(Release::Volcano1151, Release::VolcanoEd72c7c81), 8);
        assert_eq!(count(Release::KubeScheduler136, Release::KubeScheduler137), 3);
        assert_eq!(count(Release::Default, Release::VolcanoEd72c7c81), 0);
    }
}
