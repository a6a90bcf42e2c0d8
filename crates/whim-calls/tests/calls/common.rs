//! A guest's memory, as pages with permissions.

use std::cell::Cell;
use std::collections::BTreeMap;

use whim_calls::{Context, Decision, Direction, Forward, GuestMemory, Region, Returned, resolve};
use whim_model::Syscall;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const PID: i32 = 500;
/// The reserved range of the tests: 2 TiB at 32 TiB.
/// Room below a mapping that grows.
pub(crate) const ROOM: (u64, u64) = (0x7000_0000_0000, 0x7000_0010_0000);
pub(crate) const RESERVED: (u64, u64) = (0x2000_0000_0000, 0x2200_0000_0000);

#[derive(Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u64, (bool, Vec<u8>)>,
    /// The longest buffer that was asked for in one read.
    pub longest: Cell<usize>,
    /// Where files are mapped: beginnings and ends.
    pub files: Vec<(u64, u64)>,
}

impl Pages {
    /// Maps whole pages from `address` on.
    pub(crate) fn map(&mut self, address: u64, pages: u64, writable: bool) {
        for page in 0..pages {
            let key = address / PAGE + page;
            self.pages.insert(key, (writable, vec![0; 4096]));
        }
    }

    /// Stores bytes, whatever the permissions.
    pub(crate) fn store(&mut self, address: u64, bytes: &[u8]) {
        for (place, byte) in (address..).zip(bytes) {
            let (_, page) = self.pages.get_mut(&(place / PAGE)).expect("page is mapped");
            page[usize::try_from(place % PAGE).unwrap()] = *byte;
        }
    }

    pub(crate) fn words(&mut self, address: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.store(address, &bytes);
    }
}

impl GuestMemory for Pages {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.longest.set(self.longest.get().max(buffer.len()));
        for (index, byte) in buffer.iter_mut().enumerate() {
            let place = address.wrapping_add(index as u64);
            let Some((_, page)) = self.pages.get(&(place / PAGE)) else {
                return index;
            };
            *byte = page[usize::try_from(place % PAGE).unwrap()];
        }
        buffer.len()
    }

    fn has_file(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length);
        let mut files = self.files.iter();
        files.any(|(from, to)| *from < end && address < *to)
    }

    fn is_file(&self, address: u64, length: u64) -> bool {
        let mut files = self.files.iter();
        files.any(|(from, to)| *from <= address && address + length <= *to)
    }

    fn is_run(&self, address: u64, length: u64) -> bool {
        self.is_file(address, length)
    }

    fn forbids(&self, address: u64, length: u64, protection: u32) -> bool {
        protection & 4 != 0 && self.has_file(address, length)
    }

    fn is_room(&self, address: u64, length: u64) -> bool {
        let (start, end) = ROOM;
        address < end && address.saturating_add(length) > start
    }

    fn writable(&self, address: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        let Some(last) = address.checked_add(length - 1) else {
            return false;
        };
        if length > 64 << 20 {
            return false;
        }
        (address / PAGE..=last / PAGE)
            .all(|page| self.pages.get(&page).is_some_and(|(writable, _)| *writable))
    }
}

pub(crate) fn context() -> Context {
    Context {
        pid: PID,
        threads: vec![PID, PID + 1],
        reserved: RESERVED,
        locks_future: false,
        descriptor_signals: 0,
    }
}

/// Four writable pages at 0x10000, four read-only ones at 0x20000; nothing else.
pub(crate) fn pages() -> Pages {
    let mut pages = Pages::default();
    pages.map(0x10000, 4, true);
    pages.map(0x20000, 4, false);
    pages
}

pub(crate) fn call(sysno: syscalls::Sysno, arguments: &[u64]) -> Syscall {
    let mut args = [0; 6];
    args[..arguments.len()].copy_from_slice(arguments);
    Syscall {
        number: sysno as u64,
        args,
    }
}

pub(crate) fn decide(memory: &Pages, sysno: syscalls::Sysno, arguments: &[u64]) -> Decision {
    resolve(&call(sysno, arguments), &context(), memory)
}

pub(crate) fn forward(memory: &Pages, sysno: syscalls::Sysno, arguments: &[u64]) -> Forward {
    match decide(memory, sysno, arguments) {
        Decision::Forward(forward) => forward,
        other => panic!("{sysno} is not forwarded but {other:?}"),
    }
}

pub(crate) fn goes_home(memory: &Pages, sysno: syscalls::Sysno, arguments: &[u64]) -> bool {
    matches!(decide(memory, sysno, arguments), Decision::GoHome(_))
}

pub(crate) fn region_in(address: u64, data: &[u8]) -> Region {
    Region {
        address,
        length: data.len() as u64,
        direction: Direction::In,
        returned: Returned::Nothing,
        data: data.to_vec(),
    }
}

pub(crate) fn region_out(address: u64, length: u64, returned: Returned) -> Region {
    Region {
        address,
        length,
        direction: Direction::Out,
        returned,
        data: Vec::new(),
    }
}

pub(crate) fn region_both(address: u64, data: &[u8], returned: Returned) -> Region {
    Region {
        address,
        length: data.len() as u64,
        direction: Direction::InOut,
        returned,
        data: data.to_vec(),
    }
}
