//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate.

use crate::freeze_observe::{Status, state_and_cpu_of, times};
use crate::maps::{self, FlagTable, MAPPINGS_MAX};
use crate::rebuild::check_image;
use crate::vdso::{LENGTH_MAX, Proxy};
use whim_model::USER_END;
use whim_model::{
    Activity, AlternateStack, Backing, Clocks, CpuTime, Mapping, MappingFlags, MappingId,
    MemoryLayout, PAGE_SIZE, ProcessImage, Protection, Range, Registers, SignalAction, ThreadImage,
};

/// What /proc says of mappings is understood or refused, and names, which users choose, change no
/// other field.
pub fn maps(data: &[u8]) {
    if let Ok(entries) = maps::parse(1, data) {
        assert!(entries.len() <= MAPPINGS_MAX);
        let mut at = 0;
        for entry in &entries {
            let Range { start, end } = entry.range;
            assert!(at <= start && start < end && start <= USER_END, "{entry:?}");
            assert!((start | end).is_multiple_of(PAGE_SIZE), "{entry:?}");
            assert!(entry.protection.0 <= 7, "{entry:?}");
            at = end;
        }
        let within = Range {
            start: maps::USER_BEGIN,
            end: USER_END,
        };
        if let Some(free) = maps::find_free(&entries, within, 16 * PAGE_SIZE, 1 << 21) {
            assert!(free.start.is_multiple_of(1 << 21) && free.len() == 16 * PAGE_SIZE);
            assert!(!entries.iter().any(|entry| entry.range.overlaps(free)));
        }
    }
    for (range, flags) in FlagTable::parse(data).iter() {
        assert!(!range.is_empty());
        let table = FlagTable::parse(data);
        assert_eq!(table.of(range), flags);
    }
    path_of_a_mapping(data);
    name_of_a_thread(data);
}

/// A path as the kernel writes it: only a newline is escaped.
fn path_of_a_mapping(path: &[u8]) {
    let path: Vec<u8> = path
        .iter()
        .copied()
        .filter(|byte| *byte != 0)
        .take(4000)
        .collect();
    let mut line = b"7f0000001000-7f0000003000 r-xs 00002000 fd:01 131   /".to_vec();
    for byte in &path {
        match byte {
            b'\n' => line.extend(b"\\012"),
            other => line.push(*other),
        }
    }
    let after = b"\n7f0000003000-7f0000004000 ---p 00000000 00:00 0 \n";
    let entries = maps::parse(1, &[&line[..], after].concat()).expect("as the kernel writes it");
    let [entry, next] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(
        (entry.range.start, entry.range.end),
        (0x7f00_0000_1000, 0x7f00_0000_3000)
    );
    assert!(entry.shared && entry.protection.0 == 5 && entry.inode == 131);
    assert_eq!((entry.offset, entry.device), (0x2000, (0xfd, 1)));
    assert_eq!(entry.deleted, line.ends_with(b" (deleted)"));
    assert!(next.name.is_empty() && next.inode == 0 && next.protection.0 == 0);
}

/// A thread's name stands in `stat` as it is, and in `status` without newlines. Neither has to be
/// UTF-8.
fn name_of_a_thread(name: &[u8]) {
    let lossy = String::from_utf8_lossy;
    let _ = Status::parse(&lossy(name));
    let _ = state_and_cpu_of(&lossy(name));
    let _ = times(&lossy(name));
    let name: Vec<u8> = name
        .iter()
        .copied()
        .filter(|byte| *byte != 0)
        .take(15)
        .collect();
    let fields = " 0".repeat(35);
    let stat = [b"7 (", &name[..], b") R", fields.as_bytes(), b" 3 0 0\n"].concat();
    let after = b" (7, #threads: 1)\n---\nse.exec_start : 5.000001\nnr_voluntary_switches : 4\n";
    let sched = [&name[..], after].concat();
    assert_eq!(times(&lossy(&sched)), Some((5_000_001, 4)));
    assert_eq!(state_and_cpu_of(&lossy(&stat)), Some(('R', 3)));
    let shown: Vec<u8> = name
        .iter()
        .flat_map(|byte| match byte {
            b'\n' => b"\\n".to_vec(),
            b'\\' => b"\\\\".to_vec(),
            other => vec![*other],
        })
        .collect();
    let rest = b"\nState:\tS (sleeping)\nTgid:\t70\nNSpid:\t71\t7\nUid:\t1\t2\t3\t4\n";
    let status = Status::parse(&lossy(&[b"Name:\t", &shown[..], rest].concat()));
    assert_eq!((status.tgid, status.own_id, status.namespaces), (70, 7, 2));
    assert_eq!((status.state, &status.uids[..]), ('S', &[1, 2, 3, 4][..]));
}

