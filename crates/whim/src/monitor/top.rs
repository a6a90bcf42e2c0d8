//! `whim top`: the programs of the cluster, as a list that can be acted on.

use nix::sys::signal::Signal;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use whim_journey::job::State;
use whim_monitor::feed::Key;
use whim_monitor::model::{Model, Totals};
use whim_monitor::order::{Choice, Column, Listed, cpu_time, state_word, why};
use whim_monitor::rows::ProcessRow;

use super::menu::{Chosen, Menu, draw_text};
use super::mon::overloaded;
use super::text::{bar, left, load_bar, right};
use super::{Order, Screen};
use crate::output::{bytes, resident};

/// Signals that are offered, the usual one first.
const SIGNALS: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGKILL,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGSTOP,
    Signal::SIGCONT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

const HELP: [&str; 16] = [
    "Arrows, PgUp, PgDn, Home, End  choose a program",
    "F3  /    look for a word, and again for the next one",
    "F4  \\    show only what contains a word (program, user, node, HOME:PID, state)",
    "F5  t    children below their parents, and back",
    "F6  >    choose the column to sort by",
    "P  M  N  T  sort by CPU, memory, process id, CPU time",
    "I        turn the order round",
    "m        move it: home, to the best node, or to one of the list",
    "F9  k    send it a signal",
    "w        why it is where it is",
    "Space    hold the picture, and go on",
    "F10  q   leave",
    "",
    "Programs are named HOME:PID. Orders need your own program, on its home:",
    "whim migrate PID NODE, kill PID and whim why PID are the same on the",
    "command line.",
];

/// What keys are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    List,
    Filter,
    Search(String),
    Sort(Menu),
    Move(Key, Menu),
    Signal(Key, Menu),
    Text(String, Vec<String>),
}

/// The screen.
#[derive(Debug, Default)]
pub(super) struct Top {
    choice: Choice,
    mode: Mode,
    chosen: Option<Key>,
    /// The first line that is shown.
    first: usize,
    /// Lines that there are room for, as of the last drawing.
    room: usize,
    said: Option<String>,
    held: Option<Model>,
}

impl Screen for Top {
    fn key(&mut self, key: KeyEvent, model: &Model) -> Order {
        self.said = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Order::Quit;
        }
        match std::mem::take(&mut self.mode) {
            Mode::List => self.in_list(key.code, model),
            Mode::Filter => self.in_filter(key.code),
            Mode::Search(word) => self.in_search(word, key.code, model),
            Mode::Text(..) => Order::Nothing,
            Mode::Sort(mut menu) => {
                match menu.key(key.code) {
                    Chosen::Open => self.mode = Mode::Sort(menu),
                    Chosen::Line(line) => self.sort_by(Column::ALL[line]),
                    Chosen::Closed => {}
                }
                Order::Nothing
            }
            Mode::Move(process, mut menu) => match menu.key(key.code) {
                Chosen::Open => {
                    self.mode = Mode::Move(process, menu);
                    Order::Nothing
                }
                Chosen::Line(line) => {
                    let to = menu.lines[line].split(' ').next().unwrap_or_default();
                    Order::Move {
                        key: process,
                        to: to.to_owned(),
                    }
                }
                Chosen::Closed => Order::Nothing,
            },
            Mode::Signal(process, mut menu) => match menu.key(key.code) {
                Chosen::Open => {
                    self.mode = Mode::Signal(process, menu);
                    Order::Nothing
                }
                Chosen::Line(line) => Order::Signal {
                    key: process,
                    signal: SIGNALS[line],
                },
                Chosen::Closed => Order::Nothing,
            },
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, model: &Model) {
        let held = self.held.take();
        self.draw_model(frame, held.as_ref().unwrap_or(model));
        self.held = held;
        match &self.mode {
            Mode::Sort(menu) | Mode::Move(_, menu) | Mode::Signal(_, menu) => menu.draw(frame),
            Mode::Text(head, lines) => draw_text(frame, head, lines),
            _ => {}
        }
    }

    fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    fn show(&mut self, head: String, lines: Vec<String>) {
        self.mode = Mode::Text(head, lines);
    }
}

