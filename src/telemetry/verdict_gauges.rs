//! Metrics of the verdicts that queries use again.

use std::fmt::{self, Write as _};

use pumice_engine::decide::VerdictCacheUse;

/// Writes the metrics as OpenMetrics text.
pub(super) fn write(text: &mut String, usage: VerdictCacheUse) -> fmt::Result {
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