const VDSO_AT: u64 = 0x7fff_f000_0000;

/// A vDSO is copied and its functions replaced, or it is refused. Nothing else in it changes, and
/// no thread is set to a place outside of it.
pub fn vdso(data: &[u8]) {
    let length = data.len().next_multiple_of(4096);
    if length == 0 || length > 2 * LENGTH_MAX {
        return;
    }
    let mut bytes = data.to_vec();
    bytes.resize(length, 0);
    let mut image = image(&[]);
    image.mappings.clear();
    for (start, end, name) in [
        (VDSO_AT - 0x4000, VDSO_AT, "[vvar]"),
        (VDSO_AT, VDSO_AT + length as u64, "[vdso]"),
    ] {
        let name = name.to_owned();
        image
            .mappings
            .push(mapping(start, end, Backing::Kernel { name }));
    }
    image.vdso = bytes;
    check_proxy(&image, &check_image(&image).is_ok());
}

fn check_proxy(image: &ProcessImage, sound: &bool) {
    let Ok(Some(proxy)) = Proxy::of(image) else {
        return;
    };
    let (range, after) = proxy.contents();
    assert!(!*sound || after.len() <= LENGTH_MAX);
    assert_eq!(after.len(), image.vdso.len());
    for (offset, (old, new)) in image.vdso.iter().zip(after).enumerate() {
        let address = range.start + offset as u64;
        let begin = proxy.begin_of(address);
        assert!(old == new || begin.is_some(), "{offset:#x} was changed");
        assert!(begin.is_none_or(|begin| range.contains(begin) && begin <= address));
        assert!(proxy.stands_in(address) || begin == Some(address));
    }
    for outside in [0, range.start - 1, range.end, u64::MAX] {
        assert!(proxy.begin_of(outside).is_none() && !proxy.stands_in(outside));
    }
    let _ = proxy.is_remembered(&image.vdso);
    assert!(proxy.covers(range));
}

/// Reads numbers from an input; after the end of the input they are 0.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// A number of pages, or any number at all.
    fn address(&mut self) -> u64 {
        let kind = self.byte();
        let low = u64::from(self.byte()) | u64::from(self.byte()) << 8;
        match kind {
            0..=127 => low * PAGE_SIZE,
            128..=159 => low << 40,
            160..=191 => USER_END.wrapping_sub(low * PAGE_SIZE),
            192..=223 => low,
            _ => u64::MAX - low,
        }
    }

    fn range(&mut self) -> Range {
        let start = self.address();
        let end = match self.byte() {
            0 => self.address(),
            pages => start.wrapping_add(u64::from(pages) * PAGE_SIZE),
        };
        Range { start, end }
    }
}

fn mapping(start: u64, end: u64, backing: Backing) -> Mapping {
    Mapping {
        start,
        end,
        protection: Protection(5),
        flags: MappingFlags::default(),
        backing,
    }
}

/// A thread that has nothing but its number.
pub(crate) fn thread(tid: i32) -> ThreadImage {
    ThreadImage {
        tid,
        registers: Registers::default(),
        activity: Activity::Computing,
        awaited: 0,
        xstate: Vec::new(),
        signal_mask: 0,
        alternate_stack: AlternateStack::default(),
        rseq: None,
        robust_list: (0, 0),
        tid_address: 0,
        pending: Vec::new(),
        name: Vec::new(),
        settings: Default::default(),
        deadline_ns: None,
        cpu_away: CpuTime::default(),
    }
}

