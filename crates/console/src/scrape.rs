//! A server's `/metrics`, read over HTTP: its address, and its samples by name and labels.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use pumice_protocol::{ClientTls, DEFAULT_METRICS_ADDRESS};

use crate::{ClientArgs, CommandError};

/// Largest page that is read, in bytes.
const PAGE_BYTES: usize = 16 << 20;
/// Time limit of reading the page.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Address of the metrics of a server.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// The server's HTTP port, such as <http://HOST:7462/metrics> [default: port 7462 of the server's host]
    #[arg(long, value_name = "URL", env = "PUMICE_METRICS")]
    metrics: Option<String>,
}

impl MetricsArgs {
    /// Address and path of the metrics page of the server at this address.
    pub fn page(&self, client: &ClientArgs) -> Result<MetricsAddress, CommandError> {
        let options = client.connect_options()?;
        Ok(MetricsAddress {
            url: self.url(&options.server, options.tls != ClientTls::default()),
            tls: options.tls,
            token: options.token,
        })
    }

    fn url(&self, server: &str, with_tls: bool) -> String {
        if let Some(url) = self.metrics.as_deref().filter(|url| !url.is_empty()) {
            return url.to_owned();
        }
        let scheme = if with_tls || server.starts_with("https:") {
            "https"
        } else {
            "http"
        };
        let address = server.split_once("://").map_or(server, |(_, rest)| rest);
        let address = address.split('/').next().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if host.is_empty() || host == "unix" {
            return format!("http://{DEFAULT_METRICS_ADDRESS}/metrics");
        }
        let port = DEFAULT_METRICS_ADDRESS.port();
        format!("{scheme}://{host}:{port}/metrics")
    }

    /// Address of another path of the same port.
    pub fn beside(&self, client: &ClientArgs, path: &str) -> Result<MetricsAddress, CommandError> {
        let metrics = self.page(client)?;
        let (scheme, rest) = metrics.url.split_once("://").unwrap_or(("http", &metrics.url));
        let authority = rest.split('/').next().unwrap_or_default();
        let url = format!("{scheme}://{authority}{path}");
        Ok(MetricsAddress { url, ..metrics })
    }
}

impl MetricsAddress {
    /// The address as text.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Address of a page of metrics, and how it is read.
#[derive(Debug, Clone)]
pub struct MetricsAddress {
    url: String,
    tls: ClientTls,
    token: Option<String>,
}

/// One sample of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// Name of the sample, such as `pumice_decided_tasks_total`.
    pub name: String,
    /// Labels, by name.
    pub labels: BTreeMap<String, String>,
    /// Value of the sample. A missing unit means a plain number.
    pub value: f64,
}

/// All samples of a page.
#[derive(Debug, Clone, Default)]
pub struct MetricsPage(Vec<MetricSample>);

impl MetricsPage {
    /// Reads the page at an address; the error is a sentence.
    pub async fn fetch(address: &MetricsAddress) -> Result<Self, String> {
        let get = |path: &str| Request::get(if path == "/" { "/metrics" } else { path }).body(String::new());
        match http_call(address, get).await {
            Ok((StatusCode::OK, page)) => Ok(MetricsPage::parse(&page)),
            Ok((status, _)) => Err(format!("{}: HTTP status {}", address.url, status.as_u16())),
            Err(error) => Err(format!("{}: {error}", address.url)),
        }
    }

    /// Reads OpenMetrics text. Lines without a sample are left out.
    pub fn parse(text: &str) -> Self {
        MetricsPage(text.lines().filter_map(parse_sample).collect())
    }

    /// The samples of a name.
    pub fn samples<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p MetricSample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    /// The sum over all labels of a name; none if it is not there.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let mut values = self.samples(name).map(|sample| sample.value).peekable();
        values.peek()?;
        Some(values.sum())
    }
}

/// Status and body of the response to a request with a body of JSON; the error is a sentence.
pub async fn http_post(address: &MetricsAddress, body: String, header: (&str, &str)) -> Result<(u16, String), String> {
    let post = |path: &str| {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        request.header(header.0, header.1).body(body)
    };
    let (status, text) = http_call(address, post).await?;
    Ok((status.as_u16(), text))
}

