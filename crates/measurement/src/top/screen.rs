//! Live view: polls run in the background, keys change the view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::dashboard::DashboardContent;
use super::view::{self, ViewOptions};
use super::{QueueSort, ServerPoller, ServerReading};
use pumice_console::CommandError;

/// Interval at which the reader of keys checks whether the view has ended.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Least time between two polls.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the server until a key ends it.
pub(super) async fn run(
    lookout: ServerPoller,
    first: ServerReading,
    ui: ViewOptions,
    interval: Duration,
) -> Result<(), CommandError> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut terminal = ratatui::try_init()?;
    let events = terminal_events(Arc::clone(&ended));
    let looks = server_readings(lookout, interval.max(MIN_INTERVAL));
    let shown = event_loop(&mut terminal, first, ui, events, looks).await;
    ended.store(true, Ordering::Relaxed);
    ratatui::try_restore()?;
    shown
}

/// Events of the terminal, read on a thread of its own because the read blocks.
fn terminal_events(ended: Arc<AtomicBool>) -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let happened =
                event::poll(KEY_POLL_INTERVAL).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) });
            match happened {
                Ok(None) => {}
                Ok(Some(event)) => {
                    if sender.blocking_send(event).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    });
    receiver
}

/// Polls of the server at an interval. A failed poll does not end them.
fn server_readings(
    mut lookout: ServerPoller,
    interval: Duration,
) -> mpsc::Receiver<Result<ServerReading, CommandError>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if sender.send(lookout.poll().await).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn event_loop(
    terminal: &mut DefaultTerminal,
    first: ServerReading,
    mut ui: ViewOptions,
    mut events: mpsc::Receiver<Event>,
    mut looks: mpsc::Receiver<Result<ServerReading, CommandError>>,
) -> Result<(), CommandError> {
    ui.interactive = true;
    let mut content = DashboardContent::new(&first, None);
    let mut last = first;
    loop {
        terminal.draw(|frame| view::render(&content, &ui, frame.buffer_mut()))?;
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => if !handle_key(key, &mut ui, content.queues.len()) {
                    return Ok(());
                },
                Some(_) => {}
                None => return Ok(()),
            },
            look = looks.recv() => match look {
                Some(Ok(look)) => {
                    ui.last_error = None;
                    content = DashboardContent::new(&look, Some(&last));
                    last = look;
                }
                Some(Err(failure)) => ui.last_error = failure.to_string().lines().next().map(str::to_owned),
                None => return Ok(()),
            },
        }
    }
}

/// Handles a key; false ends the view.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other keys do nothing")]
fn handle_key(key: KeyEvent, ui: &mut ViewOptions, queues: usize) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('s') => {
            ui.sort = match ui.sort {
                QueueSort::Share => QueueSort::Name,
                QueueSort::Name => QueueSort::Share,
            }
        }
        KeyCode::Char('r') => ui.reversed = !ui.reversed,
        KeyCode::Down | KeyCode::Char('j') => {
            ui.scroll_offset = ui.scroll_offset.saturating_add(1).min(queues.saturating_sub(1));
        }
        KeyCode::Up | KeyCode::Char('k') => ui.scroll_offset = ui.scroll_offset.saturating_sub(1),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_reverse_scroll_and_quit() {
        let mut ui = ViewOptions::default();
        let mut press =
            |code| handle_key(KeyEvent::from(code), &mut ui, 2).then_some((ui.sort, ui.reversed, ui.scroll_offset));
        assert_eq!(press(KeyCode::Char('s')), Some((QueueSort::Name, false, 0)));
        assert_eq!(press(KeyCode::Char('r')), Some((QueueSort::Name, true, 0)));
        assert_eq!(press(KeyCode::Down), Some((QueueSort::Name, true, 1)));
        assert_eq!(press(KeyCode::Down), Some((QueueSort::Name, true, 1)));
        assert_eq!(press(KeyCode::Up), Some((QueueSort::Name, true, 0)));
        assert_eq!(press(KeyCode::Char('x')), Some((QueueSort::Name, true, 0)));
        assert_eq!(press(KeyCode::Char('q')), None);
        assert_eq!(press(KeyCode::Esc), None);
    }
}