/// A sound image with as little as there may be.
pub(crate) fn smallest() -> ProcessImage {
    ProcessImage {
        pid: 1,
        threads: vec![thread(1)],
        actions: vec![SignalAction::default(); 64],
        pending: Vec::new(),
        mappings: Vec::new(),
        guards: Vec::new(),
        layout: MemoryLayout::default(),
        limits: Vec::new(),
        personality: 0,
        no_transparent_huge_pages: false,
        barriers: 0,
        denies_memory: 0,
        filters: Vec::new(),
        locks_future: false,
        descriptor_signals: 0,
        remarks: Vec::new(),
        reserved: Range {
            start: 32 << 40,
            end: 33 << 40,
        },
        vdso: Vec::new(),
        clocks: Clocks::default(),
        cpu_away: CpuTime::default(),
        cpu_timers: Default::default(),
    }
}

/// A sound image with the changes that the input describes.
#[must_use]
pub fn image(data: &[u8]) -> ProcessImage {
    let mut numbers = Numbers(data);
    let mut image = smallest();
    while !numbers.0.is_empty() {
        match numbers.byte() % 16 {
            0..=3 => {
                let Range { start, end } = numbers.range();
                image.mappings.push(mapping(start, end, Backing::Anonymous));
            }
            4..=6 => {
                let Range { start, end } = numbers.range();
                let id = MappingId(u32::from(numbers.byte()));
                let offset = numbers.address();
                image
                    .mappings
                    .push(mapping(start, end, Backing::File { id, offset }));
            }
            7 => {
                let Range { start, end } = numbers.range();
                let name = ["[vdso]", "[vvar]", "[stack]"][usize::from(numbers.byte() % 3)].into();
                image
                    .mappings
                    .push(mapping(start, end, Backing::Kernel { name }));
            }
            8 | 9 => image.guards.push(numbers.range()),
            10 => image.reserved = numbers.range(),
            11 => image.threads.push(thread(i32::from(numbers.byte()))),
            12 => image.pid = i32::from(numbers.byte()),
            13 => image.actions.truncate(usize::from(numbers.byte())),
            14 => {
                if let Some(last) = image.mappings.last_mut() {
                    last.protection = Protection(numbers.byte());
                }
            }
            _ => {
                let length = usize::from(numbers.byte()) * 1024;
                image.vdso = vec![numbers.byte(); length];
            }
        }
    }
    image
}

/// An accepted image has only what a process can have.
pub fn rebuild(data: &[u8]) {
    let image = image(data);
    let sound = check_image(&image).is_ok();
    if sound {
        let reserved = image.reserved;
        assert!(!reserved.is_empty() && reserved.end <= USER_END);
        let mut at = 0;
        for mapping in &image.mappings {
            let range = Range {
                start: mapping.start,
                end: mapping.end,
            };
            assert!(at <= range.start && !range.is_empty() && range.end <= USER_END);
            assert!(!range.overlaps(reserved) && mapping.protection.0 <= 7);
            assert_eq!(mapping.len(), range.len());
            if let Backing::File { offset, .. } = mapping.backing {
                assert!(
                    offset
                        .checked_add(mapping.len())
                        .is_some_and(|end| end <= 1 << 48)
                );
            }
            at = range.end;
        }
        for guard in &image.guards {
            let inside =
                |mapping: &Mapping| mapping.start <= guard.start && guard.end <= mapping.end;
            assert!(!guard.is_empty() && image.mappings.iter().any(inside));
        }
        assert_eq!(
            image.threads.first().map(|leader| leader.tid),
            Some(image.pid)
        );
        assert!(Proxy::kernel_mappings(&image).len() <= image.mappings.len());
        check_proxy(&image, &sound);
    }
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_maps() {
        replay("maps", super::maps);
    }

    #[test]
    fn corpus_of_vdsos() {
        replay("vdso", super::vdso);
    }

    #[test]
    fn corpus_of_rebuilt_images() {
        replay("rebuild", super::rebuild);
    }

    /// Only if the image is sound without changes can it show what a change does.
    #[test]
    fn the_image_without_changes_is_sound() {
        crate::rebuild::check_image(&super::image(&[])).expect("sound");
    }
}
