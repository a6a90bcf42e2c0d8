//! Lists from which one line is chosen, and texts that are read, above the screen.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

/// A list, of which one line is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Menu {
    pub head: String,
    pub lines: Vec<String>,
    pub marked: usize,
}

/// What a key has done to a menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// It is open still.
    Open,
    Closed,
    /// The line of this number.
    Line(usize),
}

impl Menu {
    pub(super) fn new(head: impl Into<String>, lines: Vec<String>) -> Self {
        Self {
            head: head.into(),
            lines,
            marked: 0,
        }
    }

    pub(super) fn key(&mut self, key: KeyCode) -> Chosen {
        let last = self.lines.len().saturating_sub(1);
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.marked = self.marked.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.marked = (self.marked + 1).min(last),
            KeyCode::Home => self.marked = 0,
            KeyCode::End => self.marked = last,
            KeyCode::Enter if !self.lines.is_empty() => return Chosen::Line(self.marked),
            KeyCode::Esc | KeyCode::Char('q') => return Chosen::Closed,
            KeyCode::Char(first) => {
                // To the next line that begins so.
                let begins = |line: &String| line.to_lowercase().starts_with(first);
                let order = (self.marked + 1..=last).chain(0..=self.marked.min(last));
                let mut found = order.filter(|at| self.lines.get(*at).is_some_and(begins));
                self.marked = found.next().unwrap_or(self.marked);
            }
            _ => {}
        }
        Chosen::Open
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let widest = self.lines.iter().map(|line| line.chars().count()).max();
        let width = widest.unwrap_or(0).max(self.head.chars().count()) + 4;
        let area = middle(frame.area(), width, self.lines.len() + 2);
        let shown = usize::from(area.height.saturating_sub(2));
        let first = self.marked.saturating_sub(shown.saturating_sub(1));
        let lines = self.lines.iter().enumerate().skip(first).take(shown);
        let lines: Vec<Line<'_>> = lines
            .map(|(at, line)| {
                let style = match at == self.marked {
                    true => Style::new().reversed(),
                    false => Style::new(),
                };
                Line::from(format!(" {line} ")).style(style)
            })
            .collect();
        frame.render_widget(Clear, area);
        let block = Block::bordered().title(format!(" {} ", self.head));
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}

/// Draws a text over the screen.
pub(super) fn draw_text(frame: &mut Frame<'_>, head: &str, lines: &[String]) {
    let whole = frame.area();
    let width = usize::from(whole.width).saturating_sub(8).clamp(20, 100);
    let rows = lines
        .iter()
        .map(|line| line.chars().count().div_ceil(width - 2).max(1));
    let area = middle(whole, width, rows.sum::<usize>() + 2);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::from(line.as_str())).collect();
    let block = Block::bordered()
        .title(format!(" {head} "))
        .title_bottom(" Esc ");
    frame.render_widget(Clear, area);
    let text = Paragraph::new(text).wrap(Wrap { trim: false });
    frame.render_widget(text.block(block), area);
}

/// In the middle, so large, or as large as there is room.
fn middle(whole: Rect, width: usize, height: usize) -> Rect {
    let fit = |wanted: usize, most: u16| u16::try_from(wanted).unwrap_or(u16::MAX).min(most);
    let (width, height) = (fit(width, whole.width), fit(height, whole.height));
    Rect {
        x: whole.x + (whole.width - width) / 2,
        y: whole.y + (whole.height - height) / 2,
        width,
        height,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_chosen_by_keys() {
        let mut menu = Menu::new("Sort", ["home", "n1", "n2"].map(String::from).into());
        assert_eq!(menu.key(KeyCode::Up), Chosen::Open);
        assert_eq!(menu.key(KeyCode::Enter), Chosen::Line(0));
        menu.key(KeyCode::Char('n'));
        assert_eq!(menu.key(KeyCode::Enter), Chosen::Line(1));
        menu.key(KeyCode::Char('n'));
        assert_eq!(menu.key(KeyCode::Enter), Chosen::Line(2));
        menu.key(KeyCode::Down);
        assert_eq!(menu.key(KeyCode::Enter), Chosen::Line(2));
        menu.key(KeyCode::Home);
        assert_eq!(menu.key(KeyCode::Enter), Chosen::Line(0));
        assert_eq!(menu.key(KeyCode::Esc), Chosen::Closed);
        let mut empty = Menu::new("Sort", Vec::new());
        assert_eq!(empty.key(KeyCode::Down), Chosen::Open);
        assert_eq!(empty.key(KeyCode::Enter), Chosen::Open);
    }
}
