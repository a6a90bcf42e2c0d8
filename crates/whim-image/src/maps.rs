//! The address space of a process, as /proc shows it.

use crate::freeze_observe;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use thiserror::Error;
use whim_model::{Backing, Mapping, MappingFlags, PAGE_SIZE, Protection, Range, USER_END};
use whim_sys::kernel_file;
use whim_sys::pagemap::{Kind, Pagemap, Run};

/// Mappings that we carry at most; the kernel's default limit (vm.max_map_count) is 65,530.
pub const MAPPINGS_MAX: usize = 1 << 18;
/// How many of a kernel's mappings (vm.max_map_count) a process needs for what is done with it on its way.
pub const SPARE: usize = 64;
/// Longest line: a path of 4,096 bytes, each written as four.
const LINE_MAX: usize = 20 << 10;
/// How often to read the mappings of a process that changes them meanwhile. Since Linux 6.17 the
/// kernel shows one mapping after another without locking all of them, so a mapping that was joined
/// with its neighbour meanwhile may be listed twice. For a program that does nothing but change its
/// mappings, one reading in forty was like that.
const READS_MAX: usize = 20;
/// How often a process is looked at that executes another program, and how long it is left alone between that, at least.
const EXECUTES_MAX: u32 = 100;
const BETWEEN_READS: Duration = Duration::from_micros(200);
/// Pauses are of so many lengths: one that executes a program each millisecond must not be met at the same point again
/// and again.
const PAUSES: u32 = 7;
/// Lowest address that we ever use for something of our own.
pub const USER_BEGIN: u64 = 0x1_0000;

#[derive(Debug, Error)]
pub enum MapsError {
    #[error("The mappings of process {pid} cannot be read: {source}")]
    Unreadable { pid: i32, source: io::Error },
    #[error("Process {pid} has ended")]
    Ended { pid: i32 },
    #[error("Line {line} of the mappings of process {pid} cannot be understood")]
    Malformed { pid: i32, line: usize },
    #[error("Process {pid} has more than {MAPPINGS_MAX} mappings")]
    TooMany { pid: i32 },
}

/// One line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    pub range: Range,
    pub protection: Protection,
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// 0 for memory without a file.
    pub inode: u64,
    /// Path, or name in brackets, or empty. Bytes that are not UTF-8 are replaced: never open it,
    /// use /proc/PID/map_files.
    pub name: String,
    /// The file has no name any more.
    pub deleted: bool,
}

impl MapEntry {
    /// Memory that the kernel provides: vDSO and its data.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(
            self.name.as_str(),
            "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" | "[uprobes]"
        )
    }

    /// A mapping of a file (or of shared memory, which the kernel implements as one).
    #[must_use]
    pub fn is_file(&self) -> bool {
        // The inode of a System V segment is its number, which may be 0.
        self.inode != 0 || self.device != (0, 0)
    }
}

/// Reads the mappings of a process, ascending. `[vsyscall]`, which is the same everywhere, is left
/// out.
///
/// # Errors
/// [`MapsError`].
pub fn read(pid: i32) -> Result<Vec<MapEntry>, MapsError> {
    for _ in 1..READS_MAX {
        match parse(pid, &text(pid, "maps")?) {
            Err(MapsError::Malformed { .. }) => {}
            read => return read,
        }
    }
    parse(pid, &text(pid, "maps")?)
}

/// The same of a process that may be executing another program just now. Until the kernel has loaded that, it maps a
/// part of it alone, whose vDSO comes next to last; last comes what the kernel tells a program of itself (auxv). This
/// is waited for, but not for ever: a process may execute one program after the other.
///
/// # Errors
/// [`MapsError`].
pub fn read_executed(pid: i32) -> Result<Vec<MapEntry>, MapsError> {
    for look in 1..EXECUTES_MAX {
        let told = told_of_itself(pid);
        let entries = read(pid)?;
        let is_whole = entries.iter().any(|entry| entry.name == "[vdso]");
        // A process that has no mappings at all may just have parted with those of its last program, and may be in want of
        // a CPU to make those of the next one.
        let has_none = entries.is_empty() && !has_program(pid);
        if is_whole || has_none || told.is_some() && told == told_of_itself(pid) {
            return Ok(entries);
        }
        std::thread::sleep(BETWEEN_READS * (1 + look % PAUSES));
    }
    read(pid)
}

