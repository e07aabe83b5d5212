//! Kubernetes API that lists and watches the objects of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use pumice_live::{RESOURCES, WatchedResource};
use serde_json::{Value, json};

/// Objects of one collection, by `namespace/name`, and the events since the start.
#[derive(Default)]
struct Collection {
    objects: BTreeMap<String, Value>,
    events: Vec<(u64, &'static str, Value)>,
}

#[derive(Default)]
struct WatchedObjects {
    version: u64,
    /// Collections by their paths without namespaces.
    collections: BTreeMap<String, Collection>,
    /// Status with which a collection is refused, whose watches end.
    refused: BTreeMap<String, u16>,
    /// Lists of a collection that are refused before others are served.
    refused_lists: BTreeMap<String, usize>,
    /// Text with which lists of a collection are answered, with status 200.
    lies: BTreeMap<String, String>,
    /// Collections whose watches are refused with this status, while their lists are served.
    refused_watches: BTreeMap<String, u16>,
    /// True if watches stay open and show nothing.
    is_silent: bool,
    /// Collections that the API server does not have.
    absent: BTreeSet<String>,
    /// Requests that were rejected.
    rejections: Vec<String>,
    /// Token that callers need; empty: none.
    token: String,
    /// Requests that came, without those for watches.
    lists: Vec<String>,
    is_stopped: bool,
}

/// Kubernetes API of one test.
pub(super) struct ClusterApi {
    address: SocketAddr,
    state: Arc<ShortLock<WatchedObjects>>,
}

/// Path of the collection of an object, without its namespace.
fn collection_of(object: &Value) -> String {
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/{plural}")
}

fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

impl ClusterApi {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state: Arc<ShortLock<WatchedObjects>> = Arc::default();
        let own = Arc::clone(&state);
        // It ends with the test's process; its connections end with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&own);
                std::thread::spawn(move || respond(stream.unwrap(), &state));
            }
        });
        Self { address, state }
    }

    /// Kubeconfig of this API.
    pub(super) fn kubeconfig(&self) -> String {
        self.kubeconfig_of(&json!({}))
    }

    /// Kubeconfig of this API with a user's credentials.
    pub(super) fn kubeconfig_of(&self, user: &Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
        })
        .to_string()
    }

    /// Creates an object, or replaces it.
    pub(super) fn put(&self, object: &Value) {
        self.change(object, false);
    }

    pub(super) fn delete(&self, object: &Value) {
        self.change(object, true);
    }

    fn change(&self, object: &Value, is_deleted: bool) {
        self.state.with(|state| {
            state.version += 1;
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            let collection = state.collections.entry(collection_of(&object)).or_default();
            let kind = if is_deleted {
                collection.objects.remove(&key_of(&object));
                "DELETED"
            } else {
                collection.objects.insert(key_of(&object), object.clone());
                "MODIFIED"
            };
            collection.events.push((state.version, kind, object));
        });
    }

    /// Ends the watches of a collection as an API server does that has forgotten their version.
    pub(super) fn forget_versions(&self, collection: &str) {
        self.end_watches(collection, 410);
    }

    /// Ends the watches of a collection with an error.
    pub(super) fn end_watches(&self, collection: &str, code: u16) {
        self.state.with(|state| {
            state.version += 1;
            let status = json!({"kind": "Status", "code": code, "message": "the test ends the watch"});
            let events = &mut state.collections.entry(collection.to_owned()).or_default().events;
            events.push((state.version, "ERROR", status));
        });
    }

    /// Refuses callers without this token from now on, and ends their watches.
    pub(super) fn require_token(&self, token: &str) {
        self.state.with(|state| token.clone_into(&mut state.token));
    }

    /// Refuses this number of lists of a collection.
    pub(super) fn refuse_lists(&self, collection: &str, count: usize) {
        self.state
            .with(|state| state.refused_lists.insert(collection.to_owned(), count));
    }

    /// Answers lists of a collection with this text from now on; empty: with its objects.
    pub(super) fn lie(&self, collection: &str, text: &str) {
        self.state.with(|state| {
            state.lies.remove(collection);
            if !text.is_empty() {
                state.lies.insert(collection.to_owned(), text.to_owned());
            }
        });
    }

    /// Refuses watches of a collection, and serves its lists.
    pub(super) fn refuse_watches(&self, collection: &str, status: u16) {
        self.state
            .with(|state| state.refused_watches.insert(collection.to_owned(), status));
    }

    /// Keeps watches open and shows nothing on them, from now on or no longer.
    pub(super) fn be_silent(&self, is_silent: bool) {
        self.state.with(|state| state.is_silent = is_silent);
    }

    /// Says that there is no such collection, in the list of the group's resources, too.
    pub(super) fn uninstall(&self, collection: &str) {
        self.state.with(|state| state.absent.insert(collection.to_owned()));
    }

    /// Has the collection from now on.
    pub(super) fn install(&self, collection: &str) {
        self.state.with(|state| state.absent.remove(collection));
    }

    /// Requests that were rejected since the last call.
    pub(super) fn take_rejections(&self) -> Vec<String> {
        self.state.with(|state| std::mem::take(&mut state.rejections))
    }

    /// Refuses a collection from now on, and ends its watches; 200 serves it.
    pub(super) fn refuse(&self, collection: &str, status: u16) {
        self.state.with(|state| {
            state.refused.remove(collection);
            if status != 200 {
                state.refused.insert(collection.to_owned(), status);
            }
        });
    }

    /// Requests for lists that came since the last call.
    pub(super) fn take_lists(&self) -> Vec<String> {
        self.state.with(|state| std::mem::take(&mut state.lists))
    }
}

