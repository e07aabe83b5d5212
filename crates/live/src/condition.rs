//! Condition of a watch, for probes, metrics and logs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use tokio::time::Instant;

use crate::resources::ResourceScope;

/// Condition of one resource, in the whole cluster or in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceCondition {
    /// The objects are being listed.
    Listing,
    /// The changes arrive.
    Watching,
    /// Changes do not arrive; the last good records stay. The message has the reason, for example a closed connection.
    Interrupted(String),
    /// The objects are listed from time to time. The message has the reason, for example a watch that is forbidden or silent.
    Polled(String),
    /// The API server does not serve it; it is looked for from time to time.
    Absent,
    /// The account may not list and watch the resource. The message comes from the API server.
    Forbidden(String),
}

impl fmt::Display for ResourceCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResourceCondition::Listing => f.write_str("being listed"),
            ResourceCondition::Watching => f.write_str("watched"),
            ResourceCondition::Interrupted(message) => write!(f, "interrupted: {message}"),
            ResourceCondition::Polled(message) => write!(f, "listed again every 30 s: {message}"),
            ResourceCondition::Absent => f.write_str("not served by the API server"),
            ResourceCondition::Forbidden(message) => write!(f, "forbidden: {message}"),
        }
    }
}

/// Status of one watched resource, such as `pods`.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// Name, such as `podgroups.scheduling.volcano.sh` or `pods in namespace web`.
    pub name: String,
    /// Condition of the watch of this resource.
    pub condition: ResourceCondition,
    /// Number of changes since the start, without objects of lists.
    pub events: u64,
}

/// Status of a whole watch.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// Resources by name.
    pub resources: Vec<ResourceStatus>,
    /// Time for which changes of the cluster may be missing; `None`: all arrive.
    pub behind: Option<Duration>,
    /// Reason why changes may be missing.
    pub problem: Option<String>,
    /// Full syncs that became visible since the start.
    pub full_syncs: u64,
    /// Objects that could not be read since the start.
    pub unreadable_objects: u64,
}

impl ClusterStatus {
    /// Resources in a condition, by their names.
    fn named(&self, wanted: fn(&ResourceCondition) -> bool) -> Vec<String> {
        let found = self.resources.iter().filter(|resource| wanted(&resource.condition));
        found
            .map(|resource| format!("{} ({})", resource.name, resource.condition))
            .collect()
    }

    /// Resources that are absent, forbidden or polled, by their names.
    pub fn not_watched(&self) -> Vec<String> {
        self.named(|condition| {
            matches!(
                condition,
                ResourceCondition::Absent | ResourceCondition::Forbidden(_) | ResourceCondition::Polled(_)
            )
        })
    }
}

/// One line for people.
impl fmt::Display for ClusterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.behind, &self.problem) {
            (Some(behind), problem) => {
                write!(f, "changes may be missing for {} s", behind.as_secs())?;
                problem.iter().try_for_each(|problem| write!(f, ": {problem}"))?;
            }
            (None, _) => write!(
                f,
                "{} resources are watched",
                self.named(|condition| *condition == ResourceCondition::Watching).len()
            )?,
        }
        let missing = self.not_watched();
        if missing.is_empty() {
            return Ok(());
        }
        write!(f, "; not watched: {}", missing.join(", "))
    }
}

/// Condition of one resource, with its changes since the start.
#[derive(Debug)]
struct WatchedCondition {
    condition: ResourceCondition,
    /// True if nothing can be decided without the resource.
    is_required: bool,
    events: u64,
}

impl WatchedCondition {
    fn is_behind(&self) -> bool {
        matches!(self.condition, ResourceCondition::Interrupted(_))
    }
}

#[derive(Debug, Default)]
struct Conditions {
    resources: BTreeMap<String, WatchedCondition>,
    /// True if all records of the last full sync are visible.
    is_synced: bool,
    /// Problem of the watch as a whole, such as credentials or the probe of the API server.
    problem: Option<String>,
    behind_since: Option<Instant>,
    full_syncs: u64,
    unreadable_objects: u64,
}

impl Conditions {
    fn problem(&self) -> Option<String> {
        if let Some(problem) = &self.problem {
            return Some(problem.clone());
        }
        let broken = self.resources.iter().filter(|(_, own)| own.is_behind());
        let named: Vec<String> = broken.map(|(name, own)| format!("{name}: {}", own.condition)).collect();
        if !named.is_empty() {
            return Some(named.join("; "));
        }
        (!self.is_synced).then(|| "objects are being listed".to_owned())
    }

    /// Notes since when changes may be missing.
    fn follow(&mut self) {
        self.behind_since = match (self.problem(), self.behind_since) {
            (None, _) => None,
            (Some(_), None) => Some(Instant::now()),
            (Some(_), since) => since,
        };
    }
}

