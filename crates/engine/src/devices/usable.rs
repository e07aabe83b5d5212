//! Thousandths that typical tasks can use, as sums in a fast order instead of the published order. Their error is
//! bounded. Scores are derived from them if the whole error interval lies within one step of the score.

use super::{DeviceMask, DeviceScore, MAX_DEVICES, WHOLE_DEVICE, sigmoid};

/// Possible error of a gain, by the frequency of all typical tasks and the idle thousandths of the node. Sums of at most 256
/// products and of some numbers for each of 64 devices, before and after, are off by less than a third of it.
const RELATIVE_ERROR: f64 = 1e-15;
/// Largest sum of frequencies for which errors are bounded.
const MAX_FREQUENCY: f64 = 1e6;

/// Amounts of one device that typical tasks ask for, and the frequency of all typical tasks.
#[derive(Clone, Debug)]
pub(super) struct UsableAmounts {
    /// Number of the amounts that a device has enough for, by its free thousandths.
    levels: Box<[u16]>,
    /// Sum of all frequencies.
    frequency: f64,
}

/// Frequencies of the typical tasks that a node has the model and the cpu for.
#[derive(Clone, Debug, Default)]
pub(super) struct UsableWeights {
    /// Frequencies of tasks that ask for one device, and find enough in one with this level.
    single: Vec<f64>,
    /// Frequencies of tasks that ask for several devices.
    several: Vec<SeveralWeights>,
}

/// Frequencies of the typical tasks that ask for the same amount of several devices.
#[derive(Clone, Debug)]
struct SeveralWeights {
    milli: i32,
    /// Frequencies of tasks for which this number of devices is enough; more than the last are as good.
    by_count: Vec<f64>,
}

impl UsableAmounts {
    /// Amounts of requests (number of devices, thousandths of each, frequency). `None`: a number is out of the usual range, and
    /// errors have no bound.
    pub(super) fn new(
        requests: impl Iterator<Item = (u32, i32)>,
        frequencies: impl Iterator<Item = f64>,
    ) -> Option<Self> {
        let mut amounts = Vec::new();
        for (_, milli) in requests {
            if !(1..=WHOLE_DEVICE).contains(&milli) {
                return None;
            }
            amounts.push(milli);
        }
        amounts.sort_unstable();
        amounts.dedup();
        let mut frequency = 0.0;
        for own in frequencies {
            if !(0.0..=MAX_FREQUENCY).contains(&own) {
                return None;
            }
            frequency += own;
        }
        let levels: Option<Box<[u16]>> = (0..=WHOLE_DEVICE)
            .map(|free| u16::try_from(amounts.partition_point(|amount| *amount <= free)).ok())
            .collect();
        (frequency <= MAX_FREQUENCY).then_some(Self {
            levels: levels?,
            frequency,
        })
    }

    /// Weights of these requests, with their frequencies. The order of `several` is derived from `all`, the requests on
    /// any node.
    pub(super) fn weights(&self, all: &[(u32, i32)], requests: &[((u32, i32), f64)]) -> UsableWeights {
        let levels = self.levels.last().map_or(0, |level| usize::from(*level));
        let mut weights = UsableWeights {
            single: vec![0.0; levels + 1],
            several: Vec::new(),
        };
        let mut amounts: Vec<i32> = all
            .iter()
            .filter(|(count, _)| *count > 1)
            .map(|(_, milli)| *milli)
            .collect();
        amounts.sort_unstable();
        amounts.dedup();
        for milli in amounts {
            let same = || all.iter().filter(|(count, own)| *count > 1 && *own == milli);
            let most = same().map(|(count, _)| *count).max().unwrap_or(0).min(MAX_COUNT);
            let by_count = (0..=most).map(|enough| {
                let has = |((count, own), _): &&((u32, i32), f64)| *count > 1 && *own == milli && *count <= enough;
                requests.iter().filter(has).map(|(_, frequency)| *frequency).sum()
            });
            weights.several.push(SeveralWeights {
                milli,
                by_count: by_count.collect(),
            });
        }
        for ((_, milli), frequency) in requests.iter().filter(|((count, _), _)| *count == 1) {
            let level = self.level(*milli).unwrap_or(0);
            weights.single.iter_mut().skip(level).for_each(|own| *own += frequency);
        }
        weights
    }

    #[inline]
    fn level(&self, free: i32) -> Option<usize> {
        self.levels
            .get(free.cast_unsigned() as usize)
            .map(|level| usize::from(*level))
    }

    /// Score of a task for a whole node, which has `before` free thousandths and then `after`. `None`: it depends on the order of sums.
    pub(super) fn node_score(
        &self,
        [before, after]: [&[i32]; 2],
        [weights_before, weights_after]: [&UsableWeights; 2],
    ) -> Option<DeviceScore> {
        // Only devices with levels have usual amounts, of which the sums fit.
        let usable = self.usable(after, weights_after)? - self.usable(before, weights_before)?;
        let [idle_before, idle_after] = [before, after].map(|free| free.iter().sum::<i32>());
        let gain = (self.frequency * f64::from(idle_before - idle_after) + usable) / 1000.0;
        let error = self.error(idle_before);
        let (value, least, next) = sigmoid::steps(gain);
        (gain - error >= least && gain + error < next).then_some(DeviceScore::of_node(value))
    }

