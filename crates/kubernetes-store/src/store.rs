//! The log in the Kubernetes API, as the store of a shared log has it.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{
    AppendOutcome, AppendRules, Durability, EntryAttempt, LogHead, LogNews, LogPage, LogPlace, SharedLog, SharedStore,
    StoreError, StoredContent, await_service,
};

use crate::KubernetesStoreOptions;
use crate::follower::SlotFollower;
use crate::lease::ServerLease;
use crate::link::{ApiError, ApiLink};
use crate::read::SlotLog;
use crate::slots::SlotTable;

/// Store whose log several servers share in the Kubernetes API.
pub type KubernetesStore = SharedStore<SlotLog>;

impl LogPlace for SlotLog {
    const NAME_SETTING: &'static str = ApiLink::NAME_SETTING;

    fn place(&self) -> String {
        self.link.place()
    }
}

impl SharedLog for SlotLog {
    type Options = KubernetesStoreOptions;
    const DURABILITY: Durability = Durability::Kubernetes;
    const THREAD: &'static str = "pumice-kube";

    fn new(options: KubernetesStoreOptions, server: u64) -> Result<Self, StoreError> {
        Ok(Self {
            link: ApiLink::new(&options),
            slots: Arc::new(SlotTable::default()),
            options: Arc::new(options),
            server,
            follower: Arc::new(OnceLock::new()),
        })
    }

    fn rules(&self) -> AppendRules {
        self.options.rules
    }

    fn snapshot_every(&self) -> u64 {
        self.options.snapshot_every.clamp(1, (self.slots.slots() / 2).max(1))
    }

    fn forget(&self) {
        self.slots.clear();
    }

    async fn await_service(&self) {
        let root = self.link.names.root();
        let ask = || async {
            match self.link.find::<ConfigMap>(&root).await {
                Err(error @ ApiError::Unknown { .. }) => Some(error.message()),
                Ok(_) | Err(_) => None,
            }
        };
        await_service(&self.place(), ask).await;
    }

    async fn load(&self) -> Result<StoredContent, StoreError> {
        self.load_content().await
    }

    async fn head(&self, known: LogHead) -> Result<LogHead, StoreError> {
        self.head_after(known).await
    }

    fn is_ready(&self, sequence: u64) -> bool {
        self.slots.slots() > 0 && self.lap_before(sequence) <= self.slots.snapshot()
    }

    /// Makes the log with the first entry, and the snapshot that the next entry needs: the entry before it in the slot goes.
    async fn make_ready(&self, content: StoredContent) -> Result<(), StoreError> {
        if self.slots.slots() == 0 {
            return self.ensure_made(self.options.slots).await;
        }
        self.cover_slot_of(content.head().sequence + 1, content).await
    }

    async fn append(&self, attempt: EntryAttempt) -> Result<AppendOutcome, StoreError> {
        self.append_entry(attempt).await
    }

    async fn entries_after(&self, head: LogHead) -> Result<LogPage, StoreError> {
        self.entry_after(head).await
    }

    async fn write_snapshot(&self, content: StoredContent) -> Result<(), StoreError> {
        self.make_snapshot(content).await
    }

    async fn mend(&self, content: StoredContent) -> Result<(), StoreError> {
        self.cover(content, false).await
    }

    async fn repair(&self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        self.repair_slots(accept_loss).await
    }

    fn note_applied(&self, sequence: u64) {
        self.slots.drop_applied(sequence);
    }

    async fn register(&self, news: &Arc<LogNews>) -> Result<(), StoreError> {
        news.expect_confirmations(self.options.lease);
        self.follower.get_or_init(|| SlotFollower::new(Arc::clone(news)));
        Ok(())
    }

    async fn follow(&self) {
        if let Some(follower) = self.follower.get() {
            follower
                .follow(self, ServerLease::new(&self.options, self.server))
                .await;
        }
    }

    async fn leave(&self) -> Result<(), StoreError> {
        let name = self.link.names.server(self.server);
        let left = self.link.delete::<Lease>(&name, None).await;
        left.map_err(|error| self.link.error(&error))
    }
}
