//! Steps of the tests of a store: it is followed, written and read on.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "checks, which panic when they fail and wait for times"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::store::{LogHead, LogNews, LogRead, Store, StoreWrite};

/// Write of an entry that a name tells from others.
pub fn write(name: &str) -> Vec<StoreWrite> {
    vec![StoreWrite::Source {
        name: name.into(),
        is_awaited: true,
    }]
}

/// Loads and follows a store. Returns it with its head and its news.
pub fn followed<S: Store>(mut store: S) -> (S, LogHead, Arc<LogNews>) {
    let (_, head) = store.load().unwrap();
    let news: Arc<LogNews> = Arc::default();
    assert!(store.follow(&news));
    (store, head, news)
}

/// Tries until it succeeds. If it never does, the store is wrong, however slow the machine.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads on until the log can be read.
pub fn read_on(store: &mut dyn Store, head: &mut LogHead) {
    until("the log can be read", || match store.read_after(head).ok()? {
        LogRead::Entries(_, at) | LogRead::Content(_, at) | LogRead::Unacknowledged(at) => {
            *head = at;
            Some(())
        }
    });
}
