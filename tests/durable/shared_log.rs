//! Callers and operators learn that an outcome, or the newest entry of a shared log, is not known.

#![expect(
    clippy::disallowed_types,
    reason = "news of a store, which the test and the server share"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_state::store::{
    Durability, FailingStore, LogHead, LogNews, LogRead, MemoryStore, Store, StoreError, StoreErrorMode, StoreWrite,
    StoredState,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::ledger::{ask, confirm, limited, wants};
use crate::support::records::{full_sync, hypothetical_task, node};
use crate::support::{EmbeddedServer, reason};

const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

fn cluster() -> pb::Cluster {
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "100"), ("pods", "110")])],
        queues: vec![limited("q", 10)],
        ..Default::default()
    }
}

fn feed(server: &EmbeddedServer) {
    let reload = pb::ReloadPolicyRequest {
        document: POLICY.to_owned(),
        ..Default::default()
    };
    server.wire.reload_policy(reload).unwrap();
    server.wire.apply_batch(full_sync("kube", 1, cluster())).unwrap();
}

#[test]
fn an_unknown_outcome_names_the_key_of_its_call() {
    let store = FailingStore::default().replica();
    let server = EmbeddedServer::on_store(ServerConfig::on_free_ports(), Box::new(store.clone()));
    feed(&server);
    store.set_error_mode(StoreErrorMode::LoseReply);
    let request = confirm(vec![ask(wants("ns/a", "q", 4), 1)]);
    let status = server.wire.admit(request.clone()).unwrap_err();
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::Unavailable, "OUTCOME_UNKNOWN")
    );
    assert!(!status.message().contains("nothing was written"), "{status:?}");
    let details = status.get_error_details();
    let key = details.error_info().unwrap().metadata["key"].clone();
    assert_eq!(key, "job `ns/a`, attempt 1");
    assert!(details.retry_info().is_none(), "a client repeats only what it may");
    let again = server.wire.admit(request).unwrap().result.unwrap();
    assert!(again.items[0].permitted);
    let rows = server
        .wire
        .list_reservations(pb::ListReservationsRequest::default())
        .unwrap();
    assert_eq!(rows.reservations.len(), 1, "it is promised once");
}

/// Shared store whose confirmations a test controls.
#[derive(Debug, Default)]
struct SilentStore {
    store: MemoryStore,
    news: Arc<Mutex<Option<Arc<LogNews>>>>,
}

impl Store for SilentStore {
    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        self.store.load()
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        self.store.head()
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.store.append(expected, writes)
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.store.read_after(known)
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        *self.news.lock().unwrap() = Some(Arc::clone(news));
        self.store.follow(news)
    }
}

#[test]
fn a_server_that_cannot_confirm_that_it_is_current_says_so_and_stops_by_setting() {
    for store_stale in [Duration::ZERO, Duration::from_millis(2)] {
        let store = SilentStore {
            store: MemoryStore::default().replica(),
            ..SilentStore::default()
        };
        let shared = Arc::clone(&store.news);
        let mut config = ServerConfig::on_free_ports();
        config.limits.state.store_stale = store_stale;
        let server = EmbeddedServer::on_store(config, Box::new(store));
        feed(&server);
        let news = shared.lock().unwrap().clone().unwrap();
        let filter = pb::FilterRequest {
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            ..Default::default()
        };
        let fresh = server.wire.filter(filter.clone()).unwrap();
        assert_eq!(fresh.metadata.unwrap().warnings, []);
        assert_eq!(server.page("/readyz").0, 200);

        news.expect_confirmations(Duration::from_millis(1));
        news.confirm(Err("no reply".to_owned()));
        std::thread::sleep(Duration::from_millis(10));
        let said = "whether this server has the newest entry has not been known for 0 s: no reply";
        let (status, page) = server.page("/readyz?verbose");
        assert!(page.contains(said), "{page}");
        assert!(server.page("/metrics").1.contains("pumice_store_failing 1"));
        let info = server
            .wire
            .get_server_info(pb::GetServerInfoRequest::default())
            .unwrap();
        assert_eq!(info.store.unwrap().problem, said);
        if store_stale.is_zero() {
            let warnings = server.wire.filter(filter.clone()).unwrap().metadata.unwrap().warnings;
            assert_eq!((status, &*warnings[0].reason), (200, "STORE_STALE"));
        } else {
            let error = server.wire.filter(filter.clone()).unwrap_err();
            assert_eq!(
                (status, error.code(), &*reason(&error)),
                (503, Code::Unavailable, "STORE_STALE")
            );
        }
        news.expect_confirmations(Duration::from_hours(1));
        assert_eq!(server.page("/readyz").0, 200);
        assert_eq!(server.wire.filter(filter).unwrap().metadata.unwrap().warnings, []);
    }
}
