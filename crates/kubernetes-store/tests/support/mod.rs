//! A small API server in this process: ConfigMaps and Leases with versions, lists in pages, watches, limits of size, and problems on demand.

#![expect(clippy::disallowed_types, reason = "state of a test, which its threads share")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use pumice_kubernetes_store::{ApiAccess, Client, KubernetesStoreOptions, WriteRates};

/// Largest content of a ConfigMap, as the real API server has it.
const CONFIG_MAP_BYTES: usize = 1 << 20;
/// Largest object that etcd takes.
const OBJECT_BYTES: usize = 3 << 19;

/// Runtime of all clients.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Problem of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProblem {
    None,
    /// The connection breaks before the request arrives.
    LoseRequest,
    /// The request is carried out, and the connection breaks before the reply.
    LoseReply,
    /// The request is carried out, and no reply ever comes.
    HangAfter,
    /// The request never arrives, and no reply ever comes.
    HangBefore,
    /// The request is carried out, and its reply is this status.
    StatusAfter(u16),
    /// The request is not carried out, and its reply is this status; 429 asks to wait for a second.
    Status(u16),
    /// The request is not carried out, and its reply is 200 with this.
    Lie(Lie),
    /// The request is carried out, and its reply is 200 with this.
    LieAfter(Lie),
}

/// Text that a reply with status 200 has in the place of the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `{}`.
    Empty,
    /// Text that the request sent.
    Echo,
    /// Reply to the last request of this kind to this path.
    Repeated,
    /// An object of another name.
    Other,
    /// A list without items.
    EmptyList,
    /// A page of a gateway.
    Html,
}

impl Lie {
    pub(crate) const ALL: [Self; 6] = [
        Self::Empty,
        Self::Echo,
        Self::Repeated,
        Self::Other,
        Self::EmptyList,
        Self::Html,
    ];
}

/// Decides about problems: method and path of a request.
pub(crate) type ProblemPlan = Arc<dyn Fn(&Method, &str) -> RequestProblem + Send + Sync>;

/// API server.
#[derive(Clone)]
pub(crate) struct FakeObjectApi {
    state: Arc<Mutex<ApiState>>,
}

impl Default for FakeObjectApi {
    fn default() -> Self {
        let state = ApiState {
            version: 1,
            ..ApiState::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

#[derive(Default)]
struct ApiState {
    /// Objects by their paths.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Changes after `forgotten`: version, collection, kind of the event, object.
    history: Vec<(u64, String, &'static str, Value)>,
    forgotten: u64,
    watches: Vec<OpenWatch>,
    are_watches_silent: bool,
    /// Rest of lists, by the token that continues them.
    pages: BTreeMap<String, (Vec<Value>, u64)>,
    requests: Vec<String>,
    /// Last true reply to each method and path.
    replies: BTreeMap<String, Value>,
}

struct OpenWatch {
    collection: String,
    selector: String,
    events: mpsc::UnboundedSender<Bytes>,
}

/// Body of a reply: bytes, or events as they come.
enum FakeBody {
    Whole(Option<Bytes>),
    Events(mpsc::UnboundedReceiver<Bytes>),
}

impl http_body::Body for FakeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events
                .poll_recv(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }
}

/// Reply before it is sent.
enum Reply {
    Object(StatusCode, Value),
    Events(mpsc::UnboundedReceiver<Bytes>),
}

fn status(code: u16, message: &str) -> Reply {
    let details = if code == 429 {
        json!({"retryAfterSeconds": 1})
    } else {
        json!({})
    };
    let object = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Test",
        "details": details, "metadata": {},
    });
    Reply::Object(StatusCode::from_u16(code).unwrap(), object)
}

fn has_labels(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|pair| !pair.is_empty()).all(|pair| {
        let (key, value) = pair.split_once('=').unwrap();
        object["metadata"]["labels"][key] == *value
    })
}

impl ApiState {
    fn change(&mut self, path: &str, event: &'static str, object: &Value) {
        let (collection, _) = path.rsplit_once('/').unwrap();
        self.history
            .push((self.version, collection.to_owned(), event, object.clone()));
        if self.are_watches_silent {
            return;
        }
        let line = Bytes::from(format!("{}\n", json!({"type": event, "object": object})));
        self.watches.retain(|watch| {
            let is_meant = watch.collection == collection && has_labels(object, &watch.selector);
            !is_meant || watch.events.send(line.clone()).is_ok()
        });
    }

