//! `whim top` and `whim mon`: the cluster in a terminal, as it changes.
//!
//! Three threads: one reads the feed, one reads keys, and one, which alone has the picture, draws. Orders
//! (a move, a question) are given to the daemon by a thread of their own: the picture does not stand still
//! while a program moves.

mod menu;
mod mon;
mod source;
mod text;
mod top;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::crossterm::event::{Event, KeyEvent, KeyEventKind, read};
use ratatui::{DefaultTerminal, Frame};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use whim_control::client::{Client, ControlError};
use whim_control::protocol::{Answer, Request};
use whim_journey::job::Event as JourneyEvent;
use whim_monitor::feed::{Key, Update};
use whim_monitor::model::Model;

use crate::{letters, output};
use source::Source;

/// Between two attempts to reach a daemon that has gone.
const AGAIN: Duration = Duration::from_millis(500);

/// How a monitor was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub json: bool,
    pub once: bool,
    /// A recorded feed, or `-`; `None`: the daemon's.
    pub from: Option<PathBuf>,
}

/// A way to the daemon, from any thread.
pub(crate) type Connect = Arc<dyn Fn() -> Result<Client, ControlError> + Send + Sync>;

/// What the threads tell the one that draws.
enum Message {
    Update(Box<Update>),
    /// A feed begins anew.
    Again,
    /// The feed has ended; with what is wrong.
    Ended(Option<String>),
    Key(KeyEvent),
    Resized,
    /// How an order went.
    Said(String),
    /// An answer that wants to be read: a head, and lines.
    Told(String, Vec<String>),
}

/// What a screen wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    Quit,
    Move { key: Key, to: String },
    Signal { key: Key, signal: Signal },
    Why(Key),
}

