//! Measurements of one poll, or of the time between two.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{QueueSort, ServerReading};
use pumice_console::output;
use pumice_console::scrape::{MetricSample, MetricsPage};
use pumice_protocol::v1 as pb;

/// Contents of a frame.
#[derive(Debug, Clone, Default)]
pub(super) struct DashboardContent {
    pub(super) version: String,
    pub(super) revision: u64,
    pub(super) uptime: Option<Duration>,
    /// Policies in force, by name.
    pub(super) policies: Vec<PolicyLine>,
    pub(super) sources: Vec<SourceLine>,
    /// Gauges by name, such as `pumice_nodes`.
    gauges: BTreeMap<String, f64>,
    /// Number of rejected calls by limit.
    pub(super) rejections_by_limit: Vec<(String, f64)>,
    /// Share of one processor that the server used.
    pub(super) cpu: Option<f64>,
    pub(super) rpcs: Vec<RpcLine>,
    pub(super) queues: Vec<QueueLine>,
    /// Time that rates cover. `None`: since the start.
    pub(super) period: Option<Duration>,
    /// Error of reading the metrics.
    pub(super) metrics_error: Option<String>,
}

/// A policy in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyLine {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) hash: String,
    pub(super) rejected: bool,
}

/// A source of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceLine {
    pub(super) name: String,
    pub(super) synced: bool,
    pub(super) stale: bool,
    pub(super) last_heard_seconds: Option<i64>,
}

/// Rates and latencies of one RPC.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcLine {
    pub(super) name: String,
    /// Per second.
    pub(super) calls: f64,
    /// Per second.
    pub(super) tasks: f64,
    /// In seconds.
    pub(super) p50: Option<f64>,
    /// In seconds.
    pub(super) p99: Option<f64>,
    /// Number of calls that failed.
    pub(super) failed: f64,
}

/// A queue's account.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueueLine {
    pub(super) name: String,
    pub(super) plugin: String,
    pub(super) share: Option<f64>,
    pub(super) dominant_resource: String,
    pub(super) allocated: String,
}

impl DashboardContent {
    /// Contents from a poll. With an earlier poll, rates cover the time between.
    pub(super) fn new(now: &ServerReading, before: Option<&ServerReading>) -> Self {
        let nothing = MetricsPage::default();
        let page = now.metrics.as_ref().unwrap_or(&nothing);
        let earlier = before.and_then(|before| before.metrics.as_ref().ok());
        let uptime = page.sum("process_uptime_seconds");
        let seconds = match earlier.and_then(|earlier| earlier.sum("process_uptime_seconds")) {
            // A restarted server counts from zero.
            Some(then) if uptime.is_some_and(|now| now > then) => uptime.map(|now| now - then),
            _ => uptime,
        };
        let earlier = earlier.filter(|_| seconds < uptime);
        let since = MetricsDelta {
            page,
            previous: earlier,
            seconds: seconds.unwrap_or_default(),
        };
        DashboardContent {
            version: now.info.version.clone(),
            revision: now.info.revision.map_or(0, |revision| revision.number),
            uptime: uptime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            policies: policy_lines(page, &now.info),
            sources: now.info.sources.iter().map(source_line).collect(),
            gauges: read_gauges(page),
            rejections_by_limit: page
                .samples("pumice_limit_rejections_total")
                .map(|sample| (label(sample, "limit"), sample.value))
                .filter(|(_, count)| *count > 0.0)
                .collect(),
            cpu: since.rate("process_cpu_seconds_total", &[]),
            rpcs: since.rpc_lines(),
            queues: now.queues.iter().map(queue_line).collect(),
            period: earlier
                .and(seconds)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            metrics_error: now.metrics.as_ref().err().cloned(),
        }
    }

    /// Gauge by name; 0 if the page lacks it.
    pub(super) fn gauge(&self, name: &str) -> f64 {
        self.gauges.get(name).copied().unwrap_or_default()
    }

    /// Queues in an order.
    pub(super) fn sorted(&self, sort: QueueSort, reversed: bool) -> Vec<&QueueLine> {
        let mut queues: Vec<&QueueLine> = self.queues.iter().collect();
        let share = |queue: &QueueLine| queue.share.unwrap_or(-1.0);
        queues.sort_by(|a, b| match sort {
            QueueSort::Share => share(b).total_cmp(&share(a)).then_with(|| a.name.cmp(&b.name)),
            QueueSort::Name => a.name.cmp(&b.name),
        });
        if reversed {
            queues.reverse();
        }
        queues
    }
}

