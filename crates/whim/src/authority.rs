//! The copy of the CA as a file: whoever asks for it writes and reads it, with own rights and no others.

use std::path::Path;

use anyhow::Result;
use whim_control::client::Client;
use whim_control::protocol::{Answer, Request};
use whim_secret::files::{self, FileError};

use crate::arguments::NodeOptions;
use crate::output;

/// `whim ca backup FILE`: a new file of mode 600, which no link in its place leads elsewhere.
///
/// # Errors
/// The daemon refuses, or the file cannot be made.
pub(crate) fn back_up(mut client: Client, file: &Path) -> Result<()> {
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
    match files::write_once(file, copy.as_bytes()) {
        // Said of the file, which was to be new, it would help nobody.
        Err(FileError::Missing { .. }) => anyhow::bail!(
            "The directory of {} is not there: make it, and try again; nothing was written",
            file.display()
        ),
        written => Ok(written?),
    }
}

/// `whim init --restore FILE`.
///
/// # Errors
/// The file cannot be read, or others can read it; the daemon refuses.
pub(crate) fn restore(mut client: Client, node: NodeOptions, file: &Path) -> Result<()> {
    let backup = files::read_secret(file)?;
    let NodeOptions { node, advertise } = node;
    let request = Request::Init {
        node,
        advertise,
        restore: Some(u64::try_from(backup.len())?),
    };
    let text = client.ask_with(&request, &backup, |_| {})?;
    text.iter().for_each(|text| output::line(text));
    Ok(())
}
