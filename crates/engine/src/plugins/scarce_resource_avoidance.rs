//! `ScarceResourceAvoidance`: keeps tasks away from nodes with scarce resources that they do not request (Koordinator
//! a7a1b76b, pkg/scheduler/plugins/scarceresourceavoidance).

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::effective_values::{map_entry, value_map};
use super::strict_arguments::{check_kubernetes_name, read_resources, report_type_mismatch};
use crate::model::resource_name::ResourceKind;
use crate::model::{NodeChunk, NodeMask, ResourceId, TaskClass};
use crate::plugin::{
    ChunkScores, HookNumbers, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook,
};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, YamlNode, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    profile_points: &["preScore", "score"],
    ..PluginDef::new("ScarceResourceAvoidance", compile)
};

const MAX_SCORE: u32 = 100;

/// Compiled plugin.
#[derive(Debug)]
struct ScarceResourceAvoidance {
    scarce: BTreeSet<String>,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    let mut scarce = BTreeSet::new();
    let list = read_resources(arguments, "ScarceResourceAvoidanceArgs", report);
    let at = list.as_ref().map_or_else(|| arguments.at(), PluginArgument::at);
    let items = list.as_ref().map(|list| (list.items(), list.value()));
    if let Some((None, other)) = &items {
        report_type_mismatch(&at, "a list of names", other, report);
    }
    for item in items.and_then(|(items, _)| items).unwrap_or_default() {
        let name = item.as_string().or(item.is_null().then_some(""));
        let Some(name) = name else {
            report_type_mismatch(&item.at(), "the name of a resource", item.value(), report);
            continue;
        };
        check_kubernetes_name(name, &item.at(), report);
        if !scarce.insert(name.to_owned()) {
            report.warning(
                ErrorCode::ArgumentIgnored,
                &item.at(),
                format!("`{name}` is listed twice"),
            );
        }
    }
    if scarce.is_empty() && !report.has_errors() {
        let message = "no resource is scarce: every node scores 100 for every task";
        report.warning(ErrorCode::ArgumentMute, &at, message);
    }
    Arc::new(ScarceResourceAvoidance { scarce })
}

impl Plugin for ScarceResourceAvoidance {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let names = self
            .scarce
            .iter()
            .map(|name| YamlNode::new(YamlValue::String(name.clone())));
        value_map([map_entry("resources", YamlValue::List(names.collect()))])
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, 100.0))
    }

    fn prepare_scorer<'a>(
        &'a self,
        PluginContext { cluster_state, .. }: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let requested = |id: ResourceId| class.requested.iter().any(|requested| requested.id == id);
        let resources = cluster_state.resources();
        let left = (0..).map(ResourceId::from_index).take(resources.len());
        let left = left.filter(|&id| !requested(id)).filter_map(|id| {
            let name = resources.name(id);
            let kind = ResourceKind::of(name);
            let counted = kind != ResourceKind::Pods && kind.counted_by_kubernetes();
            counted.then(|| (id, self.scarce.contains(name)))
        });
        Ok(Some(Box::new(ScarceScorer {
            unrequested: left.collect(),
        })))
    }
}

/// Score of a node with `left` resources that the task does not request; `hit` of the resources are scarce.
fn node_score(left: u32, hit: u32) -> u32 {
    if hit == 0 {
        return MAX_SCORE;
    }
    left.saturating_sub(hit) * MAX_SCORE / left.max(1)
}

/// Nodes of a chunk, grouped by the number of sets that contain them. The number of groups is at most the number of
/// sets plus 1.
fn group_by_count(sets: impl Iterator<Item = NodeMask>) -> SmallVec<[(NodeMask, u32); 8]> {
    let mut groups: SmallVec<[(NodeMask, u32); 8]> = SmallVec::from_iter([(NodeMask::ALL, 0)]);
    for set in sets {
        // Nodes that leave a group join the next one after that one's own nodes have left.
        let mut up = NodeMask::NONE;
        for (nodes, _) in &mut groups {
            let leaving = nodes.and(&set);
            *nodes = nodes.and_not(&set).or(&up);
            up = leaving;
        }
        if !up.is_empty() {
            let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            groups.push((up, count));
        }
    }
    groups.retain(|(nodes, _)| !nodes.is_empty());
    groups
}

struct ScarceScorer {
    /// Resources that the task does not request, and whether each is scarce.
    unrequested: Vec<(ResourceId, bool)>,
}

impl NodeScorer for ScarceScorer {
    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        scores.fill(f64::from(MAX_SCORE));
        let offered = |scarce: bool| {
            let some = self.unrequested.iter().filter(move |(_, own)| *own == scarce);
            some.map(|(id, _)| chunk.offered(*id)).filter(|nodes| !nodes.is_empty())
        };
        // Nodes with equal numbers of both have equal scores.
        let hit = group_by_count(offered(true));
        if hit.iter().all(|(_, count)| *count == 0) {
            return;
        }
        let rest = group_by_count(offered(false));
        for (nodes, hit) in hit.iter().filter(|(_, count)| *count > 0) {
            for (among, rest) in &rest {
                let score = node_score(hit + rest, *hit);
                nodes.and(among).write_at(f64::from(score), scores);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrelated_types_dilute_the_penalty() {
        assert_eq!(node_score(0, 0), 100, "nothing left over");
        assert_eq!(node_score(3, 0), 100, "nothing scarce left over");
        assert_eq!(node_score(1, 1), 0);
        assert_eq!(node_score(2, 1), 50);
        assert_eq!(node_score(3, 1), 66, "66.7 is cut");
        assert_eq!(node_score(6, 1), 83);
        assert_eq!(node_score(4, 4), 0);
    }
}
