//! Letters of our own pictures, for locales that have no others than ASCII's.

use std::env;
use std::sync::LazyLock;

/// What our pictures are drawn with, and what stands for it: parts of a bar, of a curve, marks.
const DRAWN: [(char, char); 19] = [
    ('▏', ' '),
    ('▎', '.'),
    ('▍', '.'),
    ('▌', '-'),
    ('▋', '-'),
    ('▊', '='),
    ('▉', '='),
    ('█', '#'),
    ('▁', '.'),
    ('▂', '.'),
    ('▃', '-'),
    ('▄', '-'),
    ('▅', '='),
    ('▆', '='),
    ('▇', '#'),
    ('▽', 'v'),
    ('△', '^'),
    ('…', '~'),
    ('×', 'x'),
];

static ARE_FEW: LazyLock<bool> = LazyLock::new(|| {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| env::var(name).ok());
    is_narrow(said)
});

/// Whether these variables, of which the first that is there counts, name a locale without UTF-8. Where nothing is said,
/// as in most containers, terminals show it all the same.
fn is_narrow(said: [Option<String>; 3]) -> bool {
    let said = said.into_iter().flatten().find(|value| !value.is_empty());
    said.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// Whether the user's locale has ASCII's letters alone, or none of ours.
#[must_use]
pub(crate) fn are_few() -> bool {
    *ARE_FEW
}

/// What stands for a letter of a picture; `None` for all others.
#[must_use]
pub(crate) fn instead_of(letter: char) -> Option<char> {
    let drawn = DRAWN.iter().find(|(ours, _)| *ours == letter);
    drawn.map(|(_, plain)| *plain)
}

/// A text as this user's terminal shows it.
#[must_use]
pub(crate) fn shown(text: String) -> String {
    if !are_few() || text.is_ascii() {
        return text;
    }
    let letters = text.chars();
    letters
        .map(|letter| instead_of(letter).unwrap_or(letter))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_there_counts() {
        let narrow = |all: &str, ctype: &str, lang: &str| {
            is_narrow([all, ctype, lang].map(|value| Some(value.to_owned())))
        };
        assert!(narrow("C", "", "en_US.UTF-8"));
        assert!(narrow("", "", "de_DE.ISO-8859-1"));
        assert!(!narrow("", "C.utf8", "C"));
        assert!(!narrow("", "", ""));
        assert!(!is_narrow([None, None, None]));
    }

    #[test]
    fn all_that_stands_for_ours_is_ascii() {
        assert!(
            DRAWN
                .iter()
                .all(|(ours, plain)| !ours.is_ascii() && plain.is_ascii())
        );
        assert_eq!(instead_of('ü'), None);
    }
}
