//! Steps of the tests of the store: it is opened, followed, written and read on.

#![expect(clippy::disallowed_methods, reason = "times are waited for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::{LogHead, LogNews, LogRead, Store as _, StoreWrite};

/// Store that is not loaded yet.
pub(crate) fn open(options: &KubernetesStoreOptions) -> KubernetesStore {
    KubernetesStore::new(options.clone()).unwrap()
}

/// Store that is loaded and followed, and its news.
pub(crate) fn replica(options: &KubernetesStoreOptions) -> (KubernetesStore, LogHead, Arc<LogNews>) {
    let mut store = open(options);
    let (_, head) = store.load().unwrap();
    let news: Arc<LogNews> = Arc::default();
    assert!(store.follow(&news));
    (store, head, news)
}

pub(crate) fn write(name: &str) -> Vec<StoreWrite> {
    vec![StoreWrite::Source {
        name: name.into(),
        is_awaited: true,
    }]
}

/// Tries until it succeeds. If it never does, the store is wrong, however slow the machine.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
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
pub(crate) fn read_on(store: &mut KubernetesStore, head: &mut LogHead) {
    until("the log can be read", || match store.read_after(head).ok()? {
        LogRead::Entries(_, at) | LogRead::Content(_, at) | LogRead::Unacknowledged(at) => {
            *head = at;
            Some(())
        }
    });
}
