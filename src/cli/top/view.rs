//! A frame: figures laid out in columns and lines, however small the terminal is.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget as _};

use super::QueueSort;
use super::dashboard::{DashboardContent, QueueLine, RpcLine};
use crate::cli::output::{self, duration};

/// Most calls that are listed.
const RPCS_SHOWN: usize = 6;

/// What the person who looks has chosen.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewOptions {
    pub(super) server: String,
    pub(super) sort: QueueSort,
    pub(super) reversed: bool,
    /// Queues that are scrolled past.
    pub(super) scroll_offset: usize,
    pub(super) color: bool,
    /// Keys are of use.
    pub(super) interactive: bool,
    /// What went wrong with the last look.
    pub(super) last_error: Option<String>,
}

/// A frame as plain text, as high as it needs to be.
pub(super) fn text(board: &DashboardContent, ui: &ViewOptions, width: u16) -> String {
    let lines = head(board, ui).len() + board.rpcs.len().min(RPCS_SHOWN) + board.queues.len() + 5;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, u16::try_from(lines).unwrap_or(u16::MAX)));
    render(board, ui, &mut buffer);
    let lines = (0..buffer.area.height).map(|y| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        cells
            .map(ratatui::buffer::Cell::symbol)
            .collect::<String>()
            .trim_end()
            .to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    format!("{}\n", text.trim_end())
}

/// Draws a frame into all of a buffer.
pub(super) fn render(board: &DashboardContent, ui: &ViewOptions, buffer: &mut Buffer) {
    let head = head(board, ui);
    let rpcs = board.rpcs.len().min(RPCS_SHOWN);
    let length = |lines: usize| Constraint::Length(u16::try_from(lines).unwrap_or(u16::MAX));
    let foot = usize::from(ui.interactive);
    let areas = [
        length(head.len()),
        length(1),
        length(rpcs + 1),
        length(1),
        Constraint::Min(0),
        length(foot),
    ];
    let [top, _, calls, _, queues, bottom] = Layout::vertical(areas).areas(buffer.area);
    Paragraph::new(head.join("\n")).render(top, buffer);
    rpc_table(board, ui).render(calls, buffer);
    queue_table(board, ui, queues.height).render(queues, buffer);
    if ui.interactive {
        let sort = match ui.sort {
            QueueSort::Share => "share",
            QueueSort::Name => "name",
        };
        let keys = format!("q quit   s sort (by {sort})   r reverse   ↑ ↓ scroll");
        Paragraph::new(keys).style(bold(ui)).render(bottom, buffer);
    }
}

fn bold(ui: &ViewOptions) -> Style {
    if ui.interactive || ui.color {
        Style::new().add_modifier(Modifier::BOLD)
    } else {
        Style::new()
    }
}

fn head(board: &DashboardContent, ui: &ViewOptions) -> Vec<String> {
    let up = board
        .uptime
        .map(|up| format!("  up {}", long_duration(up)))
        .unwrap_or_default();
    let mut lines = vec![
        format!(
            "pumice {} at {}{up}  revision {}",
            board.version, ui.server, board.revision
        ),
        format!("policies  {}", policies_text(board)),
        format!("sources   {}", sources_text(board)),
    ];
    if let Some(trouble) = ui.last_error.as_ref().or(board.metrics_error.as_ref()) {
        lines.push(format!("trouble   {trouble}"));
    }
    if board.metrics_error.is_some() {
        return lines;
    }
    let count = |name: &str| output::number(board.gauge(name));
    lines.push(format!(
        "state     {} nodes  {} queues  {} jobs  {} tasks",
        count("pumice_nodes"),
        count("pumice_queues"),
        count("pumice_jobs"),
        count("pumice_tasks")
    ));
    let cpu = board
        .cpu
        .map(|cpu| format!("  {:.1} % of a processor", cpu * 100.0))
        .unwrap_or_default();
    lines.push(format!(
        "open      {} sessions  {} connections  {} memory{cpu}",
        count("pumice_sessions"),
        count("pumice_connections"),
        output::bytes(board.gauge("process_resident_memory_bytes"))
    ));
    lines.push(format!(
        "work      questions {} + {}  records {} + {}  (running + waiting)  writes waiting {}",
        count("pumice_workers_busy/query"),
        count("pumice_worker_queue/query"),
        count("pumice_workers_busy/records"),
        count("pumice_worker_queue/records"),
        count("pumice_writes_waiting")
    ));
    lines.push(format!("refused   {}", rejections_text(board)));
    lines
}

