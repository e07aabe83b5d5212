//! Events of a watch: lines of JSON, each with one object.

use std::borrow::Cow;

use http_body_util::BodyExt as _;
use memchr::memchr;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api_client::Body;
use crate::credentials::causes;
use crate::header::metadata;
use crate::pages::is_version;
use crate::requests::{ApiStatus, RequestError, shortened};

/// Longest line that is read; objects of the API have 1.5 MiB at most, in a denser encoding.
const LINE_BYTES: usize = 32 << 20;

/// Lines of a response, as they arrive.
#[derive(Debug)]
pub(crate) struct EventLines {
    body: Body,
    buffer: Vec<u8>,
    /// Start of the bytes that do not belong to a complete line yet.
    start: usize,
    /// End of the bytes in which no line ends.
    searched: usize,
}

impl EventLines {
    pub(crate) fn new(body: Body) -> Self {
        EventLines {
            body,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    /// Next line, without its end; `None`: the response has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RequestError> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.buffer.len() > LINE_BYTES {
                return Err(RequestError::TooLarge(LINE_BYTES));
            }
            match self.body.frame().await {
                None if self.start == self.buffer.len() => return Ok(None),
                None => return Err(RequestError::Unreachable("the watch ended within a line".to_owned())),
                Some(Err(error)) => return Err(RequestError::Unreachable(causes(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.buffer.get(self.searched..)?;
        if let Some(length) = memchr(b'\n', unsearched) {
            let end = self.searched + length;
            let line = self.buffer.get(self.start..end)?.to_vec();
            self.start = end + 1;
            self.searched = end + 1;
            return Some(line);
        }
        self.buffer.drain(..self.start);
        // A large object leaves no large buffer behind.
        if self.buffer.is_empty() {
            self.buffer.shrink_to(1 << 16);
        }
        self.start = 0;
        self.searched = self.buffer.len();
        None
    }
}

/// Change, bookmark or error that a watch sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent<'l> {
    /// An object was added or changed.
    Put(&'l [u8]),
    /// An object was deleted.
    Delete(&'l [u8]),
    /// Nothing changed up to the version of the event.
    Bookmark,
    /// The API server ends the watch.
    Error(RequestError),
}

#[derive(Debug, Deserialize)]
struct EventLine<'l> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'l, str>,
    #[serde(borrow)]
    object: &'l RawValue,
}

/// Metadata of an object, as far as a watch needs them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeaderMetadata<'l> {
    #[serde(borrow, default)]
    resource_version: Cow<'l, str>,
}

/// Event in a line, and the version of its object; empty: the event is an error.
pub(crate) fn read_event(line: &[u8]) -> Result<(WatchEvent<'_>, String), RequestError> {
    let unreadable = |error: serde_json::Error| RequestError::Unreadable(error.to_string());
    let EventLine { kind, object } = serde_json::from_slice(line).map_err(unreadable)?;
    if kind == "ERROR" {
        let status: ApiStatus = serde_json::from_str(object.get()).map_err(unreadable)?;
        let code = status.code;
        return Ok((WatchEvent::Error(status.into_error(code, "no reason")), String::new()));
    }
    let bytes = object.get().as_bytes();
    let metadata: HeaderMetadata<'_> = metadata(bytes)?;
    let event = match &*kind {
        "ADDED" | "MODIFIED" => WatchEvent::Put(bytes),
        "DELETED" => WatchEvent::Delete(bytes),
        "BOOKMARK" => WatchEvent::Bookmark,
        other => {
            let reason = format!("`{}` is no type of an event", shortened(other));
            return Err(RequestError::Unreadable(reason));
        }
    };
    let version = metadata.resource_version;
    if !is_version(&version) {
        let reason = format!("an event has the version `{}`", shortened(&version));
        return Err(RequestError::Unreadable(reason));
    }
    Ok((event, version.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static str) -> EventLines {
        EventLines::new(Body::from(text.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn lines_come_whole_and_a_broken_one_not_at_all() {
        let mut read = lines("one\n\ntwo\nthr");
        assert_eq!(read.next().await.unwrap().unwrap(), b"one");
        assert_eq!(read.next().await.unwrap().unwrap(), b"");
        assert_eq!(read.next().await.unwrap().unwrap(), b"two");
        assert!(
            matches!(read.next().await, Err(RequestError::Unreachable(_))),
            "half a line"
        );
        let mut read = lines("one\n");
        assert_eq!(read.next().await.unwrap().unwrap(), b"one");
        assert_eq!(read.next().await.unwrap(), None);
    }

    #[test]
    fn events_carry_their_objects_as_they_were_written() {
        let read = |line: &'static str| read_event(line.as_bytes()).unwrap();
        let pod = r#"{"metadata":{"name":"a","resourceVersion":"12"}, "x": 1.50}"#;
        for (kind, put) in [("ADDED", true), ("MODIFIED", true), ("DELETED", false)] {
            let line = format!(r#"{{"type":"{kind}","object":{pod}}}"#);
            let (event, version) = read_event(line.as_bytes()).unwrap();
            let bytes = pod.as_bytes();
            let expected = if put {
                WatchEvent::Put(bytes)
            } else {
                WatchEvent::Delete(bytes)
            };
            assert_eq!((event, version.as_str()), (expected, "12"));
        }
        let bookmark = read(r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#);
        assert_eq!(bookmark, (WatchEvent::Bookmark, "9".to_owned()));
        let (error, _) = read(r#"{"type":"ERROR","object":{"kind":"Status","message":"too old","code":410}}"#);
        let WatchEvent::Error(error) = error else {
            panic!("{error:?}")
        };
        assert!(error.is_expired());
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        for line in [
            "",
            "{}",
            r#"{"type":"NEW","object":{}}"#,
            r#"{"type":"ADDED"}"#,
            "\u{1}",
        ] {
            assert!(
                matches!(read_event(line.as_bytes()), Err(RequestError::Unreadable(_))),
                "{line}"
            );
        }
    }
}
