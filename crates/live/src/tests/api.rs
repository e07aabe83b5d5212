//! API server of a script, in this process: it answers rightly, or as its problems say.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Frame;
use kube_client::Client;
use kube_client::client::Body;
use prost::bytes::Bytes;
use pumice_engine::short_lock::ShortLock;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::resources::{ResourceScope, scopes};

/// Wrong behaviour of an API server, or of a gateway before it, for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiProblem {
    /// A code for lists and watches.
    Code(u16),
    /// The resource is gone, also from the list of what the group serves.
    Uninstalled,
    /// Status 200 with a page of a gateway, or with a line of one.
    Html,
    HtmlLine,
    /// Status 200 with JSON that is not a list.
    EmptyObject,
    StatusObject,
    OtherKind,
    NullItems,
    NoVersion,
    /// The body breaks off.
    Cut,
    /// The first page is right, and the second one has this code.
    SecondPage(u16),
    /// The first page is right, and then the group no longer serves the resource.
    UninstalledAfterOnePage,
    /// No respond comes.
    Hang,
    /// All is right, and late.
    Late,
    /// A code for watches, while lists are right.
    WatchCode(u16),
    Silent,
    /// Bookmarks with a version that will never come, an old one, or none.
    FarBookmark,
    OldBookmark,
    BareBookmark,
    /// Events come twice, or the later before the earlier.
    Repeat,
    Reorder,
    /// An event breaks off, or is none.
    CutLine,
    Garbage,
    /// The watch ends with an event of an error.
    ErrorEvent(u16),
}

impl ApiProblem {
    pub(super) const ALL: [ApiProblem; 35] = [
        ApiProblem::Code(401),
        ApiProblem::Code(403),
        ApiProblem::Code(404),
        ApiProblem::Code(405),
        ApiProblem::Code(410),
        ApiProblem::Code(429),
        ApiProblem::Code(500),
        ApiProblem::Code(503),
        ApiProblem::Uninstalled,
        ApiProblem::Html,
        ApiProblem::HtmlLine,
        ApiProblem::EmptyObject,
        ApiProblem::StatusObject,
        ApiProblem::OtherKind,
        ApiProblem::NullItems,
        ApiProblem::NoVersion,
        ApiProblem::Cut,
        ApiProblem::SecondPage(410),
        ApiProblem::SecondPage(500),
        ApiProblem::UninstalledAfterOnePage,
        ApiProblem::Hang,
        ApiProblem::Late,
        ApiProblem::WatchCode(403),
        ApiProblem::WatchCode(410),
        ApiProblem::WatchCode(500),
        ApiProblem::Silent,
        ApiProblem::FarBookmark,
        ApiProblem::OldBookmark,
        ApiProblem::BareBookmark,
        ApiProblem::Repeat,
        ApiProblem::Reorder,
        ApiProblem::CutLine,
        ApiProblem::Garbage,
        ApiProblem::ErrorEvent(410),
        ApiProblem::ErrorEvent(500),
    ];

    /// True if nothing of the resource arrives while it lasts.
    pub(super) fn hides_changes(self) -> bool {
        use ApiProblem::{
            Code, Cut, EmptyObject, Hang, Html, HtmlLine, NoVersion, NullItems, OtherKind, Silent, StatusObject,
        };
        matches!(
            self,
            Code(_)
                | Html
                | HtmlLine
                | EmptyObject
                | StatusObject
                | OtherKind
                | NullItems
                | NoVersion
                | Cut
                | Hang
                | Silent
        )
    }

    /// True if the group no longer serves the resource.
    fn uninstalls(self) -> bool {
        matches!(self, ApiProblem::Uninstalled | ApiProblem::UninstalledAfterOnePage)
    }

    fn has_a_second_page(self) -> bool {
        matches!(self, ApiProblem::SecondPage(_) | ApiProblem::UninstalledAfterOnePage)
    }

    /// True if it concerns watches only.
    fn is_of_watches(self) -> bool {
        use ApiProblem::{
            BareBookmark, CutLine, ErrorEvent, FarBookmark, Garbage, OldBookmark, Reorder, Repeat, Silent, WatchCode,
        };
        matches!(
            self,
            WatchCode(_)
                | Silent
                | FarBookmark
                | OldBookmark
                | BareBookmark
                | Repeat
                | Reorder
                | CutLine
                | Garbage
                | ErrorEvent(_)
        )
    }
}