impl Drop for ClusterApi {
    fn drop(&mut self) {
        self.state.with(|state| state.is_stopped = true);
    }
}

/// Request for a list or a watch.
struct ListRequest {
    collection: String,
    namespace: Option<String>,
    /// Field and value that the objects have.
    selected: Option<(String, String)>,
    query: String,
}

impl ListRequest {
    fn read(target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (collection, namespace) = match path.split_once("/namespaces/") {
            Some((root, rest)) => {
                let (namespace, plural) = rest.split_once('/').unwrap();
                (format!("{root}/{plural}"), Some(namespace.to_owned()))
            }
            None => (path.to_owned(), None),
        };
        let selector = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector="));
        let selected = selector.and_then(|own| own.split_once("%3D"));
        Self {
            collection,
            namespace,
            selected: selected.map(|(field, value)| (field.to_owned(), value.to_owned())),
            query: query.to_owned(),
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(own, _)| *own == name).map(|(_, value)| value).next()
    }

    fn takes(&self, object: &Value) -> bool {
        let in_namespace = |namespace: &String| object["metadata"]["namespace"] == json!(namespace);
        let is_selected = |(field, value): &(String, String)| {
            let pointer = format!("/{}", field.replace('.', "/"));
            let own = object.pointer(&pointer).and_then(Value::as_str);
            own.unwrap_or_default() == value
        };
        self.namespace.as_ref().is_none_or(in_namespace) && self.selected.as_ref().is_none_or(is_selected)
    }
}

