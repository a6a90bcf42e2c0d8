//! Asks before what cannot be taken back, where there is somebody who can be asked.

use std::io::{self, BufRead, IsTerminal, Write};

use thiserror::Error;

/// Longest answer, in bytes.
const ANSWER_MAX: u64 = 64;

#[derive(Debug, Error)]
pub(crate) enum NotConfirmed {
    #[error("Nothing was done")]
    Declined,
    #[error("The answer cannot be read ({0}): nothing was done; --yes needs none")]
    Unreadable(#[from] io::Error),
}

/// Goes on if the user says yes, or did so before (`yes`). Where standard input is no terminal there is nobody to
/// ask: scripts have decided when they were written, and go on.
///
/// # Errors
/// See [`NotConfirmed`].
pub(crate) fn ask(what: &str, yes: bool) -> Result<(), NotConfirmed> {
    let input = io::stdin();
    if yes || !input.is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    write!(io::stderr(), "{what} Go on? [y/N] ")?;
    match is_yes(&line(input.lock())?) {
        true => Ok(()),
        false => Err(NotConfirmed::Declined),
    }
}

fn line(input: impl BufRead) -> io::Result<String> {
    let mut answer = Vec::new();
    input.take(ANSWER_MAX).read_until(b'\n', &mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        let said = |text: &str| is_yes(&line(text.as_bytes()).expect("read"));
        assert!(said("y\n") && said(" Yes \nno") && said("YES"));
        for no in ["", "\n", "n\n", "yesterday\n", "no\nyes\n"] {
            assert!(!said(no), "{no:?}");
        }
        assert_eq!(line(&[b'y'; 1000][..]).expect("read").len(), 64);
    }
}
