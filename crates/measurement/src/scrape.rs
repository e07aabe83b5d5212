//! A server's `/metrics`, read over HTTP: its address, and its samples by name and labels.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use pumice_protocol::DEFAULT_METRICS_ADDRESS;

/// Largest page that is read, in bytes.
const PAGE_BYTES: u64 = 16 << 20;
/// Time limit of reading the page.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Address of the metrics of a server.
#[derive(Debug, Args)]
pub(super) struct MetricsArgs {
    /// The server's /metrics [default: port 7462 of the server's host]
    #[arg(long, value_name = "URL", env = "PUMICE_METRICS")]
    metrics: Option<String>,
}

impl MetricsArgs {
    /// Address and path of the page, for a server that is asked at this address.
    pub(super) fn url(&self, server: &str) -> String {
        if let Some(url) = self.metrics.as_deref().filter(|url| !url.is_empty()) {
            return url.to_owned();
        }
        let address = server.split_once("://").map_or(server, |(_, rest)| rest);
        let address = address.split('/').next().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if host.is_empty() || host == "unix" {
            return format!("http://{DEFAULT_METRICS_ADDRESS}/metrics");
        }
        let port = DEFAULT_METRICS_ADDRESS.port();
        format!("http://{host}:{port}/metrics")
    }
}

/// One sample of a page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricSample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// All samples of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricsPage(Vec<MetricSample>);

impl MetricsPage {
    /// Reads the page at a URL; the error is a sentence.
    pub(super) async fn fetch(url: &str) -> Result<Self, String> {
        let page = tokio::time::timeout(FETCH_TIMEOUT, http_get(url)).await;
        page.unwrap_or_else(|_| Err("no answer in time".to_owned()))
            .map(|text| MetricsPage::parse(&text))
            .map_err(|error| format!("{url}: {error}"))
    }

    /// Reads OpenMetrics text; lines that are no samples are left out.
    pub(super) fn parse(text: &str) -> Self {
        MetricsPage(text.lines().filter_map(parse_sample).collect())
    }

    /// The samples of a name.
    pub(super) fn samples<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p MetricSample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// The sum over all labels of a name; none if it is not there.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let mut values = self.samples(name).map(|sample| sample.value).peekable();
        values.peek()?;
        Some(values.sum())
    }
}

async fn http_get(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    if rest.contains("://") {
        return Err("only http:// is spoken".to_owned());
    }
    let (address, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
    let said = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).await.map_err(said)?;
    // Version 1.0: the answer comes in one piece, and its end is the end of the stream.
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(said)?;
    let mut reply = String::new();
    stream.take(PAGE_BYTES).read_to_string(&mut reply).await.map_err(said)?;
    let (head, body) = reply.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(format!("HTTP status {}", status.unwrap_or("missing"))),
    }
}

fn parse_sample(line: &str) -> Option<MetricSample> {
    if line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = if let Some((name, rest)) = line.split_once('{') {
        let (labels, rest) = parse_labels(rest)?;
        (name, labels, rest)
    } else {
        let (name, rest) = line.split_once(' ')?;
        (name, BTreeMap::new(), rest)
    };
    Some(MetricSample {
        name: name.to_owned(),
        labels,
        value: rest.split_whitespace().next()?.parse().ok()?,
    })
}

/// Labels up to the closing brace, and the rest of the line.
fn parse_labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, value) = rest.split_once("=\"")?;
        let (value, behind) = parse_quoted(value)?;
        labels.insert(name.to_owned(), value);
        rest = behind;
    }
}

/// A text up to its closing quote, and the rest of the line.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (at, '"') => return Some((value, text.get(at + 1..)?)),
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_names_labels_and_values() {
        let page = MetricsPage::parse(
            "# HELP a_total A.\na_total{rpc=\"Filter\",code=\"OK\"} 3\na_total{rpc=\"Score\",code=\"OK\"} 4 17\nb 0.5\n\
             c{p=\"a \\\"quoted\\\" } name\"} 1\n# EOF\n",
        );
        assert_eq!(page.sum("a_total"), Some(7.0));
        assert_eq!(page.sum("b"), Some(0.5));
        assert_eq!(page.sum("d"), None);
        let quoted = page.samples("c").next().unwrap();
        assert_eq!(quoted.labels.get("p").map(String::as_str), Some("a \"quoted\" } name"));
    }

    #[test]
    fn metrics_url_defaults_to_the_host_of_the_server() {
        let url = |server| MetricsArgs { metrics: None }.url(server);
        assert_eq!(url("http://127.0.0.1:7461"), "http://127.0.0.1:7462/metrics");
        assert_eq!(url("lab:9000"), "http://lab:7462/metrics");
        assert_eq!(url("http://[::1]:7461/"), "http://[::1]:7462/metrics");
        assert_eq!(url("unix:/run/pumice.sock"), "http://127.0.0.1:7462/metrics");
        let given = MetricsArgs {
            metrics: Some("http://a:1/m".to_owned()),
        };
        assert_eq!(given.url("lab:1"), "http://a:1/m");
    }
}
