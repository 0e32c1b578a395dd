//! Watches the cluster: a full-screen view on a terminal, otherwise one line per change of the summary.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use capstan_inspect::snapshot::Watch;
use capstan_inspect::status::text::{self, Tone};
use capstan_inspect::status::{self, Summary, Tree, tree};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};
use serde_json::json;
use tokio::sync::mpsc;

use super::code;
use crate::show::{self, Format};
use crate::source::Source;

/// Minimum interval between two redraws.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);
/// The tree of a large cluster takes a while to compute: pause this many times as long, to leave CPU to others.
const IDLE_FACTOR: u32 = 4;

pub(super) async fn run(source: &Source, format: Format) -> Result<ExitCode> {
    if format == Format::Yaml {
        bail!("--watch tells changes line by line: use -o json or -o text");
    }
    let mut watch = Watch::start(&source.client().await?, &status::kinds()).await?;
    let first = tree(watch.next().await.map_err(|why| anyhow!("cannot look at the cluster: {why}"))?);
    if format == Format::Text && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return full_screen(watch, first).await;
    }
    tokio::select! {
        end = lines(watch, first, format) => end,
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a line whenever the summary changes.
async fn lines(mut watch: Watch, first: Tree, format: Format) -> Result<ExitCode> {
    let mut printed: Option<Result<Summary, String>> = None;
    let mut next = Ok(first.verdict);
    loop {
        if printed.as_ref() != Some(&next) {
            let (ready, text) = match &next {
                Ok(verdict) => (Some(verdict.ready), verdict.text.clone()),
                Err(why) => (None, format!("unknown: {why}")),
            };
            show::print(&match format {
                Format::Json => {
                    let time = k8s_openapi::jiff::Timestamp::now();
                    json!({"time": time, "ready": ready, "verdict": text}).to_string() + "\n"
                }
                _ => text + "\n",
            })?;
            printed = Some(next);
        }
        next = next_tree(&mut watch).await.map(|tree| tree.verdict);
    }
}

/// The tree after the next change, rate-limited. An unreachable cluster does not end the watch.
async fn next_tree(watch: &mut Watch) -> Result<Tree, String> {
    let snapshot = watch.next().await?;
    let begin = Instant::now();
    let tree = tree(snapshot);
    tokio::time::sleep((begin.elapsed() * IDLE_FACTOR).max(REDRAW_INTERVAL)).await;
    Ok(tree)
}

/// Keyboard and terminal events.
enum Key {
    Quit,
    /// Scroll by this many lines.
    Move(i16),
    /// The terminal was resized.
    Redraw,
}

async fn full_screen(mut watch: Watch, first: Tree) -> Result<ExitCode> {
    let (updates, mut update_receiver) = mpsc::channel(1);
    let watching = tokio::spawn(async move { while updates.send(next_tree(&mut watch).await).await.is_ok() {} });
    let (keys, mut pressed) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(key) = key(&event)
                && keys.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    let mut terminal = ratatui::try_init()?;
    let mut view = View { tree: first, error_message: None, top: 0 };
    let mut changed = true;
    let end = loop {
        if changed && let Err(error) = terminal.draw(|frame| view.draw(frame)) {
            break Err(error);
        }
        changed = true;
        tokio::select! {
            next = update_receiver.recv() => match next {
                Some(next) => changed = view.show(next),
                None => break Ok(()),
            },
            key = pressed.recv() => match key {
                Some(Key::Move(lines)) => view.top = view.top.saturating_add_signed(lines),
                Some(Key::Redraw) => {}
                Some(Key::Quit) | None => break Ok(()),
            },
        }
    };
    watching.abort();
    ratatui::restore();
    end?;
    Ok(code(view.tree.verdict.ready))
}

fn key(event: &Event) -> Option<Key> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        Event::Resize(..) => return Some(Key::Redraw),
        _ => return None,
    };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Move(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Move(-1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(Key::Move(20)),
        KeyCode::PageUp => Some(Key::Move(-20)),
        KeyCode::Home => Some(Key::Move(i16::MIN)),
        _ => None,
    }
}

/// State of the screen.
struct View {
    tree: Tree,
    /// Why the last update failed, if so: the view is stale.
    error_message: Option<String>,
    /// First visible line.
    top: u16,
}

impl View {
    /// Applies an update; returns whether anything changed.
    fn show(&mut self, next: Result<Tree, String>) -> bool {
        match next {
            Ok(tree) if self.error_message.is_none() && self.tree == tree => return false,
            Ok(tree) => (self.tree, self.error_message) = (tree, None),
            Err(why) if self.error_message.as_ref() == Some(&why) => return false,
            Err(why) => self.error_message = Some(why),
        }
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let lines: Vec<Line<'_>> = text::lines(&self.tree).into_iter().map(line).collect();
        let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        let width = usize::from(body.width.max(1));
        let rows: usize = lines.iter().map(|line| line.width().div_ceil(width).max(1)).sum();
        self.top = self.top.min(u16::try_from(rows).unwrap_or(u16::MAX).saturating_sub(body.height));
        frame.render_widget(Paragraph::new(Text::from(lines)).wrap(Wrap { trim: false }).scroll((self.top, 0)), body);
        let note = match &self.error_message {
            Some(why) => Line::styled(format!("not up to date: {why}"), Style::new().fg(Color::Red)),
            None => Line::styled("q ends, arrows scroll", Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(note, foot);
    }
}

fn line(pieces: text::Line) -> Line<'static> {
    let span = |(tone, text): text::Piece| {
        let style = match tone {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
            Tone::Good => Style::new().fg(Color::Green),
            Tone::Waiting => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red),
        };
        Span::styled(text, style)
    };
    Line::from(pieces.into_iter().map(span).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use capstan_inspect::Snapshot;

    fn screen(view: &mut View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(40, 4)).expect("a screen in memory");
        let drawn = terminal.draw(|frame| view.draw(frame)).expect("it draws");
        drawn.buffer.content().iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn a_small_screen_shows_the_verdict_first_and_scrolls_to_the_end() {
        let mut view = View { tree: tree(&Snapshot::default()), error_message: None, top: 0 };
        let begin = screen(&mut view);
        assert!(begin.starts_with("not ready: Capstan is not installed: the"), "{begin}");
        assert!(begin.contains("q ends"), "{begin}");
        view.top = u16::MAX;
        let end = screen(&mut view);
        assert!(end.contains("operator  in no pod of this cluster"), "{end}");
    }

    #[test]
    fn a_cluster_that_does_not_answer_leaves_the_last_picture() {
        let mut view = View { tree: tree(&Snapshot::default()), error_message: Some("gone".into()), top: 0 };
        let drawn = screen(&mut view);
        assert!(drawn.contains("not ready") && drawn.contains("not up to date: gone"), "{drawn}");
    }

    #[test]
    fn only_what_differs_is_drawn() {
        let same = || tree(&Snapshot::default());
        let mut view = View { tree: same(), error_message: None, top: 0 };
        let updates = [Ok(same()), Err("gone".into()), Err("gone".into()), Ok(same()), Ok(same())];
        assert_eq!(updates.map(|look| view.show(look)), [false, true, false, true, false]);
    }

    #[test]
    fn q_ends_and_other_letters_do_nothing() {
        let pressed = |code| key(&Event::Key(event::KeyEvent::new(code, KeyModifiers::NONE)));
        assert!(matches!(pressed(KeyCode::Char('q')), Some(Key::Quit)));
        assert!(matches!(pressed(KeyCode::Down), Some(Key::Move(1))));
        assert!(pressed(KeyCode::Char('x')).is_none());
    }
}
