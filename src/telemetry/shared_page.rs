//! Maker of the page of metrics: one page at a time, shared by all who wait for it.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{mpsc, oneshot};

/// Number of scrapes that may wait for the maker; more wait for a place among them.
const WAITING_SCRAPES: usize = 64;

type PageSender = oneshot::Sender<Bytes>;

/// Handle to the maker of the page. The maker ends with the last handle.
#[derive(Clone, Debug)]
pub struct SharedPage {
    scrapes: mpsc::Sender<PageSender>,
}

impl SharedPage {
    /// Starts the maker, whose pages `encode` writes on a blocking thread.
    pub fn start(encode: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static) -> Self {
        let (scrapes, waiting) = mpsc::channel(WAITING_SCRAPES);
        pumice_state::tasks::spawn(make_pages(waiting, Arc::new(encode)));
        Self { scrapes }
    }

    /// Page that was begun after this call; `None` if it cannot be made. A caller that gives up costs nothing.
    pub async fn get(&self) -> Option<Bytes> {
        let (page, made) = oneshot::channel();
        self.scrapes.send(page).await.ok()?;
        made.await.ok()
    }
}

async fn make_pages<F>(mut scrapes: mpsc::Receiver<PageSender>, encode: Arc<F>)
where
    F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
{
    while let Some(first) = scrapes.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = scrapes.try_recv() {
            waiting.push(next);
        }
        waiting.retain(|scrape| !scrape.is_closed());
        if waiting.is_empty() {
            continue;
        }
        let encode = Arc::clone(&encode);
        if let Ok(Ok(text)) = pumice_state::tasks::run_blocking(move || encode()).await {
            let page = Bytes::from(text);
            for scrape in waiting {
                // A caller that has given up meanwhile needs no page.
                let _ = scrape.send(page.clone());
            }
        } else {
            // The callers see that their senders are dropped.
            tracing::error!("metrics cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc as blocking;

    use super::*;
    use pumice_engine::short_lock::ShortLock;

    #[tokio::test]
    async fn scrapes_share_a_page_and_those_given_up_make_none() {
        let made = Arc::new(AtomicUsize::new(0));
        let (open, closed) = blocking::channel::<()>();
        let (count, closed) = (Arc::clone(&made), ShortLock::new(closed));
        let page = SharedPage::start(move || {
            // The first page waits; when the sender is gone, nothing waits.
            let _ = closed.with(|closed| closed.recv());
            Ok(count.fetch_add(1, Ordering::Relaxed).to_string())
        });
        let ask = || {
            let page = page.clone();
            tokio::spawn(async move { page.get().await })
        };
        let first = ask();
        tokio::task::yield_now().await;
        let given_up: Vec<_> = (0..30).map(|_| ask()).collect();
        let sharing: Vec<_> = (0..30).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        for scrape in given_up {
            scrape.abort();
            assert!(scrape.await.is_err());
        }
        drop(open);
        assert_eq!(first.await.unwrap().unwrap(), "0");
        for scrape in sharing {
            assert_eq!(scrape.await.unwrap().unwrap(), "1");
        }
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
