//! Frame of `pumice top`: measurements in columns and lines, for any size of the terminal.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget as _};

use super::QueueSort;
use super::dashboard::{DashboardContent, QueueLine, RpcLine};
use pumice_console::output::{self, duration};
use pumice_console::table;

/// Number of RPCs that are listed.
const RPCS_SHOWN: usize = 6;
/// Indent of a continued line of the head, below its words.
const HEAD_INDENT: usize = 10;
/// Width of the column of shares.
const SHARE_WIDTH: usize = 8;
/// Least widths of the columns of queue names, dominant resources and held amounts.
const QUEUE_WIDTHS: [usize; 3] = [20, 16, 20];

/// Choices of the person who watches.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewOptions {
    pub(super) server: String,
    pub(super) sort: QueueSort,
    pub(super) reversed: bool,
    /// Number of queues scrolled past.
    pub(super) scroll_offset: usize,
    pub(super) color: bool,
    /// True: keys are read.
    pub(super) interactive: bool,
    /// Error of the last poll.
    pub(super) last_error: Option<String>,
}

/// Frame as plain text, as high and as wide as its contents, and at least `width` wide: no name is cut.
pub(super) fn text(content: &DashboardContent, ui: &ViewOptions, width: u16) -> String {
    let columns = QueueColumns::of(content, usize::MAX);
    let held = content.queues.iter().map(|queue| held_text(queue).chars().count());
    let queues = columns.before_held() + held.max().unwrap_or(0);
    let widest = head(content, ui).iter().map(|line| line.chars().count()).max();
    let width = usize::from(width).max(queues).max(widest.unwrap_or(0));
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let lines = head(content, ui).len() + content.rpcs.len().min(RPCS_SHOWN) + content.queues.len() + 5;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, u16::try_from(lines).unwrap_or(u16::MAX)));
    render(content, ui, &mut buffer);
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