    fn store(&mut self, path: &str, event: &'static str, mut object: Value) -> Reply {
        let content: usize = ["data", "binaryData"]
            .iter()
            .filter_map(|field| object[field].as_object())
            .flat_map(|map| map.values())
            .map(|value| value.as_str().unwrap().len() * 3 / 4)
            .sum();
        if content > CONFIG_MAP_BYTES {
            return status(422, "Too long: must have at most 1048576 bytes");
        }
        if object.to_string().len() > OBJECT_BYTES {
            return status(413, "etcdserver: request is too large");
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        self.change(path, event, &object);
        let code = if event == "ADDED" {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Reply::Object(code, object)
    }

    /// Reply with status 200 that does not say what is.
    fn lie(&self, lie: Lie, (method, path): (&Method, &str), body: &Value) -> Reply {
        let text = match lie {
            Lie::Empty => json!({}),
            Lie::Echo => body.clone(),
            Lie::Repeated => self
                .replies
                .get(&format!("{method} {path}"))
                .cloned()
                .unwrap_or_default(),
            Lie::Other => self.objects.values().next_back().cloned().unwrap_or_default(),
            Lie::EmptyList => {
                let version = self.version.to_string();
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []})
            }
            Lie::Html => json!("<html>"),
        };
        Reply::Object(StatusCode::OK, text)
    }

    fn serve(&mut self, method: &Method, path: &str, query: &BTreeMap<String, String>, body: &Value) -> Reply {
        let reply = self.true_reply(method, path, query, body);
        if let Reply::Object(StatusCode::OK | StatusCode::CREATED, object) = &reply {
            self.replies.insert(format!("{method} {path}"), object.clone());
        }
        reply
    }