fn policies_text(board: &DashboardContent) -> String {
    let lines = board.policies.iter().map(|policy| {
        let rejected = if policy.rejected {
            " (the last document was REFUSED)"
        } else {
            ""
        };
        format!("{} version {} {}{rejected}", policy.name, policy.version, policy.hash)
    });
    lines.collect::<Vec<_>>().join("  ")
}

fn sources_text(board: &DashboardContent) -> String {
    if board.sources.is_empty() {
        return "none".to_owned();
    }
    let lines = board.sources.iter().map(|source| {
        let synced = match (source.synced, source.stale) {
            (true, _) => "synced",
            (false, true) => "STALE",
            (false, false) => "NOT SYNCED",
        };
        let silence = source
            .last_heard_seconds
            .map(|seconds| format!(", heard {seconds} s ago"))
            .unwrap_or_default();
        format!("{} {synced}{silence}", source.name)
    });
    lines.collect::<Vec<_>>().join("  ")
}

fn rejections_text(board: &DashboardContent) -> String {
    if board.rejections_by_limit.is_empty() {
        return "nothing".to_owned();
    }
    let lines = board
        .rejections_by_limit
        .iter()
        .map(|(limit, count)| format!("{} by {limit}", output::number(*count)));
    lines.collect::<Vec<_>>().join("  ")
}

fn rpc_table(board: &DashboardContent, ui: &ViewOptions) -> Table<'static> {
    let period = match board.period {
        Some(period) => format!("last {:.0} s", period.as_secs_f64()),
        None => "since start".to_owned(),
    };
    let widths = [
        Constraint::Length(18),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Min(8),
    ];
    let head = [
        format!("RPC ({period})"),
        align_right("CALLS/S"),
        align_right("TASKS/S"),
        align_right("P50"),
        align_right("P99"),
        align_right("FAILED"),
    ];
    let rows = board.rpcs.iter().take(RPCS_SHOWN).map(|rpc| Row::new(rpc_row(rpc)));
    Table::new(rows, widths)
        .column_spacing(1)
        .header(Row::new(head).style(bold(ui)))
}

fn rpc_row(rpc: &RpcLine) -> [String; 6] {
    let latency = |latency: Option<f64>| latency.map_or_else(|| "-".to_owned(), duration);
    [
        rpc.name.clone(),
        align_right(&rate_text(rpc.calls)),
        align_right(&rate_text(rpc.tasks)),
        align_right(&latency(rpc.p50)),
        align_right(&latency(rpc.p99)),
        align_right(&output::number(rpc.failed)),
    ]
}

/// A column of figures.
fn align_right(text: &str) -> String {
    format!("{text:>8}")
}

fn queue_table(board: &DashboardContent, ui: &ViewOptions, height: u16) -> Table<'static> {
    let widths = [
        Constraint::Length(20),
        Constraint::Length(8),
        Constraint::Length(16),
        Constraint::Min(20),
    ];
    let head = [
        "QUEUE".to_owned(),
        align_right("SHARE"),
        "BY".to_owned(),
        "HELD / ENTITLED".to_owned(),
    ];
    let sorted = board.sorted(ui.sort, ui.reversed);
    let shown = usize::from(height.saturating_sub(1));
    let offset = ui.scroll_offset.min(sorted.len().saturating_sub(shown));
    let rows: Vec<Row<'static>> = sorted.into_iter().skip(offset).take(shown).map(queue_row).collect();
    Table::new(rows, widths)
        .column_spacing(1)
        .header(Row::new(head).style(bold(ui)))
}

fn queue_row(queue: &QueueLine) -> Row<'static> {
    let share = queue
        .share
        .map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"));
    let plugin = if queue.plugin.is_empty() {
        String::new()
    } else {
        format!("  ({})", queue.plugin)
    };
    Row::new([
        Cell::new(queue.name.clone()),
        Cell::new(align_right(&share)),
        Cell::new(queue.dominant_resource.clone()),
        Cell::new(format!("{}{plugin}", queue.allocated)),
    ])
}

