//! Metrics of the watched cluster.

use std::fmt::{self, Write as _};

use pumice_live::{ClusterStatus, ResourceCondition, ResourceStatus};

/// Writes the metrics as OpenMetrics text.
pub(super) fn write(text: &mut String, status: &ClusterStatus) -> fmt::Result {
    let ClusterStatus {
        resources,
        behind,
        problem: _,
        full_syncs,
        unreadable_objects,
    } = status;
    let behind = behind.unwrap_or_default().as_secs_f64();
    text.push_str(
        "# HELP pumice_cluster_behind_seconds Time for which changes of the watched cluster may be missing.\n",
    );
    text.push_str("# TYPE pumice_cluster_behind_seconds gauge\n# UNIT pumice_cluster_behind_seconds seconds\n");
    writeln!(text, "pumice_cluster_behind_seconds {behind}")?;
    text.push_str("# HELP pumice_cluster_watched 1 if the changes of the resource arrive, else 0.\n# TYPE pumice_cluster_watched gauge\n");
    for ResourceStatus { name, condition, .. } in resources {
        let watched = u8::from(*condition == ResourceCondition::Watching);
        writeln!(text, "pumice_cluster_watched{{resource=\"{name}\"}} {watched}")?;
    }
    text.push_str("# HELP pumice_cluster_events Changes of the resource that arrived, without those of lists.\n# TYPE pumice_cluster_events counter\n");
    for ResourceStatus { name, events, .. } in resources {
        writeln!(text, "pumice_cluster_events_total{{resource=\"{name}\"}} {events}")?;
    }
    text.push_str("# HELP pumice_cluster_full_syncs Full syncs of the watched cluster.\n# TYPE pumice_cluster_full_syncs counter\n");
    writeln!(text, "pumice_cluster_full_syncs_total {full_syncs}")?;
    text.push_str("# HELP pumice_cluster_unreadable_objects Objects of the watched cluster that could not be read.\n# TYPE pumice_cluster_unreadable_objects counter\n");
    writeln!(text, "pumice_cluster_unreadable_objects_total {unreadable_objects}")
}