#[derive(Default)]
struct ScriptCollection {
    objects: BTreeMap<String, Value>,
    /// Events, by their versions.
    events: Vec<(u64, &'static str, Value)>,
    /// Versions up to this one are forgotten.
    forgotten: u64,
    problem: Option<ApiProblem>,
    /// Number of the problem: watches that were open before it see it.
    problems: u64,
}

#[derive(Default)]
struct Objects {
    version: u64,
    collections: BTreeMap<String, ScriptCollection>,
    /// Kinds and names of objects that were deleted.
    deleted: BTreeSet<String>,
    /// Kinds that were uninstalled.
    uninstalled: BTreeSet<&'static str>,
    requests: usize,
}

/// API server of a script.
#[derive(Clone, Default)]
pub(super) struct ApiScript(Arc<ShortLock<Objects>>);

/// Time between looks of a watch.
const LOOK: Duration = Duration::from_millis(4);
/// Time between bookmarks: a minute, as this crate's tests live.
const BOOKMARKS: Duration = Duration::from_millis(300);

impl ApiScript {
    pub(super) fn client(&self) -> Client {
        let own = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let own = own.clone();
            async move { Ok::<_, Infallible>(own.respond(request.uri()).await) }
        });
        Client::new(service, "default")
    }

    /// Creates, replaces or deletes an object of a collection.
    pub(super) fn change(&self, scope: &ResourceScope, name: &str, object: Option<Value>) {
        self.0.with(|own| {
            own.version += 1;
            let version = own.version;
            let collection = own.collections.entry(scope.path()).or_default();
            let kind = match &object {
                None => "DELETED",
                Some(_) if collection.objects.contains_key(name) => "MODIFIED",
                Some(_) => "ADDED",
            };
            let Some(mut object) = object.or_else(|| collection.objects.remove(name)) else {
                return;
            };
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            if kind == "DELETED" {
                own.deleted.insert(format!("{} {name}", scope.resource.kind.name()));
            } else {
                collection.objects.insert(name.to_owned(), object.clone());
            }
            collection.events.push((version, kind, object));
        });
    }

    /// Begins a problem of a resource, or ends it.
    pub(super) fn set_problem(&self, scope: &ResourceScope, problem: Option<ApiProblem>) {
        self.0.with(|own| {
            if problem.is_some_and(ApiProblem::uninstalls) {
                own.uninstalled.insert(scope.resource.kind.name());
            }
            let collection = own.collections.entry(scope.path()).or_default();
            collection.problem = problem;
            collection.problems += u64::from(problem.is_some());
        });
    }

    /// Ends all problems.
    pub(super) fn heal(&self) {
        self.0.with(|own| {
            for collection in own.collections.values_mut() {
                collection.problem = None;
            }
        });
    }

    /// Forgets the versions of a resource up to now.
    pub(super) fn forget_versions(&self, scope: &ResourceScope) {
        self.0.with(|own| {
            let version = own.version;
            own.collections.entry(scope.path()).or_default().forgotten = version;
        });
    }

    /// True if an object of a name was deleted, or its resource uninstalled.
    pub(super) fn was_deleted(&self, kind: &str, name: &str) -> bool {
        self.0
            .with(|own| own.deleted.contains(&format!("{kind} {name}")) || own.uninstalled.contains(kind))
    }

    pub(super) fn requests(&self) -> usize {
        self.0.with(|own| own.requests)
    }

    async fn respond(&self, uri: &http::Uri) -> Response<ScriptBody> {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let parameter = |name: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let problem = self.0.with(|own| {
            own.requests += 1;
            own.version = own.version.max(1);
            own.collections.get(path).and_then(|collection| collection.problem)
        });
        let Some(scope) = scopes(&[]).into_iter().find(|scope| scope.path() == path) else {
            return self.other_path(path, parameter("fieldSelector"));
        };
        let is_watch = parameter("watch").is_some();
        if let Some(problem) = problem.filter(|problem| is_watch || !problem.is_of_watches()) {
            if problem == ApiProblem::Hang {
                return std::future::pending().await;
            }
            if problem == ApiProblem::Late {
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            let is_first = parameter("continue").is_none_or(str::is_empty);
            if is_first && problem.has_a_second_page() && !is_watch {
                return whole(200, self.list(&scope, None, true));
            }
            if let Some(wrong) = self.wrong(&scope, problem) {
                return wrong;
            }
        }
        match parameter("resourceVersion").map(str::parse) {
            Some(Ok(version)) if is_watch => self.watch(&scope, version, String::new()),
            Some(Err(_)) => status(400, "invalid resource version"),
            None if is_watch => status(400, "a watch begins at a version"),
            Some(Ok(_)) | None => whole(200, self.list(&scope, parameter("fieldSelector"), false)),
        }
    }

    /// Lists of one namespace, and what a group serves.
    fn other_path(&self, path: &str, selector: Option<&str>) -> Response<ScriptBody> {
        let of_namespace = scopes(&["web".into()]).into_iter().find(|scope| scope.path() == path);
        if let Some(scope) = of_namespace {
            let all = ResourceScope {
                namespace: None,
                ..scope
            };
            return whole(200, self.list(&all, selector, false));
        }
        let served = scopes(&[])
            .into_iter()
            .filter(|scope| scope.discovery_path() == path)
            .filter(|scope| {
                let problem = self
                    .0
                    .with(|own| own.collections.get(&scope.path()).and_then(|own| own.problem));
                !problem.is_some_and(ApiProblem::uninstalls)
            });
        let names: Vec<Value> = served.map(|scope| json!({"name": scope.resource.plural})).collect();
        whole(200, json!({"kind": "APIResourceList", "resources": names}).to_string())
    }

    fn list(&self, scope: &ResourceScope, selector: Option<&str>, has_more: bool) -> String {
        let selected = selector.and_then(|own| own.split_once("%3D"));
        let is_selected = |object: &&Value| {
            selected.is_none_or(|(field, value)| {
                let own = object.pointer(&format!("/{}", field.replace('.', "/")));
                own.and_then(Value::as_str).unwrap_or_default() == value
            })
        };
        self.0.with(|own| {
            let objects = own.collections.get(&scope.path()).into_iter();
            let items: Vec<&Value> = objects
                .flat_map(|own| own.objects.values())
                .filter(is_selected)
                .collect();
            let kind = format!("{}List", scope.resource.kind.name());
            let continuation = if has_more { "next" } else { "" };
            let metadata = json!({"resourceVersion": own.version.to_string(), "continue": continuation});
            json!({"kind": kind, "metadata": metadata, "items": items}).to_string()
        })
    }

    /// Wrong respond; `None`: the problem is of a watch that is open.
    fn wrong(&self, scope: &ResourceScope, problem: ApiProblem) -> Option<Response<ScriptBody>> {
        let list = |text: &str| whole(200, text.replace("KIND", scope.resource.kind.name()));
        let status = |code: u16| status(code, &format!("the script says {code}"));
        Some(match problem {
            ApiProblem::Code(code) | ApiProblem::SecondPage(code) | ApiProblem::WatchCode(code) => status(code),
            ApiProblem::Uninstalled | ApiProblem::UninstalledAfterOnePage => status(404),
            ApiProblem::Html => whole(200, "<html>maintenance</html>".to_owned()),
            ApiProblem::HtmlLine => whole(200, "<html>\nmaintenance\n</html>\n".to_owned()),
            ApiProblem::EmptyObject => list("{}"),
            ApiProblem::StatusObject => list(r#"{"kind":"Status","code":401,"metadata":{}}"#),
            ApiProblem::OtherKind => list(r#"{"kind":"SecretList","metadata":{"resourceVersion":"9"},"items":[]}"#),
            ApiProblem::NullItems => list(r#"{"kind":"KINDList","metadata":{"resourceVersion":"9"},"items":null}"#),
            ApiProblem::NoVersion => list(r#"{"kind":"KINDList","metadata":{},"items":[]}"#),
            ApiProblem::Cut => {
                let text = self.list(scope, None, false);
                let (sender, body) = ScriptBody::new();
                let half = text.split_at(text.len() / 2).0.to_owned();
                drop(sender.try_send(Ok(half.into())));
                drop(sender.try_send(Err(std::io::ErrorKind::ConnectionReset.into())));
                response(200, body)
            }
            ApiProblem::Hang
            | ApiProblem::Late
            | ApiProblem::Silent
            | ApiProblem::FarBookmark
            | ApiProblem::OldBookmark
            | ApiProblem::BareBookmark
            | ApiProblem::Repeat
            | ApiProblem::Reorder
            | ApiProblem::CutLine
            | ApiProblem::Garbage
            | ApiProblem::ErrorEvent(_) => return None,
        })
    }

    fn watch(&self, scope: &ResourceScope, version: u64, initial: String) -> Response<ScriptBody> {
        let (current, forgotten, problems) = self.0.with(|own| {
            let current = own.version;
            let collection = own.collections.entry(scope.path()).or_default();
            (current, collection.forgotten, collection.problems)
        });
        if version > current {
            return status(504, "Timeout: Too large resource version");
        }
        if version < forgotten {
            return status(410, "too old resource version");
        }
        let (sender, body) = ScriptBody::new();
        drop(sender.try_send(Ok(initial.into())));
        tokio::spawn(self.clone().send_events(scope.path(), version, problems, sender));
        response(200, body)
    }

    /// Sends the events of a collection, as its problem says, until the watch ends.
    async fn send_events(
        self,
        path: String,
        mut seen: u64,
        problems: u64,
        lines: mpsc::Sender<Result<Bytes, std::io::Error>>,
    ) {
        let bookmark = |version: &str| line("BOOKMARK", &json!({"metadata": {"resourceVersion": version}}));
        let begin = tokio::time::Instant::now();
        let mut marked = begin;
        while !lines.is_closed() && begin.elapsed() < BOOKMARKS * 10 {
            tokio::time::sleep(LOOK).await;
            let (events, version, problem, is_new) = self.0.with(|own| {
                let collection = own.collections.entry(path.clone()).or_default();
                let from = collection.events.partition_point(|(version, ..)| *version <= seen);
                let events: Vec<_> = collection.events.get(from..).unwrap_or_default().to_vec();
                let last = collection.events.iter().rev().take(3).cloned().collect::<Vec<_>>();
                (
                    (events, last),
                    own.version,
                    collection.problem,
                    collection.problems != problems,
                )
            });
            let (mut events, last) = events;
            if is_new && problem.is_none_or(|problem| !problem.is_of_watches() && problem != ApiProblem::Late) {
                return;
            }
            let mut text = String::new();
            match problem {
                // Nothing more comes on this watch, also when others are well again.
                Some(ApiProblem::Silent) => return lines.closed().await,
                Some(ApiProblem::WatchCode(_)) if is_new => return,
                Some(ApiProblem::Late) => tokio::time::sleep(Duration::from_millis(25)).await,
                Some(ApiProblem::Reorder) if events.len() < 2 => continue,
                Some(ApiProblem::Reorder) => events.reverse(),
                Some(ApiProblem::Repeat) => {
                    let again = last.iter().filter(|_| !events.is_empty());
                    events.extend(again.cloned().collect::<Vec<_>>());
                }
                Some(ApiProblem::CutLine) => {
                    text.push_str(r#"{"type":"ADDED","obj"#);
                    drop(lines.send(Ok(text.into())).await);
                    return;
                }
                Some(ApiProblem::Garbage) => text.push_str("{\"type\":\"NEWS\",\"object\":{}}\n"),
                Some(ApiProblem::ErrorEvent(code)) => text.push_str(&line(
                    "ERROR",
                    &json!({"kind": "Status", "code": code, "message": "no"}),
                )),
                Some(ApiProblem::FarBookmark) => text.push_str(&bookmark("999999999999999999999")),
                Some(ApiProblem::OldBookmark) => text.push_str(&bookmark("1")),
                Some(ApiProblem::BareBookmark) => text.push_str(&bookmark("")),
                Some(_) | None => {}
            }
            text.extend(events.iter().map(|(_, kind, object)| line(kind, object)));
            if marked.elapsed() > BOOKMARKS {
                marked = tokio::time::Instant::now();
                text.push_str(&bookmark(&version.to_string()));
            }
            seen = version;
            if !text.is_empty() && lines.send(Ok(text.into())).await.is_err() {
                return;
            }
        }
    }
}

/// Body of an respond, which comes in parts.
pub(super) struct ScriptBody(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl ScriptBody {
    fn new() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, Self) {
        let (sender, parts) = mpsc::channel(4);
        (sender, Self(parts))
    }
}

impl http_body::Body for ScriptBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|part| part.map(|part| part.map(Frame::data)))
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn whole(code: u16, text: String) -> Response<ScriptBody> {
    let (sender, body) = ScriptBody::new();
    drop(sender.try_send(Ok(text.into())));
    response(code, body)
}

/// Answer that says why there is no other.
fn status(code: u16, message: &str) -> Response<ScriptBody> {
    whole(
        code,
        json!({"kind": "Status", "code": code, "message": message}).to_string(),
    )
}

fn response(code: u16, body: ScriptBody) -> Response<ScriptBody> {
    Response::builder().status(code).body(body).unwrap()
}
