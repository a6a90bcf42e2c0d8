//! Text that others have written, made safe to show to a terminal and to its reader.
//!
//! Most of what a daemon sends contains reasons, commands and names that others have chosen. So all of it
//! passes through here once where it leaves, no matter where it was put together.

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};
use std::io::{self, Write};

/// Longest sentence that is passed on, in characters.
pub const SENTENCE_MAX: usize = 1000;

/// The letter, or a space in place of one that controls a terminal, ends a line, or changes the order of its
/// neighbours.
#[must_use]
pub fn harmless(letter: char) -> char {
    if is_harmless(letter) { letter } else { ' ' }
}

/// Whether a letter is shown as it is.
#[must_use]
pub fn is_harmless(letter: char) -> bool {
    !letter.is_control() && !reorders(letter)
}

/// Ends of lines and paragraphs, and marks that change the order in which text is shown: with these a sentence
/// can be made to say something else.
fn reorders(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// A sentence of bounded length that does nothing to a terminal.
#[must_use]
pub fn sentence(text: &str) -> String {
    text.chars().take(SENTENCE_MAX).map(harmless).collect()
}

/// A text with every letter [`harmless`]; it has the same number of characters.
#[must_use]
pub fn text(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// The value as JSON, with every text in it [`harmless`], including names of fields.
///
/// # Errors
/// Those of [`serde_json::to_vec`].
pub fn to_json(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Plain))?;
    Ok(bytes)
}

/// Writes JSON as serde does, except for letters that are not harmless.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        if fragment.chars().all(is_harmless) {
            return writer.write_all(fragment.as_bytes());
        }
        writer.write_all(text(fragment).as_bytes())
    }

    fn write_char_escape<W>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        match escape {
            CharEscape::Quote | CharEscape::ReverseSolidus | CharEscape::Solidus => {
                CompactFormatter.write_char_escape(writer, escape)
            }
            // All others stand for control characters.
            _ => writer.write_all(b" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_done_to_a_terminal_and_no_order_is_changed() {
        let odd = "a\u{1b}]0;owned\u{7}\n\r\t\u{7f}\u{9b}b";
        assert_eq!(text(odd), "a ]0;owned      b");
        for code in [
            0x61c, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202e, 0x2066, 0x2069,
        ] {
            let letter = char::from_u32(code).expect("a character");
            assert_eq!(harmless(letter), ' ', "{code:x}");
        }
        let plain = "n[1-2] \"x\\y\" ä é 語 \u{200d}";
        assert_eq!(text(plain), plain);
        let told = [("reason\n", odd), ("path", plain)];
        let told: std::collections::BTreeMap<_, _> = told.into_iter().collect();
        let json = to_json(&told).expect("written");
        let read: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let expected = serde_json::json!({"reason ": "a ]0;owned      b", "path": plain});
        assert_eq!(read, expected);
    }

    proptest! {
        #[test]
        fn all_texts_are_told_without_harm(said in any::<String>()) {
            let json = to_json(&(&said, 1.5, Some(&said))).expect("written");
            let read: (String, f64, Option<String>) = serde_json::from_slice(&json).expect("JSON");
            let plain = text(&said);
            prop_assert!(plain.chars().all(|letter| harmless(letter) == letter));
            prop_assert_eq!(read, (plain.clone(), 1.5, Some(plain)));
        }
    }
}
