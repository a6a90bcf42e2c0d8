//! Whether two runs of a program did the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Result, bail, ensure};

const PIECE: usize = 1 << 20;

/// What is left of a file when it is compared.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, size: u64 },
    Link { target: String },
    Other { mode: u32, kind: &'static str },
}

/// What a run leaves behind.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    /// File with what it printed on standard output.
    pub output: PathBuf,
    /// Its working directory.
    pub directory: PathBuf,
}

/// Compares exit status, standard output and files.
///
/// # Errors
/// With the first difference.
pub fn same(unmoved: &Outcome, moved: &Outcome) -> Result<()> {
    ensure!(
        unmoved.status == moved.status,
        "Moved, the program ended with {}; unmoved, with {}",
        moved.status,
        unmoved.status
    );
    same_bytes(&unmoved.output, &moved.output).context("Standard output differs")?;
    let (left, right) = (entries(&unmoved.directory)?, entries(&moved.directory)?);
    for name in left.keys().chain(right.keys()) {
        ensure!(
            left.get(name) == right.get(name),
            "The file {name} differs: unmoved {:?}, moved {:?}",
            left.get(name),
            right.get(name)
        );
        if let Some(Entry::File { .. }) = left.get(name) {
            same_bytes(&unmoved.directory.join(name), &moved.directory.join(name))
                .with_context(|| format!("The file {name} differs"))?;
        }
    }
    Ok(())
}

/// Everything below a directory, by its path from there.
fn entries(directory: &Path) -> Result<BTreeMap<String, Entry>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            let about = fs::symlink_metadata(&path)?;
            let (mode, kind) = (about.mode() & 0o7777, about.file_type());
            let value = if kind.is_dir() {
                waiting.push(path.clone());
                Entry::Directory { mode }
            } else if kind.is_symlink() {
                Entry::Link {
                    target: fs::read_link(&path)?.display().to_string(),
                }
            } else if kind.is_file() {
                Entry::File {
                    mode,
                    size: about.len(),
                }
            } else if kind.is_fifo() {
                Entry::Other { mode, kind: "fifo" }
            } else {
                Entry::Other {
                    mode,
                    kind: "socket or device",
                }
            };
            let name = path
                .strip_prefix(directory)
                .unwrap_or(&path)
                .display()
                .to_string();
            found.insert(name, value);
        }
    }
    Ok(found)
}

fn same_bytes(left: &Path, right: &Path) -> Result<()> {
    let open = |path: &Path| fs::File::open(path).with_context(|| format!("{}", path.display()));
    let (mut left, mut right) = (BufReader::new(open(left)?), BufReader::new(open(right)?));
    let mut offset = 0;
    loop {
        let (one, two) = (piece(&mut left)?, piece(&mut right)?);
        if one == two {
            if one.is_empty() {
                return Ok(());
            }
            offset += one.len();
            continue;
        }
        let same = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
        bail!(
            "at byte {}: unmoved {:?}, moved {:?}",
            offset + same,
            around(&one, same),
            around(&two, same)
        );
    }
}

fn piece(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(PIECE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is to be seen around a place, for people.
fn around(bytes: &[u8], at: usize) -> String {
    let part = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
    String::from_utf8_lossy(part).into_owned()
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("whim-compare-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("d/e")).unwrap();
        fs::write(path.join("d/file"), "one\ntwo\n").unwrap();
        fs::write(path.join("out"), "x").unwrap();
        path
    }

    fn compare(left: &Path, right: &Path, code: i32) -> Result<()> {
        let outcome = |directory: &Path, code| Outcome {
            status: ExitStatus::from_raw(code),
            output: directory.join("out"),
            directory: directory.to_owned(),
        };
        same(&outcome(left, 0), &outcome(right, code))
    }

    #[test]
    fn differences_are_found() {
        let (left, right) = (directory("left"), directory("right"));
        compare(&left, &right, 0).unwrap();
        assert!(compare(&left, &right, 9).is_err());
        fs::write(right.join("d/file"), "one\ntwo!").unwrap();
        let error = format!("{:#}", compare(&left, &right, 0).unwrap_err());
        assert!(
            error.contains("d/file") && error.contains("byte 7"),
            "{error}"
        );
        fs::remove_file(right.join("d/file")).unwrap();
        assert!(compare(&left, &right, 0).is_err());
        fs::remove_dir_all(left).unwrap();
        fs::remove_dir_all(right).unwrap();
    }
}
