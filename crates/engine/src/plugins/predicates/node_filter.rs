//! Filter of one task class.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pumice_kernels::shortage::{without_place, without_place_beside};

use super::added_rules::AddedRules;
use super::arguments::{PredicateArguments, PredicateCheck};
use super::pod_checks::PodChecks;
use super::rejection_kind::{KINDS, NotedRejections, RejectionKind};
use super::taint_names::{TaintNames, first_untolerated, is_tolerated};
use crate::model::constraints::{HostPort, NodeSelectorTerm, PodConstraints, Taint, TaintEffect};
use crate::model::{NodeChunk, NodeEntry, NodeMask, NodeVector, Problem, ResourceId, TaskClass};
use crate::plugin::{
    ChunkRejections, HookNumbers, Measurement, NodeFilter, PeerFilter, PluginContext, Reason, Resolution,
};
use crate::policy::Compatibility;

/// Annotation of the template of a task, by which the cache of the reference shares verdicts.
pub(super) const TEMPLATE: &str = "volcano.sh/template-uid";

/// Key of the taint that a cordon stands for.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// Constraints of a class that depend on the node's record alone, in a form that columns are matched with.
#[derive(Debug)]
struct RecordChecks<'a> {
    constraints: &'a PodConstraints,
    /// Required terms that can match. `None`: the pod has no terms, or the check is off.
    terms: Option<Vec<&'a NodeSelectorTerm>>,
    affinity: bool,
    taints: bool,
    /// True if a cordon rejects no pod of the class.
    leaves_cordoned: bool,
    /// Required terms that every pod has beside its own; `None`: there are none.
    added_terms: Option<&'a [NodeSelectorTerm]>,
}

impl<'a> RecordChecks<'a> {
    fn new(arguments: PredicateArguments, added: &'a AddedRules, constraints: &'a PodConstraints) -> Self {
        let terms = constraints
            .required_node_terms
            .as_ref()
            .filter(|_| arguments.has(PredicateCheck::NodeAffinity));
        let cordon = Taint {
            key: CORDON.into(),
            value: Arc::default(),
            effect: TaintEffect::NoSchedule,
        };
        Self {
            constraints,
            terms: terms.map(|terms| terms.iter().filter(|term| can_match(term)).collect()),
            affinity: arguments.has(PredicateCheck::NodeAffinity),
            taints: arguments.has(PredicateCheck::Taints),
            added_terms: added.required_node_terms.as_deref(),
            leaves_cordoned: !arguments.has(PredicateCheck::Cordon) || is_tolerated(&cordon, &constraints.tolerations),
        }
    }

    /// Cordoned nodes that reject the class.
    fn cordoned(&self, chunk: &NodeChunk) -> NodeMask {
        if self.leaves_cordoned {
            NodeMask::NONE
        } else {
            *chunk.attributes().cordoned()
        }
    }

    /// Nodes that match the node selector and the required terms.
    fn selected(&self, chunk: &NodeChunk) -> NodeMask {
        if !self.affinity {
            return NodeMask::ALL;
        }
        let attributes = chunk.attributes();
        let selected = attributes.with_labels(&self.constraints.node_selector);
        let Some(terms) = &self.terms else { return selected };
        let matching = terms.iter().map(|term| attributes.matching(term));
        selected.and(&matching.fold(NodeMask::NONE, |any, nodes| any.or(&nodes)))
    }

    /// Nodes that do not match the required terms which every pod has.
    fn without_added_terms(&self, chunk: &NodeChunk) -> NodeMask {
        let Some(terms) = self.added_terms else {
            return NodeMask::NONE;
        };
        let attributes = chunk.attributes();
        let matching = terms
            .iter()
            .filter(|term| can_match(term))
            .map(|term| attributes.matching(term));
        NodeMask::ALL.and_not(&matching.fold(NodeMask::NONE, |any, nodes| any.or(&nodes)))
    }

