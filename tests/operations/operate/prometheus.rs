//! The part of Prometheus' query language that the alert rules use, over scrapes of metrics pages.

use std::collections::{BTreeMap, BTreeSet};

/// Labels of a series, its name under `__name__`.
pub(super) type Labels = BTreeMap<String, String>;

/// Series with one value each.
pub(super) type InstantVector = Vec<(Labels, f64)>;

/// Series of one moment.
#[derive(Debug, Default, Clone)]
pub(super) struct Scrape(InstantVector);

impl Scrape {
    /// Adds a page of one instance.
    pub(super) fn add(&mut self, instance: &str, page: &str) {
        for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let mut all = read_labels(labels.strip_suffix('}').unwrap());
            all.insert("__name__".to_owned(), name.to_owned());
            all.insert("instance".to_owned(), instance.to_owned());
            self.0.push((all, value.parse().unwrap()));
        }
    }
}

/// Reads `a="x",b="y"`.
fn read_labels(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((name, quoted)) = rest.split_once("=\"") {
        let (value, next) = quoted.split_once('"').unwrap();
        labels.insert(name.trim_start_matches(',').to_owned(), value.to_owned());
        rest = next;
    }
    labels
}

/// Series for which an alert's expression holds, from two scrapes that are `seconds` apart.
pub(super) fn evaluate(expression: &str, before: &Scrape, after: &Scrape, seconds: f64) -> InstantVector {
    let mut reader = Reader {
        rest: expression,
        before,
        after,
        seconds,
    };
    let mut vector = reader.vector();
    if reader.take("/") {
        vector = quotients(vector, &reader.vector());
    }
    let operator = ["==", ">", "<"]
        .into_iter()
        .find(|operator| reader.take(operator))
        .expect(expression);
    let bound = reader.number();
    let beside = reader.joined();
    assert_eq!(reader.rest.trim(), "", "{expression}");
    let holds = |value: f64| match operator {
        "==" => value.total_cmp(&bound).is_eq(),
        ">" => value > bound,
        _ => value < bound,
    };
    let joins = |labels: &Labels| {
        let (names, others) = beside.as_ref()?;
        let equal = |other: &Labels| names.iter().all(|name| labels.get(name) == other.get(name));
        Some(others.iter().any(|(other, _)| equal(other)))
    };
    let firing = |(labels, value): &(Labels, f64)| holds(*value) && joins(labels).unwrap_or(true);
    vector.into_iter().filter(firing).collect()
}

struct Reader<'a> {
    rest: &'a str,
    before: &'a Scrape,
    after: &'a Scrape,
    seconds: f64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(token);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "`{token}` is expected at `{}`", self.rest);
    }

    fn while_matching(&mut self, matches: fn(char) -> bool) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        let (own, rest) = rest.split_at(end);
        self.rest = rest;
        own
    }

    fn word(&mut self) -> &'a str {
        self.while_matching(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn number(&mut self) -> f64 {
        let text = self.while_matching(|c| c.is_ascii_digit() || c == '.');
        text.parse()
            .unwrap_or_else(|_| panic!("`{text}` is no number, at `{}`", self.rest))
    }

    fn vector(&mut self) -> InstantVector {
        let name = self.word();
        match name {
            "sum" | "max" | "count" => self.aggregation(name),
            "rate" => {
                self.expect("(");
                let selected = self.word();
                let rates = self.selector(selected, true);
                self.expect(")");
                rates
            }
            "histogram_quantile" => {
                self.expect("(");
                let quantile = self.number();
                self.expect(",");
                let buckets = self.vector();
                self.expect(")");
                quantiles(quantile, &buckets)
            }
            name => self.selector(name, false),
        }
    }

    /// Names in parentheses.
    fn label_names(&mut self) -> BTreeSet<String> {
        self.expect("(");
        let mut names = BTreeSet::new();
        while !self.take(")") {
            names.insert(self.word().to_owned());
            self.take(",");
        }
        names
    }

    /// Labels and series of `and on (LABELS) SERIES`, if the expression has it.
    fn joined(&mut self) -> Option<(BTreeSet<String>, InstantVector)> {
        self.take("and").then(|| {
            self.expect("on");
            (self.label_names(), self.vector())
        })
    }

    fn aggregation(&mut self, operator: &str) -> InstantVector {
        self.expect("by");
        let by = self.label_names();
        self.expect("(");
        let inner = self.vector();
        self.expect(")");
        let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
        for (mut labels, value) in inner {
            labels.retain(|name, _| by.contains(name));
            groups.entry(labels).or_default().push(value);
        }
        let reduce = |values: Vec<f64>| match operator {
            "sum" => values.iter().sum(),
            "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => values.iter().map(|_| 1.0).sum(),
        };
        groups
            .into_iter()
            .map(|(labels, values)| (labels, reduce(values)))
            .collect()
    }

    /// Series of a name and a matcher; as rates, those that both scrapes have.
    fn selector(&mut self, name: &str, rate: bool) -> InstantVector {
        let mut matchers: Vec<(&str, Vec<&str>)> = Vec::new();
        if self.take("{") {
            let label = self.word();
            self.expect("=~\"");
            let text = self.while_matching(|c| c != '"');
            matchers.push((label, text.split('|').collect()));
            self.expect("\"}");
        }
        if rate {
            self.expect("[");
            self.number();
            self.expect("m]");
        }
        let selected = |labels: &Labels| {
            let of = |label: &str| labels.get(label).map_or("", String::as_str);
            of("__name__") == name && matchers.iter().all(|(label, among)| among.contains(&of(label)))
        };
        let found = self.after.0.iter().filter(|(labels, _)| selected(labels));
        if !rate {
            return found.cloned().collect();
        }
        let earlier: BTreeMap<&Labels, f64> = self.before.0.iter().map(|(labels, value)| (labels, *value)).collect();
        found
            .filter_map(|(labels, value)| Some((labels.clone(), (value - earlier.get(labels)?) / self.seconds)))
            .collect()
    }
}