/// Whether a process runs a program, or will in a moment: it does not end, and is no thread of the kernel.
fn has_program(pid: i32) -> bool {
    /// Of the flags in /proc/PID/stat: PF_EXITING and PF_KTHREAD of the kernel's include/linux/sched.h.
    const NONE: u64 = 0x4 | 0x0020_0000;
    let text = freeze_observe::text(&format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything.
    let (_, fields) = text.rsplit_once(')').unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace();
    let is_alive = fields
        .next()
        .is_some_and(|state| !matches!(state, "Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse().ok());
    is_alive && flags.unwrap_or(0) & NONE == 0
}

/// What the kernel has told the program of a process, which differs from program to program; nothing, if it has not
/// yet.
fn told_of_itself(pid: i32) -> Option<Vec<u8>> {
    let told = kernel_file::read(format!("/proc/{pid}/auxv")).ok()?;
    told.iter().any(|byte| *byte != 0).then_some(told)
}

/// How many mappings a process has.
///
/// # Errors
/// [`MapsError::Unreadable`], [`MapsError::Ended`].
pub fn count(pid: i32) -> Result<usize, MapsError> {
    let text = text(pid, "maps")?;
    Ok(text.iter().filter(|byte| **byte == b'\n').count())
}

/// How many mappings a process may have here and travel: as many as the kernel and we allow, less those that
/// its travel takes.
#[must_use]
pub fn allowed() -> usize {
    let text = kernel_file::read_text("/proc/sys/vm/max_map_count").unwrap_or_default();
    let limit = text.trim().parse().unwrap_or(MAPPINGS_MAX);
    limit.saturating_sub(SPARE).min(MAPPINGS_MAX)
}

fn text(pid: i32, file: &str) -> Result<Vec<u8>, MapsError> {
    whim_sys::opened::text(pid, file).map_err(|source| {
        let ended =
            source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
        if ended {
            MapsError::Ended { pid }
        } else {
            MapsError::Unreadable { pid, source }
        }
    })
}

/// Understands the text of /proc/PID/maps.
///
/// # Errors
/// [`MapsError::Malformed`], [`MapsError::TooMany`].
pub fn parse(pid: i32, text: &[u8]) -> Result<Vec<MapEntry>, MapsError> {
    let mut entries: Vec<MapEntry> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let malformed = MapsError::Malformed {
            pid,
            line: number + 1,
        };
        let entry = parse_line(line).ok_or(malformed)?;
        if entry.range.start > USER_END {
            continue;
        }
        if entries
            .last()
            .is_some_and(|last| last.range.end > entry.range.start)
        {
            return Err(MapsError::Malformed {
                pid,
                line: number + 1,
            });
        }
        if entries.len() >= MAPPINGS_MAX {
            return Err(MapsError::TooMany { pid });
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Takes the next field: bytes up to a blank, and the blank.
fn field<'a>(line: &mut &'a [u8]) -> Option<&'a str> {
    let end = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    let found = std::str::from_utf8(&line[..end]).ok()?;
    *line = line.get(end + 1..).unwrap_or(&[]);
    Some(found)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn range(text: &str) -> Option<Range> {
    let (start, end) = text.split_once('-')?;
    let found = Range {
        start: hex(start)?,
        end: hex(end)?,
    };
    let aligned = found.start.is_multiple_of(PAGE_SIZE) && found.end.is_multiple_of(PAGE_SIZE);
    (found.start < found.end && aligned).then_some(found)
}

fn parse_line(line: &[u8]) -> Option<MapEntry> {
    if line.len() > LINE_MAX {
        return None;
    }
    let mut rest = line;
    let range = range(field(&mut rest)?)?;
    let mode = field(&mut rest)?.as_bytes();
    let offset = hex(field(&mut rest)?)?;
    let (major, minor) = field(&mut rest)?.split_once(':')?;
    let device = (
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode = field(&mut rest)?.parse().ok()?;
    let &[read, write, execute, share] = mode else {
        return None;
    };
    let mut bits = 0;
    for (set, bit) in [
        (read == b'r', Protection::READ),
        (write == b'w', Protection::WRITE),
        (execute == b'x', Protection::EXEC),
    ] {
        bits |= if set { bit } else { 0 };
    }
    let begin = rest
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(rest.len());
    // The first System V segment of a namespace has inode 0.
    let (name, deleted) = name(&rest[begin..], inode != 0 || device != (0, 0));
    let protection = Protection(bits);
    Some(MapEntry {
        range,
        protection,
        shared: share == b's',
        offset,
        device,
        inode,
        name,
        deleted,
    })
}

/// The kernel writes a newline in a path as `\012`, and marks a path without a file.
fn name(raw: &[u8], is_file: bool) -> (String, bool) {
    let mark = b" (deleted)";
    let deleted = is_file && raw.ends_with(mark);
    let raw = if deleted {
        &raw[..raw.len() - mark.len()]
    } else {
        raw
    };
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        match raw.get(at..at + 4).and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(raw[at]);
                at += 1;
            }
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), deleted)
}

fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?;
    let value = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
    matches!(value, b'\n' | b' ' | b'\t' | b'\\').then_some(value)
}

/// The runs of existing pages in mappings, which ascend, each with its mapping; in those of the kernel's own none.
fn runs<'a>(pages: &Pagemap, mappings: &'a [Mapping]) -> io::Result<Vec<(&'a Mapping, Run)>> {
    let own = mappings.iter();
    let own = own.filter(|mapping| !matches!(mapping.backing, Backing::Kernel { .. }));
    let own: Vec<&Mapping> = own.collect();
    let ranges: Vec<(u64, u64)> = own.iter().map(|one| (one.start, one.end)).collect();
    let found = pages.runs_of(&ranges)?.into_iter();
    Ok(found.map(|(index, run)| (own[index], run)).collect())
}