/// Growth of counters since an earlier page, or since the start.
struct MetricsDelta<'p> {
    page: &'p MetricsPage,
    previous: Option<&'p MetricsPage>,
    seconds: f64,
}

impl MetricsDelta<'_> {
    /// Growth of a counter.
    fn increase(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let count = |page: &MetricsPage| {
            let fits = |sample: &&MetricSample| labels.iter().all(|(key, value)| label(sample, key) == *value);
            page.samples(name)
                .filter(fits)
                .map(|sample| sample.value)
                .reduce(|a, b| a + b)
        };
        let earlier = self.previous.and_then(count).unwrap_or_default();
        Some((count(self.page)? - earlier).max(0.0))
    }

    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let grown = self.increase(name, labels)?;
        (self.seconds > 0.0).then(|| grown / self.seconds)
    }

    fn rpc_lines(&self) -> Vec<RpcLine> {
        let mut names: Vec<String> = self
            .page
            .samples("pumice_calls_total")
            .map(|sample| label(sample, "rpc"))
            .collect();
        names.sort();
        names.dedup();
        let mut lines: Vec<RpcLine> = names.into_iter().map(|name| self.rpc_line(name)).collect();
        lines.sort_by(|a, b| b.calls.total_cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        lines
    }

    fn rpc_line(&self, name: String) -> RpcLine {
        let of = [("rpc", name.as_str())];
        let all = self.increase("pumice_calls_total", &of).unwrap_or_default();
        let ok = self.increase("pumice_calls_total", &[("rpc", &name), ("code", "OK")]);
        RpcLine {
            calls: self.rate("pumice_calls_total", &of).unwrap_or_default(),
            tasks: self.rate("pumice_decided_tasks_total", &of).unwrap_or_default(),
            p50: self.quantile(&name, 0.5),
            p99: self.quantile(&name, 0.99),
            failed: all - ok.unwrap_or_default(),
            name,
        }
    }

    /// Quantile of the latency in seconds, interpolated within its bucket.
    fn quantile(&self, rpc: &str, quantile: f64) -> Option<f64> {
        let bucket = "pumice_call_duration_seconds_bucket";
        let mut buckets: Vec<(f64, f64)> = self
            .page
            .samples(bucket)
            .filter(|sample| label(sample, "rpc") == rpc)
            .filter_map(|sample| {
                let text = label(sample, "le");
                let grown = self.increase(bucket, &[("rpc", rpc), ("le", &text)])?;
                Some((text.parse().ok()?, grown))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted = buckets.last()?.1 * quantile;
        let (mut below, mut counted) = (0.0, 0.0);
        for (bound, count) in buckets {
            if count >= wanted && count > counted {
                let part = (wanted - counted) / (count - counted);
                return Some(if bound.is_finite() {
                    below + (bound - below) * part
                } else {
                    below
                });
            }
            (below, counted) = (bound, count);
        }
        None
    }
}

fn label(sample: &MetricSample, name: &str) -> String {
    sample.labels.get(name).cloned().unwrap_or_default()
}

/// Gauges that a frame shows; gauges by kind are named `name/kind`.
fn read_gauges(page: &MetricsPage) -> BTreeMap<String, f64> {
    let mut levels = BTreeMap::new();
    for name in [
        "pumice_nodes",
        "pumice_queues",
        "pumice_jobs",
        "pumice_tasks",
        "pumice_sessions",
        "pumice_connections",
        "pumice_writes_waiting",
        "process_resident_memory_bytes",
    ] {
        levels.extend(page.sum(name).map(|value| (name.to_owned(), value)));
    }
    for name in ["pumice_workers_busy", "pumice_worker_queue"] {
        let samples = page.samples(name);
        levels.extend(samples.map(|sample| (format!("{name}/{}", label(sample, "kind")), sample.value)));
    }
    levels
}

fn policy_lines(page: &MetricsPage, info: &pb::GetServerInfoResponse) -> Vec<PolicyLine> {
    let lines = info.policies.iter().map(|name| {
        let is_it = |sample: &&MetricSample| label(sample, "policy") == *name;
        let known = page.samples("pumice_policy_info").find(is_it);
        let rejected = page.samples("pumice_policy_rejected").find(is_it);
        PolicyLine {
            name: name.clone(),
            version: known.map(|sample| label(sample, "version")).unwrap_or_default(),
            hash: known
                .map(|sample| label(sample, "hash").chars().take(12).collect())
                .unwrap_or_default(),
            rejected: rejected.is_some_and(|sample| sample.value > 0.0),
        }
    });
    lines.collect()
}

fn source_line(status: &pb::SourceStatus) -> SourceLine {
    SourceLine {
        name: status
            .position
            .as_ref()
            .map(|position| position.source.clone())
            .unwrap_or_default(),
        synced: status.synced,
        stale: status.stale,
        last_heard_seconds: status.silence.map(|silence| silence.seconds),
    }
}

fn queue_line(status: &pb::QueueStatus) -> QueueLine {
    let name = status
        .queue
        .as_ref()
        .map(|queue| queue.name.clone())
        .unwrap_or_default();
    let Some(account) = status.accounts.first() else {
        return QueueLine {
            name,
            plugin: String::new(),
            share: None,
            dominant_resource: String::new(),
            allocated: "no account under this policy".to_owned(),
        };
    };
    let held: Vec<String> = account.allocated.iter().map(|held| amount(account, held)).collect();
    QueueLine {
        name,
        plugin: account.plugin.clone(),
        share: Some(account.share),
        dominant_resource: account.dominant_resource.clone(),
        allocated: held.join("  "),
    }
}

/// Held amount of a resource, with the entitled amount.
fn amount(account: &pb::Account, held: &pb::Amount) -> String {
    let of = |list: &[pb::Amount]| {
        list.iter()
            .find(|one| one.resource == held.resource)
            .map(output::amount)
    };
    let entitled = of(&account.deserved)
        .filter(|amount| amount != "0")
        .or_else(|| of(&account.capability));
    let entitled = entitled.map(|amount| format!("/{amount}")).unwrap_or_default();
    format!("{} {}{entitled}", held.resource, output::amount(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(uptime: f64, ok: f64, failed: f64, fast: f64) -> MetricsPage {
        let all = ok + failed;
        MetricsPage::parse(&format!(
            "process_uptime_seconds {uptime}\npumice_calls_total{{rpc=\"Filter\",code=\"OK\"}} {ok}\n\
             pumice_calls_total{{rpc=\"Filter\",code=\"NOT_FOUND\"}} {failed}\n\
             pumice_call_duration_seconds_bucket{{le=\"0.001\",rpc=\"Filter\"}} {fast}\n\
             pumice_call_duration_seconds_bucket{{le=\"0.002\",rpc=\"Filter\"}} {all}\n\
             pumice_call_duration_seconds_bucket{{le=\"+Inf\",rpc=\"Filter\"}} {all}\n"
        ))
    }

    fn reading(page: MetricsPage) -> ServerReading {
        ServerReading {
            info: pb::GetServerInfoResponse::default(),
            queues: Vec::new(),
            metrics: Ok(page),
        }
    }

    #[test]
    fn rates_cover_the_time_between_two_polls() {
        let (before, now) = (
            reading(page(100.0, 1000.0, 0.0, 1000.0)),
            reading(page(102.0, 1090.0, 10.0, 1050.0)),
        );
        let since_start = DashboardContent::new(&before, None);
        assert_eq!(since_start.rpcs[0].calls, 10.0);
        assert_eq!(since_start.period, None);
        let content = DashboardContent::new(&now, Some(&before));
        assert_eq!(content.period, Some(Duration::from_secs(2)));
        let filter = &content.rpcs[0];
        assert_eq!((filter.calls, filter.failed), (50.0, 10.0));
        // Half of the hundred new calls took up to a millisecond, the others up to two.
        assert!((filter.p50.unwrap() - 0.001).abs() < 1e-9);
        assert!((filter.p99.unwrap() - 0.001_98).abs() < 1e-9);
    }

    #[test]
    fn a_restarted_server_counts_from_its_start() {
        let (before, now) = (
            reading(page(100.0, 1000.0, 0.0, 1000.0)),
            reading(page(4.0, 8.0, 0.0, 8.0)),
        );
        let content = DashboardContent::new(&now, Some(&before));
        assert_eq!(content.period, None);
        assert_eq!(content.rpcs[0].calls, 2.0);
    }

    #[test]
    fn queues_are_sorted_by_share_or_name() {
        let queue = |name: &str, share| QueueLine {
            name: name.to_owned(),
            plugin: String::new(),
            share,
            dominant_resource: String::new(),
            allocated: String::new(),
        };
        let content = DashboardContent {
            queues: vec![queue("a", Some(0.25)), queue("b", Some(1.5)), queue("c", None)],
            ..DashboardContent::default()
        };
        let names = |sort, reversed| {
            let sorted = content.sorted(sort, reversed).into_iter();
            sorted.map(|queue| queue.name.clone()).collect::<String>()
        };
        assert_eq!(names(QueueSort::Share, false), "bac");
        assert_eq!(names(QueueSort::Share, true), "cab");
        assert_eq!(names(QueueSort::Name, false), "abc");
    }
}