    /// Nodes with a taint that the class does not tolerate.
    fn tainted(&self, chunk: &NodeChunk) -> NodeMask {
        if !self.taints {
            return NodeMask::NONE;
        }
        let tolerations = &self.constraints.tolerations;
        chunk
            .attributes()
            .select_taints(|taints| first_untolerated(taints, tolerations).is_some())
    }
}

/// True if a term matches some node.
fn can_match(term: &NodeSelectorTerm) -> bool {
    !term.is_empty() && term.is_valid()
}

/// Rules of a filter that the arguments and the compatibility set.
#[derive(Debug, Clone, Copy)]
struct PodFilterRules {
    /// True: nodes without a place for one more pod are rejected.
    counts_pods: bool,
    /// True: places and ports of tasks that are being released are free.
    after_release: bool,
    /// True: a node is rejected for every reason that the reference notes, else for one: a reason that evictions do not
    /// remove, if there is one.
    all_statuses: bool,
}

/// Prepared filter.
#[derive(Debug)]
pub(in crate::plugins) struct PodFilter<'a> {
    /// Plugin in the reasons.
    plugin: &'static str,
    /// Rules that the arguments and the compatibility set.
    rules: PodFilterRules,
    checks: RecordChecks<'a>,
    /// Checks of the first task of the template, whose verdict applies to this task. `None`: the class is evaluated by
    /// itself.
    cached: Option<RecordChecks<'a>>,
    /// Taints that reasons name; `None`: they name none.
    taint_names: Option<TaintNames<'a>>,
    ports: &'a [HostPort],
    /// True if no node can match: every required term names nodes, and none in common.
    terms_conflict: bool,
    pods: PodChecks<'a>,
}