/// The process's own pages in mappings, ascending, each run with its mapping.
///
/// # Errors
/// The process is gone or not ours.
pub fn private_runs(pid: i32, mappings: &[Mapping]) -> io::Result<Vec<(&Mapping, Run)>> {
    let mut found = runs(&Pagemap::open(pid)?, mappings)?;
    found.retain(|(_, run)| run.kind == Kind::Private);
    Ok(found)
}

/// The pages of `mappings` that MADV_GUARD_INSTALL has made inaccessible.
///
/// # Errors
/// The process is gone or not ours.
pub fn guards(pid: i32, mappings: &[Mapping]) -> io::Result<Vec<Range>> {
    let mut pages = Pagemap::open(pid)?;
    if !pages.only_guards() {
        // On kernels that have guards and cannot report them (6.13, 6.14), reading such a page
        // fails, and the process stays.
        return Ok(Vec::new());
    }
    let runs = runs(&pages, mappings)?.into_iter();
    let guards = runs.map(|(_, run)| Range {
        start: run.start,
        end: run.end,
    });
    Ok(guards.collect())
}

/// The free ranges within `within`, ascending. `entries` ascend.
pub fn free_ranges(entries: &[MapEntry], within: Range) -> impl Iterator<Item = Range> {
    let starts = entries
        .iter()
        .map(|entry| entry.range.start)
        .chain([within.end]);
    let ends = [within.start]
        .into_iter()
        .chain(entries.iter().map(|entry| entry.range.end));
    ends.zip(starts)
        .map(move |(end, start)| Range {
            start: end.max(within.start),
            end: start.min(within.end),
        })
        .filter(|free| free.start < free.end)
}

/// A free range of `length` bytes in the middle of the largest hole, far from everything that
/// grows; its beginning is a multiple of `alignment` (a power of two, at least a page).
#[must_use]
pub fn find_free(
    entries: &[MapEntry],
    within: Range,
    length: u64,
    alignment: u64,
) -> Option<Range> {
    let hole = free_ranges(entries, within).max_by_key(|hole| hole.len())?;
    let spare = hole.len().checked_sub(length)?;
    let begin = (hole.start + spare / 2) & !(alignment - 1);
    let found = if begin >= hole.start {
        begin
    } else {
        hole.start.checked_next_multiple_of(alignment)?
    };
    (found.checked_add(length)? <= hole.end).then_some(Range {
        start: found,
        end: found + length,
    })
}

/// Flags of a mapping that only /proc/PID/smaps shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialFlags {
    pub flags: MappingFlags,
    /// Of huge pages (hugetlb).
    pub huge_tlb: bool,
    /// A device's memory (VM_IO, VM_PFNMAP).
    pub device: bool,
    /// Sealed (`mseal`).
    pub sealed: bool,
    /// Registered with a userfaultfd.
    pub user_fault: bool,
    /// A shadow stack.
    pub shadow_stack: bool,
    /// mprotect could make it writable.
    pub may_write: bool,
    /// 0 = the default key.
    pub protection_key: u8,
    /// A flag of which nothing is known here.
    pub unknown: Option<[u8; 2]>,
}

