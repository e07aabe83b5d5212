//! Optima of tiny clusters, found by trying everything.

use std::collections::BTreeSet;

use super::patterns::add_choices;
use super::*;

/// Small random numbers.
struct ClusterNumbers(u64);

impl ClusterNumbers {
    fn below(&mut self, limit: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit).unwrap()
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64)]
    }
}

/// Most that can be allocated, found by trying everything: each task in turn on each node and device, or nowhere.
fn exhaustive(nodes: &[BoundNode], tasks: &[BoundTask]) -> i64 {
    let Some((task, rest)) = tasks.split_first() else {
        return 0;
    };
    let mut best = exhaustive(nodes, rest);
    for (at, node) in nodes.iter().enumerate() {
        let milli = task.milli_on(node);
        if !task.task.accepts(&node.model) || node.cpu < task.task.cpu || node.memory < task.memory {
            continue;
        }
        let mut choices = BTreeSet::new();
        add_choices(&node.free, 0, task.task.count, milli, &mut choices);
        for free in choices {
            let mut after = nodes.to_vec();
            after[at] = BoundNode {
                cpu: node.cpu - task.task.cpu,
                memory: node.memory - task.memory,
                free,
                ..node.clone()
            };
            let own = i64::from(task.task.count) * i64::from(milli);
            best = best.max(own + exhaustive(&after, rest));
        }
    }
    best
}

fn cluster(numbers: &mut ClusterNumbers) -> (Vec<BoundNode>, Vec<BoundTask>) {
    let shapes: Vec<BoundNode> = (0..2)
        .map(|shape| BoundNode {
            cpu: numbers.one_of(&[4000, 8000, 12000]),
            memory: numbers.one_of(&[8, 16, 32]),
            free: (0..=numbers.below(2))
                .map(|_| numbers.one_of(&[1000, 1000, 600]))
                .collect(),
            model: ["A", "B"][shape].to_owned(),
            device_memory: numbers.one_of(&[0, 16_000, 40_000]),
        })
        .collect();
    let nodes = (0..=numbers.below(3))
        .map(|_| shapes[numbers.below(2)].clone())
        .collect();
    let tasks = (0..=numbers.below(5)).map(|_| {
        let (count, milli) = numbers.one_of(&[(1, 300), (1, 500), (1, 700), (1, 1000), (2, 1000), (1, 250)]);
        let models: &[&str] = numbers.one_of(&[&[][..], &["A"][..], &["A", "B"][..], &[][..]]);
        BoundTask {
            task: DeviceTask {
                cpu: numbers.one_of(&[1000, 3000, 4000]),
                count,
                milli,
                models: models.iter().map(|model| std::sync::Arc::from(*model)).collect(),
            },
            memory: numbers.one_of(&[1, 8]),
            device_memory: numbers.one_of(&[0, 0, 0, 8_000]),
        }
    });
    let tasks = tasks.collect();
    (nodes, tasks)
}

/// Number of clusters: all of them in optimized builds.
const CLUSTERS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

#[test]
#[expect(clippy::print_stderr, reason = "the gaps are figures that readers ask for")]
fn no_optimum_of_a_tiny_cluster_exceeds_the_bound() {
    let mut numbers = ClusterNumbers(7);
    let (mut gaps, mut worst, mut shape_gaps) = (0.0, 0.0_f64, 0.0);
    for number in 0..CLUSTERS {
        let (nodes, tasks) = cluster(&mut numbers);
        let best = exhaustive(&nodes, &tasks);
        let bound = allocation_bound(&nodes, &tasks).unwrap();
        assert_eq!(bound.kind, BoundKind::Patterns);
        assert!(
            bound.milli >= best,
            "cluster {number}: {bound:?} is below {best}: {nodes:?} {tasks:?}"
        );
        let grouped = GroupedInstance::of(&nodes, &tasks);
        let by_shapes = grouped.round_down(shapes::solve(&grouped.coarsened(MAX_GROUPS, MAX_CLASSES)).unwrap());
        let coarse = grouped.round_down(shapes::solve(&grouped.coarsened(0, 0)).unwrap());
        assert!(coarse >= best, "cluster {number}: groups {coarse} are below {best}");
        assert!(
            by_shapes >= best,
            "cluster {number}: shapes {by_shapes} are below {best}"
        );
        if bound.milli > 0 {
            let gap = |bound: i64| (bound - best) as f64 / bound as f64;
            gaps += gap(bound.milli);
            shape_gaps += if by_shapes > 0 { gap(by_shapes) } else { 0.0 };
            worst = worst.max(gap(bound.milli));
        }
    }
    let mean = gaps / CLUSTERS as f64;
    eprintln!(
        "{CLUSTERS} clusters: mean gap {:.3} % by patterns (worst {:.1} %), {:.3} % by shapes",
        100.0 * mean,
        100.0 * worst,
        100.0 * shape_gaps / CLUSTERS as f64
    );
    assert!(mean <= 0.01, "mean gap {mean}");
}
