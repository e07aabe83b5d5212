//! `cdp`: running pods are not evicted before their cooldown time has passed since they were scheduled (Volcano ed72c7c81,
//! pkg/scheduler/plugins/cdp).

use std::sync::Arc;

use super::go_duration::parse_go_duration;
use crate::model::{Problem, TaskRecord, TaskStatus, find_text};
use crate::plugin::{
    DecisionTime, Plugin, PluginContext, PluginDef, PluginHooks, ShufflePart, TimeEffect, VictimQuery,
};
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments};

/// Label of a task with its cooldown time, such as `10m`, or its annotation if the label is missing.
const COOLDOWN: &str = "volcano.sh/cooldown-time";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["victims"],
    task_annotations: &[COOLDOWN],
    task_labels: &[COOLDOWN],
    time_effect: Some(TimeEffect {
        decisions: &[DecisionKind::Victims, DecisionKind::Shuffle],
        effect: "The request gives no time: tasks in their cooldown time are not spared.",
    }),
    ..PluginDef::new("cdp", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct CooldownProtection {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &[], |_| false);
    Arc::new(CooldownProtection { compatibility })
}

/// Cooldown time of a task in nanoseconds; `None`: it has none that can be read. An unreadable label hides the annotation.
fn cooldown(task: &TaskRecord) -> Option<i64> {
    let own = find_text(&task.labels, COOLDOWN).or_else(|| find_text(&task.annotations, COOLDOWN));
    own.and_then(parse_go_duration)
}

impl CooldownProtection {
    /// True if a task is in its cooldown time. Of a running task whose time is unknown the
    /// reference does not know a cooldown.
    fn is_protected(&self, task: &TaskRecord, now: DecisionTime) -> bool {
        let Some(cooldown) = cooldown(task) else {
            return false;
        };
        let Some(scheduled) = task.scheduled_time() else {
            let is_running = cooldown > 0 && task.status == TaskStatus::Running;
            return is_running && self.compatibility == Compatibility::Corrected;
        };
        i128::from(cooldown) > now.nanos_since(scheduled)
    }
}

impl Plugin for CooldownProtection {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            victims: true,
            ..PluginHooks::default()
        }
    }

    fn shuffle_part(&self) -> Option<ShufflePart> {
        (self.compatibility == Compatibility::Corrected).then_some(ShufflePart::Spares)
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        // The reference has no hook for evictions of whole gangs.
        if query.kind.is_of_gangs() && self.compatibility.is_upstream() {
            return Ok(None);
        }
        let spares = |task: &&TaskRecord| context.now.is_some_and(|now| self.is_protected(task, now));
        Ok(Some(query.candidates.iter().map(|task| !spares(task)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue_accounts::testing::cluster::{amounts, cluster_state, task};
    use super::*;
    use crate::model::GangMember;
    use crate::plugin::{EvictionOrder, VictimKind};
    use crate::plugin_state::PluginStates;

    /// Noon of the day on which the reference was recorded.
    const NOON: i64 = 1_795_348_800;

    /// Running task that was scheduled `age` seconds before noon.
    fn scheduled(age: Option<i64>, label: Option<&str>, annotation: Option<&str>) -> TaskRecord {
        let text = |text: Option<&str>| text.map(|text| (COOLDOWN.into(), text.into())).into_iter().collect();
        let mut own = task("ns/a", "ns/j", &amounts(1000, 0, -1), TaskStatus::Running);
        own.labels = text(label);
        own.annotations = text(annotation);
        own.gang = GangMember {
            scheduled_time: age.map(|age| NOON - age),
            ..GangMember::default()
        }
        .into_field();
        own
    }

    fn goes(task: &TaskRecord, kind: VictimKind, compatibility: Compatibility, now: Option<i64>) -> Option<bool> {
        let state = cluster_state(&[]);
        let states = PluginStates::default();
        let query = VictimQuery {
            kind,
            preemptor: task,
            candidates: &[task],
            eviction_order: EvictionOrder::default(),
        };
        let context = PluginContext::new(&state, &states, now.map(Into::into));
        let plugin = CooldownProtection { compatibility };
        plugin.victims(context, &query).unwrap().map(|goes| goes[0])
    }

    #[test]
    fn a_cooldown_ends_at_its_second() {
        let at = |age: i64| {
            let own = scheduled(Some(age), None, Some("10m"));
            goes(&own, VictimKind::Preempt, Compatibility::UPSTREAM, Some(NOON)).unwrap()
        };
        assert_eq!([599, 600, 601].map(at), [false, true, true]);
        let fraction = scheduled(Some(0), None, Some("1ns"));
        let goes = |task: &TaskRecord, now| goes(task, VictimKind::Reclaim, Compatibility::UPSTREAM, now);
        assert_eq!(goes(&fraction, Some(NOON)), Some(false));
        assert_eq!(goes(&fraction, None), Some(true), "without a time");
    }

    #[test]
    fn a_bad_label_hides_a_good_annotation() {
        let goes = |label, annotation| {
            let own = scheduled(Some(1), label, annotation);
            goes(&own, VictimKind::Preempt, Compatibility::UPSTREAM, Some(NOON)).unwrap()
        };
        assert!(goes(Some("1d"), Some("10m")) && goes(Some("0"), Some("10m")) && goes(None, None));
        assert!(!goes(Some("10m"), Some("0")) && !goes(None, Some("10m")));
    }

    #[test]
    fn corrected_protects_from_evictions_of_gangs_and_where_the_time_is_unknown() {
        let known = scheduled(Some(1), Some("10m"), None);
        let unknown = scheduled(None, Some("10m"), None);
        let waiting = TaskRecord {
            status: TaskStatus::Bound,
            ..unknown.clone()
        };
        let without_cooldown = ["0", "-1m"].map(|cooldown| scheduled(None, Some(cooldown), None));
        for (compatibility, of_gangs, of_unknown) in [
            (Compatibility::UPSTREAM, None, true),
            (Compatibility::Corrected, Some(false), false),
        ] {
            let goes = |task, kind| goes(task, kind, compatibility, Some(NOON));
            assert_eq!(goes(&known, VictimKind::GangReclaim), of_gangs);
            assert_eq!(goes(&unknown, VictimKind::Preempt), Some(of_unknown));
            assert_eq!(goes(&waiting, VictimKind::Preempt), Some(true));
            for task in &without_cooldown {
                assert_eq!(goes(task, VictimKind::Preempt), Some(true));
            }
        }
    }
}
