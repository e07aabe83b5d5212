//! `sla`: jobs that have waited longer than they should go first and are enqueued (Volcano ed72c7c81,
//! pkg/scheduler/plugins/sla).

use std::sync::Arc;

use super::effective_values::value_map;
use super::go_duration::parse_go_duration;
use crate::model::{JobRecord, Problem, find_text};
use crate::plugin::{AdmitOpinion, JobOpinion, OrderKey, Plugin, PluginContext, PluginDef, PluginHooks, TimeEffect};
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["admit", "order"],
    job_annotations: &[OWN_WAITING_TIME, WAITING_TIME],
    time_effect: Some(TimeEffect {
        decisions: &[DecisionKind::Admit, DecisionKind::Order],
        effect: "The request gives no time: jobs that have waited too long are not told from others.",
    }),
    ..PluginDef::new("sla", compile)
};

/// Argument, and annotation of a job that applies if [`OWN_WAITING_TIME`] is absent or invalid.
const WAITING_TIME: &str = "sla-waiting-time";
/// Annotation of a job with precedence, for example `volcano.sh/sla-waiting-time: 1h`.
const OWN_WAITING_TIME: &str = "volcano.sh/sla-waiting-time";

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Seconds from Go's zero time to 1970: the creation time of a job that reports none.
const OLDEST: i64 = -62_135_596_800;

/// Compiled plugin.
#[derive(Debug)]
struct Sla {
    /// Waiting time of jobs without their own, as written, and in nanoseconds.
    waiting: Option<(String, i64)>,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &[WAITING_TIME], |_| false);
    let waiting = arguments.get(WAITING_TIME).and_then(|argument| {
        let text = argument.as_string();
        let read = text.and_then(|text| Some((text.to_owned(), waiting_time(text)?)));
        if read.is_none() {
            let message = "expected a duration above 0 such as \"1h30m\"; jobs without their own have no waiting time";
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        }
        read
    });
    Arc::new(Sla { waiting })
}

/// Waiting time in nanoseconds, above 0.
fn waiting_time(text: &str) -> Option<i64> {
    parse_go_duration(text).filter(|nanos| *nanos > 0)
}

impl Sla {
    /// Waiting time of a job in nanoseconds; `None`: it may wait for ever.
    fn waiting_of(&self, job: &JobRecord) -> Option<i64> {
        let mut keys = [OWN_WAITING_TIME, WAITING_TIME].into_iter();
        let own = keys.find_map(|key| waiting_time(find_text(&job.annotations, key)?));
        own.or_else(|| self.waiting.as_ref().map(|(_, nanos)| *nanos))
    }

    /// End of a job's waiting time: seconds since 1970 and nanoseconds.
    fn deadline(&self, job: &JobRecord) -> Option<(i64, i64)> {
        let waiting = self.waiting_of(job)?;
        let created = job.creation_time.unwrap_or(OLDEST);
        let seconds = created.saturating_add(waiting.div_euclid(NANOS_PER_SECOND));
        Some((seconds, waiting.rem_euclid(NANOS_PER_SECOND)))
    }

    /// True if a job has waited long enough, as far as the query gives the time.
    fn is_over(&self, context: PluginContext<'_>, job: &JobRecord) -> bool {
        let both = self.deadline(job).zip(context.now);
        both.is_some_and(|(deadline, now)| (now.seconds, 0) >= deadline)
    }
}

impl Plugin for Sla {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            admit: true,
            job_state: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let waiting = self.waiting.iter();
        value_map(waiting.map(|(text, _)| (WAITING_TIME.to_owned(), YamlValue::String(text.clone()))))
    }

    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let key = |name: &Arc<str>| {
            let stored = context.cluster_state.jobs().get(name);
            let deadline = stored.and_then(|stored| self.deadline(&stored.record));
            Ok(match deadline {
                Some((seconds, nanos)) => vec![seconds as f64, nanos as f64],
                None => vec![f64::INFINITY, 0.0],
            })
        };
        Some(jobs.iter().map(key).collect())
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        Ok(self.is_over(context, job).then(AdmitOpinion::default))
    }

    fn job_opinion(&self, context: PluginContext<'_>, job: &JobRecord) -> JobOpinion {
        JobOpinion {
            pipelined: Some(i64::from(self.is_over(context, job))),
            ..JobOpinion::default()
        }
    }
}