    /// Score of the best device for a share of `milli`, like [`Self::node_score`].
    pub(super) fn share_score(&self, free: &[i32], milli: i32, weights: [&UsableWeights; 2]) -> Option<DeviceScore> {
        if free.len() <= FEW_DEVICES {
            self.best_device::<FEW_DEVICES>(free, milli, weights)
        } else {
            self.best_device::<MAX_DEVICES>(free, milli, weights)
        }
    }

    fn best_device<const N: usize>(
        &self,
        free: &[i32],
        milli: i32,
        [before, after]: [&UsableWeights; 2],
    ) -> Option<DeviceScore> {
        if free.len() > N {
            return None;
        }
        let mut gains = [f64::NEG_INFINITY; N];
        // `common`: what all choices have in common. `gains`: what differs, the sum over the chosen device less the one without a
        // choice.
        let mut common = self.frequency * f64::from(milli);
        for (gain, free) in gains.iter_mut().zip(free) {
            let (level, amount) = (self.level(*free)?, f64::from(*free));
            let unchanged = amount * after.single(level)?;
            common += unchanged - amount * before.single(level)?;
            // Devices without enough are computed like the others, so that no branch depends on the devices.
            let left = free.wrapping_sub(milli).max(0);
            let changed = f64::from(left) * after.single(self.level(left)?)? - unchanged;
            *gain = if *free >= milli { changed } else { f64::NEG_INFINITY };
        }
        for (before, after) in before.several.iter().zip(&after.several) {
            let (enough, sum) = enough_of(free, before.milli);
            if enough == 0 {
                continue;
            }
            let sum = f64::from(sum);
            let [same, fewer] = [enough, enough - 1].map(|enough| after.weight(enough));
            common += (same - before.weight(enough)) * sum;
            // A device that had enough has it still, or leaves it to one device less.
            let unmissed = same * f64::from(milli);
            let missed = (same - fewer) * sum;
            for (gain, free) in gains.iter_mut().zip(free) {
                let less = if free.wrapping_sub(milli) >= after.milli {
                    unmissed
                } else {
                    missed + fewer * f64::from(*free)
                };
                *gain -= if *free >= after.milli { less } else { 0.0 };
            }
        }
        let most = WHOLE_DEVICE * i32::try_from(free.len()).unwrap_or(0);
        best_of(&gains, common, self.error(most))
    }

    /// Possible error of a gain on a node with at most so many free thousandths.
    fn error(&self, idle: i32) -> f64 {
        RELATIVE_ERROR * self.frequency * f64::from(idle)
    }

    fn usable(&self, free: &[i32], weights: &UsableWeights) -> Option<f64> {
        let mut usable = 0.0;
        if free.len() > MAX_DEVICES {
            return None;
        }
        for free in free {
            usable += f64::from(*free) * weights.single(self.level(*free)?)?;
        }
        for several in &weights.several {
            let (enough, sum) = enough_of(free, several.milli);
            usable += several.weight(enough) * f64::from(sum);
        }
        Some(usable)
    }
}

/// Number of devices that most nodes have at most.
const FEW_DEVICES: usize = 8;
/// Number of devices above which requests are not distinguished: more than a node can have.
const MAX_COUNT: u32 = DeviceMask::BITS + 1;

impl UsableWeights {
    #[inline]
    fn single(&self, level: usize) -> Option<f64> {
        self.single.get(level).copied()
    }
}

impl SeveralWeights {
    #[inline]
    fn weight(&self, enough: usize) -> f64 {
        let last = self.by_count.last();
        self.by_count.get(enough).or(last).copied().unwrap_or(0.0)
    }
}

/// Number of devices with enough, and their thousandths together.
#[inline]
fn enough_of(free: &[i32], milli: i32) -> (usize, i32) {
    let (mut enough, mut sum) = (0_i32, 0_i32);
    for free in free {
        let has = *free >= milli;
        enough = enough.wrapping_add(i32::from(has));
        sum = sum.wrapping_add(if has { *free } else { 0 });
    }
    (usize::try_from(enough).unwrap_or(0), sum)
}

/// First device with the greatest score, where no error changes it.
#[inline]
fn best_of(gains: &[f64], common: f64, error: f64) -> Option<DeviceScore> {
    let greatest = gains
        .iter()
        .fold(f64::NEG_INFINITY, |most, gain| if *gain > most { *gain } else { most });
    let gain = (greatest + common) / 1000.0;
    if gain == f64::NEG_INFINITY {
        return Some(DeviceScore::default());
    }
    let (value, least, next) = sigmoid::steps(gain);
    if gain + error >= next {
        return None;
    }
    let [surely, perhaps] = [least + error, least - error].map(|least| least * 1000.0 - common);
    // Devices without enough are below every number.
    let perhaps = perhaps.max(f64::MIN);
    let first = gains.iter().position(|gain| *gain >= perhaps)?;
    let is_sure = gains.get(first).is_some_and(|gain| *gain >= surely);
    let device = u8::try_from(first).ok()?;
    is_sure.then_some(DeviceScore {
        value,
        device: Some(device),
    })
}
