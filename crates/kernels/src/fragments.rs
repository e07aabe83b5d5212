//! Fragments of devices: the free thousandths that typical tasks cannot use, for several choices of a device at a time.
//! All sums have the order of the published experiments.

use smallvec::SmallVec;

use crate::kernel::kernel;

/// Number of devices that are judged together.
pub const LANES: usize = 8;

/// Frequencies of typical tasks by the sum that they belong to, on nodes of one model with enough cpu for certain tasks.
#[derive(Clone, Copy, Debug)]
pub struct FragmentSums<'s> {
    /// Tasks that name other models.
    pub inaccessible: &'s [f64],
    /// Tasks without devices and with enough cpu.
    pub plain: &'s [f64],
    /// Tasks without devices and without enough cpu.
    pub plain_short: &'s [f64],
    /// Tasks with devices and with enough cpu, and the positions of their requests.
    pub sharing: &'s [(f64, usize)],
    /// Tasks with devices and without enough cpu, likewise.
    pub sharing_short: &'s [(f64, usize)],
}

/// State of a node's devices for one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestState {
    /// Number of devices with enough.
    pub enough: i32,
    /// Free thousandths of the others.
    pub lost: i32,
}

/// Such states for [`LANES`] choices of a device.
#[derive(Clone, Copy, Debug)]
struct RequestLanes {
    /// Thousandths that the task cannot use although there is enough cpu.
    lost: [f64; LANES],
    /// 1 where enough devices have enough, else 0.
    fits: [f64; LANES],
}

/// Sum of products, from left to right.
#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
pub fn product_sum(frequencies: &[f64], idle: f64) -> f64 {
    let mut sum = 0.0;
    for frequency in frequencies {
        sum += frequency * idle;
    }
    sum
}

kernel! {
    /// Free thousandths that typical tasks cannot use after a share of each device was taken. `requests` are numbers of
    /// devices and thousandths of each device, `free` thousandths; `after` is the share, and what is free on all
    /// devices after it.
    pub fn lane_fragments / lane_fragments_portable(
        requests: &[(u32, i32)],
        sums: FragmentSums<'_>,
        states: &[RequestState],
        free: &[i32; LANES],
        after: (i32, f64),
        fragments: &mut [f64; LANES],
    ) {
        let (milli, idle) = after;
        let mut left = [0; LANES];
        for (left, free) in left.iter_mut().zip(free) {
            *left = free - milli;
        }
        let mut lanes: SmallVec<[RequestLanes; 24]> = SmallVec::new();
        for ((count, wanted), state) in requests.iter().zip(states) {
            let short = count.cast_signed() - state.enough;
            let [mut lost, mut fits] = [[0.0; LANES]; 2];
            for lane in lost.iter_mut().zip(&mut fits).zip(free.iter().zip(&left)) {
                let ((lost, fits), (free, left)) = lane;
                let (had, has) = (*free >= *wanted, *left >= *wanted);
                let enough = i32::from(has) - i32::from(had) >= short;
                let others = state.lost - if had { 0 } else { *free } + if has { 0 } else { *left };
                *lost = if enough { f64::from(others) } else { idle };
                *fits = if enough { 1.0 } else { 0.0 };
            }
            lanes.push(RequestLanes { lost, fits });
        }
        let [mut d0, mut d1, mut d3] = [[0.0; LANES]; 3];
        for (frequency, at) in sums.sharing {
            if let Some(own) = lanes.get(*at) {
                for (sum, lost) in d1.iter_mut().zip(&own.lost) {
                    *sum += frequency * lost;
                }
            }
        }
        for (frequency, at) in sums.sharing_short {
            if let Some(own) = lanes.get(*at) {
                let product = frequency * idle;
                // A product with 0 leaves a sum as it is.
                for ((d0, d3), fits) in d0.iter_mut().zip(&mut d3).zip(&own.fits) {
                    *d3 += product * fits;
                    *d0 += product * (1.0 - fits);
                }
            }
        }
        let d4 = product_sum(sums.plain, idle);
        let d5 = product_sum(sums.plain_short, idle);
        let d6 = product_sum(sums.inaccessible, idle);
        for (fragment, ((d0, d1), d3)) in fragments.iter_mut().zip(d0.iter().zip(&d1).zip(&d3)) {
            *fragment = ((((d0 + d1) + d3) + d4) + d5) + d6;
        }
    }
}
