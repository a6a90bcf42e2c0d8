//! One line of a batch file as words.

/// A word, and whether it was quoted: a quoted one is never `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub text: String,
    pub quoted: bool,
}

/// Splits a line at blanks. `"..."` is one word, also with blanks in it, and is a value after `key=`; a `#`
/// at the beginning of a word begins a comment.
///
/// # Errors
///
/// A quote has no end, or something stands at its end without a blank.
pub(super) fn words(line: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn word(text: &str) -> Result<(Word, &str), &'static str> {
    let blank = text.find(char::is_whitespace).unwrap_or(text.len());
    let Some(quote) = text[..blank].find('"') else {
        let (word, rest) = text.split_at(blank);
        let text = word.to_owned();
        return Ok((
            Word {
                text,
                quoted: false,
            },
            rest,
        ));
    };
    let (before, quoted) = (&text[..quote], &text[quote + 1..]);
    if !before.is_empty() && !before.ends_with('=') {
        return Err("a quote stands within a word");
    }
    let Some(end) = quoted.find('"') else {
        return Err("a quote has no end");
    };
    let rest = &quoted[end + 1..];
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Err("there is no blank behind a quote");
    }
    let word = Word {
        text: format!("{before}{}", &quoted[..end]),
        quoted: before.is_empty(),
    };
    Ok((word, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(line: &str) -> Vec<String> {
        let words = words(line).expect("words");
        words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn quotes_keep_blanks_and_comments_end_a_line() {
        assert_eq!(texts("  in a.tif\tas b # c"), ["in", "a.tif", "as", "b"]);
        assert_eq!(
            texts(r#"in "a b#.tif" mask="c d""#),
            ["in", "a b#.tif", "mask=c d"]
        );
        assert_eq!(texts("write a b#c.tif"), ["write", "a", "b#c.tif"]);
        assert!(texts("   ").is_empty() && texts("#").is_empty());
        for wrong in [r#"in "a"#, r#"in a"b""#, r#"in "a"b"#] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_split_or_refused(line in ".{0,80}") {
            let _ = words(&line);
        }
    }
}
