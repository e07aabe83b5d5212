//! Curves of an experiment: allocation and fragmentation by the work that had arrived, rounded as the published tables are.

/// Number of columns: 0 to 130 percent.
pub const COLUMNS: usize = 131;

/// State after one arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Thousandths of devices that the arrived tasks request.
    pub arrived: i64,
    /// Thousandths that are allocated.
    pub used: i64,
    /// Fragmentation of all nodes, in thousandths of a device.
    pub fragments: f64,
}

/// Curves by requested percent of the devices. `None`: no sample is near.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Percent of the devices that are allocated.
    pub allocation: Vec<Option<f64>>,
    /// Fragmented devices, in percent of all.
    pub frag_amount: Vec<Option<f64>>,
    /// Fragmented devices, in percent of the idle ones.
    pub frag_ratio: Vec<Option<f64>>,
}

/// Names of the curves in tables.
pub const METRICS: [&str; 3] = ["allocation", "frag_amount", "frag_ratio"];

impl Curves {
    /// Curves of the samples of a cluster with so many devices.
    pub fn of(samples: &[Sample], devices: usize) -> Self {
        let count = devices as f64;
        let mut columns: Vec<[Vec<f64>; 3]> = vec![Default::default(); COLUMNS];
        for sample in samples {
            let percent = |milli: i64| milli as f64 / count / 10.0;
            let idle = (devices * 1000) as f64 - sample.used as f64;
            let values = [
                percent(sample.used),
                sample.fragments,
                if idle == 0.0 {
                    0.0
                } else {
                    100.0 * sample.fragments / idle
                },
            ];
            if let Some(column) = columns.get_mut(column_of(percent(sample.arrived))) {
                for (own, value) in column.iter_mut().zip(values) {
                    own.push(two_decimals(value));
                }
            }
        }
        let mut curves = Self {
            allocation: Vec::new(),
            frag_amount: Vec::new(),
            frag_ratio: Vec::new(),
        };
        for number in 0..COLUMNS {
            let [alloc, amount, ratio] = near(&columns, number);
            curves.allocation.push(mean(&alloc).map(hundredths));
            let amount = mean(&amount).map(|mean| hundredths(100.0 * mean / 1000.0 / count));
            curves.frag_amount.push(amount);
            curves.frag_ratio.push(mean(&ratio));
        }
        curves
    }

    /// Curves in the order of [`METRICS`].
    pub fn all(&self) -> [&[Option<f64>]; 3] {
        [&self.allocation, &self.frag_amount, &self.frag_ratio]
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "percent, not negative"
)]
fn column_of(percent: f64) -> usize {
    percent.round_ties_even() as usize
}

/// Samples of a column. A column without samples gets the samples of its neighbours, in the order of arrival.
fn near(columns: &[[Vec<f64>; 3]], number: usize) -> [Vec<f64>; 3] {
    let own = columns.get(number).cloned().unwrap_or_default();
    if own.iter().any(|values| !values.is_empty()) {
        return own;
    }
    let around = number.saturating_sub(1)..=number + 1;
    let mut all: [Vec<f64>; 3] = Default::default();
    for column in around.filter_map(|at| columns.get(at)) {
        for (all, values) in all.iter_mut().zip(column) {
            all.extend(values);
        }
    }
    all
}

/// Nearest number with two decimals, rounded as exact decimals are, ties to even.
pub fn two_decimals(value: f64) -> f64 {
    let scaled = value * 100.0;
    let nearest = scaled.round_ties_even();
    // Near a tie the product's own rounding might decide.
    if ((scaled - nearest).abs() - 0.5).abs() > 1e-6 && scaled.abs() < 1e9 {
        return nearest / 100.0;
    }
    format!("{value:.2}").parse().unwrap_or(value)
}

/// Two decimals by way of the product, half to even.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round_ties_even() / 100.0
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| pairwise_sum(values) / values.len() as f64)
}

/// Sum in the order of `NumPy`: eight partial sums, and halves of lists above 128.
pub fn pairwise_sum(values: &[f64]) -> f64 {
    if values.len() < 8 {
        return values.iter().fold(0.0, |sum, value| sum + value);
    }
    if values.len() > 128 {
        let half = values.len() / 2;
        let (first, rest) = values.split_at(half - half % 8);
        return pairwise_sum(first) + pairwise_sum(rest);
    }
    let (blocks, rest) = values.as_chunks::<8>();
    let mut partial = [0.0; 8];
    for (number, block) in blocks.iter().enumerate() {
        for (sum, value) in partial.iter_mut().zip(block) {
            *sum = if number == 0 { *value } else { *sum + value };
        }
    }
    let [r0, r1, r2, r3, r4, r5, r6, r7] = partial;
    let sum = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7));
    rest.iter().fold(sum, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_decimals_are_those_of_the_text() {
        assert_eq!(
            [0.125, 0.375, 2.675, -0.125].map(two_decimals),
            [0.12, 0.38, 2.67, -0.12]
        );
        let mut number = 1_u64;
        for _ in 0..200_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = (number >> 40) as f64 / 1000.0;
            let text: f64 = format!("{value:.2}").parse().unwrap();
            assert_eq!(two_decimals(value).to_bits(), text.to_bits(), "{value}");
        }
    }

    #[test]
    fn sums_are_pairwise() {
        let values: Vec<f64> = (0..1000).map(|n| 0.1 * f64::from(n)).collect();
        let (first, rest) = values.split_at(496);
        assert_eq!(pairwise_sum(&values), pairwise_sum(first) + pairwise_sum(rest));
        let nine = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        let by_hand = (((0.1 + 0.2) + (0.3 + 0.4)) + ((0.5 + 0.6) + (0.7 + 0.8))) + 0.9;
        assert_eq!(pairwise_sum(&nine), by_hand);
    }

    #[test]
    fn an_empty_column_takes_its_neighbours() {
        let sample = |arrived| Sample {
            arrived,
            used: arrived,
            fragments: 0.0,
        };
        let curves = Curves::of(&[sample(0), sample(20)], 1);
        assert_eq!(
            curves.allocation.get(..4).unwrap(),
            [Some(0.0), Some(1.0), Some(2.0), Some(2.0)]
        );
        assert_eq!(curves.allocation.get(4), Some(&None));
    }
}