/// Flags by mapping. Reading them walks all pages of the process: about 10 ms per resident GB, a
/// hundredth of the time that its pages take to travel. It is done during the freeze nevertheless:
/// a table from before the freeze lacked a stack that had grown meanwhile, which then became a
/// mapping that does not grow.
#[derive(Clone, Debug, Default)]
pub struct FlagTable {
    flags: BTreeMap<(u64, u64), SpecialFlags>,
}

impl FlagTable {
    /// # Errors
    /// [`MapsError::Unreadable`], [`MapsError::Ended`].
    pub fn read(pid: i32) -> Result<Self, MapsError> {
        Ok(Self::parse(&text(pid, "smaps")?))
    }

    pub(crate) fn parse(text: &[u8]) -> Self {
        let mut table = Self::default();
        let (mut at, mut skip) = (0, 0);
        while let Some(header) = line_at(text, at) {
            let body = at + header.len() + 1;
            at = body;
            if !is_header(header) {
                continue;
            }
            let mut rest = header;
            let found = field(&mut rest).and_then(range);
            let Some(flags) = flags_of(text, body, skip) else {
                continue;
            };
            skip = flags - body;
            let words = line_at(text, flags).unwrap_or_default();
            at = flags + words.len() + 1;
            let mut special = special_flags(words.strip_prefix(FLAGS_LINE).unwrap_or_default());
            special.protection_key = key_before(&text[body..flags]);
            special.flags.never_read = special.protection_key != 0;
            if let Some(range) = found {
                table.flags.insert((range.start, range.end), special);
            }
        }
        table
    }

    /// Flags of the mapping with exactly this range, or of a mapping that overlaps it. In a running
    /// process the mapping may have been split, or have grown downwards, since the table was read.
    #[must_use]
    pub fn of(&self, range: Range) -> SpecialFlags {
        if let Some(found) = self.flags.get(&(range.start, range.end)) {
            return *found;
        }
        let below = self.flags.range(..=(range.start, u64::MAX)).next_back();
        let over = below.filter(|((_, end), _)| range.start < *end);
        let within = || self.flags.range((range.start, 0)..(range.end, 0)).next();
        over.or_else(within)
            .map(|(_, found)| *found)
            .unwrap_or_default()
    }

    /// All flags, by range.
    pub fn iter(&self) -> impl Iterator<Item = (Range, SpecialFlags)> {
        self.flags
            .iter()
            .map(|(&(start, end), found)| (Range { start, end }, *found))
    }
}

const FLAGS_LINE: &[u8] = b"VmFlags:";