/// Quotients of the series with equal labels but for their names.
fn quotients(dividends: InstantVector, divisors: &InstantVector) -> InstantVector {
    let nameless = |labels: &Labels| {
        let mut labels = labels.clone();
        labels.remove("__name__");
        labels
    };
    let divide = |(labels, value): (Labels, f64)| {
        let labels = nameless(&labels);
        let divisor = divisors.iter().find(|(other, _)| nameless(other) == labels);
        divisor.map(|(_, divisor)| (labels.clone(), value / divisor))
    };
    dividends.into_iter().filter_map(divide).collect()
}

/// Quantiles of histograms, interpolated within a bucket as Prometheus does.
fn quantiles(quantile: f64, buckets: &InstantVector) -> InstantVector {
    let mut histograms: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (labels, count) in buckets {
        let mut labels = labels.clone();
        let bound = labels.remove("le").unwrap();
        let bound = if bound == "+Inf" {
            f64::INFINITY
        } else {
            bound.parse().unwrap()
        };
        histograms.entry(labels).or_default().push((bound, *count));
    }
    let quantile_of = |mut buckets: Vec<(f64, f64)>| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rank = quantile * buckets.last().unwrap().1;
        let mut below = (0.0, 0.0);
        for (bound, count) in buckets {
            if count >= rank && count > 0.0 {
                return if bound.is_finite() {
                    below.0 + (bound - below.0) * (rank - below.1) / (count - below.1)
                } else {
                    below.0
                };
            }
            below = (bound, count);
        }
        f64::NAN
    };
    let all = histograms.into_iter();
    all.map(|(labels, buckets)| (labels, quantile_of(buckets))).collect()
}

#[test]
fn expressions_are_evaluated_as_prometheus_does() {
    let page = |calls: u32, slow: u32| {
        format!(
            "# HELP x y.\nlevel 3\ncalls_total{{rpc=\"A\",code=\"OK\"}} {calls}\ncalls_total{{rpc=\"B\",code=\"BAD\"}} 5\n\
             time_bucket{{le=\"0.1\"}} 2\ntime_bucket{{le=\"0.2\"}} {slow}\ntime_bucket{{le=\"+Inf\"}} {slow}\n# EOF\n"
        )
    };
    let (mut before, mut after) = (Scrape::default(), Scrape::default());
    before.add("one", &page(1, 2));
    after.add("one", &page(11, 12));
    after.add("two", &page(1, 2));
    let firing = |expression: &str| evaluate(expression, &before, &after, 10.0);
    assert_eq!(firing("level == 3").len(), 2);
    assert_eq!(firing("level > 3"), []);
    assert_eq!(firing("level / level == 1 and on (instance) calls_total").len(), 2);
    assert_eq!(firing("level / absent > 0"), []);
    assert_eq!(firing("level == 3 and on (instance) calls_total").len(), 2);
    assert_eq!(firing("level == 3 and on (instance) absent_total"), []);
    let rates = firing("sum by (instance, rpc) (rate(calls_total{code=~\"OK|X\"}[5m])) > 0");
    let labels: Vec<(&str, &str)> = rates[0].0.iter().map(|(name, label)| (&**name, &**label)).collect();
    assert_eq!((labels, rates[0].1), (vec![("instance", "one"), ("rpc", "A")], 1.0));
    assert_eq!(firing("sum by (rpc) (rate(calls_total{code=~\"BAD\"}[5m])) > 0"), []);
    let slow = firing("histogram_quantile(0.5, sum by (instance, le) (rate(time_bucket[5m]))) > 0.1");
    assert!((slow[0].1 - 0.15).abs() < 1e-9, "{slow:?}");
    assert_eq!(firing("count by (rpc) (count by (rpc, code) (calls_total)) > 1"), []);
    assert_eq!(
        firing("count by (__name__) (count by (__name__, rpc) (calls_total)) > 1")[0].1,
        2.0
    );
}
