//! Go's `math/rand` with a seed: an additive lagged Fibonacci generator with the lags 607 and 273.

use std::sync::LazyLock;

const LENGTH: usize = 607;
const LAG: usize = 273;

/// Words that Go mixes into every seed, in their order (Copyright 2009 The Go Authors, BSD-3-Clause).
static COOKED: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let text = include_str!("../data/go-random.txt");
    let words = text.lines().filter_map(|line| line.trim().parse::<i64>().ok());
    words.map(i64::cast_unsigned).collect()
});

/// Generator.
#[derive(Clone, Debug)]
pub struct GoRandom {
    words: Vec<u64>,
    tap: usize,
    feed: usize,
}

impl GoRandom {
    /// Generator of a seed, as `rand.New(rand.NewSource(seed))`.
    pub fn new(seed: i64) -> Self {
        const MODULUS: i64 = (1 << 31) - 1;
        let mut x = match seed.rem_euclid(MODULUS) {
            0 => 89_482_311,
            x => x,
        };
        let mut step = || {
            x = 48_271 * x % MODULUS;
            x.cast_unsigned()
        };
        for _ in 0..20 {
            step();
        }
        let mut word = |cooked: &u64| {
            let high = step() << 40;
            let middle = step() << 20;
            high ^ middle ^ step() ^ cooked
        };
        Self {
            words: COOKED.iter().map(&mut word).collect(),
            tap: 0,
            feed: LENGTH - LAG,
        }
    }

    /// Next value of Go's `Uint64`.
    pub fn uint64(&mut self) -> u64 {
        let before = |at: usize| at.checked_sub(1).unwrap_or(LENGTH - 1);
        (self.tap, self.feed) = (before(self.tap), before(self.feed));
        let tapped = self.words.get(self.tap).copied().unwrap_or(0);
        let Some(fed) = self.words.get_mut(self.feed) else {
            return 0;
        };
        *fed = fed.wrapping_add(tapped);
        *fed
    }

    /// Next value of Go's `Int63`: 0 … 2^63−1.
    pub fn int63(&mut self) -> i64 {
        (self.uint64() & (u64::MAX >> 1)).cast_signed()
    }

    /// `Float64`, in the version that divides once.
    pub fn float64(&mut self) -> f64 {
        self.int63() as f64 / (1_u64 << 63) as f64
    }

    fn int31(&mut self) -> u64 {
        self.int63().cast_unsigned() >> 32
    }

    fn uint32(&mut self) -> u64 {
        (self.int63().cast_unsigned() >> 31) & u64::from(u32::MAX)
    }

    /// `Intn`, for numbers from 1 below 2^31. It draws for 1 as well.
    pub fn intn(&mut self, n: usize) -> usize {
        let n = (n as u64).max(1);
        if n.is_power_of_two() {
            return index(self.int31() & (n - 1));
        }
        let greatest = (1 << 31) - 1 - (1 << 31) % n;
        loop {
            let drawn = self.int31();
            if drawn <= greatest {
                return index(drawn % n);
            }
        }
    }

    /// `int31n`, which `Shuffle` uses: not the numbers of [`Self::intn`].
    fn int31n(&mut self, n: usize) -> usize {
        let n = n as u64;
        let low = |product: u64| product & u64::from(u32::MAX);
        let mut product = self.uint32() * n;
        if low(product) < n {
            let threshold = ((1 << 32) - n) % n;
            while low(product) < threshold {
                product = self.uint32() * n;
            }
        }
        index(product >> 32)
    }

    /// Permutation of 0 … n−1, equal to Go's `Perm`.
    pub fn perm(&mut self, n: usize) -> Vec<usize> {
        let mut own = Vec::with_capacity(n);
        for i in 0..n {
            let j = self.intn(i + 1);
            own.push(i);
            own.swap(i, j);
        }
        own
    }

    /// Shuffles in place, equal to Go's `Shuffle`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.int31n(i + 1);
            items.swap(i, j);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_what_go_draws() {
        let draw = |count, mut next: Box<dyn FnMut(&mut GoRandom) -> i64>| -> Vec<i64> {
            let mut random = GoRandom::new(42);
            (0..count).map(|_| next(&mut random)).collect()
        };
        let int63 = draw(3, Box::new(GoRandom::int63));
        assert_eq!(
            int63,
            [
                3_440_579_354_231_278_675,
                608_747_136_543_856_411,
                5_571_782_338_101_878_760
            ]
        );
        let many = draw(6, Box::new(|random| i64::try_from(random.intn(1213)).unwrap()));
        assert_eq!(many, [1040, 789, 2, 780, 948, 932]);
        let eight = draw(6, Box::new(|random| i64::try_from(random.intn(8)).unwrap()));
        assert_eq!(eight, [1, 3, 4, 6, 7, 1]);
        assert_eq!(GoRandom::new(1).int63(), 5_577_006_791_947_779_410);
        let mut random = GoRandom::new(42);
        assert_eq!(
            [random.float64(), random.float64()],
            [0.373_028_361_046_632_6, 0.066_000_496_793_517_91]
        );
    }

    #[test]
    fn shuffles_and_permutes_as_go_does() {
        let mut random = GoRandom::new(42);
        let mut items: Vec<usize> = (0..10).collect();
        random.shuffle(&mut items);
        assert_eq!(items, [2, 5, 7, 9, 6, 8, 1, 4, 0, 3]);
        assert_eq!(random.perm(10), [0, 1, 5, 4, 7, 9, 6, 3, 2, 8]);
    }

    #[test]
    fn one_of_one_draws_a_number() {
        let (mut one, mut other) = (GoRandom::new(7), GoRandom::new(7));
        assert_eq!(one.intn(1), 0);
        other.int63();
        assert_eq!(one.int63(), other.int63());
    }
}
