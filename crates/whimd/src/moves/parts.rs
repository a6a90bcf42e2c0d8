//! The programs of this system, whose processes are never moved.
//!
//! They are known by the file that they execute, as the kernel shows it in their mappings: by device and inode, never
//! by a name. The file itself is not asked for, because whoever serves it may not answer. Mappings are read only of
//! what has exactly as much code as a program of ours.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use whim_image::maps;
use whim_machine::processes::Stat;
use whim_sys::shown::ShownFile;

use crate::line::probes::{NotSeen, Patience, Probes};
use crate::settings::Settings;

/// What ELF says of itself: lengths of its header and of what it says of a segment, where in them the fields are.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SEGMENTS_AT: usize = 32;
const SEGMENT_LENGTH_AT: usize = 54;
const SEGMENTS_COUNT_AT: usize = 56;
const ADDRESS_AT: usize = 16;
const LENGTH_AT: usize = 32;
const FLAGS_AT: usize = 4;
/// A segment that is loaded, and one that may be executed.
const LOADED: u32 = 1;
const EXECUTED: u32 = 1;
/// More segments than any program of ours has.
const SEGMENTS_MAX: u16 = 64;

/// A file as the kernel shows it in mappings: device and inode.
type Shown = ((u32, u32), u64);

/// A program of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnProgram {
    shown: Shown,
    /// How many bytes of code it has, as the kernel counts them.
    code: u64,
}

/// The programs of this system.
#[derive(Debug, Default)]
pub(crate) struct OwnPrograms(Vec<OwnProgram>);

impl OwnPrograms {
    /// Of this daemon and what was installed with it; what is not there is left out.
    #[must_use]
    pub(crate) fn here(settings: &Settings) -> Self {
        let beside = std::env::current_exe().ok();
        let command = beside.map(|own| own.with_file_name("whim"));
        let supervisors = ["whim-home", "whim-guest"].map(|name| settings.libexec.join(name));
        let own = PathBuf::from("/proc/self/exe");
        let paths = supervisors.into_iter().chain(command).chain([own]);
        Self(paths.filter_map(|path| look(&path).ok()).collect())
    }

    /// Whether a process executes one of them. One that is as long and cannot be looked at counts as one.
    #[must_use]
    pub(crate) fn are_executed_by(
        &self,
        probes: &Arc<Probes>,
        stat: &Stat,
        patience: Patience,
    ) -> bool {
        let (pid, (begin, end)) = (stat.pid, stat.code);
        let code = end.saturating_sub(begin);
        let alike = |own: &&OwnProgram| own.code == code && code > 0;
        let alike: Vec<Shown> = self.0.iter().filter(alike).map(|own| own.shown).collect();
        if alike.is_empty() {
            return false;
        }
        match probes.probe(pid, patience, move || shown_at(pid, begin)) {
            Ok(shown) => shown.is_some_and(|shown| alike.contains(&shown)),
            Err(NotSeen::Gone) => false,
            Err(NotSeen::Late | NotSeen::Busy) => true,
        }
    }
}

/// The file that a process has mapped at this address.
fn shown_at(pid: i32, address: u64) -> Option<Shown> {
    let entries = maps::read(pid).ok()?;
    let entry = entries
        .iter()
        .find(|entry| entry.range.start <= address && address < entry.range.end)?;
    entry.is_file().then_some((entry.device, entry.inode))
}

fn look(path: &std::path::Path) -> io::Result<OwnProgram> {
    let file = File::open(path)?;
    let mapped = ShownFile::of(&file)?;
    let own = std::process::id().cast_signed();
    let shown = shown_at(own, mapped.address());
    Ok(OwnProgram {
        shown: shown.ok_or(io::ErrorKind::NotFound)?,
        code: code(&file)?,
    })
}

/// How many bytes of code an ELF program has: from the first executable segment to the end of the last one.
fn code(file: &File) -> io::Result<u64> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    let begin = wide(&header, SEGMENTS_AT);
    let [length, count] = [SEGMENT_LENGTH_AT, SEGMENTS_COUNT_AT]
        .map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
    if usize::from(length) != SEGMENT || count > SEGMENTS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (mut first, mut last) = (u64::MAX, 0);
    let mut segment = [0; SEGMENT];
    for number in 0..u64::from(count) {
        let at = begin.saturating_add(number * SEGMENT as u64);
        file.read_exact_at(&mut segment, at)?;
        let flags = narrow(&segment, FLAGS_AT);
        if narrow(&segment, 0) == LOADED && flags & EXECUTED != 0 {
            let address = wide(&segment, ADDRESS_AT);
            first = first.min(address);
            last = last.max(address.saturating_add(wide(&segment, LENGTH_AT)));
        }
    }
    Ok(last.saturating_sub(first))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn narrow(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use whim_machine::processes;

    /// The program of a process that waits, by its stat and its mappings alone.
    fn of_process(pid: i32) -> OwnProgram {
        let stat = processes::stat(pid).expect("it lives");
        OwnProgram {
            shown: shown_at(pid, stat.code.0).expect("its program"),
            code: stat.code.1 - stat.code.0,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_is_known_whatever_it_is_called() {
        let directory = tempfile::tempdir().expect("a directory");
        let cat = std::fs::canonicalize("/bin/cat").expect("cat");
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        std::fs::copy(&cat, &one).expect("copied");
        let own = OwnPrograms(vec![look(&one).expect("a program")]);
        let probes = Arc::default();
        let start = |program: &std::path::Path| {
            let mut command = Command::new(program);
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("started");
            // The kernel lets us go on before it has loaded all of the program: what answers is loaded.
            let input = child.stdin.as_mut().expect("a pipe");
            input.write_all(b"x").expect("written");
            let output = child.stdout.as_mut().expect("a pipe");
            output.read_exact(&mut [0]).expect("an answer");
            let stat = processes::stat(child.id().cast_signed()).expect("it lives");
            (child, stat)
        };
        let is_own = |program: &std::path::Path| {
            let (mut child, stat) = start(program);
            let found = own.are_executed_by(&probes, &stat, Patience::Long);
            drop(child.stdin.take());
            child.wait().expect("ended");
            found
        };
        assert!(is_own(&one));
        std::fs::rename(&one, &two).expect("renamed");
        assert!(is_own(&two), "it has another name");
        std::fs::copy(&cat, &one).expect("copied");
        assert!(!is_own(&one), "another one has its name");
        assert!(!is_own(&cat));
    }

    #[test]
    fn a_file_and_the_process_that_executes_it_tell_the_same() {
        let own = std::process::id().cast_signed();
        let looked = look(std::path::Path::new("/proc/self/exe")).expect("this program");
        assert_eq!(looked, of_process(own));
    }
}
