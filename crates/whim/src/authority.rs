//! The copy of the CA as a file: whoever asks for it writes and reads it, with own rights and no others.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use whim_control::client::Client;
use whim_control::protocol::{Answer, Request};
use whim_secret::Concealed;
use whim_secret::files::{self, FileError};

use crate::arguments::NodeOptions;
use crate::{Connect, output};

/// Stands for standard output, and for standard input.
const DASH: &str = "-";

/// `whim ca backup FILE`: a new file of mode 600, which no link in its place leads elsewhere; or standard output, which
/// gets nothing but the copy.
///
/// # Errors
/// The daemon refuses, or the file cannot be made.
pub(crate) fn back_up(connect: &Connect<'_>, file: &Path) -> Result<()> {
    let to_output = file.as_os_str() == DASH;
    anyhow::ensure!(
        !to_output || !io::stdout().is_terminal(),
        "The copy holds the CA's key, and is not shown at a terminal: lead it elsewhere, as in 'whim ca backup - | \
         gpg -c >FILE', or name a new file"
    );
    let copy = copy(connect()?)?;
    if to_output {
        let mut output = io::stdout().lock();
        let written = output.write_all(copy.reveal().as_bytes());
        return written.and_then(|()| output.flush()).context(
            "The copy could not be written to standard output: what is there is not whole",
        );
    }
    match files::write_once(file, copy.reveal().as_bytes()) {
        // Said of the file, which was to be new, it would help nobody.
        Err(FileError::Missing { .. }) => Err(no_room(file)),
        written => Ok(written?),
    }
}

/// Why a new file cannot be made although its name is free.
fn no_room(file: &Path) -> anyhow::Error {
    let place = file.parent().filter(|place| !place.as_os_str().is_empty());
    let place = place.unwrap_or(Path::new("."));
    let shown = file.display();
    if place.is_dir() {
        anyhow::anyhow!(
            "{shown} cannot be made: {} takes no new files; name a place on a disk; nothing was written",
            place.display()
        )
    } else {
        anyhow::anyhow!(
            "The directory of {shown} is not there: make it, and try again; nothing was written"
        )
    }
}

fn copy(mut client: Client) -> Result<Concealed> {
    let (mut copy, mut whole) = (String::new(), true);
    let limit = usize::try_from(files::FILE_MAX).unwrap_or(usize::MAX);
    client.ask(&Request::CaCopy, |answer| {
        if let Answer::CaPart { text } = answer {
            whole &= copy.len() + text.reveal().len() <= limit;
            if whole {
                copy.push_str(text.reveal());
            }
        }
    })?;
    anyhow::ensure!(
        whole && !copy.is_empty(),
        "The daemon has told no copy of the CA that could be read again: nothing was written"
    );
    Ok(Concealed::new(copy))
}

/// `whim init --restore FILE`, or of standard input.
///
/// # Errors
/// The file cannot be read, or others can read it; the daemon refuses.
pub(crate) fn restore(connect: &Connect<'_>, node: NodeOptions, file: &Path) -> Result<()> {
    let backup = match file.as_os_str() == DASH {
        true => of_input()?,
        false => files::read_secret(file)?,
    };
    let NodeOptions { node, advertise } = node;
    let request = Request::Init {
        node,
        advertise,
        restore: Some(u64::try_from(backup.len())?),
    };
    let text = connect()?.ask_with(&request, &backup, |_| {})?;
    text.iter().for_each(|text| output::line(text));
    Ok(())
}

fn of_input() -> Result<Vec<u8>> {
    let input = io::stdin();
    anyhow::ensure!(
        !input.is_terminal(),
        "A backup of the CA is not typed: lead it to standard input, as in 'gpg -d FILE | whim init --restore -', or name \
         its file"
    );
    let mut backup = Vec::new();
    let mut read = input.lock().take(files::FILE_MAX + 1);
    let length = read
        .read_to_end(&mut backup)
        .context("The backup of the CA cannot be read from standard input")?;
    anyhow::ensure!(
        length > 0,
        "Nothing has come on standard input: give what 'whim ca backup' wrote"
    );
    anyhow::ensure!(
        length as u64 <= files::FILE_MAX,
        "What has come on standard input is longer than any backup of a CA: give what 'whim ca backup' wrote"
    );
    Ok(backup)
}