    fn true_reply(&mut self, method: &Method, path: &str, query: &BTreeMap<String, String>, body: &Value) -> Reply {
        let is_collection = path.ends_with("/configmaps") || path.ends_with("/leases");
        match (method.as_str(), is_collection) {
            ("GET", true) if query.contains_key("watch") => self.watch(path, query),
            ("GET", true) => self.list(path, query),
            ("POST", true) => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return status(409, "already exists");
                }
                let mut object = body.clone();
                object["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
                self.store(&path, "ADDED", object)
            }
            ("GET", false) => {
                let found = self.objects.get(path).cloned();
                found.map_or_else(
                    || status(404, &format!("{path} not found")),
                    |object| Reply::Object(StatusCode::OK, object),
                )
            }
            ("PUT", false) => {
                let Some(found) = self.objects.get(path) else {
                    return status(404, &format!("{path} not found"));
                };
                for field in ["uid", "resourceVersion"] {
                    let (asked, here) = (&body["metadata"][field], &found["metadata"][field]);
                    if !asked.is_null() && asked != here {
                        return status(409, &format!("the {field} is {here}"));
                    }
                }
                let mut object = body.clone();
                object["metadata"]["uid"] = found["metadata"]["uid"].clone();
                self.store(path, "MODIFIED", object)
            }
            ("DELETE", false) => {
                let asked = &body["preconditions"]["resourceVersion"];
                match self.objects.get(path) {
                    None => status(404, &format!("{path} not found")),
                    Some(found) if !asked.is_null() && *asked != found["metadata"]["resourceVersion"] => {
                        status(409, "another version")
                    }
                    Some(found) => {
                        let object = found.clone();
                        self.objects.remove(path);
                        self.version += 1;
                        self.change(path, "DELETED", &object);
                        Reply::Object(
                            StatusCode::OK,
                            json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                        )
                    }
                }
            }
            _ => status(405, "method not allowed"),
        }
    }

    fn list(&mut self, path: &str, query: &BTreeMap<String, String>) -> Reply {
        assert_ne!(
            query.get("resourceVersion").map(String::as_str),
            Some("0"),
            "a read of a cache"
        );
        let (mut rest, version) = if let Some(token) = query.get("continue") {
            let Some(page) = self.pages.remove(token) else {
                return status(410, "the continue token is too old");
            };
            page
        } else {
            let selector = query.get("labelSelector").cloned().unwrap_or_default();
            let begin = format!("{path}/");
            let all = self.objects.iter().filter(|(path, _)| path.starts_with(&begin));
            let chosen = all.filter(|(_, object)| has_labels(object, &selector));
            (chosen.map(|(_, object)| object.clone()).collect(), self.version)
        };
        let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let later = rest.split_off(limit.min(rest.len()));
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if !later.is_empty() {
            let token = format!("t{}-{}", self.requests.len(), later.len());
            metadata["continue"] = json!(token);
            self.pages.insert(token, (later, version));
        }
        let kind = match query.get("accept") {
            Some(_) => "PartialObjectMetadataList",
            None if path.ends_with("/leases") => "LeaseList",
            None => "ConfigMapList",
        };
        let list = json!({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": rest});
        Reply::Object(StatusCode::OK, list)
    }

    fn watch(&mut self, path: &str, query: &BTreeMap<String, String>) -> Reply {
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < self.forgotten {
            return status(410, "too old resource version");
        }
        let (events, receiver) = mpsc::unbounded_channel();
        let selector = query.get("labelSelector").cloned().unwrap_or_default();
        for (version, collection, event, object) in &self.history {
            if *version > from && collection == path && has_labels(object, &selector) {
                let line = format!("{}\n", json!({"type": event, "object": object}));
                events.send(Bytes::from(line)).unwrap();
            }
        }
        self.watches.push(OpenWatch {
            collection: path.to_owned(),
            selector,
            events,
        });
        Reply::Events(receiver)
    }
}

impl FakeObjectApi {
    /// Client whose requests have these problems.
    pub(crate) fn client(&self, problems: ProblemPlan) -> Client {
        let state = Arc::clone(&self.state);
        let serve = move |request: Request<Body>| {
            let (state, problems) = (Arc::clone(&state), Arc::clone(&problems));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let query = head.uri.query().unwrap_or_default();
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let mut query: BTreeMap<_, _> = pairs.map(|(key, value)| (key.to_owned(), decode(value))).collect();
                let accept = head.headers.get("accept").and_then(|accept| accept.to_str().ok());
                if let Some(accept) = accept.filter(|accept| accept.contains("PartialObjectMetadataList")) {
                    query.insert("accept".to_owned(), accept.to_owned());
                }
                let (method, path) = (head.method, head.uri.path().to_owned());
                let serve = || {
                    let mut state = state.lock().unwrap();
                    state.requests.push(format!("{method} {path}"));
                    state.serve(&method, &path, &query, &body)
                };
                let reply = match problems(&method, &path) {
                    RequestProblem::None => serve(),
                    RequestProblem::LoseRequest => return Err("the connection was cut before".to_owned()),
                    RequestProblem::LoseReply => {
                        serve();
                        return Err("the connection was cut after".to_owned());
                    }
                    RequestProblem::HangBefore => return std::future::pending().await,
                    RequestProblem::HangAfter => {
                        serve();
                        return std::future::pending().await;
                    }
                    RequestProblem::StatusAfter(code) => {
                        serve();
                        status(code, "etcdserver: request timed out")
                    }
                    RequestProblem::Status(code) => status(code, "too many requests"),
                    RequestProblem::Lie(lie) => state.lock().unwrap().lie(lie, (&method, &path), &body),
                    RequestProblem::LieAfter(lie) => {
                        serve();
                        state.lock().unwrap().lie(lie, (&method, &path), &body)
                    }
                };
                let (code, body) = match reply {
                    Reply::Object(code, object) => (code, FakeBody::Whole(Some(object.to_string().into()))),
                    Reply::Events(events) => (StatusCode::OK, FakeBody::Events(events)),
                };
                Ok(Response::builder().status(code).body(body).unwrap())
            }
        };
        // A test with a runtime of its own makes its clients there.
        let _entered = tokio::runtime::Handle::try_current().is_err().then(|| RUNTIME.enter());
        Client::new(tower::service_fn(serve), "default")
    }

    /// Options of a store whose requests have these problems, with a small ring and no pace.
    pub(crate) fn options_with(&self, problems: ProblemPlan) -> KubernetesStoreOptions {
        KubernetesStoreOptions {
            timeout: Duration::from_millis(300),
            lease: Duration::from_secs(1),
            slots: 32,
            snapshot_every: 16,
            rates: WriteRates {
                writes_per_second: 1e6,
                bytes_per_second: 1e12,
            },
            ..KubernetesStoreOptions::new(ApiAccess::Ready(self.client(problems)))
        }
    }

    pub(crate) fn options(&self) -> KubernetesStoreOptions {
        self.options_with(Arc::new(|_, _| RequestProblem::None))
    }

    /// Objects whose paths have this in them, and their number of bytes.
    pub(crate) fn objects(&self, part: &str) -> Vec<(String, usize)> {
        let state = self.state.lock().unwrap();
        let chosen = state.objects.iter().filter(|(path, _)| path.contains(part));
        chosen
            .map(|(path, object)| (path.clone(), object.to_string().len()))
            .collect()
    }

    /// Removes the objects whose paths have this in them, as an operator would.
    pub(crate) fn remove(&self, part: &str) {
        let mut state = self.state.lock().unwrap();
        let paths: Vec<String> = state
            .objects
            .keys()
            .filter(|path| path.contains(part))
            .cloned()
            .collect();
        for path in paths {
            let object = state.objects.remove(&path).unwrap();
            state.version += 1;
            state.change(&path, "DELETED", &object);
        }
    }

    /// Changes an object beside the store, as an operator would.
    pub(crate) fn touch(&self, part: &str) {
        let mut state = self.state.lock().unwrap();
        let found = state.objects.iter().find(|(path, _)| path.contains(part));
        let (path, mut object) = found.map(|(path, object)| (path.clone(), object.clone())).unwrap();
        object["metadata"]["labels"]["touched"] = json!("yes");
        state.store(&path, "MODIFIED", object);
    }

    /// Edits the object at the end of a path, as an operator would.
    pub(crate) fn edit(&self, end: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock().unwrap();
        let found = state.objects.iter().find(|(path, _)| path.ends_with(end));
        let (path, mut object) = found.map(|(path, object)| (path.clone(), object.clone())).unwrap();
        edit(&mut object);
        state.store(&path, "MODIFIED", object);
    }

    /// Adds an object with the labels of another one, as an operator would.
    pub(crate) fn copy_as(&self, end: &str, name: &str) {
        let mut state = self.state.lock().unwrap();
        let found = state.objects.iter().find(|(path, _)| path.ends_with(end));
        let (path, mut object) = found.map(|(path, object)| (path.clone(), object.clone())).unwrap();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        object["metadata"]["annotations"] = json!({});
        let (collection, _) = path.rsplit_once('/').unwrap();
        let path = format!("{collection}/{name}");
        state.store(&path, "ADDED", object);
    }

    /// Makes watches show nothing from now on, or all that comes.
    pub(crate) fn silence_watches(&self, is_silent: bool) {
        self.state.lock().unwrap().are_watches_silent = is_silent;
    }

    /// Copy of all objects, to be restored.
    pub(crate) fn back_up(&self) -> BTreeMap<String, Value> {
        self.state.lock().unwrap().objects.clone()
    }

    /// Brings an older copy of all objects back. All watches end, as with a restart of the API server.
    pub(crate) fn restore(&self, objects: BTreeMap<String, Value>) {
        let mut state = self.state.lock().unwrap();
        state.objects = objects;
        state.watches.clear();
    }

    /// Ends all watches, and forgets the changes so far.
    pub(crate) fn forget_history(&self) {
        let mut state = self.state.lock().unwrap();
        state.history.clear();
        state.forgotten = state.version;
        state.version += 1;
        state.watches.clear();
    }

    /// Requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn decode(value: &str) -> String {
    let value = value.replace('+', " ");
    let mut parts = value.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        text.push(char::from(u8::from_str_radix(digits, 16).unwrap()));
        text.push_str(rest);
    }
    text
}

/// True if a path is that of a slot.
pub(crate) fn is_slot(path: &str) -> bool {
    path.rsplit_once("-log-").is_some_and(|(_, slot)| slot.len() == 4)
}