impl Top {
    fn in_list(&mut self, key: KeyCode, model: &Model) -> Order {
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Order::Quit,
            KeyCode::Up => self.step(model, -1),
            KeyCode::Down => self.step(model, 1),
            KeyCode::PageUp => self.step(model, -self.page()),
            KeyCode::PageDown => self.step(model, self.page()),
            KeyCode::Home => self.step(model, isize::MIN),
            KeyCode::End => self.step(model, isize::MAX),
            KeyCode::F(1) | KeyCode::Char('h' | '?') => {
                self.show("Keys".into(), HELP.map(String::from).into());
            }
            KeyCode::F(3) | KeyCode::Char('/') => self.mode = Mode::Search(String::new()),
            KeyCode::F(4) | KeyCode::Char('\\') => self.mode = Mode::Filter,
            KeyCode::F(5) | KeyCode::Char('t') => self.choice.tree = !self.choice.tree,
            KeyCode::F(6) | KeyCode::Char('>') => {
                let names = Column::ALL.map(|column| column.name().to_owned());
                self.mode = Mode::Sort(Menu::new("Sort by", names.into()));
            }
            KeyCode::Char('P') => self.sort_by(Column::Cpu),
            KeyCode::Char('M') => self.sort_by(Column::Memory),
            KeyCode::Char('N') => self.sort_by(Column::Pid),
            KeyCode::Char('T') => self.sort_by(Column::Time),
            KeyCode::Char('I') => self.choice.reversed = !self.choice.reversed,
            KeyCode::Char(' ') => {
                self.held = match self.held.take() {
                    Some(_) => None,
                    None => Some(model.clone()),
                };
            }
            KeyCode::Esc => self.choice.filter.clear(),
            key => return self.for_chosen(key, model),
        }
        Order::Nothing
    }

    /// Keys that concern one program.
    fn for_chosen(&mut self, key: KeyCode, model: &Model) -> Order {
        let wanted = matches!(key, KeyCode::Char('m' | 'k' | 'w') | KeyCode::F(9));
        let Some(process) = self.chosen.clone().filter(|_| wanted) else {
            return Order::Nothing;
        };
        match key {
            KeyCode::Char('m') => {
                let mut lines = vec!["home".to_owned(), "best".to_owned()];
                lines.extend(model.nodes().map(|node| {
                    let load = node
                        .row
                        .load
                        .map_or("-".into(), |load| format!("{load:.1}"));
                    format!("{:12} {:8} load {load}", node.row.name, node.row.state)
                }));
                let menu = Menu::new(format!("Move {process} to"), lines);
                self.mode = Mode::Move(process, menu);
            }
            KeyCode::Char('w') => return Order::Why(process),
            _ => {
                let lines = SIGNALS.map(|signal| signal.to_string());
                let menu = Menu::new(format!("Send {process}"), lines.into());
                self.mode = Mode::Signal(process, menu);
            }
        }
        Order::Nothing
    }

    fn in_filter(&mut self, key: KeyCode) -> Order {
        self.mode = Mode::Filter;
        match key {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.choice.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Backspace => drop(self.choice.filter.pop()),
            KeyCode::Char(letter) => self.choice.filter.push(letter),
            _ => {}
        }
        Order::Nothing
    }

    fn in_search(&mut self, mut word: String, key: KeyCode, model: &Model) -> Order {
        match key {
            KeyCode::Enter | KeyCode::Esc => return Order::Nothing,
            KeyCode::Backspace => drop(word.pop()),
            KeyCode::Char(letter) => word.push(letter),
            KeyCode::F(3) | KeyCode::Down => self.find(&word, model, 1),
            _ => {}
        }
        self.find(&word, model, 0);
        self.mode = Mode::Search(word);
        Order::Nothing
    }

    /// Chooses the next program with a word in it, from the `after`th behind the chosen one on.
    fn find(&mut self, word: &str, model: &Model, after: usize) {
        let choice = Choice {
            filter: word.to_owned(),
            ..Choice::default()
        };
        let found: Vec<Key> = choice
            .list(model)
            .iter()
            .map(|one| Key::of(one.row))
            .collect();
        let list = self.choice.list(model);
        let keys: Vec<Key> = list.iter().map(|one| Key::of(one.row)).collect();
        let at = self.chosen.as_ref();
        let at = at.and_then(|chosen| keys.iter().position(|key| key == chosen));
        let from = at.map_or(0, |at| at + after);
        let (before, behind) = keys.split_at(from.min(keys.len()));
        let mut order = behind.iter().chain(before);
        if let Some(next) = order.find(|key| found.contains(key)) {
            self.chosen = Some(next.clone());
        }
    }

    fn sort_by(&mut self, column: Column) {
        self.choice.column = column;
        self.choice.reversed = false;
    }

    fn page(&self) -> isize {
        isize::try_from(self.room.max(1)).unwrap_or(1)
    }

    /// Chooses another line, so many below.
    fn step(&mut self, model: &Model, by: isize) {
        let list = self.choice.list(model);
        let Some(last) = list.len().checked_sub(1) else {
            self.chosen = None;
            return;
        };
        let at = place(&list, self.chosen.as_ref()).unwrap_or(0);
        let next = at.saturating_add_signed(by).min(last);
        self.chosen = Some(Key::of(list[next].row));
    }

    fn draw_model(&mut self, frame: &mut Frame<'_>, model: &Model) {
        let areas = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
            Constraint::Length(1),
        ]);
        let [head, columns, body, about, foot] = areas.areas(frame.area());
        draw_totals(frame, head, &model.totals(), &overloaded(model));
        let titles = cells(&Column::ALL.map(|column| self.title(column)), 0);
        let titles = Line::from(titles).style(Style::new().fg(Color::Black).bg(Color::Green));
        frame.render_widget(titles, columns);
        self.draw_list(frame, body, model);
        let chosen = self.chosen.as_ref().and_then(|key| model.process(key));
        let said = chosen.map(about_chosen).unwrap_or_default();
        frame.render_widget(Line::from(said).style(Style::new().fg(Color::Cyan)), about);
        frame.render_widget(self.foot(), foot);
    }

    fn title(&self, column: Column) -> String {
        let arrow = match (self.choice.column == column, self.choice.reversed) {
            (false, _) => "",
            (true, false) => "▽",
            (true, true) => "△",
        };
        format!("{}{arrow}", column.name())
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect, model: &Model) {
        let list = self.choice.list(model);
        self.room = usize::from(area.height);
        let at = place(&list, self.chosen.as_ref());
        if at.is_none() {
            // It has ended, or is hidden: another one is chosen when the user moves on.
            self.chosen = list.first().map(|one| Key::of(one.row));
        }
        let at = at.unwrap_or(0);
        self.first = self.first.min(at).min(list.len().saturating_sub(self.room));
        self.first = self.first.max((at + 1).saturating_sub(self.room));
        let shown = list.iter().enumerate().skip(self.first).take(self.room);
        for ((number, one), row) in shown.zip(area.rows()) {
            let mut spans = vec![Span::raw(line(one))];
            // Where the terminal is wide enough, the reason is seen before anybody asks.
            let reason = why(one.row).map(|why| format!("  ({why})"));
            spans.extend(reason.map(|why| Span::styled(why, Style::new().dim())));
            let line = Line::from(spans);
            let style = match (number == at, one.row.state) {
                (true, _) => Style::new().reversed(),
                (_, State::Home) if one.row.stay.is_some() => Style::new().fg(Color::Magenta),
                (_, State::Moving) => Style::new().fg(Color::Yellow),
                (_, State::Away) => Style::new().fg(Color::Cyan),
                (_, State::InDoubt) => Style::new().fg(Color::Red),
                _ => Style::new(),
            };
            frame.render_widget(line.style(style), row);
        }
    }

    fn foot(&self) -> Line<'static> {
        let hint = Style::new().fg(Color::Black).bg(Color::Cyan);
        let asked = |what: &str, word: &str| {
            let word = format!("{what}: {word}▏");
            Line::from(vec![
                Span::raw(word),
                Span::styled(" Enter ", hint),
                Span::raw(" done"),
            ])
        };
        match (&self.mode, &self.said) {
            (Mode::Filter, _) => return asked("Filter", &self.choice.filter),
            (Mode::Search(word), _) => return asked("Search", word),
            (_, Some(said)) => return Line::from(said.clone()),
            _ => {}
        }
        let mut spans = Vec::new();
        let keys = [
            ("F1", "Help"),
            ("F3", "Search"),
            ("F4", "Filter"),
            ("F5", "Tree"),
            ("F6", "Sort"),
            ("m", "Move"),
            ("k", "Signal"),
            ("w", "Why"),
            ("q", "Quit"),
        ];
        for (key, word) in keys {
            spans.push(Span::raw(format!(" {key}")));
            spans.push(Span::styled(format!("{word:7}"), hint));
        }
        if self.held.is_some() {
            spans.push(Span::styled(
                " held: Space goes on",
                Style::new().fg(Color::Yellow),
            ));
        }
        if !self.choice.filter.is_empty() {
            spans.push(Span::raw(format!("  only '{}'", self.choice.filter)));
        }
        Line::from(spans)
    }
}

