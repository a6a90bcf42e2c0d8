//! How `whim join` gets its token: never by a command line or an environment, which others can read.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use nix::libc;
use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use nix::unistd::geteuid;
use thiserror::Error;
use whim_secret::Concealed;
use whim_secret::token::{NotAToken, TOKEN_LENGTH_MAX, Token, resembles, stands_in};

const ERASE: [u8; 2] = [0x7f, 0x08];
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const CLEAR: u8 = 0x15;

#[derive(Debug, Error)]
pub(crate) enum TokenInputError {
    #[error(
        "No token has come on standard input: run 'whim join HOST' at a terminal, which asks for it, or give it by a file: --token-file FILE"
    )]
    Nothing,
    #[error(
        "What has come as a token is longer than {TOKEN_LENGTH_MAX} bytes: give the one line that 'whim token' printed, and nothing else"
    )]
    TooLong,
    #[error(transparent)]
    Token(#[from] NotAToken),
    #[error("Nothing was typed: nothing was done")]
    Interrupted,
    #[error("The token cannot be read from standard input: {0}")]
    Input(#[source] io::Error),
    #[error(
        "The terminal does not let itself be asked without showing what is typed ({0}): give the token by a file, --token-file FILE"
    )]
    Terminal(#[source] io::Error),
    #[error("{path} cannot be opened for its token: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("{0} is a link, or no file: name the file itself that holds the token")]
    NoFile(PathBuf),
    #[error(
        "{path} can be read by others (mode {mode:o}): the token in it is to be considered known; make a new one with 'whim token', in a file of mode 600"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path} belongs to uid {uid}, neither to you nor to root: whoever wrote it chooses the cluster"
    )]
    Foreign { path: PathBuf, uid: u32 },
}

/// What is said to who gives a token as an argument, as was done before. Without the token.
pub(crate) const AS_ARGUMENT: &str = "A token does not stand in a command line: others read it there. Consider this one known, make a new one with 'whim token', and run 'whim join HOST', which asks for it; in scripts 'whim join HOST <FILE' or 'whim join HOST --token-file FILE', with a file of mode 600";

/// Whether what somebody wrote after `whim join` is, or may hold, a token: nothing of it is repeated.
pub(crate) fn in_words(words: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.iter().any(|word| word == "join") && words.iter().any(|word| resembles(word))
}

/// Whether something stands where the token did once, behind the host.
pub(crate) fn is_former(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg);
    let is_word = |text: &str| !text.starts_with('-');
    error.kind() == ErrorKind::UnknownArgument
        && matches!(word, Some(ContextValue::String(text)) if is_word(text))
}

/// Whether a token stands where another argument does.
pub(crate) fn is_argument(host: &str, file: Option<&Path>) -> bool {
    let file = file.map(|file| file.to_string_lossy());
    stands_in(host) || file.is_some_and(|file| stands_in(&file))
}

/// The token: from a file, from standard input, or from who sits at the terminal.
///
/// # Errors
/// There is none, or none that may be used; never with a part of it.
pub(crate) fn get(file: Option<&Path>) -> Result<Concealed, TokenInputError> {
    let line = match file.filter(|file| file.as_os_str() != "-") {
        Some(path) => of(open(path)?)?,
        None if io::stdin().is_terminal() => ask()?,
        None => of(io::stdin().lock())?,
    };
    if line.is_empty() {
        return Err(TokenInputError::Nothing);
    }
    let text = std::str::from_utf8(&line).map_err(|_| NotAToken)?;
    let token: Token = text.parse()?;
    Ok(Concealed::new(token.to_string()))
}

/// All that there is, within the limit, without the newline at its end.
fn of(input: impl Read) -> Result<Vec<u8>, TokenInputError> {
    let mut line = Vec::new();
    let limit = u64::try_from(TOKEN_LENGTH_MAX).unwrap_or(u64::MAX);
    input
        .take(limit + 1)
        .read_to_end(&mut line)
        .map_err(TokenInputError::Input)?;
    if line.len() > TOKEN_LENGTH_MAX {
        return Err(TokenInputError::TooLong);
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    if line.ends_with(b"\r") {
        line.pop();
    }
    Ok(line)
}

/// Opens a file that nobody else may read, and that nobody else has put there.
fn open(path: &Path) -> Result<File, TokenInputError> {
    let file = OpenOptions::new()
        .read(true)
        // A pipe without a writer would hold us up.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = file.map_err(|source| match source.raw_os_error() {
        Some(libc::ELOOP) => TokenInputError::NoFile(path.into()),
        _ => TokenInputError::Open {
            path: path.into(),
            source,
        },
    })?;
    // Of what is open, not of what is there by then.
    let about = file.metadata().map_err(TokenInputError::Input)?;
    let (mode, uid) = (about.mode() & 0o7777, about.uid());
    if !about.is_file() {
        return Err(TokenInputError::NoFile(path.into()));
    }
    if mode & 0o077 != 0 {
        let path = path.into();
        return Err(TokenInputError::Exposed { path, mode });
    }
    if uid != 0 && uid != geteuid().as_raw() {
        let path = path.into();
        return Err(TokenInputError::Foreign { path, uid });
    }
    Ok(file)
}

