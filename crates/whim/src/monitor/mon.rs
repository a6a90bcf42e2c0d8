//! `whim mon`: a line for each node, with bars and what they were lately.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use whim_control::protocol::NodeState;
use whim_monitor::history::History;
use whim_monitor::model::{Model, Node};
use whim_monitor::rows::times;

use super::menu::draw_text;
use super::text::{bar, left, load_bar, right, spark};
use super::{Order, Screen};
use crate::output::bytes;

const HELP: [&str; 6] = [
    "Arrows, PgUp, PgDn, Home, End  scroll",
    "h   bars, or what load and memory were in the last minutes",
    "t   totals of the cluster, or not",
    "A load rises at once, and falls for half a minute after work has ended.",
    "F1 ?  this",
    "F10 q  leave",
];

/// Columns of the name, the state and the guests.
const NAMED: usize = 12 + 1 + 9 + 1 + 6 + 1;

/// How many overloaded nodes are named above the list.
const OVERLOADED_NAMED: usize = 3;

/// The screen.
#[derive(Debug, Default)]
pub(super) struct Mon {
    history: bool,
    without_totals: bool,
    first: usize,
    room: usize,
    said: Option<String>,
    text: Option<(String, Vec<String>)>,
}

impl Screen for Mon {
    fn key(&mut self, key: KeyEvent, model: &Model) -> Order {
        self.said = None;
        let closes = self.text.take().is_some();
        let most = model.nodes().count().saturating_sub(self.room);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Order::Quit;
            }
            _ if closes => {}
            KeyCode::Char('q') | KeyCode::F(10) => return Order::Quit,
            KeyCode::Char('h') => self.history = !self.history,
            KeyCode::Char('t') => self.without_totals = !self.without_totals,
            KeyCode::F(1) | KeyCode::Char('?') => {
                self.show("Keys".into(), HELP.map(String::from).into());
            }
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.room),
            KeyCode::PageDown => self.first += self.room,
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = most,
            _ => {}
        }
        self.first = self.first.min(most);
        Order::Nothing
    }

    fn draw(&mut self, frame: &mut Frame<'_>, model: &Model) {
        let totals = u16::from(!self.without_totals);
        let areas = Layout::vertical([
            Constraint::Length(totals),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ]);
        let [head, columns, body, foot] = areas.areas(frame.area());
        let sums = model.totals();
        let used = sums
            .memory_total_bytes
            .saturating_sub(sums.memory_available_bytes);
        let over = overloaded(model);
        let text = format!(
            "{} of {} nodes up   {over}load {:.1} of {:.1} CPUs   memory {} of {}   {} programs, {} away",
            sums.up,
            sums.nodes,
            sums.load,
            sums.cpus,
            bytes(used),
            bytes(sums.memory_total_bytes),
            sums.processes,
            sums.away,
        );
        frame.render_widget(Line::from(text), head);
        let width = half(columns);
        let titles = format!(
            "{} {} {} {} {}",
            left("NODE", 12),
            left("STATE", 9),
            right("GUESTS", 6),
            left("LOAD, OF ITS CPUS", width),
            left("MEMORY", width),
        );
        let green = Style::new().fg(Color::Black).bg(Color::Green);
        frame.render_widget(Line::from(titles).style(green), columns);
        self.room = usize::from(body.height);
        self.first = self
            .first
            .min(model.nodes().count().saturating_sub(self.room));
        for (node, row) in model.nodes().skip(self.first).zip(body.rows()) {
            frame.render_widget(self.line(node, half(row)), row);
        }
        let hint = " F1 Help   h History   t Totals   q Quit".to_owned();
        let said = self.said.clone().unwrap_or(hint);
        frame.render_widget(Line::from(said), foot);
        if let Some((head, lines)) = &self.text {
            draw_text(frame, head, lines);
        }
    }

    fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    fn show(&mut self, head: String, lines: Vec<String>) {
        self.text = Some((head, lines));
    }
}

/// Which nodes are overloaded, the worst first, and how much; nothing, if none is.
pub(super) fn overloaded(model: &Model) -> String {
    let times_of = |node: &Node| Some((node.row.overload()?, node.row.name.clone()));
    let mut over: Vec<(f64, String)> = model.nodes().filter_map(times_of).collect();
    over.sort_by(|one, other| other.0.total_cmp(&one.0));
    let named = over.iter().take(OVERLOADED_NAMED);
    let named: Vec<String> = named
        .map(|(much, name)| format!("{name} {}", times(*much)))
        .collect();
    match over.len() {
        0 => String::new(),
        count => format!("{count} overloaded: {}   ", named.join(", ")),
    }
}

/// Columns of each of the two bars.
fn half(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(NAMED + 1) / 2
}