impl<'a> PodFilter<'a> {
    /// Filter of a class with the enabled checks, under the name of a plugin.
    ///
    /// # Errors
    /// The class has a constraint that cannot be evaluated.
    pub(in crate::plugins) fn new(
        plugin: &'static str,
        (arguments, added): (PredicateArguments, &'a AddedRules),
        compatibility: Compatibility,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> Result<Self, Problem> {
        let constraints = class.constraints();
        let terms = constraints
            .required_node_terms
            .as_deref()
            .filter(|_| arguments.has(PredicateCheck::NodeAffinity));
        let first = class
            .template_constraints
            .as_deref()
            .filter(|_| arguments.has(PredicateCheck::Cache));
        let hides_taint = compatibility.release().rules().hides_taint_in_reason;
        let names_taints = arguments.has(PredicateCheck::Taints) && !hides_taint && first.is_none();
        Ok(Self {
            plugin,
            rules: PodFilterRules {
                counts_pods: arguments.has(PredicateCheck::PodCount),
                after_release: context.after_release && compatibility == Compatibility::Corrected,
                all_statuses: compatibility.is_upstream(),
            },
            checks: RecordChecks::new(arguments, added, constraints),
            cached: first.map(|first| RecordChecks::new(arguments, added, first)),
            taint_names: names_taints.then(|| TaintNames::new(context.cluster_state, &constraints.tolerations)),
            ports: if arguments.has(PredicateCheck::HostPorts) {
                &constraints.host_ports
            } else {
                &[]
            },
            terms_conflict: terms.is_some() && constraints.has_conflicting_terms(),
            pods: PodChecks::new(arguments, compatibility, context, class, added)?,
        })
    }

    /// Nodes that have no place for one more pod.
    fn full(&self, chunk: &NodeChunk) -> NodeMask {
        if !self.rules.counts_pods {
            return NodeMask::NONE;
        }
        let pods = chunk.resource(ResourceId::PODS);
        let [pipelined, releasing] = [NodeVector::Pipelined, NodeVector::Releasing].map(|vector| pods.column(vector));
        let [allocatable, used] = [NodeVector::Allocatable, NodeVector::Used].map(|vector| &pods.column(vector).values);
        let released = self.rules.after_release && !releasing.present.is_empty();
        let mut full = if released || !pipelined.present.is_empty() {
            let factor = if released { 1.0 } else { 0.0 };
            without_place(allocatable, used, &pipelined.values, &releasing.values, factor)
        } else {
            without_place_beside(allocatable, used)
        };
        for offset in chunk.own_vectors().iter() {
            let own = chunk
                .entry(offset)
                .and_then(|entry| Some((entry, entry.upstream.as_ref()?)));
            if let Some((entry, own)) = own {
                let places = entry.exact(ResourceId::PODS, NodeVector::Allocatable).unwrap_or(0);
                full.set(offset, places <= own.pods);
            }
        }
        full
    }

    /// Nodes on which a requested port is taken.
    fn without_ports(&self, chunk: &NodeChunk, among: &NodeMask) -> NodeMask {
        if self.ports.is_empty() {
            return NodeMask::NONE;
        }
        if chunk.is_detached() {
            // Each of its nodes has taken a task of the class, which has the same ports.
            return *among;
        }
        let [mut taken, releasing] = chunk.with_conflicting_ports(self.ports);
        if self.rules.after_release {
            for offset in releasing.and(among).iter() {
                let is_taken = chunk.entry(offset).is_some_and(|entry| self.has_taken_port(entry));
                taken.set(offset, is_taken);
            }
        }
        taken.and(among)
    }

    /// True if a port is taken that stays so once tasks which are being released are gone.
    fn has_taken_port(&self, entry: &NodeEntry) -> bool {
        let usage = &entry.usage;
        usage.ports.iter().any(|(port, count)| {
            count > usage.releasing_ports.count(port) && self.ports.iter().any(|own| own.conflicts_with(port))
        })
    }

    /// Notes rejected nodes, under `corrected` each for one reason. Records of nodes reject all but `left`.
    fn note(&self, noted: &NotedRejections, left: &NodeMask, verdicts: &mut ChunkRejections) {
        if self.rules.all_statuses {
            for (kind, nodes) in noted {
                verdicts.reject(kind.number(), nodes);
            }
            return;
        }
        let mut left = *left;
        for wanted in [Resolution::Unresolvable, Resolution::Unschedulable] {
            for (kind, nodes) in noted.iter().filter(|(kind, _)| kind.resolution() == wanted) {
                verdicts.reject(kind.number(), &left.and(nodes));
                left = left.and_not(nodes);
            }
        }
    }

    /// Notes the nodes that records of nodes reject, and returns them.
    fn reject_by_records(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if chunk.is_detached() {
            // Nodes of a detached chunk passed these checks, which tasks do not change.
            return NodeMask::NONE;
        }
        let checks = self.cached.as_ref().unwrap_or(&self.checks);
        let kinds: [(RejectionKind, NodeMask); 3] = [
            (RejectionKind::Cordon, checks.cordoned(chunk)),
            (RejectionKind::AddedAffinity, checks.without_added_terms(chunk)),
            (
                RejectionKind::NodeAffinity,
                NodeMask::ALL.and_not(&checks.selected(chunk)),
            ),
        ];
        let mut left = *among;
        let reads_reasons = !verdicts.ignores_reasons();
        let mut reject = |number: u16, nodes: NodeMask| {
            let number = if self.cached.is_some() {
                RejectionKind::Cached.number()
            } else {
                number
            };
            verdicts.reject(number, &left.and(&nodes));
            left = left.and_not(&nodes);
        };
        for (kind, nodes) in kinds {
            reject(kind.number(), nodes);
        }
        if let Some(names) = self.taint_names.as_ref().filter(|_| reads_reasons) {
            for (number, nodes) in chunk.attributes().group_taints(|taints| names.number_of(taints)) {
                reject(number, nodes);
            }
        }
        reject(RejectionKind::Taint.number(), checks.tainted(chunk));
        among.and_not(&left)
    }
}

impl NodeFilter for PodFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if self.terms_conflict {
            verdicts.reject(RejectionKind::TermConflict.number(), among);
            return *among;
        }
        let full = self.full(chunk).and(among);
        let rejected = self.reject_by_records(chunk, among, verdicts);
        let left = among.and_not(&rejected);
        let taken = self.without_ports(chunk, &left);
        let mut noted = NotedRejections::new();
        noted.extend([(RejectionKind::PodCount, full), (RejectionKind::HostPort, taken)]);
        self.pods.judge(chunk, &left, &mut noted);
        if !verdicts.ignores_reasons() {
            self.note(&noted, &left, verdicts);
        }
        noted.iter().fold(rejected, |all, (_, nodes)| all.or(nodes))
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        let mut inputs = HookNumbers::new();
        let names = self.taint_names.as_ref().map(TaintNames::all);
        if let Some(names) = names.filter(|names| !names.is_empty()) {
            let mut hasher = DefaultHasher::new();
            names.hash(&mut hasher);
            inputs.push(hasher.finish());
        }
        (!self.pods.reads_other_nodes()).then_some(inputs)
    }

