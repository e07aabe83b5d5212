//! Scores about devices: the same ones in a decision that is served and in a simulation.

use std::fmt::Debug;

use super::fragmentation::Fragmentation;
use super::{DeviceNode, DeviceTask};

/// Score of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceScore {
    /// The score, an integer; the highest wins.
    pub value: i64,
    /// Device that the score refers to, if the task requests a share and the score prefers a device.
    pub device: Option<u8>,
}

impl DeviceScore {
    /// Score without an opinion on the device.
    pub fn of_node(value: i64) -> Self {
        Self { value, device: None }
    }
}

/// Score of nodes by their devices.
pub trait DeviceScorer: Debug + Send + Sync {
    /// Score of a node that has enough for a task.
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore;

    /// Factor of the score in sums; 0: the score takes no part, but may name devices.
    fn weight(&self) -> i64;

    /// True if callers must scale scores to 0 … 100, between the minimum and the maximum of the candidates, before they
    /// add other scores.
    fn is_relative(&self) -> bool {
        false
    }

    /// Typical tasks by which the score measures fragmentation; `None`: it does not.
    fn fragmentation(&self) -> Option<&Fragmentation> {
        None
    }

    /// True if the score depends on [`DeviceNode::identity`].
    fn is_random(&self) -> bool {
        false
    }
}

/// Score between the least and the greatest of the candidates, from 0 to 100, in integers; 0 if all are equal.
pub fn scale(value: i64, least: i64, greatest: i64) -> i64 {
    let range = greatest - least;
    if range == 0 { 0 } else { (value - least) * 100 / range }
}
