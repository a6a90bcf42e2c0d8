//! What others have written, as it can be shown.

/// A letter that does nothing to a terminal.
#[must_use]
pub fn harmless(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}