/// One of the monitors.
trait Screen {
    fn key(&mut self, key: KeyEvent, model: &Model) -> Order;
    fn draw(&mut self, frame: &mut Frame<'_>, model: &Model);
    /// A sentence for the user.
    fn say(&mut self, text: String);
    /// A text to be read and closed.
    fn show(&mut self, head: String, lines: Vec<String>);
}

/// `whim top`.
///
/// # Errors
/// There is no daemon, no feed, or no terminal.
pub(crate) fn top(connect: &Connect, options: &Options) -> Result<()> {
    if options.json || options.once || !has_screen() {
        return print(connect, options, |model| {
            let rows = whim_monitor::order::Choice::default().list(model);
            let rows: Vec<_> = rows.into_iter().map(|one| one.row.clone()).collect();
            output::processes(&rows);
        });
    }
    watch(connect, options, &mut top::Top::default())
}

/// `whim mon`.
///
/// # Errors
/// As [`top()`].
pub(crate) fn mon(connect: &Connect, options: &Options) -> Result<()> {
    if options.json || options.once || !has_screen() {
        return print(connect, options, |model| {
            let rows: Vec<_> = model.nodes().map(|node| node.row.clone()).collect();
            output::nodes(&rows);
        });
    }
    watch(connect, options, &mut mon::Mon::default())
}

/// Whether something can be drawn. A terminal that says it is dumb has lines, and no screen.
fn has_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// Without a screen: the feed as it comes, or one picture of it.
fn print(connect: &Connect, options: &Options, show: impl Fn(&Model)) -> Result<()> {
    let mut source = Source::open(connect, options.from.as_deref())?;
    let mut model = Model::default();
    while let Some(update) = source.next()? {
        if options.json {
            output::json(&update);
            if output::is_over() {
                break;
            }
        }
        if model.apply(update) && (options.once || !options.json) {
            break;
        }
    }
    if !options.json {
        show(&model);
    }
    Ok(())
}

fn watch(connect: &Connect, options: &Options, screen: &mut dyn Screen) -> Result<()> {
    let source = Source::open(connect, options.from.as_deref())?;
    let (sender, receiver) = channel();
    let again = options.from.is_none().then(|| Arc::clone(connect));
    follow(source, again, sender.clone());
    let mut terminal = ratatui::try_init().context("The terminal cannot be used")?;
    listen(sender.clone());
    let orders = options.from.is_none().then(|| Arc::clone(connect));
    let ended = run(&mut terminal, screen, &receiver, &sender, orders.as_ref());
    ratatui::restore();
    ended
}

/// Reads the feed. That of a daemon goes on when the daemon is back: it is restarted where one is looked at.
fn follow(mut source: Source, connect: Option<Connect>, sender: Sender<Message>) {
    std::thread::spawn(move || {
        loop {
            let message = match source.next() {
                Ok(Some(update)) => Message::Update(Box::new(update)),
                Ok(None) => Message::Ended(None),
                Err(error) => match connect.as_ref().filter(|_| is_absence(&error)) {
                    Some(connect) => {
                        let Some(next) = await_daemon(connect, &sender) else {
                            return;
                        };
                        source = next;
                        Message::Again
                    }
                    None => Message::Ended(Some(error.to_string())),
                },
            };
            let last = matches!(message, Message::Ended(_));
            if sender.send(message).is_err() || last {
                return;
            }
        }
    });
}

/// Whether it says that there is no daemon, or none any more.
fn is_absence(error: &anyhow::Error) -> bool {
    let control = error.downcast_ref::<ControlError>();
    control.is_some_and(ControlError::is_absence)
}

/// The feed of the next daemon; nothing, if nobody looks any more.
fn await_daemon(connect: &Connect, sender: &Sender<Message>) -> Option<Source> {
    loop {
        // Again and again, since each key takes it away.
        let gone = "No daemon answers: what is shown is old, until one does";
        sender.send(Message::Said(gone.into())).ok()?;
        std::thread::sleep(AGAIN);
        if let Ok(source) = Source::open(connect, None) {
            return Some(source);
        }
    }
}

/// Reads keys.
fn listen(sender: Sender<Message>) {
    std::thread::spawn(move || {
        while let Ok(event) = read() {
            let message = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => Message::Key(key),
                Event::Resize(..) => Message::Resized,
                _ => continue,
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
}

/// Draws whenever the picture is whole, and after each key; what comes meanwhile is taken up first.
fn run(
    terminal: &mut DefaultTerminal,
    screen: &mut dyn Screen,
    receiver: &Receiver<Message>,
    sender: &Sender<Message>,
    orders: Option<&Connect>,
) -> Result<()> {
    let mut model = Model::default();
    while let Ok(first) = receiver.recv() {
        let mut paint = false;
        for message in std::iter::once(first).chain(receiver.try_iter()) {
            paint |= match message {
                Message::Update(update) => model.apply(*update),
                Message::Again => {
                    model = Model::default();
                    screen.say("A daemon answers again".into());
                    false
                }
                Message::Ended(None) => false,
                Message::Ended(Some(reason)) => {
                    anyhow::bail!("{reason}");
                }
                Message::Key(key) => {
                    let order = screen.key(key, &model);
                    if order == Order::Quit {
                        return Ok(());
                    }
                    carry_out(order, screen, sender, orders);
                    true
                }
                Message::Resized => true,
                Message::Said(text) => {
                    screen.say(text);
                    true
                }
                Message::Told(head, lines) => {
                    screen.show(head, lines);
                    true
                }
            };
        }
        if paint {
            terminal.draw(|frame| {
                screen.draw(frame, &model);
                if letters::are_few() {
                    in_few_letters(frame);
                }
            })?;
        }
    }
    Ok(())
}

/// Replaces the letters of our own that this terminal may not show.
fn in_few_letters(frame: &mut Frame<'_>) {
    for cell in &mut frame.buffer_mut().content {
        let mut letters = cell.symbol().chars();
        let instead = letters.next().and_then(letters::instead_of);
        if let Some(letter) = instead {
            cell.set_char(letter);
        }
    }
}

fn carry_out(
    order: Order,
    screen: &mut dyn Screen,
    sender: &Sender<Message>,
    orders: Option<&Connect>,
) {
    if order == Order::Nothing {
        return;
    }
    let Some(connect) = orders else {
        screen.say("This is a recorded feed: nothing can be done to its programs".into());
        return;
    };
    if let Order::Move { key, to } = &order {
        screen.say(format!("{key} is going to {to} ..."));
    }
    let (connect, sender) = (Arc::clone(connect), sender.clone());
    std::thread::spawn(move || {
        let message = match perform(order, &*connect) {
            Ok(message) => message,
            Err(error) => Message::Said(error.to_string()),
        };
        // The monitor may have been left meanwhile.
        let _ = sender.send(message);
    });
}

type Connecting = dyn Fn() -> Result<Client, ControlError> + Send + Sync;

fn perform(order: Order, connect: &Connecting) -> Result<Message> {
    let named = |key: &Key| crate::arguments::ProcessName {
        home: Some(key.home.clone()),
        pid: key.pid,
    };
    let here = |key: &Key| crate::here(&named(key), connect);
    Ok(match order {
        Order::Move { key, to } => {
            let pid = here(&key)?;
            // By a word (`best`) the daemon chooses the node.
            let mut place = to.clone();
            connect()?.ask(&Request::Migrate { pid, to }, |answer| {
                if let Answer::Journey {
                    event: JourneyEvent::Done { report },
                } = answer
                {
                    place = report.to;
                }
            })?;
            Message::Said(format!("{key} has gone to {place}"))
        }
        Order::Signal { key, signal } => {
            kill(Pid::from_raw(here(&key)?), signal)
                .with_context(|| format!("{key} could not be sent {signal}"))?;
            Message::Said(format!("{key} was sent {signal}"))
        }
        Order::Why(key) => {
            let name = named(&key);
            let lines = crate::why(&name, connect)?.sentences;
            Message::Told(format!("Why {key}"), lines)
        }
        Order::Nothing | Order::Quit => Message::Resized,
    })
}

/// What a screen shows in a terminal of 100 columns and so many lines.
#[cfg(test)]
fn drawn(screen: &mut dyn Screen, model: &Model, lines: u16) -> Vec<String> {
    const COLUMNS: u16 = 100;
    let backend = ratatui::backend::TestBackend::new(COLUMNS, lines);
    let mut terminal = ratatui::Terminal::new(backend).expect("a terminal");
    let drawn = terminal.draw(|frame| screen.draw(frame, model));
    drawn.expect("drawn");
    let buffer = terminal.backend().buffer();
    let cell = |column, line| buffer[(column, line)].symbol();
    let line = |line| (0..COLUMNS).map(|column| cell(column, line)).collect();
    (0..lines).map(line).collect()
}