/// Status and body of the response to the request for a path, if it comes in time.
async fn http_call(
    address: &MetricsAddress,
    request: impl FnOnce(&str) -> Result<Request<String>, hyper::http::Error>,
) -> Result<(StatusCode, String), String> {
    let called = tokio::time::timeout(FETCH_TIMEOUT, http_call_untimed(address, request)).await;
    called.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

async fn http_call_untimed(
    address: &MetricsAddress,
    request: impl FnOnce(&str) -> Result<Request<String>, hyper::http::Error>,
) -> Result<(StatusCode, String), String> {
    let url = if address.url.contains("://") {
        address.url.clone()
    } else {
        format!("http://{}", address.url)
    };
    let url: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err("only http:// and https:// are spoken".to_owned());
    };
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let host = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await.map_err(|error| said(&error))?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = request(path).map_err(|error| said(&error))?;
    let header = |text: &str| text.parse::<HeaderValue>().map_err(|error| error.to_string());
    request.headers_mut().insert(HOST, header(authority.as_str())?);
    if scheme == "http" {
        return exchange(stream, request).await;
    }
    if let Some(token) = &address.token {
        let bearer = header(&format!("Bearer {token}"))?;
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    let stream = address.tls.secure(stream, host).await.map_err(|error| said(&error))?;
    exchange(stream, request).await
}

/// Status and body of the response to a request.
async fn exchange<S>(stream: S, request: Request<String>) -> Result<(StatusCode, String), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // The connection moves the bytes of its one request while the page is read.
    let driver = tokio::spawn(connection);
    let page = read_page(sender.send_request(request)).await;
    driver.abort();
    page
}

/// Status and body of a response, if the body is not too long.
async fn read_page(
    reply: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> Result<(StatusCode, String), String> {
    let reply = reply.await.map_err(|error| error.to_string())?;
    let status = reply.status();
    let body = Limited::new(reply.into_body(), PAGE_BYTES).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8(body.into()).map_err(|error| error.to_string())?;
    Ok((status, text))
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Page of a server that replies to one request with these bytes, and then closes the connection.
    async fn fetched(reply: Vec<u8>) -> Result<MetricsPage, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(asked > 0);
            // A client that has read enough goes away.
            let _ = stream.write_all(&reply).await;
        });
        let address = MetricsAddress {
            url,
            tls: ClientTls::default(),
            token: None,
        };
        let page = MetricsPage::fetch(&address).await;
        server.await.unwrap();
        page
    }

    #[tokio::test]
    async fn a_page_is_read_in_every_framing_of_http() {
        for reply in [
            "HTTP/1.0 200 OK\r\n\r\na 3\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 3\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na \r\n2\r\n3\n\r\n0\r\n\r\n",
        ] {
            let page = fetched(reply.into()).await.unwrap();
            assert_eq!(page.sum("a"), Some(3.0), "{reply}");
        }
    }

    #[tokio::test]
    async fn a_reply_that_is_no_page_is_an_error() {
        let status = fetched("HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n".into()).await;
        assert!(status.unwrap_err().ends_with("HTTP status 503"));
        assert!(fetched("SSH-2.0-OpenSSH\r\n".into()).await.is_err());
        assert!(
            fetched("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na 3\n".into())
                .await
                .is_err(),
            "cut"
        );
        let mut long = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
        long.resize(long.len() + PAGE_BYTES + 1, b'#');
        assert!(fetched(long).await.is_err());
    }

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
        let url = |server| MetricsArgs { metrics: None }.url(server, false);
        assert_eq!(url("http://127.0.0.1:7461"), "http://127.0.0.1:7462/metrics");
        assert_eq!(url("lab:9000"), "http://lab:7462/metrics");
        assert_eq!(url("http://[::1]:7461/"), "http://[::1]:7462/metrics");
        assert_eq!(url("unix:/run/pumice.sock"), "http://127.0.0.1:7462/metrics");
        let given = MetricsArgs {
            metrics: Some("http://a:1/m".to_owned()),
        };
        assert_eq!(given.url("lab:1", false), "http://a:1/m");
    }
}