fn place(list: &[Listed<'_>], chosen: Option<&Key>) -> Option<usize> {
    let chosen = chosen?;
    let is_it = |one: &Listed<'_>| one.row.pid == chosen.pid && one.row.home == chosen.home;
    list.iter().position(is_it)
}

/// What is to be known of the chosen program before something is done with it.
fn about_chosen(row: &ProcessRow) -> String {
    let name = Key::of(row);
    let said = [
        ("stays", &row.stay),
        (state_word(row), &row.reason),
        ("is not moved by itself", &row.not_candidate),
    ];
    let told = said
        .into_iter()
        .find_map(|(word, why)| Some((word, why.as_ref()?)));
    match told {
        Some((word, why)) => format!("{name} {word}: {why}"),
        None => format!("{name} can move"),
    }
}

fn plural(is_one: bool) -> &'static str {
    if is_one { "" } else { "s" }
}

/// The cluster in three lines.
fn draw_totals(frame: &mut Frame<'_>, area: Rect, totals: &Totals, overloaded: &str) {
    let Totals {
        nodes,
        up,
        processes,
        away,
        moves,
        ..
    } = totals;
    let (programs, times) = (plural(*processes == 1), plural(*moves == 1));
    let text = format!(
        "{up} of {nodes} nodes up   {overloaded}{processes} program{programs}, {away} away   {moves} move{times}"
    );
    let used = totals
        .memory_total_bytes
        .saturating_sub(totals.memory_available_bytes);
    let memory = part(used, totals.memory_total_bytes);
    let cpu = match totals.cpus > 0.0 {
        true => totals.load / totals.cpus,
        false => 0.0,
    };
    let columns = usize::from(area.width).saturating_sub(5).min(72);
    let cpu_word = format!("{:.1} of {:.1}", totals.load, totals.cpus);
    let of = bytes(totals.memory_total_bytes);
    let memory_word = format!("{} of {of}", bytes(used));
    let lines = [
        Line::from(text),
        named("CPU", load_bar(cpu, columns, &cpu_word)),
        named("Mem", bar(memory, columns, &memory_word)),
    ];
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

fn named(name: &'static str, bar: Vec<Span<'static>>) -> Line<'static> {
    let name = Span::styled(name, Style::new().fg(Color::Cyan));
    Line::from(std::iter::once(name).chain(bar).collect::<Vec<_>>())
}