    fn split_peers(&mut self) -> Vec<Box<dyn PeerFilter>> {
        self.pods.split_peers()
    }

    fn reason(&self, number: u16) -> Reason {
        let kind = KINDS
            .get(usize::from(number))
            .copied()
            .unwrap_or(RejectionKind::PodCount);
        let taint = self.taint_names.as_ref().and_then(|names| names.of_number(number));
        let kind = taint.map_or(kind, |_| RejectionKind::Taint);
        let (code, message) = kind.texts();
        let message = match taint {
            Some([key, value]) => format!("node(s) had untolerated taint {{{key}: {value}}}"),
            None => message.to_owned(),
        };
        Reason::new(self.plugin, code, message, kind.resolution())
    }

    fn has_lasting_reasons(&self) -> bool {
        true
    }

    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement> {
        if number != RejectionKind::PodCount.number() {
            return Vec::new();
        }
        let value = |vector| chunk.value(ResourceId::PODS, vector, offset).unwrap_or(0.0);
        vec![
            Measurement::number("pods", value(NodeVector::Used) + value(NodeVector::Pipelined)),
            Measurement::number("allocatable pods", value(NodeVector::Allocatable)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::NO_ADDED_RULES;
    use super::*;
    use crate::decide::tests::fixtures;
    use crate::model::constraints::NodeProperties;
    use crate::model::{NodeRecord, ResourceAmounts, ResourceTable};
    use crate::plugin_state::PluginStates;
    use crate::policy::Release;

    #[test]
    fn taints_are_named_once_a_reason_is_read() {
        let taint = Taint {
            key: "team".into(),
            value: "blue".into(),
            effect: TaintEffect::NoSchedule,
        };
        let properties = NodeProperties {
            taints: vec![taint],
            ..NodeProperties::default()
        };
        let node = NodeRecord {
            name: "n".into(),
            properties: Some(Arc::new(properties)),
            ..NodeRecord::default()
        };
        let state = fixtures::cluster_state(ResourceTable::default(), vec![node]);
        let class = TaskClass::of(&fixtures::task(ResourceAmounts::default(), &[]), state.resources());
        let arguments = PredicateArguments::only(PredicateCheck::Taints);
        let context = PluginContext {
            cluster_state: &state,
            plugin_states: &PluginStates::default(),
            now: None,
            after_release: false,
        };
        let filter = || {
            let release = Compatibility::Upstream(Release::Volcano1144);
            PodFilter::new("predicates", (arguments, &NO_ADDED_RULES), release, context, &class).unwrap()
        };
        let are_found = |filter: &PodFilter<'_>| filter.taint_names.as_ref().unwrap().are_found();
        let (own, chunk) = (filter(), state.chunks().first().unwrap());
        let mut unread = ChunkRejections::without_reasons();
        assert_eq!(own.filter(chunk, chunk.live(), &mut unread), *chunk.live());
        assert!(!are_found(&own));
        let mut read = ChunkRejections::default();
        own.filter(chunk, chunk.live(), &mut read);
        assert!(are_found(&own));
        let messages: Vec<String> = read.drain().map(|(number, _)| own.reason(number).message).collect();
        assert_eq!(messages, ["node(s) had untolerated taint {team: blue}"]);
        let own = filter();
        own.outside_inputs();
        assert!(are_found(&own));
    }
}