/// The terminal as it was, when we are done.
struct Silent(Termios);

impl Silent {
    /// Shows nothing of what is typed from here on, and takes it key by key: Ctrl-C comes as a key too,
    /// so that no signal ends us while nothing is shown.
    fn make() -> Result<Self, TokenInputError> {
        let failed = |errno: nix::Error| TokenInputError::Terminal(errno.into());
        let before = termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut silent = before.clone();
        silent
            .local_flags
            .remove(LocalFlags::ECHO | LocalFlags::ECHONL | LocalFlags::ICANON | LocalFlags::ISIG);
        silent.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        silent.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &silent).map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // A terminal that is gone needs no putting back.
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}

/// Asks who sits at the terminal.
fn ask() -> Result<Vec<u8>, TokenInputError> {
    let silent = Silent::make()?;
    let say = |text: &str| {
        let mut out = io::stderr();
        let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        said.map_err(TokenInputError::Terminal)
    };
    say("Token (what 'whim token' printed; it is not shown): ")?;
    let line = typed(&mut io::stdin().lock());
    drop(silent);
    say("\n")?;
    line
}

/// A line as it is typed, up to its end.
fn typed(keys: &mut impl Read) -> Result<Vec<u8>, TokenInputError> {
    let mut line = Vec::new();
    loop {
        let mut key = [0];
        let read = keys.read(&mut key).map_err(TokenInputError::Input)?;
        match key[0] {
            _ if read == 0 => return Err(TokenInputError::Interrupted),
            INTERRUPT => return Err(TokenInputError::Interrupted),
            b'\r' | b'\n' | END => return Ok(line),
            CLEAR => line.clear(),
            key if ERASE.contains(&key) => drop(line.pop()),
            key => line.push(key),
        }
        if line.len() > TOKEN_LENGTH_MAX {
            return Err(TokenInputError::TooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = TOKEN_LENGTH_MAX;

    #[test]
    fn what_is_read_is_bounded_and_ends_with_its_line() {
        for (input, expected) in [
            ("ab\n", "ab"),
            ("ab\r\n", "ab"),
            ("ab\n\n", "ab\n"),
            ("", ""),
        ] {
            assert_eq!(of(input.as_bytes()).expect("read"), expected.as_bytes());
        }
        let largest = "x".repeat(LIMIT);
        assert_eq!(of(largest.as_bytes()).expect("read").len(), LIMIT);
        let error = of(io::repeat(b'x')).expect_err("without an end");
        assert!(matches!(error, TokenInputError::TooLong), "{error}");
    }

    #[test]
    fn keys_are_taken_and_taken_back() {
        let line = |keys: &str| typed(&mut keys.as_bytes());
        assert_eq!(line("ab\x7fc\r").expect("typed"), b"ac");
        assert_eq!(line("ab\x15c\n").expect("typed"), b"c");
        assert_eq!(line("\x08ab\x04").expect("typed"), b"ab");
        for given_up in ["ab\x03", "ab"] {
            let error = line(given_up).expect_err("given up");
            assert!(matches!(error, TokenInputError::Interrupted), "{error}");
        }
        let error = typed(&mut io::repeat(b'x')).expect_err("without an end");
        assert!(matches!(error, TokenInputError::TooLong), "{error}");
    }

    #[test]
    fn words_that_hold_a_token_are_not_repeated() {
        let of = |line: &str| in_words(line.split(' ').map(OsString::from));
        let secret = "0123456789abcdef0123456789abcdef";
        assert!(of(&format!("whim join n1 --token={secret}")));
        assert!(of(&format!(
            "whim --wait 3 join n1 --tokenfile 01234567.{secret}.00"
        )));
        assert!(!of("whim join n1 --tokne-file /etc/token"));
        assert!(!of(&format!("whim run -- echo {secret}")));
    }
}
