//! Which pages of an address range exist, and what kind they are.

use crate::process_vm::RemotePiece;
use crate::pulse;
use libc::{c_long, c_ulong};
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: c_ulong = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_GUARD: u64 = 1 << 8;
/// Bits of an entry of the classic file.
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_GUARD: u64 = 1 << 58;
/// Regions fetched per PAGEMAP_SCAN.
const BATCH: usize = 512;

/// What the pages of a [`Run`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process's own: anonymous, or a private copy of a file's page; resident or swapped.
    Private,
    /// A page of the page cache, or shared memory.
    File,
    /// A guard (MADV_GUARD_INSTALL): an access gives SIGSEGV.
    Guard,
}

/// Neighbouring pages of one kind. `start < end`, page aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub kind: Kind,
}

impl Run {
    /// In bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// As a piece for `process_vm`.
    #[must_use]
    pub fn piece(&self) -> RemotePiece {
        RemotePiece {
            address: self.start,
            length: usize::try_from(self.len()).unwrap_or(0),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vector: u64,
    vector_length: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

const _: () = assert!(size_of::<ScanArguments>() == 0x60);

/// `/proc/PID/pagemap`, with PAGEMAP_SCAN where the kernel has it (6.7), else read entry by entry.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    scan: bool,
    /// PAGE_IS_GUARD is known (6.15).
    guards: bool,
    /// What [`Self::runs`] looks for.
    wanted: u64,
}

impl Pagemap {
    /// # Errors
    /// When the process is gone or not ours.
    pub fn open(pid: i32) -> io::Result<Self> {
        let file = crate::opened::pagemap(pid)?;
        let mut map = Self {
            file,
            scan: true,
            guards: true,
            wanted: PAGE_IS_PRESENT | PAGE_IS_SWAPPED | PAGE_IS_GUARD,
        };
        let mut none = [Region::default(); 1];
        // An empty range tells whether the request and its masks are known.
        if map.scan_once(0, 0, &mut none).is_err() {
            map.guards = false;
            map.scan = map.scan_once(0, 0, &mut none).is_ok();
        }
        Ok(map)
    }

    /// Finds only guards from now on. Returns false where the kernel does not report them (before
    /// 6.15).
    pub fn only_guards(&mut self) -> bool {
        self.wanted = PAGE_IS_GUARD;
        self.scan && self.guards
    }

    fn scan_once(&self, start: u64, end: u64, into: &mut [Region]) -> Result<(usize, u64), Errno> {
        let guard = if self.guards { PAGE_IS_GUARD } else { 0 };
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start,
            end,
            vector: into.as_mut_ptr().expose_provenance() as u64,
            vector_length: into.len() as u64,
            category_any_of: if self.guards {
                self.wanted
            } else {
                self.wanted & !PAGE_IS_GUARD
            },
            return_mask: PAGE_IS_FILE | PAGE_IS_PFNZERO | guard,
            ..ScanArguments::default()
        };
        // JUSTIFICATION: no crate that we use knows this ioctl.
        // SAFETY: the argument is a live pm_scan_arg of its declared size; its vector is the slice
        // `into`, with its true length, borrowed mutably for this call.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
        let found = c_long::from(found);
        match usize::try_from(found) {
            Ok(found) => Ok((found, arguments.walk_end)),
            Err(_) => Err(Errno::last()),
        }
    }

    /// The runs of existing pages in a range (page aligned), ascending. Pages of the kernel's zero
    /// page are left out where the kernel can tell them.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn runs(&self, start: u64, end: u64) -> io::Result<Vec<Run>> {
        let mut runs = Vec::new();
        self.add_runs(start, end, &mut runs)?;
        Ok(runs)
    }