fn respond(stream: TcpStream, state: &ShortLock<WatchedObjects>) {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    if stream.read_line(&mut request).is_err() {
        return;
    }
    let mut token = String::new();
    let mut body_bytes = 0;
    loop {
        let mut line = String::new();
        if !matches!(stream.read_line(&mut line), Ok(count) if count > 0) || line == "\r\n" {
            break;
        }
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                value.trim_start_matches("Bearer ").clone_into(&mut token);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => body_bytes = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; body_bytes];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let own = ListRequest::read(&target);
    let status = state.with(|state| {
        let status = state.status_of(&own, &token);
        if status != 200 {
            state.rejections.push(target.clone());
        }
        status
    });
    let stream = stream.get_mut();
    let head = format!("HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
    // A caller that has gone needs no response.
    if status != 200 {
        let text = json!({"kind": "Status", "code": status, "message": format!("the test says {status}")});
        drop(stream.write_all((head + &text.to_string()).as_bytes()));
    } else if own.parameter("watch").is_some() {
        drop(
            stream
                .write_all(head.as_bytes())
                .and_then(|()| watch(stream, (&own, &token), state)),
        );
    } else {
        state.with(|state| state.lists.push(target));
        drop(stream.write_all((head + &list(&own, state)).as_bytes()));
    }
}

impl WatchedObjects {
    fn is_known(&self, token: &str) -> bool {
        self.token.is_empty() || self.token == token
    }

    fn ends_watch(&self, request: &ListRequest, token: &str) -> bool {
        let is_refused = self.refused.contains_key(&request.collection) || self.absent.contains(&request.collection);
        is_refused || !self.is_known(token)
    }

    /// Status of a request by the caller with this token.
    fn status_of(&mut self, request: &ListRequest, token: &str) -> u16 {
        if !self.is_known(token) {
            return 401;
        }
        if let Some(status) = self.refused.get(&request.collection) {
            return *status;
        }
        if self.absent.contains(&request.collection) {
            return 404;
        }
        if let Some(status) = self.refused_watches.get(&request.collection)
            && request.parameter("watch").is_some()
        {
            return *status;
        }
        let left = self.refused_lists.get_mut(&request.collection);
        match left.filter(|left| **left > 0 && request.parameter("watch").is_none()) {
            Some(left) => {
                *left -= 1;
                500
            }
            None => 200,
        }
    }
}

/// Path of a watched collection.
fn collection_path(resource: &WatchedResource) -> String {
    let WatchedResource {
        plural, group, version, ..
    } = resource;
    if group.is_empty() {
        format!("/api/{version}/{plural}")
    } else {
        format!("/apis/{group}/{version}/{plural}")
    }
}

/// Body of a list of one page, or of the resources of a group.
fn list(request: &ListRequest, state: &ShortLock<WatchedObjects>) -> String {
    state.with(|state| {
        if let Some(lie) = state.lies.get(&request.collection) {
            return lie.clone();
        }
        let is_own = |resource: &&WatchedResource| collection_path(resource) == request.collection;
        let Some(resource) = RESOURCES.iter().find(is_own) else {
            let served = RESOURCES.iter().filter(|resource| {
                let path = collection_path(resource);
                path.strip_suffix(&format!("/{}", resource.plural)) == Some(&*request.collection)
                    && !state.absent.contains(&path)
            });
            let names: Vec<Value> = served.map(|resource| json!({"name": resource.plural})).collect();
            return json!({"kind": "APIResourceList", "resources": names}).to_string();
        };
        let objects = state.collections.get(&request.collection).into_iter();
        let objects = objects.flat_map(|own| own.objects.values());
        let items: Vec<&Value> = objects.filter(|object| request.takes(object)).collect();
        // A cluster that has served this request has a version.
        state.version = state.version.max(1);
        format!(
            r#"{{"kind":"{}List","metadata":{{"resourceVersion":"{}"}},"items":{}}}"#,
            resource.kind.name(),
            state.version,
            json!(items)
        )
    })
}

/// Sends events as they come.
fn watch(
    stream: &mut TcpStream,
    (request, token): (&ListRequest, &str),
    state: &ShortLock<WatchedObjects>,
) -> std::io::Result<()> {
    let line = |kind: &str, object: &Value| format!("{}\n", json!({"type": kind, "object": object}));
    let mut seen = request
        .parameter("resourceVersion")
        .map_or(0, |version| version.parse().unwrap());
    loop {
        let (text, version, ends) = state.with(|state| {
            let events = state.collections.get(&request.collection).into_iter();
            let events = events.flat_map(|own| &own.events);
            let new =
                events.filter(|(version, kind, object)| *version > seen && (*kind == "ERROR" || request.takes(object)));
            let text: String = new.map(|(_, kind, object)| line(kind, object)).collect();
            let ends = state.is_stopped || state.ends_watch(request, token);
            if state.is_silent {
                return (String::new(), seen, ends);
            }
            (text, state.version, ends)
        });
        stream.write_all(text.as_bytes())?;
        seen = version;
        if ends {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
