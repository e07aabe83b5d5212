//! Metrics of the verdicts that queries use again.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use pumice_engine::decide::{VerdictCache, VerdictCacheUse};

/// Metrics of the cache of verdicts.
#[derive(Debug, Default)]
pub(super) struct VerdictGauges(OnceLock<Arc<VerdictCache>>);

impl VerdictGauges {
    /// Shows this cache from now on.
    pub(super) fn follow(&self, cache: Arc<VerdictCache>) {
        // A server has one cache.
        let _ = self.0.set(cache);
    }

    /// Writes the metrics as OpenMetrics text.
    pub(super) fn write(&self, text: &mut String) -> fmt::Result {
        self.0.get().map_or(Ok(()), |cache| write(text, cache.usage()))
    }
}

fn write(text: &mut String, usage: VerdictCacheUse) -> fmt::Result {
    let VerdictCacheUse {
        bytes,
        classes,
        reused_chunks,
        judged_chunks,
    } = usage;
    text.push_str(
        "# HELP pumice_verdict_cache_bytes Memory of the verdicts on chunks of nodes that later queries use again.\n",
    );
    text.push_str("# TYPE pumice_verdict_cache_bytes gauge\n# UNIT pumice_verdict_cache_bytes bytes\n");
    writeln!(text, "pumice_verdict_cache_bytes {bytes}")?;
    text.push_str("# HELP pumice_verdict_cache_classes Task classes with such verdicts.\n# TYPE pumice_verdict_cache_classes gauge\n");
    writeln!(text, "pumice_verdict_cache_classes {classes}")?;
    text.push_str("# HELP pumice_verdict_cache_chunks Filters or scores of a chunk for a class that has such verdicts: used again, or computed.\n");
    text.push_str("# TYPE pumice_verdict_cache_chunks counter\n");
    writeln!(
        text,
        "pumice_verdict_cache_chunks_total{{result=\"reused\"}} {reused_chunks}"
    )?;
    writeln!(
        text,
        "pumice_verdict_cache_chunks_total{{result=\"judged\"}} {judged_chunks}"
    )
}