    /// The same of many ranges, which ascend: each run with the index of its range. Where the kernel can scan,
    /// a hundred ranges take one call.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn runs_of(&self, ranges: &[(u64, u64)]) -> io::Result<Vec<(usize, Run)>> {
        let mut found = Vec::new();
        let (Some((start, _)), Some((_, end))) = (ranges.first(), ranges.last()) else {
            return Ok(found);
        };
        if !self.scan {
            for (index, (start, end)) in ranges.iter().enumerate() {
                pulse::advance();
                let runs = self.runs(*start, *end)?.into_iter();
                found.extend(runs.map(|run| (index, run)));
            }
            return Ok(found);
        }
        let mut runs = Vec::new();
        self.add_scanned(*start, *end, &mut runs)?;
        for run in runs {
            let first = ranges.partition_point(|(_, end)| *end <= run.start);
            let over = ranges.iter().enumerate().skip(first);
            let over = over.take_while(|(_, (start, _))| *start < run.end);
            found.extend(over.map(|(index, (start, end))| {
                let (start, end) = (run.start.max(*start), run.end.min(*end));
                (index, Run { start, end, ..run })
            }));
        }
        Ok(found)
    }

    fn add_runs(&self, start: u64, end: u64, runs: &mut Vec<Run>) -> io::Result<()> {
        if self.scan {
            self.add_scanned(start, end, runs)
        } else {
            self.add_read(start, end, runs)
        }
    }

    fn add_scanned(&self, start: u64, end: u64, runs: &mut Vec<Run>) -> io::Result<()> {
        let mut regions = [Region::default(); BATCH];
        let mut at = start;
        while at < end {
            pulse::advance();
            let (found, walked) = match self.scan_once(at, end, &mut regions) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for region in &regions[..found] {
                if let Some(kind) = kind_of_categories(region.categories) {
                    push(
                        runs,
                        Run {
                            start: region.start,
                            end: region.end,
                            kind,
                        },
                    );
                }
            }
            if walked <= at {
                return Err(io::Error::other("PAGEMAP_SCAN does not advance"));
            }
            at = walked;
        }
        Ok(())
    }

    fn add_read(&self, start: u64, end: u64, runs: &mut Vec<Run>) -> io::Result<()> {
        let mut entries = vec![0u8; 64 << 10];
        let mut at = start;
        while at < end {
            let wanted = usize::try_from((end - at) / PAGE * 8).unwrap_or(usize::MAX);
            let length = wanted.min(entries.len());
            let got = self.file.read_at(&mut entries[..length], at / PAGE * 8)? / 8;
            if got == 0 {
                return Ok(());
            }
            for entry in entries[..got * 8].chunks_exact(8) {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                if let Some(kind) = kind_of_entry(entry) {
                    push(
                        runs,
                        Run {
                            start: at,
                            end: at + PAGE,
                            kind,
                        },
                    );
                }
                at += PAGE;
            }
        }
        Ok(())
    }
}

fn kind_of_categories(categories: u64) -> Option<Kind> {
    if categories & PAGE_IS_GUARD != 0 {
        Some(Kind::Guard)
    } else if categories & PAGE_IS_FILE != 0 {
        Some(Kind::File)
    } else if categories & PAGE_IS_PFNZERO != 0 {
        None
    } else {
        Some(Kind::Private)
    }
}

fn kind_of_entry(entry: u64) -> Option<Kind> {
    if entry & ENTRY_GUARD != 0 {
        Some(Kind::Guard)
    } else if entry & (ENTRY_PRESENT | ENTRY_SWAPPED) == 0 {
        None
    } else if entry & ENTRY_FILE != 0 {
        Some(Kind::File)
    } else {
        // Trap: a-kernel-without-page-scans
        Some(Kind::Private)
    }
}

fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end == run.start && last.kind == run.kind => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::num::NonZeroUsize;

    #[test]
    fn both_ways_find_the_touched_pages() {
        let length = NonZeroUsize::new(64 * 4096).unwrap();
        // JUSTIFICATION: the test needs pages of known state.
        // SAFETY: a fresh private mapping, written only within its length.
        let area = unsafe {
            let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
            mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                flags,
            )
        }
        .unwrap();
        // JUSTIFICATION: the test needs raw memory that it may write page by page.
        // SAFETY: as above.
        unsafe {
            let flags = nix::sys::mman::MmapAdvise::MADV_NOHUGEPAGE;
            nix::sys::mman::madvise(area, length.get(), flags).unwrap();
            for page in [3usize, 4, 9] {
                area.cast::<u8>().add(page * 4096).write_volatile(7);
            }
        }
        let base = area.addr().get() as u64;
        let expected = [(3, 5), (9, 10)].map(|(from, to)| Run {
            start: base + from * PAGE,
            end: base + to * PAGE,
            kind: Kind::Private,
        });
        let mut map = Pagemap::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert_eq!(map.runs(base, base + 64 * PAGE).unwrap(), expected);
        // A neighbour that is not asked about lies between these.
        let page = |number: u64| base + number * PAGE;
        let ranges = [(page(0), page(4)), (page(4), page(5)), (page(9), page(12))];
        let run = |from, to| Run {
            start: page(from),
            end: page(to),
            kind: Kind::Private,
        };
        let parts = [(0, run(3, 4)), (1, run(4, 5)), (2, run(9, 10))];
        assert_eq!(map.runs_of(&ranges).unwrap(), parts);
        assert_eq!(map.runs_of(&ranges[1..2]).unwrap(), [(0, run(4, 5))]);
        assert_eq!(map.runs_of(&[]).unwrap(), []);
        map.scan = false;
        assert_eq!(map.runs(base, base + 64 * PAGE).unwrap(), expected);
        assert_eq!(map.runs_of(&ranges).unwrap(), parts);
        // JUSTIFICATION: the test gives back what it mapped.
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(area, length.get()).unwrap() };
    }
}
