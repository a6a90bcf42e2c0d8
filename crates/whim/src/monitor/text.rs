//! Bars and cells.

use ratatui::style::{Color, Style};
use ratatui::text::Span;
use whim_monitor::rows::{OVERLOAD_FROM, times};

/// A bar such as `|||||     ` of so many columns, coloured by how full it is, with a word at its end.
#[must_use]
pub(super) fn bar(part: f64, columns: usize, word: &str) -> Vec<Span<'static>> {
    let inner = columns.saturating_sub(2);
    let word: String = word.chars().take(inner).collect();
    let filled = share(part, inner);
    let mut cells: Vec<char> = (0..inner)
        .map(|at| if at < filled { '|' } else { ' ' })
        .collect();
    let begin = inner - word.chars().count();
    for (cell, letter) in cells[begin..].iter_mut().zip(word.chars()) {
        *cell = letter;
    }
    let (full, rest) = cells.split_at(filled.min(inner));
    vec![
        Span::raw("["),
        Span::styled(String::from_iter(full), Style::new().fg(colour(part))),
        Span::raw(String::from_iter(rest)),
        Span::raw("]"),
    ]
}

/// A bar of the load for each CPU. What the CPUs cannot carry stands behind what they can, in another letter and another
/// colour, as large as it is in comparison; the word says how many times too much it is.
#[must_use]
pub(super) fn load_bar(part: f64, columns: usize, word: &str) -> Vec<Span<'static>> {
    if part.is_nan() || part < OVERLOAD_FROM {
        return bar(part, columns, word);
    }
    let inner = columns.saturating_sub(2);
    let much = times(part);
    let said = [
        format!("overloaded {much}, {word}"),
        format!("{much} {word}"),
    ];
    let said = said.into_iter().find(|said| said.chars().count() < inner);
    let said: String = said.unwrap_or(much).chars().take(inner).collect();
    let room = inner - said.chars().count();
    let carried = share(1.0 / part, inner).min(room);
    vec![
        Span::raw("["),
        Span::styled("|".repeat(carried), Style::new().fg(Color::Red)),
        Span::styled("#".repeat(room - carried), Style::new().fg(OVERLOAD)),
        Span::styled(said, Style::new().fg(OVERLOAD).bold()),
        Span::raw("]"),
    ]
}

/// The colour of what is more than the CPUs can carry.
pub(super) const OVERLOAD: Color = Color::Magenta;

/// Green while there is room, red when there is none.
#[must_use]
pub(super) fn colour(part: f64) -> Color {
    match part {
        part if part < 0.7 => Color::Green,
        part if part < 0.95 => Color::Yellow,
        _ => Color::Red,
    }
}

/// How many of so many columns a part is.
fn share(part: f64, columns: usize) -> usize {
    let most = u32::try_from(columns).unwrap_or(u32::MAX);
    let wanted = part.clamp(0.0, 1.0) * f64::from(most);
    (0..columns)
        .take_while(|at| f64::from(u32::try_from(*at).unwrap_or(u32::MAX)) + 0.5 <= wanted)
        .count()
}

/// A line of eighths, one column for each sample, from 0 to 1.
#[must_use]
pub(super) fn spark(samples: impl Iterator<Item = f64>) -> String {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    samples.map(|sample| EIGHTHS[share(sample, 8)]).collect()
}

/// A cell of so many columns: cut, or filled up.
#[must_use]
pub(super) fn left(word: &str, columns: usize) -> String {
    let cut: String = word.chars().take(columns).collect();
    format!("{cut:columns$}")
}

/// The same, at its right edge.
#[must_use]
pub(super) fn right(word: &str, columns: usize) -> String {
    let cut: String = word.chars().take(columns).collect();
    format!("{cut:>columns$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(part: f64, columns: usize, word: &str) -> String {
        let spans = bar(part, columns, word);
        spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_bar_is_as_long_as_its_part() {
        assert_eq!(plain(0.0, 12, "0%"), "[        0%]");
        assert_eq!(plain(0.5, 12, "50%"), "[|||||  50%]");
        assert_eq!(plain(7.0, 12, "700%"), "[||||||700%]");
        assert_eq!(plain(f64::NAN, 6, ""), "[    ]");
        assert_eq!(plain(1.0, 2, "100%"), "[]");
        assert_eq!(plain(1.0, 0, "100%"), "[]");
    }

    #[test]
    fn a_bar_shows_what_the_cpus_cannot_carry() {
        let plain = |part: f64, columns: usize| {
            let spans = load_bar(part, columns, "9.0 of 0.5");
            let colours: Vec<_> = spans.iter().map(|span| span.style.fg).collect();
            let text: String = spans.iter().map(|span| span.content.as_ref()).collect();
            (text, colours.contains(&Some(OVERLOAD)))
        };
        let (text, is_over) = plain(18.0, 40);
        assert_eq!(text, "[||##########overloaded 18x, 9.0 of 0.5]");
        assert!(is_over);
        assert_eq!(plain(18.0, 22).0, "[|#####18x 9.0 of 0.5]");
        assert_eq!(plain(18.0, 6).0, "[#18x]");
        assert_eq!(plain(18.0, 0).0, "[]");
        let (text, is_over) = plain(1.0, 20);
        assert_eq!(text, "[||||||||9.0 of 0.5]");
        assert!(!is_over);
    }

    #[test]
    fn cells_are_as_wide_as_they_are() {
        assert_eq!(
            (left("abc", 5), left("abcdef", 3)),
            ("abc  ".into(), "abc".into())
        );
        assert_eq!(
            (right("abc", 5), right("é", 2)),
            ("  abc".into(), " é".into())
        );
        assert_eq!(spark([0.0, 0.5, 1.0, 9.0].into_iter()), " ▄██");
    }
}