/// Draws a frame into a whole buffer.
pub(super) fn render(content: &DashboardContent, ui: &ViewOptions, buffer: &mut Buffer) {
    let head = table::wrap(&head(content, ui).join("\n"), buffer.area.width.into(), HEAD_INDENT);
    let head: Vec<&str> = head.lines().collect();
    let rpcs = content.rpcs.len().min(RPCS_SHOWN);
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
    rpc_table(content, ui).render(calls, buffer);
    queue_table(content, ui, queues).render(queues, buffer);
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

fn head(content: &DashboardContent, ui: &ViewOptions) -> Vec<String> {
    let up = content
        .uptime
        .map(|up| format!("  up {}", long_duration(up)))
        .unwrap_or_default();
    let mut lines = vec![
        format!(
            "pumice {} at {}{up}  revision {}",
            content.version, ui.server, content.revision
        ),
        format!("policies  {}", policies_text(content)),
        format!("sources   {}", sources_text(content)),
    ];
    if let Some(trouble) = ui.last_error.as_ref().or(content.metrics_error.as_ref()) {
        lines.push(format!("trouble   {trouble}"));
    }
    if content.metrics_error.is_some() {
        return lines;
    }
    let count = |name: &str| output::number(content.gauge(name));
    lines.push(format!(
        "state     {} nodes  {} queues  {} jobs  {} tasks",
        count("pumice_nodes"),
        count("pumice_queues"),
        count("pumice_jobs"),
        count("pumice_tasks")
    ));
    let cpu = content
        .cpu
        .map(|cpu| format!("  {:.1} % of a processor", cpu * 100.0))
        .unwrap_or_default();
    lines.push(format!(
        "open      {} sessions  {} connections  {} memory{cpu}",
        count("pumice_sessions"),
        count("pumice_connections"),
        output::bytes(content.gauge("process_resident_memory_bytes"))
    ));
    lines.push(format!(
        "work      questions {} + {}  records {} + {}  (running + waiting)  writes waiting {}",
        count("pumice_workers_busy/query"),
        count("pumice_worker_queue/query"),
        count("pumice_workers_busy/records"),
        count("pumice_worker_queue/records"),
        count("pumice_writes_waiting")
    ));
    lines.push(format!("refused   {}", rejections_text(content)));
    lines
}

fn policies_text(content: &DashboardContent) -> String {
    let lines = content.policies.iter().map(|policy| {
        let rejected = if policy.rejected {
            " (the last document was REFUSED)"
        } else {
            ""
        };
        format!("{} version {} {}{rejected}", policy.name, policy.version, policy.hash)
    });
    lines.collect::<Vec<_>>().join("  ")
}

fn sources_text(content: &DashboardContent) -> String {
    if content.sources.is_empty() {
        return "none".to_owned();
    }
    let lines = content.sources.iter().map(|source| {
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

fn rejections_text(content: &DashboardContent) -> String {
    if content.rejections_by_limit.is_empty() {
        return "nothing".to_owned();
    }
    let lines = content
        .rejections_by_limit
        .iter()
        .map(|(limit, count)| format!("{} by {limit}", output::number(*count)));
    lines.collect::<Vec<_>>().join("  ")
}

fn rpc_table(content: &DashboardContent, ui: &ViewOptions) -> Table<'static> {
    let period = match content.period {
        Some(period) => format!("last {:.0} s", period.as_secs_f64()),
        None => "since start".to_owned(),
    };
    let names = content.rpcs.iter().map(|rpc| rpc.name.chars().count());
    let name_width = u16::try_from(names.max().unwrap_or(0).max(18)).unwrap_or(18);
    let widths = [
        Constraint::Length(name_width),
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
    let rows = content.rpcs.iter().take(RPCS_SHOWN).map(|rpc| Row::new(rpc_row(rpc)));
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

/// Cell of a column of numbers.
fn align_right(text: &str) -> String {
    format!("{text:>8}")
}

/// Widths of the columns of queues: as wide as their names, where the frame has the room.
struct QueueColumns {
    name: usize,
    resource: usize,
    held: usize,
}

impl QueueColumns {
    fn of(content: &DashboardContent, width: usize) -> Self {
        let [name, resource, held] = QUEUE_WIDTHS;
        let longest = |least: usize, text: fn(&QueueLine) -> &str| {
            let lengths = content.queues.iter().map(|queue| text(queue).chars().count());
            lengths.max().unwrap_or(0).max(least)
        };
        let spare = width.saturating_sub(name + resource + held + SHARE_WIDTH + 3);
        let own_resource = longest(resource, |queue| &queue.dominant_resource).min(resource.saturating_add(spare));
        let spare = spare.saturating_sub(own_resource - resource);
        let own_name = longest(name, |queue| &queue.name).min(name.saturating_add(spare));
        let mut columns = QueueColumns {
            name: own_name,
            resource: own_resource,
            held,
        };
        columns.held = width.saturating_sub(columns.before_held()).max(held);
        columns
    }

    /// Columns of the frame before the held amounts.
    fn before_held(&self) -> usize {
        self.name + self.resource + SHARE_WIDTH + 3
    }
}

fn queue_table(content: &DashboardContent, ui: &ViewOptions, area: Rect) -> Table<'static> {
    let columns = QueueColumns::of(content, area.width.into());
    let length = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    let widths = [
        length(columns.name),
        length(SHARE_WIDTH),
        length(columns.resource),
        Constraint::Min(20),
    ];
    let head = [
        "QUEUE".to_owned(),
        align_right("SHARE"),
        "BY".to_owned(),
        "HELD / ENTITLED".to_owned(),
    ];
    let sorted = content.sorted(ui.sort, ui.reversed);
    let heights = sorted.iter().map(|queue| row_height(&queue_cells(queue, &columns)));
    let shown = usize::from(area.height.saturating_sub(1)) / heights.max().unwrap_or(1);
    let offset = ui.scroll_offset.min(sorted.len().saturating_sub(shown));
    let rows = sorted.into_iter().skip(offset).take(shown);
    let rows: Vec<Row<'static>> = rows.map(|queue| queue_row(queue, &columns)).collect();
    Table::new(rows, widths)
        .column_spacing(1)
        .header(Row::new(head).style(bold(ui)))
}

/// Held and entitled amounts of a queue, with the plugin that keeps the account.
fn held_text(queue: &QueueLine) -> String {
    if queue.plugin.is_empty() {
        return queue.allocated.clone();
    }
    format!("{}  ({})", queue.allocated, queue.plugin)
}

/// Cells of a queue: texts that are wider than their column continue below.
fn queue_cells(queue: &QueueLine, columns: &QueueColumns) -> [String; 4] {
    let share = queue
        .share
        .map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"));
    [
        split_name(&queue.name, columns.name),
        align_right(&share),
        split_name(&queue.dominant_resource, columns.resource),
        table::wrap(&held_text(queue), columns.held, 0),
    ]
}

fn row_height(cells: &[String; 4]) -> usize {
    cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(1).max(1)
}

fn queue_row(queue: &QueueLine, columns: &QueueColumns) -> Row<'static> {
    let cells = queue_cells(queue, columns);
    let height = row_height(&cells);
    Row::new(cells.map(Cell::new)).height(u16::try_from(height).unwrap_or(1))
}

/// Name in lines of a width.
fn split_name(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    let lines = letters.chunks(width.max(1)).map(|line| line.iter().collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

fn rate_text(rate: f64) -> String {
    if rate >= 100.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

/// Long duration, such as `3h 20m`.
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
    use crate::top::ServerReading;
    use pumice_console::scrape::MetricsPage;
    use pumice_protocol::v1 as pb;

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
        let content = DashboardContent::new(&reading(), None);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| render(&content, ui, frame.buffer_mut())).unwrap();
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
    fn names_are_never_cut() {
        let mut reading = reading();
        let name = "a-team-with-a-name-that-is-far-longer-than-the-column-of-names".to_owned();
        if let Some(queue) = reading.queues.last_mut() {
            queue.accounts[0].dominant_resource = "NVIDIA-H100-80GB-HBM3".to_owned();
            queue.queue.as_mut().unwrap().name.clone_from(&name);
        }
        let content = DashboardContent::new(&reading, None);
        let text = text(&content, &ViewOptions::default(), 40);
        assert!(text.contains(&name) && text.contains("NVIDIA-H100-80GB-HBM3"), "{text}");
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 60));
        render(&content, &ViewOptions::default(), &mut buffer);
        let column = |from: u16, to: u16| -> String {
            let cells = (0..60).flat_map(|y| (from..to).map(move |x| (x, y)));
            cells.map(|at| buffer[at].symbol().trim()).collect()
        };
        assert!(column(0, 29).contains(&name), "continued below: {}", column(0, 29));
    }

    #[test]
    fn text_is_as_high_as_it_needs_to_be() {
        let content = DashboardContent::new(&reading(), None);
        let text = text(&content, &ViewOptions::default(), 100);
        assert_eq!(text.lines().filter(|line| line.starts_with("queue-")).count(), 30);
        assert!(!text.contains("q quit"));
    }
}