fn rate_text(rate: f64) -> String {
    if rate >= 100.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

/// A long time, such as `3h 20m`.
fn long_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, ..) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::cli::scrape::MetricsPage;
    use crate::cli::top::ServerReading;
    use crate::server::pb;

    fn reading() -> ServerReading {
        let queue = |number: u32| pb::QueueStatus {
            queue: Some(pb::Queue {
                name: format!("queue-{number:02}"),
                ..pb::Queue::default()
            }),
            accounts: vec![pb::Account {
                plugin: "capacity-card".to_owned(),
                share: f64::from(number) / 10.0,
                dominant_resource: "nvidia.com/gpu".to_owned(),
                allocated: vec![pb::Amount {
                    resource: "cpu".to_owned(),
                    value: 8000.0,
                }],
                deserved: vec![pb::Amount {
                    resource: "cpu".to_owned(),
                    value: 16_000.0,
                }],
                ..pb::Account::default()
            }],
            ..pb::QueueStatus::default()
        };
        ServerReading {
            info: pb::GetServerInfoResponse {
                version: "1.2.3".to_owned(),
                policies: vec!["default".to_owned()],
                ..pb::GetServerInfoResponse::default()
            },
            queues: (0..30).map(queue).collect(),
            metrics: Ok(MetricsPage::parse(
                "process_uptime_seconds 7300\npumice_nodes 12\npumice_limit_rejections_total{limit=\"calls\"} 3\n\
                 pumice_policy_info{policy=\"default\",version=\"4\",hash=\"0123456789abcdef\"} 1\n\
                 pumice_policy_rejected{policy=\"default\"} 1\n\
                 pumice_calls_total{rpc=\"Filter\",code=\"OK\"} 73000\n",
            )),
        }
    }

    fn drawn(ui: &ViewOptions, width: u16, height: u16) -> Vec<String> {
        let board = DashboardContent::new(&reading(), None);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| render(&board, ui, frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_small_terminal_holds_head_calls_queues_and_keys() {
        let ui = ViewOptions {
            server: "127.0.0.1:7461".to_owned(),
            interactive: true,
            ..ViewOptions::default()
        };
        let lines = drawn(&ui, 80, 24);
        assert_eq!(lines[0], "pumice 1.2.3 at 127.0.0.1:7461  up 2h 1m  revision 0");
        assert_eq!(
            lines[1],
            "policies  default version 4 0123456789ab (the last document was REFUSED)"
        );
        assert_eq!(lines[6], "refused   3 by calls");
        assert!(lines[8].starts_with("RPC (since start)   CALLS/S"), "{lines:#?}");
        assert!(lines[9].starts_with("Filter                 10.0"), "{lines:#?}");
        assert!(lines[11].starts_with("QUEUE                   SHARE BY"), "{lines:#?}");
        let first = "queue-29                2.900 nvidia.com/gpu   cpu 8/16  (capacity-card)";
        assert_eq!(lines[12], first);
        assert_eq!(
            lines[22],
            "queue-19                1.900 nvidia.com/gpu   cpu 8/16  (capacity-card)"
        );
        assert!(lines[23].starts_with("q quit   s sort (by share)"), "{lines:#?}");
    }

    #[test]
    fn queues_scroll_and_reverse() {
        let ui = ViewOptions {
            sort: QueueSort::Name,
            scroll_offset: 100,
            interactive: true,
            ..ViewOptions::default()
        };
        let lines = drawn(&ui, 80, 24);
        assert!(
            lines[22].starts_with("queue-29"),
            "no further than to the end: {lines:#?}"
        );
        let lines = drawn(
            &ViewOptions {
                reversed: true,
                scroll_offset: 0,
                ..ui
            },
            80,
            24,
        );
        assert!(lines[12].starts_with("queue-29"), "{lines:#?}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let ui = ViewOptions {
            interactive: true,
            ..ViewOptions::default()
        };
        for (width, height) in [(1, 1), (10, 5), (80, 8), (300, 100)] {
            assert_eq!(drawn(&ui, width, height).len(), usize::from(height));
        }
    }

    #[test]
    fn text_is_as_high_as_it_needs_to_be() {
        let board = DashboardContent::new(&reading(), None);
        let text = text(&board, &ViewOptions::default(), 100);
        assert_eq!(text.lines().filter(|line| line.starts_with("queue-")).count(), 30);
        assert!(!text.contains("q quit"));
    }
}
