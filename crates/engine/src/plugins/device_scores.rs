//! Parts that plugins about devices share: their weight, and the score of a chunk's nodes by a prepared score of one node.

use crate::devices::{DeviceScorer, scale};
use crate::model::{ChunkDevices, DeviceQuery, NodeChunk, NodeMask, TaskClass};
use crate::plugin::{ChunkScores, HookNumbers, NodeScorer, PluginContext};
use crate::policy::{DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Largest weight: sums of weighted scores stay exact integers.
const MAX_WEIGHT: i64 = 1_000_000;

/// Reads the argument `weight`; 1 if there is none.
pub(super) fn read_weight(arguments: &PluginArguments, report: &mut DiagnosticReport) -> i64 {
    read_int(arguments, "weight", 1, (0, MAX_WEIGHT), report)
}

/// Reads an integer argument within bounds.
pub(super) fn read_int(
    arguments: &PluginArguments,
    key: &str,
    default: i64,
    (least, greatest): (i64, i64),
    report: &mut DiagnosticReport,
) -> i64 {
    let Some(argument) = arguments.get(key).filter(|argument| !argument.is_null()) else {
        return default;
    };
    match argument.lenient_int() {
        Some(value) if (least..=greatest).contains(&value) => value,
        Some(_) | None => {
            let message = format!(
                "expected an integer from {least} to {greatest}, found {}",
                shown(argument.value())
            );
            report.error(ErrorCode::ArgumentInvalid, &argument.at(), message);
            default
        }
    }
}

fn shown(value: &YamlValue) -> String {
    if let YamlValue::Int(number) = value {
        return number.to_string();
    }
    if let YamlValue::String(text) = value {
        return format!("`{text}`");
    }
    value.kind().to_owned()
}

/// Score of a chunk's nodes by the score of one node.
pub(super) fn node_scorer<'a>(
    context: PluginContext<'a>,
    class: &'a TaskClass,
    scorer: &'a dyn DeviceScorer,
) -> Box<dyn NodeScorer + 'a> {
    Box::new(DeviceNodeScorer {
        after_release: context.after_release,
        request: DeviceQuery::of(class),
        scorer,
        range: None,
    })
}

struct DeviceNodeScorer<'a> {
    after_release: bool,
    request: DeviceQuery,
    scorer: &'a dyn DeviceScorer,
    /// Least and greatest score of the candidates, where scores are relative to them.
    range: Option<(i64, i64)>,
}

impl DeviceNodeScorer<'_> {
    /// Scores of the nodes of a chunk, node by node.
    fn each_value(&self, chunk: &NodeChunk, nodes: &NodeMask, mut say: impl FnMut(usize, i64)) {
        let devices = ChunkDevices::of(chunk, self.after_release, self.scorer.is_random());
        for offset in nodes.iter() {
            let score = devices.with_node(offset, &self.request, |task, node| self.scorer.score(task, node));
            say(offset, score.map_or(0, |score| score.value));
        }
    }
}

/// Minimum and maximum score as numbers. Empty without scores.
fn range_numbers(range: Option<(i64, i64)>) -> HookNumbers {
    let ends = range.into_iter().flat_map(|(least, greatest)| [least, greatest]);
    ends.map(i64::cast_unsigned).collect()
}

impl NodeScorer for DeviceNodeScorer<'_> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        let Some(scores) = parts.first_mut() else { return };
        let (is_relative, weight) = (self.scorer.is_relative(), self.scorer.weight());
        self.each_value(chunk, chunk.live(), |offset, raw| {
            let value = match (is_relative, self.range) {
                (true, Some((least, greatest))) => scale(raw.clamp(least, greatest), least, greatest),
                (true, None) => 0,
                (false, _) => raw,
            };
            if let Some(place) = scores.get_mut(offset) {
                *place = (value * weight) as f64;
            }
        });
    }

    fn needs_survey(&self) -> bool {
        self.scorer.is_relative()
    }

    fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) -> Option<HookNumbers> {
        let mut own: Option<(i64, i64)> = None;
        self.each_value(chunk, candidates, |_, value| {
            let (least, greatest) = own.unwrap_or((value, value));
            own = Some((least.min(value), greatest.max(value)));
        });
        let numbers = range_numbers(own);
        self.survey_again(&numbers);
        Some(numbers)
    }

    fn survey_again(&mut self, numbers: &[u64]) {
        for number in numbers {
            let value = number.cast_signed();
            let (least, greatest) = self.range.unwrap_or((value, value));
            self.range = Some((least.min(value), greatest.max(value)));
        }
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(range_numbers(self.range))
    }
}