impl Mon {
    fn line(&self, node: &Node, width: usize) -> Line<'static> {
        let row = &node.row;
        let colour = match row.state {
            NodeState::Up => Color::Reset,
            NodeState::Suspect | NodeState::Draining => Color::Yellow,
            NodeState::Down => Color::Red,
        };
        let guests = row.guests.map_or("-".into(), |guests| guests.to_string());
        let named = format!(
            "{} {} {} ",
            left(&row.name, 12),
            left(row.state_word(), 9),
            right(&guests, 6),
        );
        let mut spans = vec![Span::styled(named, Style::new().fg(colour))];
        if row.state == NodeState::Down {
            return Line::from(spans);
        }
        if self.history {
            let drawn = |history: &History| {
                let line = spark(history.latest(width));
                Span::styled(right(&line, width), Style::new().fg(Color::Green))
            };
            spans.extend([drawn(&node.load), Span::raw(" "), drawn(&node.memory)]);
            return Line::from(spans);
        }
        let (load, cpus) = (row.load.unwrap_or(0.0), row.cpus.unwrap_or(0.0));
        let word = format!("{load:.1} of {cpus:.1}");
        spans.extend(load_bar(row.load_part().unwrap_or(0.0), width, &word));
        spans.push(Span::raw(" "));
        let total = row.memory_total_bytes.unwrap_or(0);
        let used = total.saturating_sub(row.memory_available_bytes.unwrap_or(0));
        let word = format!("{} of {}", bytes(used), bytes(total));
        spans.extend(bar(row.memory_part().unwrap_or(0.0), width, &word));
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::drawn;

    fn model() -> Model {
        let mut model = Model::default();
        for number in 1..=20 {
            let state = if number == 2 { "down" } else { "up" };
            let line = format!(
                r#"{{"update":"node","name":"n{number:02}","state":"{state}","load":1.0,"speed":1.0,"cpus":2.0,
                   "memory_total_bytes":8589934592,"memory_available_bytes":2147483648,"guests":3,"class":"a"}}"#
            );
            model.apply(serde_json::from_str(&line).expect("a line"));
        }
        for second in 1..=3u64 {
            model.apply(whim_monitor::feed::Update::Tick {
                time_ms: second * 1000,
            });
        }
        model
    }

    fn screen(mon: &mut Mon, model: &Model) -> Vec<String> {
        drawn(mon, model, 8)
    }

    #[test]
    fn nodes_have_bars_and_a_history() {
        let (mut mon, model) = (Mon::default(), model());
        let lines = screen(&mut mon, &model);
        assert!(
            lines[0].contains("19 of 20 nodes up   load 19.0 of 38.0 CPUs"),
            "{lines:#?}"
        );
        assert!(
            lines[2].contains("n01") && lines[2].contains("1.0 of 2.0]"),
            "{lines:#?}"
        );
        assert!(lines[2].contains("6.0 GiB of 8.0 GiB]"), "{lines:#?}");
        assert!(
            lines[3].contains("down") && !lines[3].contains('['),
            "{lines:#?}"
        );
        mon.key(KeyEvent::from(KeyCode::Char('h')), &model);
        let lines = screen(&mut mon, &model);
        assert!(
            lines[2].contains("▄▄▄") && lines[2].contains("▆▆▆"),
            "{lines:#?}"
        );
    }

    #[test]
    fn overload_and_an_ended_draining_are_told_in_words() {
        let mut model = model();
        let line = r#"{"update":"node","name":"n01","state":"draining","load":9.0,"speed":1.0,"cpus":0.5,
            "memory_total_bytes":8589934592,"memory_available_bytes":2147483648,"guests":0,"class":"a"}"#;
        model.apply(serde_json::from_str(line).expect("a line"));
        let lines = screen(&mut Mon::default(), &model);
        assert!(lines[0].contains("1 overloaded: n01 18x"), "{lines:#?}");
        let row = &lines[2];
        assert!(row.contains("drained") && row.contains("##"), "{lines:#?}");
        assert!(row.contains("overloaded 18x, 9.0 of 0.5]"), "{lines:#?}");
        assert!(!lines[4].contains("overloaded"), "{lines:#?}");
    }

    #[test]
    fn keys_scroll_within_the_list() {
        let (mut mon, model) = (Mon::default(), model());
        screen(&mut mon, &model);
        let mut press = |code: KeyCode| {
            let order = mon.key(KeyEvent::from(code), &model);
            (order, screen(&mut mon, &model)[2][..3].to_owned())
        };
        assert_eq!(press(KeyCode::Down), (Order::Nothing, "n02".into()));
        assert_eq!(press(KeyCode::PageDown), (Order::Nothing, "n07".into()));
        assert_eq!(press(KeyCode::End), (Order::Nothing, "n16".into()));
        assert_eq!(press(KeyCode::Down), (Order::Nothing, "n16".into()));
        assert_eq!(press(KeyCode::Home), (Order::Nothing, "n01".into()));
        assert_eq!(press(KeyCode::Char('q')).0, Order::Quit);
    }
}