/// The line that begins at an offset, without its end; `None` at the end of the text.
fn line_at(text: &[u8], at: usize) -> Option<&[u8]> {
    let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
    let end = rest.iter().position(|byte| *byte == b'\n');
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Whether a mapping begins with this line.
fn is_header(line: &[u8]) -> bool {
    let first = line.first();
    first.is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Where the line of flags of a mapping stands whose lines begin at `body`. That line is the last one, and
/// mostly as far behind the first as with the mapping before: of 60,000 mappings, 40 MB need not be looked
/// through then.
fn flags_of(text: &[u8], body: usize, skip: usize) -> Option<usize> {
    let is_it = |at: usize| {
        text.get(at..)
            .is_some_and(|rest| rest.starts_with(FLAGS_LINE))
    };
    let supposed = body + skip;
    if skip > 0 && is_it(supposed) && text[supposed - 1] == b'\n' {
        return Some(supposed);
    }
    let mut at = body;
    while let Some(line) = line_at(text, at) {
        if line.starts_with(FLAGS_LINE) {
            return Some(at);
        }
        if is_header(line) {
            return None;
        }
        at += line.len() + 1;
    }
    None
}

/// The protection key of a mapping, from the line before its flags; 0 if no such line is there.
fn key_before(lines: &[u8]) -> u8 {
    let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
    let begin = lines.iter().rposition(|byte| *byte == b'\n');
    let last = &lines[begin.map_or(0, |begin| begin + 1)..];
    let key = last.strip_prefix(b"ProtectionKey:").unwrap_or_default();
    String::from_utf8_lossy(key).trim().parse().unwrap_or(0)
}

/// Flags that say nothing that a mapping does not show otherwise, or that comes about by itself: protection and
/// what it may become, accounting, soft-dirty, mixed pages of DAX, guards (looked for by page), MAP_SYNC, what
/// must not grow, and the architecture's. Linux 6.1 to 6.18.
const PLAIN_FLAGS: &[&[u8]] = &[
    b"rd", b"wr", b"ex", b"sh", b"mr", b"ms", b"ac", b"sd", b"mm", b"gu", b"sf", b"de", b"ar",
];

fn special_flags(words: &[u8]) -> SpecialFlags {
    let mut found = SpecialFlags::default();
    let mut may_execute = false;
    for word in words.split(|byte| *byte == b' ') {
        match word {
            b"gd" => found.flags.grows_down = true,
            b"hg" => found.flags.huge = true,
            b"nh" => found.flags.no_huge = true,
            b"dc" => found.flags.dont_fork = true,
            b"dd" => found.flags.dont_dump = true,
            b"wf" => found.flags.wipe_on_fork = true,
            b"rr" => found.flags.random = true,
            b"sr" => found.flags.sequential = true,
            b"nr" => found.flags.no_reserve = true,
            b"lo" => found.flags.locked = true,
            b"lf" => found.flags.locked_on_fault = true,
            b"mg" => found.flags.mergeable = true,
            b"dp" => found.flags.droppable = true,
            b"ht" => found.huge_tlb = true,
            b"io" | b"pf" => found.device = true,
            b"sl" => found.sealed = true,
            b"um" | b"uw" | b"ui" => found.user_fault = true,
            b"mw" => found.may_write = true,
            b"me" => may_execute = true,
            b"ss" => found.shadow_stack = true,
            known if PLAIN_FLAGS.contains(&known) => {}
            &[first, second] => found.unknown = Some([first, second]),
            _ => {}
        }
    }
    // Trap: what-a-mapping-may-become
    (found.flags.never_write, found.flags.never_execute) = (!found.may_write, !may_execute);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Was said to have no vDSO, once in some hundred looks.
    #[test]
    fn a_process_that_executes_one_program_after_another_has_a_vdso() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("directory");
        let script = place.path().join("again");
        std::fs::write(&script, "#!/bin/sh\nexec \"$0\"\n").expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("executable");
        let mut executing = std::process::Command::new(&script).spawn().expect("begun");
        let pid = executing.id().cast_signed();
        let without = (0..2000)
            .filter_map(|_| read_executed(pid).ok())
            .filter(|entries| !entries.iter().any(|entry| entry.name == "[vdso]"));
        let without = without.count();
        executing.kill().expect("ended");
        executing.wait().expect("waited for");
        assert_eq!(without, 0);
    }

    fn one(line: &str) -> MapEntry {
        parse(1, line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn every_part_of_a_line_is_understood() {
        let entry = one("7f0000001000-7f0000003000 r-xp 00002000 fd:01 131 /usr/lib/lib c.so\n");
        assert_eq!(
            entry.range,
            Range {
                start: 0x7f00_0000_1000,
                end: 0x7f00_0000_3000
            }
        );
        assert_eq!(
            entry.protection,
            Protection(Protection::READ | Protection::EXEC)
        );
        assert!(!entry.shared && !entry.deleted);
        assert_eq!(
            (entry.offset, entry.device, entry.inode),
            (0x2000, (0xfd, 1), 131)
        );
        assert_eq!(entry.name, "/usr/lib/lib c.so");
        let entry = one("1000-2000 rw-s 00000000 00:01 9    /a\\012b (x) (deleted)\n");
        assert!(entry.shared && entry.deleted);
        assert_eq!(entry.name, "/a\nb (x)");
        let segment = one("1000-2000 rw-s 00000000 00:01 0    /SYSV00000000 (deleted)\n");
        assert!(segment.is_file() && segment.deleted && segment.name == "/SYSV00000000");
        assert_eq!(one("1000-2000 ---p 00000000 00:00 0 \n").name, "");
        assert_eq!(
            one("1000-2000 ---p 00000000 00:00 0          [heap] (deleted)").name,
            "[heap] (deleted)"
        );
    }

    #[test]
    fn an_ended_process_is_said_to_have_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        for error in [read(pid).unwrap_err(), FlagTable::read(pid).unwrap_err()] {
            assert_eq!(error.to_string(), format!("Process {pid} has ended"));
        }
    }

    /// show_smap_vma_flags of linux-source-6.12 (6.12.117 of Debian 12) for x86-64, and what came later: "gu" with
    /// Linux 6.19. A new one must be looked at before a program that has it may leave.
    #[test]
    fn flags_of_the_kernel_are_known_and_no_others() {
        let known = "rd wr ex sh mr mw me ms gd pf lo io sr rr dc de lf ac nr ht sf ar wf dd sd mm hg nh mg um uw \
                     ui ss dp sl gu";
        for flag in known.split_whitespace() {
            assert_eq!(special_flags(flag.as_bytes()).unknown, None, "{flag}");
        }
        // Of another architecture, and of none.
        for flag in ["mt", "bt", "zz"] {
            let found = special_flags(format!("rd wr {flag} mr").as_bytes());
            assert_eq!(found.unknown, flag.as_bytes().first_chunk().copied());
        }
    }

    #[test]
    fn flags_are_found_however_long_their_mappings_lines_are() {
        let lines = |size: &str| format!("Size: {size} kB\nProtectionKey:   3\n");
        let text = [
            format!("1000-2000 rw-p 0 0:0 0\n{}VmFlags: rd gd\n", lines("4")),
            format!("2000-3000 rw-p 0 0:0 0\n{}VmFlags: rd dd\n", lines("8")),
            format!("3000-9000 rw-p 0 0:0 0\n{}VmFlags: wf\n", lines("123456")),
            "a000-b000 rw-p 0 0:0 0\nSize: 4 kB\n".to_owned(),
            "b000-c000 rw-p 0 0:0 0\nVmFlags: sl".to_owned(),
        ];
        let table = FlagTable::parse(text.concat().as_bytes());
        let of = |start, end| table.of(Range { start, end });
        assert!(of(0x1000, 0x2000).flags.grows_down && of(0x2000, 0x3000).flags.dont_dump);
        assert!(of(0x3000, 0x9000).flags.wipe_on_fork && of(0xb000, 0xc000).sealed);
        assert_eq!(of(0x2000, 0x3000).protection_key, 3);
        assert_eq!(of(0x3000, 0x9000).protection_key, 3);
        assert_eq!(of(0xb000, 0xc000).protection_key, 0);
        assert_eq!(table.iter().count(), 4);
    }

    #[test]
    fn damaged_text_is_refused() {
        for text in [
            "x",
            "2000-1000 r--p 0 0:0 0",
            "1001-2000 r--p 0 0:0 0",
            "1000-2000 r--p 0 00 0",
            "1000-2000 r-p 0 0:0 0",
            "1000-3000 r--p 0 0:0 0\n2000-4000 r--p 0 0:0 0",
            "1000-2000 r--p 0 0:0 99999999999999999999999",
        ] {
            assert!(parse(1, text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_middle_of_the_largest_hole_is_found() {
        let entries = [(0x10, 0x20), (0x40, 0x41), (0x100, 0x101)].map(|(start, end)| MapEntry {
            range: Range {
                start: start * PAGE_SIZE,
                end: end * PAGE_SIZE,
            },
            ..one("1000-2000 r--p 0 0:0 0")
        });
        let within = Range {
            start: 0x15 * PAGE_SIZE,
            end: 0x100 * PAGE_SIZE,
        };
        let free: Vec<_> = free_ranges(&entries, within)
            .map(|r| (r.start, r.end))
            .collect();
        let page = PAGE_SIZE;
        assert_eq!(
            free,
            [(0x20 * page, 0x40 * page), (0x41 * page, 0x100 * page)]
        );
        let found = find_free(&entries, within, 2 * page, page).unwrap();
        assert!(found.start > 0x90 * page && found.end < 0xb0 * page && found.len() == 2 * page);
        assert!(find_free(&entries, within, 0xc0 * page, page).is_none());
        assert!(find_free(&entries, within, 0xbf * page, page).is_some());
    }

    #[test]
    fn our_own_mappings_are_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let entries = read(pid).unwrap();
        assert!(entries.iter().any(|entry| entry.name == "[vdso]"));
        let table = FlagTable::read(pid).unwrap();
        let stack = entries
            .iter()
            .find(|entry| entry.name == "[stack]")
            .unwrap();
        assert!(table.of(stack.range).flags.grows_down);
        // The stack as it would be after it has grown, and a part of it.
        let (start, end) = (stack.range.start, stack.range.end);
        let grown = |start, end| table.of(Range { start, end }).flags.grows_down;
        assert!(grown(start - 8192, end) && grown(end - 4096, end));
        assert!(!grown(start - 8192, start - 4096));
    }
}
