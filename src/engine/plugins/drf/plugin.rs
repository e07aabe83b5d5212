//! `drf` as it stands in a policy.

use std::sync::Arc;

use super::super::effective::map;
use super::{Drf, HIERARCHY, WEIGHTS};
use crate::engine::derived::{Derived, DerivedSet};
use crate::engine::model::{Problem, ProblemKind, View};
use crate::engine::plugin::{Hooks, OrderKey, Plugin, PluginDef, VictimKind, VictimQuestion};
use crate::engine::policy::{Arguments, Compatibility, Report, Switch, Switches, Value};

/// Its row in the registry.
pub(in super::super) const DEF: PluginDef = PluginDef {
    name: NAME,
    families: &["order", "victims"],
    task_annotations: &[],
    job_annotations: &[],
    queue_annotations: &[HIERARCHY, WEIGHTS],
    node_labels: &[],
    compile,
};

/// Its name in a policy.
pub const NAME: &str = "drf";

/// The plugin. It has no arguments; `enableHierarchy` is a switch.
#[derive(Debug)]
struct DrfPlugin {
    compatibility: Compatibility,
}

fn compile(arguments: &Arguments, compatibility: Compatibility, report: &mut Report) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, |_| false);
    Arc::new(DrfPlugin { compatibility })
}

impl Plugin for DrfPlugin {
    fn hooks(&self) -> Hooks {
        Hooks {
            order: true,
            victims: true,
            ..Hooks::default()
        }
    }

    fn effective_arguments(&self) -> Value {
        map([])
    }

    fn derive(&self, view: &View, switches: &Switches) -> Option<Arc<dyn Derived>> {
        let hierarchy = switches.is_on(Switch::Hierarchy);
        Some(Arc::new(Drf::build(view, self.compatibility, hierarchy)))
    }

    fn job_keys(&self, derived: &DerivedSet, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let drf: &Drf = derived.get(NAME)?;
        let key = |job: &Arc<str>| match (drf.job_problem(job), drf.job_share(job)) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(share)) => Ok(vec![share]),
            (None, None) => {
                let message = format!("there is no job `{job}`");
                Err(Problem::new(ProblemKind::NotFound, "UNKNOWN_JOB", "", message))
            }
        };
        Some(jobs.iter().map(key).collect())
    }

    fn queue_keys(&self, derived: &DerivedSet, queues: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let drf: &Drf = derived.get(NAME)?;
        drf.has_hierarchy()
            .then(|| queues.iter().map(|queue| drf.queue_key(queue)).collect())
    }

    fn victims(&self, question: &VictimQuestion<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let Some(drf) = question.derived.get::<Drf>(NAME) else {
            return Ok(None);
        };
        match question.kind {
            VictimKind::Preempt => drf.preempt(question.preemptor, question.candidates).map(Some),
            VictimKind::Reclaim => drf.reclaim(question.preemptor, question.candidates),
        }
    }
}
