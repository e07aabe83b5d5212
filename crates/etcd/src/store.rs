//! The log in etcd, as the store of a shared log has it.

use std::sync::{Arc, OnceLock};

use pumice_state::store::{
    AppendOutcome, AppendRules, Durability, EntryAttempt, LogHead, LogNews, LogPage, LogPlace, SharedLog, SharedStore,
    StoreError, StoredContent, await_service,
};

use crate::EtcdOptions;
use crate::access::EtcdLog;
use crate::follower::Follower;
use crate::keys::LogKeys;
use crate::link::EtcdLink;

/// Store whose log several servers share in etcd.
pub type EtcdStore = SharedStore<EtcdLog>;

impl LogPlace for EtcdLog {
    const NAME_SETTING: &'static str = "etcd_prefix";

    fn place(&self) -> String {
        self.link.place()
    }
}

impl SharedLog for EtcdLog {
    type Options = EtcdOptions;
    const DURABILITY: Durability = Durability::Etcd;
    const THREAD: &'static str = "pumice-etcd";

    fn new(options: EtcdOptions, server: u64) -> Result<Self, StoreError> {
        let link = EtcdLink::new(&options).map_err(|error| StoreError::Failed {
            place: "etcd".to_owned(),
            message: error.to_string(),
        })?;
        Ok(Self {
            link,
            keys: LogKeys::new(&options.prefix),
            options: Arc::new(options),
            server,
            follower: Arc::new(OnceLock::new()),
        })
    }

    fn rules(&self) -> AppendRules {
        self.options.rules
    }

    fn snapshot_every(&self) -> u64 {
        self.options.snapshot_every
    }

    async fn await_service(&self) {
        let ask = || async {
            match self.link.range((self.keys.head(), Vec::new()), 1, 0).await {
                Err(error) if error.is_unknown() => Some(error),
                Ok(_) | Err(_) => None,
            }
        };
        await_service(&self.place(), ask).await;
    }

    async fn load(&self) -> Result<StoredContent, StoreError> {
        self.load_content().await
    }

    async fn head(&self, _known: LogHead) -> Result<LogHead, StoreError> {
        self.newest_head().await
    }

    async fn append(&self, attempt: EntryAttempt) -> Result<AppendOutcome, StoreError> {
        let Some(follower) = self.follower.get() else {
            let outcome = self.append_as(None, &attempt).await?;
            return Ok(outcome.unwrap_or(AppendOutcome::Stale));
        };
        if let Some(registration) = follower.registration() {
            follower.note_sent(attempt.after);
            if let Some(outcome) = self.append_as(Some(registration), &attempt).await? {
                return Ok(outcome);
            }
        }
        tracing::warn!("the lease of this server in etcd has ended: it reads the log on before it appends again");
        follower.register(self).await.map_err(|error| self.error(&error))?;
        Ok(AppendOutcome::Stale)
    }

    async fn entries_after(&self, head: LogHead) -> Result<LogPage, StoreError> {
        self.page_after(head).await
    }

    async fn write_snapshot(&self, content: StoredContent) -> Result<(), StoreError> {
        self.make_snapshot(content).await
    }

    async fn mend(&self, content: StoredContent) -> Result<(), StoreError> {
        self.cover(content, false).await
    }

    async fn repair(&self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        let Err(problem) = self.load_content().await else {
            return Ok(Vec::new());
        };
        let (content, lost) = self.load_readable().await?;
        let head = content.head();
        if let Some(lost) = lost.filter(|_| !accept_loss) {
            return Err(self.failed(&head.loss(&lost)));
        }
        self.cover(content, true).await?;
        Ok(vec![
            format!("found: {problem}"),
            format!("a snapshot of {head} has taken the place of the entries"),
        ])
    }

    async fn register(&self, news: &Arc<LogNews>) -> Result<(), StoreError> {
        news.expect_confirmations(self.options.lease);
        let new = || Follower::new(Arc::clone(news));
        let registered = self.follower.get_or_init(new).register(self).await;
        registered.map_err(|error| self.error(&error))
    }

    async fn follow(&self) {
        if let Some(follower) = self.follower.get() {
            follower.follow(self).await;
        }
    }

    async fn leave(&self) -> Result<(), StoreError> {
        match self.follower.get() {
            Some(follower) => follower.leave(self).await,
            None => Ok(()),
        }
    }
}
