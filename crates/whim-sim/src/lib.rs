//! What the simulator reads: traces of other people's clusters, and records of ours.

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod record;
pub mod swf;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A longer line is none of these files, in bytes.
pub const LINE_MAX: usize = 4096;
/// Longer files are not read, in bytes.
pub const FILE_MAX: u64 = 256 << 20;

/// Reads a file, if it is not too long.
///
/// # Errors
/// If it cannot be read, or is too long.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        let what = format!("It is longer than {} MiB", FILE_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Lines and their numbers, from 1; a line that is too long, or no text, is an error with its number.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &str), usize>> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    lines.map(|(index, line)| {
        let number = index + 1;
        if line.len() > LINE_MAX {
            return Err(number);
        }
        let text = std::str::from_utf8(line).map_err(|_| number)?;
        Ok((number, text.trim()))
    })
}