/// Condition of a watch, shared by the watch and its readers.
#[derive(Debug)]
pub struct ClusterCondition(ShortLock<Conditions>);

impl Default for ClusterCondition {
    fn default() -> Self {
        let mut conditions = Conditions::default();
        conditions.follow();
        ClusterCondition(ShortLock::new(conditions))
    }
}

impl ClusterCondition {
    /// Status at this moment.
    pub fn status(&self) -> ClusterStatus {
        self.0.with(|own| ClusterStatus {
            resources: own
                .resources
                .iter()
                .map(|(name, own)| ResourceStatus {
                    name: name.clone(),
                    condition: own.condition.clone(),
                    events: own.events,
                })
                .collect(),
            behind: own.behind_since.map(|since| since.elapsed()),
            problem: own.problem(),
            full_syncs: own.full_syncs,
            unreadable_objects: own.unreadable_objects,
        })
    }

    /// True if all changes of the resources arrive that decisions cannot do without. The others fail each for itself.
    pub(crate) fn is_current(&self) -> bool {
        self.0.with(|own| {
            let mut resources = own.resources.values();
            own.is_synced && own.problem.is_none() && !resources.any(|own| own.is_required && own.is_behind())
        })
    }

    fn change(&self, change: impl FnOnce(&mut Conditions)) {
        self.0.with(|own| {
            change(own);
            own.follow();
        });
    }

    /// Sets the condition of a resource; true if it had another one.
    pub(crate) fn set(&self, scope: &ResourceScope, condition: ResourceCondition) -> bool {
        let mut is_new = false;
        self.change(|own| {
            let entry = own.resources.entry(scope.to_string());
            let watched = entry.or_insert_with(|| {
                is_new = true;
                WatchedCondition {
                    condition: condition.clone(),
                    is_required: scope.resource.is_required,
                    events: 0,
                }
            });
            is_new |= watched.condition != condition;
            watched.condition = condition;
        });
        is_new
    }

    pub(crate) fn count_event(&self, scope: &ResourceScope) {
        self.0.with(|own| {
            if let Some(watched) = own.resources.get_mut(&scope.to_string()) {
                watched.events = watched.events.saturating_add(1);
            }
        });
    }

    pub(crate) fn count_unreadable(&self, objects: usize) {
        let objects = u64::try_from(objects).unwrap_or(u64::MAX);
        self.0
            .with(|own| own.unreadable_objects = own.unreadable_objects.saturating_add(objects));
    }

    /// A full sync begins: what it shows is not visible yet.
    pub(crate) fn begin_full_sync(&self) {
        self.change(|own| own.is_synced = false);
    }

    /// The full sync is visible.
    pub(crate) fn end_full_sync(&self) {
        self.change(|own| {
            own.is_synced = true;
            own.problem = None;
            own.full_syncs = own.full_syncs.saturating_add(1);
        });
    }

    /// Sets the problem of the watch as a whole.
    pub(crate) fn set_problem(&self, problem: Option<String>) {
        self.change(|own| own.problem = problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_behind_while_something_is_missing() {
        let condition = ClusterCondition::default();
        let scope = |plural: &str| {
            let mut scopes = crate::resources::scopes(&[]).into_iter();
            scopes.find(|scope| scope.resource.plural == plural).unwrap()
        };
        let (pods, queues, services) = (scope("pods"), scope("queues"), scope("services"));
        let is_behind = || condition.status().behind.is_some();
        assert!(is_behind());
        condition.set(&pods, ResourceCondition::Watching);
        condition.set(&queues, ResourceCondition::Absent);
        condition.set(&services, ResourceCondition::Forbidden("no".to_owned()));
        assert!(is_behind());
        condition.end_full_sync();
        assert!(!is_behind());
        assert_eq!(
            condition.status().to_string(),
            "1 resources are watched; not watched: queues.scheduling.volcano.sh (not served by the API server), services (forbidden: no)"
        );
        assert!(condition.set(&queues, ResourceCondition::Interrupted("broken".to_owned())));
        assert!(is_behind());
        assert!(condition.is_current(), "decisions can do without queues");
        assert!(condition.set(&pods, ResourceCondition::Interrupted("gone".to_owned())));
        assert!(!condition.set(&pods, ResourceCondition::Interrupted("gone".to_owned())));
        assert!(!condition.is_current());
        condition.set_problem(Some("the API server does not answer".to_owned()));
        assert!(is_behind());
        assert_eq!(condition.status().problem.unwrap(), "the API server does not answer");
        condition.set_problem(None);
        assert_eq!(
            condition.status().problem.unwrap(),
            "pods: interrupted: gone; queues.scheduling.volcano.sh: interrupted: broken"
        );
        condition.set(&pods, ResourceCondition::Watching);
        assert!(condition.is_current());
        condition.set(&queues, ResourceCondition::Polled("no watch".to_owned()));
        assert!(!is_behind());
    }
}
