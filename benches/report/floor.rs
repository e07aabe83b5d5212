//! Floor of the machine: the divisions of a score, a heap of bare scores, a copied chunk, bytes through a socket.

use std::collections::BinaryHeap;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use multiversion::multiversion;

use super::fixtures::paths::BenchRun;

/// Number of nodes that are processed together.
const BLOCK: usize = 256;

/// Bare columns of four resources: allocatable and used amounts, and a score for each node.
struct FloorColumns {
    all: [Vec<f64>; 4],
    used: [Vec<f64>; 4],
    scores: Vec<f64>,
}

impl FloorColumns {
    fn new(nodes: u32) -> Self {
        let some = |slot: u32| f64::from(slot.wrapping_mul(2_654_435_761) >> 20);
        Self {
            all: [64e3, 256e9, 110.0, 8e3].map(|all| vec![all; nodes as usize]),
            used: [10.0, 4e7, 0.01, 1.0].map(|unit| (0..nodes).map(|slot| unit * some(slot)).collect()),
            scores: vec![0.0; nodes as usize],
        }
    }

    fn score(&mut self) {
        let nodes = self.scores.len();
        for (scores, at) in self.scores.chunks_mut(BLOCK).zip((0..nodes).step_by(BLOCK)) {
            let block = at..nodes.min(at + BLOCK);
            divide(scores, part(&self.all, &block), part(&self.used, &block));
        }
    }
}

/// One block of every column.
fn part<'c>(columns: &'c [Vec<f64>; 4], block: &Range<usize>) -> [&'c [f64]; 4] {
    columns
        .each_ref()
        .map(|column| column.get(block.clone()).unwrap_or_default())
}

/// Makes one division per resource, as a least-allocated score needs it.
#[multiversion(targets("x86_64+avx2"))]
fn divide(scores: &mut [f64], all: [&[f64]; 4], used: [&[f64]; 4]) {
    let [cpu, memory, pods, cards] = all;
    let [on_cpu, in_memory, of_pods, on_cards] = used;
    let used = on_cpu.iter().zip(in_memory).zip(of_pods).zip(on_cards);
    let all = cpu.iter().zip(memory).zip(pods).zip(cards);
    for ((score, (((on_cpu, in_memory), of_pods), on_cards)), (((cpu, memory), pods), cards)) in
        scores.iter_mut().zip(used).zip(all)
    {
        *score = (cpu - on_cpu) * 100.0 / cpu
            + (memory - in_memory) * 100.0 / memory
            + (pods - of_pods) * 100.0 / pods
            + (cards - on_cards) * 100.0 / cards;
    }
}

/// Path of four divisions per node, and nothing else.
pub(crate) fn score(nodes: u32) -> BenchRun {
    let mut columns = FloorColumns::new(nodes);
    Box::new(move || {
        columns.score();
        black_box(&mut columns.scores);
    })
}

/// Path of these divisions, then 1,000 times the best node, scored again after each.
pub(crate) fn place(nodes: u32, tasks: u32) -> BenchRun {
    let mut columns = FloorColumns::new(nodes);
    Box::new(move || {
        columns.score();
        let scores = columns.scores.iter().map(|score| score.to_bits());
        let mut heap: BinaryHeap<(u64, u32)> = scores.zip(0..).collect();
        for _ in 0..tasks {
            if let Some(mut best) = heap.peek_mut() {
                let score = f64::from_bits(best.0);
                let less = |score: f64, all: &f64| score - 400.0 / black_box(*all);
                best.0 = [64e3, 256e9, 110.0, 8e3].iter().fold(score, less).max(0.0).to_bits();
            }
        }
        black_box(heap.len());
    })
}

/// Path that copies one chunk of 256 nodes with 20 columns and the list of all chunks, and drops the old list.
pub(crate) fn publish(nodes: u32) -> BenchRun {
    let chunks = nodes as usize / BLOCK + 1;
    let mut newest: Vec<Arc<Vec<f64>>> = (0..chunks).map(|_| Arc::new(vec![1.0; BLOCK * 20])).collect();
    Box::new(move || {
        let mut next = newest.clone();
        if let Some(value) = next.first_mut().and_then(|first| Arc::make_mut(first).first_mut()) {
            *value += 1.0;
        }
        drop(black_box(std::mem::replace(&mut newest, next)));
    })
}

/// Path of 32 bytes to another thread over loopback, and `reply` bytes back.
pub(crate) fn socket(reply: usize) -> std::io::Result<BenchRun> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    stream.set_nodelay(true)?;
    let (mut other, _) = listener.accept()?;
    other.set_nodelay(true)?;
    let result = vec![7; reply];
    // The thread ends when the other end goes away.
    std::thread::spawn(move || {
        let mut asked = [0; 32];
        while other
            .read_exact(&mut asked)
            .and_then(|()| other.write_all(&result))
            .is_ok()
        {}
    });
    let mut buffer = vec![0; reply];
    Ok(Box::new(move || {
        let asked = stream.write_all(&[1; 32]);
        assert!(asked.and_then(|()| stream.read_exact(&mut buffer)).is_ok());
    }))
}