/// In hundredths, which is as much as a bar shows.
fn part(some: u64, all: u64) -> f64 {
    let hundredths = some.saturating_mul(100).checked_div(all).unwrap_or(0);
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}

fn line(one: &Listed<'_>) -> String {
    let row = one.row;
    let user = match (&row.user, row.uid) {
        (Some(user), _) => user.clone(),
        (None, Some(uid)) => uid.to_string(),
        (None, None) => "-".into(),
    };
    let words = [
        row.pid.to_string(),
        row.home.clone(),
        row.r#where.clone(),
        user,
        state_word(row).to_owned(),
        row.moves.to_string(),
        format!("{:.1}", row.cpu_percent),
        row.cpu_seconds.map_or("-".into(), cpu_time),
        resident(row.memory_bytes),
        short(&row.command),
    ];
    cells(&words, one.depth)
}

/// A command line without the directory of its program.
fn short(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let name = program.rsplit('/').next().unwrap_or(program);
    format!("{name} {arguments}").trim_end().to_owned()
}

/// Cells of a line, the last one as long as it is.
fn cells(words: &[String; 10], depth: usize) -> String {
    let [
        pid,
        home,
        place,
        user,
        state,
        moves,
        cpu,
        time,
        memory,
        command,
    ] = words;
    let branch = match depth {
        0 => String::new(),
        depth => format!("{}└─ ", "   ".repeat(depth - 1)),
    };
    format!(
        "{} {} {} {} {} {} {} {} {} {branch}{command}",
        right(pid, 7),
        left(home, 8),
        left(place, 8),
        left(user, 7),
        left(state, 7),
        right(moves, 5),
        right(cpu, 5),
        right(time, 8),
        right(memory, 8),
    )
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
