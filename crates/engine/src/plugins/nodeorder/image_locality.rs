//! Part by images: nodes that have the images of the class.

use super::resources::truncate;
use crate::model::constraints::PodConstraints;
use crate::model::{ClusterState, NodeChunk};
use crate::plugin::ChunkScores;
use crate::plugins::integer_arithmetic::MAX_SCORE;
use crate::plugins::record_values::{BoxedRecordValues, RecordValues};
use crate::policy::ReleaseRules;

const MEBIBYTE: i64 = 1 << 20;
/// Size below which images do not increase the score.
const MIN_SIZE: i64 = 23 * MEBIBYTE;
/// Size for each container above which images do not increase the score further.
const MAX_CONTAINER_SIZE: i64 = 1000 * MEBIBYTE;

/// Image of a class that some node has.
#[derive(Clone, Debug)]
struct WantedImage {
    /// Number of the image in the class.
    number: usize,
    name: String,
    /// Size, reduced by the part of the nodes that lack the image.
    spread_size: i64,
}

/// Values of nodes for a class, and the images that give them.
pub(super) struct ImageLocality<'a> {
    values: BoxedRecordValues<'a>,
    wanted: Vec<WantedImage>,
}

impl<'a> ImageLocality<'a> {
    /// Values for a class. `None`: its images are not on any node.
    ///
    /// An image has the size that the first node reports. All nodes with the image are included. The reference includes
    /// only nodes that it had seen at the last update of the scored node.
    pub(super) fn of(
        cluster_state: &'a ClusterState,
        constraints: &'a PodConstraints,
        rules: ReleaseRules,
    ) -> Option<Self> {
        let wanted = wanted_images(cluster_state, constraints, rules.counts_volume_images);
        if wanted.is_empty() {
            return None;
        }
        let values = image_values(cluster_state, range_of(constraints, rules), wanted.clone());
        Some(Self { values, wanted })
    }

    /// Fills in the values of a chunk.
    pub(super) fn fill(&self, chunk: &NodeChunk, values: &mut ChunkScores) {
        self.values.fill(chunk, values);
    }

    /// Numbers from other nodes by which values are computed.
    pub(super) fn spread_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        let numbers = |own: &WantedImage| [own.number as u64, own.spread_size.cast_unsigned()];
        self.wanted.iter().flat_map(numbers)
    }
}

/// Images of a class that some node has.
fn wanted_images(cluster_state: &ClusterState, constraints: &PodConstraints, counts_volumes: bool) -> Vec<WantedImage> {
    let total: u32 = cluster_state
        .chunks()
        .iter()
        .map(|chunk| chunk.valid(true).count())
        .sum();
    let volumes = constraints.image_volumes.iter().filter(|_| counts_volumes);
    let names = constraints.images.iter().chain(volumes).enumerate();
    names
        .filter_map(|(number, name)| wanted_image(cluster_state, (number, complete_name(name)), total))
        .collect()
}

/// Number of images by which the range of sizes grows.
fn range_of(constraints: &PodConstraints, rules: ReleaseRules) -> i64 {
    let volumes = constraints.image_volumes.iter().filter(|_| rules.ranges_volume_images);
    let count = constraints.images.len() + volumes.count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Values of the nodes by these images.
fn image_values(cluster_state: &ClusterState, range: i64, wanted: Vec<WantedImage>) -> BoxedRecordValues<'_> {
    let compute = move |chunk: &NodeChunk, values: &mut ChunkScores| {
        let mut sums = [0_i64; crate::model::CHUNK_SIZE];
        for image in &wanted {
            for offset in chunk.images().with_image(&image.name).iter() {
                if let Some(sum) = sums.get_mut(offset) {
                    *sum = sum.saturating_add(image.spread_size);
                }
            }
        }
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = size_score(sum, range) as f64;
        }
        None
    };
    RecordValues::new(cluster_state, Box::new(compute))
}

fn wanted_image(cluster_state: &ClusterState, (number, name): (usize, String), total: u32) -> Option<WantedImage> {
    let (mut count, mut size) = (0, None);
    for chunk in cluster_state.chunks().iter() {
        let images = chunk.images();
        count += images.with_image(&name).count();
        size = size.or_else(|| images.first_size(&name));
    }
    let spread = f64::from(count) / f64::from(total.max(1));
    Some(WantedImage {
        number,
        name,
        spread_size: truncate(size? as f64 * spread),
    })
}

/// Name of an image with a tag: `latest` if it has none.
fn complete_name(name: &str) -> String {
    let (tag, path) = (name.rfind(':'), name.rfind('/'));
    if tag <= path {
        format!("{name}:latest")
    } else {
        name.to_owned()
    }
}

/// Score of a sum of sizes.
fn size_score(sum: i64, containers: i64) -> i64 {
    let most = MAX_CONTAINER_SIZE.saturating_mul(containers.max(1));
    let sum = sum.clamp(MIN_SIZE, most);
    MAX_SCORE * (sum - MIN_SIZE) / (most - MIN_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_tag_mean_the_latest() {
        for (name, complete) in [
            ("a", "a:latest"),
            ("a:1", "a:1"),
            ("reg:5000/a", "reg:5000/a:latest"),
            ("reg:5000/a:1", "reg:5000/a:1"),
            ("reg/a@sha256:00", "reg/a@sha256:00"),
            ("", ":latest"),
        ] {
            assert_eq!(complete_name(name), complete);
        }
    }

    #[test]
    fn sizes_count_between_their_bounds() {
        assert_eq!(size_score(0, 1), 0);
        assert_eq!(size_score(MIN_SIZE, 1), 0);
        assert_eq!(size_score(500 * MEBIBYTE, 1), 48);
        assert_eq!(size_score(500 * MEBIBYTE, 2), 24);
        assert_eq!(size_score(5000 * MEBIBYTE, 2), 100);
    }
}
