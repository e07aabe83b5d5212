//! The live view: looks come by themselves, keys change what is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::figures::Board;
use super::view::{self, Ui};
use super::{Look, Lookout, Sort};
use crate::cli::Failure;

/// How often the reader of keys sees whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);
/// Least time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// Shows the server until a key ends it.
pub(super) async fn run(lookout: Lookout, first: Look, ui: Ui, interval: Duration) -> Result<(), Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut terminal = ratatui::try_init()?;
    let events = events(Arc::clone(&ended));
    let looks = looks(lookout, interval.max(SHORTEST));
    let shown = show(&mut terminal, first, ui, events, looks).await;
    ended.store(true, Ordering::Relaxed);
    ratatui::try_restore()?;
    shown
}

/// What a person does, read on a thread of its own: the terminal can only be waited for.
fn events(ended: Arc<AtomicBool>) -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let happened = event::poll(POLL).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) });
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

/// Looks at the server, again and again; one that fails is no end.
fn looks(mut lookout: Lookout, interval: Duration) -> mpsc::Receiver<Result<Look, Failure>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if sender.send(lookout.look().await).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn show(
    terminal: &mut DefaultTerminal,
    first: Look,
    mut ui: Ui,
    mut events: mpsc::Receiver<Event>,
    mut looks: mpsc::Receiver<Result<Look, Failure>>,
) -> Result<(), Failure> {
    ui.live = true;
    let mut board = Board::new(&first, None);
    let mut last = first;
    loop {
        terminal.draw(|frame| view::render(&board, &ui, frame.buffer_mut()))?;
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => if !press(key, &mut ui, board.queues.len()) {
                    return Ok(());
                },
                Some(_) => {}
                None => return Ok(()),
            },
            look = looks.recv() => match look {
                Some(Ok(look)) => {
                    ui.trouble = None;
                    board = Board::new(&look, Some(&last));
                    last = look;
                }
                Some(Err(failure)) => ui.trouble = failure.to_string().lines().next().map(str::to_owned),
                None => return Ok(()),
            },
        }
    }
}

/// What a key does; false: the end.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever keys there are besides do nothing"
)]
fn press(key: KeyEvent, ui: &mut Ui, queues: usize) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('s') => {
            ui.sort = match ui.sort {
                Sort::Share => Sort::Name,
                Sort::Name => Sort::Share,
            }
        }
        KeyCode::Char('r') => ui.reversed = !ui.reversed,
        KeyCode::Down | KeyCode::Char('j') => ui.offset = ui.offset.saturating_add(1).min(queues.saturating_sub(1)),
        KeyCode::Up | KeyCode::Char('k') => ui.offset = ui.offset.saturating_sub(1),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_turn_scroll_and_end() {
        let mut ui = Ui::default();
        let mut press = |code| press(KeyEvent::from(code), &mut ui, 2).then_some((ui.sort, ui.reversed, ui.offset));
        assert_eq!(press(KeyCode::Char('s')), Some((Sort::Name, false, 0)));
        assert_eq!(press(KeyCode::Char('r')), Some((Sort::Name, true, 0)));
        assert_eq!(press(KeyCode::Down), Some((Sort::Name, true, 1)));
        assert_eq!(press(KeyCode::Down), Some((Sort::Name, true, 1)));
        assert_eq!(press(KeyCode::Up), Some((Sort::Name, true, 0)));
        assert_eq!(press(KeyCode::Char('x')), Some((Sort::Name, true, 0)));
        assert_eq!(press(KeyCode::Char('q')), None);
        assert_eq!(press(KeyCode::Esc), None);
    }
}
