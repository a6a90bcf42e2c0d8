//! The window: memory of the deputy in which buffers of forwarded calls stand at their original
//! addresses. Pure accounting; the deputy carries it out.
//!
//! A call sees only pages placed for it. A page that nobody placed gives EFAULT at once, inside
//! home's kernel and without waiting, so no lock of home is ever held across the network. Pages of a
//! thread's last call stay until its next one and are reused when it needs them again: placing a
//! page costs 1.6 us, rewriting a present one a fraction of that for small buffers, and dropping
//! them in the batch of the next call costs no wake-up of its own.

use std::collections::{BTreeSet, HashMap};
use thiserror::Error;
use whim_journey::message::{WireDirection, WireRegion};
use whim_model::{PAGE_SIZE, Range};

/// First address that a mapping of an ordinary process may have.
const LOWEST: u64 = 0x1_0000;
/// End of user addresses with four page-table levels, less the guard page.
const HIGHEST: u64 = 0x7fff_ffff_f000;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum WindowError {
    /// The kernel would answer EFAULT.
    #[error("The buffer at {address:#x}+{length:#x} lies outside of the window")]
    Outside { address: u64, length: u64 },
}

/// What has to be done so that a call's buffers are present, and no other pages of this thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Absent pages, with their contents: page aligned address, whole pages.
    pub place: Vec<(u64, Vec<u8>)>,
    /// Bytes for pages that are present: address, offset and length in the tail.
    pub write: Vec<(u64, usize, usize)>,
    /// Page ranges that only the thread's last call needed, to be dropped before this call.
    pub drop: Vec<Range>,
    /// Protected pages that `write` writes to, or the call may write to.
    pub open: Vec<u64>,
    /// Pages to be protected once everything is placed and written.
    pub protect: Vec<u64>,
}

/// Accounting of one window.
#[derive(Debug)]
pub struct Window {
    pieces: Vec<Range>,
    /// Ranges of the kernel's own (vDSO): present in the deputy, never placed.
    kernel: Vec<Range>,
    users: HashMap<u64, u32>,
    held: HashMap<usize, BTreeSet<u64>>,
    /// Pages that a thread's call in flight must not write to.
    protected: HashMap<usize, BTreeSet<u64>>,
}

/// Cuts `holes` (any order) out of the whole user address range.
#[must_use]
pub(crate) fn pieces_around(holes: &[Range]) -> Vec<Range> {
    let mut sorted = holes.to_vec();
    sorted.sort_by_key(|hole| hole.start);
    let mut pieces = Vec::new();
    let mut at = LOWEST;
    for hole in sorted {
        if hole.start > at {
            pieces.push(Range {
                start: at,
                end: hole.start.min(HIGHEST),
            });
        }
        at = at.max(hole.end);
    }
    if at < HIGHEST {
        pieces.push(Range {
            start: at,
            end: HIGHEST,
        });
    }
    pieces
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

fn pages_of(address: u64, length: u64) -> impl Iterator<Item = u64> {
    let first = page_of(address);
    let last = if length == 0 {
        first
    } else {
        page_of(address + length - 1) + PAGE_SIZE
    };
    (first..last).step_by(4096)
}

impl Window {
    /// `reserved`: attic, seats and code; `kernel`: vDSO and vvar.
    #[must_use]
    pub fn new(reserved: Range, kernel: &[Range]) -> Self {
        let mut holes = kernel.to_vec();
        holes.push(reserved);
        Self {
            pieces: pieces_around(&holes),
            kernel: kernel.to_vec(),
            users: HashMap::new(),
            held: HashMap::new(),
            protected: HashMap::new(),
        }
    }

    /// The ranges that are mapped as window.
    #[must_use]
    pub fn pieces(&self) -> &[Range] {
        &self.pieces
    }

    /// Marks pages as present for good (arguments and environment, so that `ps` shows them).
    pub fn pin(&mut self, range: Range) {
        for page in pages_of(range.start, range.len()) {
            *self.users.entry(page).or_default() += 1;
        }
    }

    /// How much of a region has to be present: outputs whole, inputs as far as the guest had them.
    fn present_length(region: &WireRegion) -> u64 {
        match region.direction {
            WireDirection::Out => region.length,
            WireDirection::In | WireDirection::InOut | WireDirection::Protected => {
                region.data_length
            }
        }
    }

    fn is_kernel(&self, address: u64, length: u64) -> bool {
        self.kernel
            .iter()
            .any(|k| address >= k.start && address.saturating_add(length) <= k.end)
    }

    fn check(&self, region: &WireRegion) -> Result<bool, WindowError> {
        let length = Self::present_length(region);
        if length == 0 || self.is_kernel(region.address, length) {
            return Ok(false);
        }
        let end = region.address.checked_add(length);
        let inside = end.is_some_and(|end| {
            self.pieces
                .iter()
                .any(|p| region.address >= p.start && end <= p.end)
        });
        if inside {
            Ok(true)
        } else {
            Err(WindowError::Outside {
                address: region.address,
                length,
            })
        }
    }

    /// Plans a call of thread `seat`. The accounting is changed at once: the plan must be carried
    /// out. `tail` holds the regions' data in order.
    ///
    /// # Errors
    /// A region outside of the window: nothing has changed, answer EFAULT.
    pub fn plan(
        &mut self,
        seat: usize,
        regions: &[WireRegion],
        tail: &[u8],
    ) -> Result<Placement, WindowError> {
        let mut needed = BTreeSet::new();
        for region in regions {
            if self.check(region)? {
                needed.extend(pages_of(region.address, Self::present_length(region)));
            }
        }
        let old = self.held.remove(&seat).unwrap_or_default();
        let mut placement = Placement::default();
        for page in needed.difference(&old) {
            let users = self.users.entry(*page).or_default();
            *users += 1;
            if *users == 1 {
                append_page(&mut placement.place, *page);
            }
        }
        for page in old.difference(&needed) {
            if self.release(*page) {
                append_range(&mut placement.drop, *page);
            }
        }
        self.held.insert(seat, needed);
        fill(&mut placement, regions, tail);
        self.plan_protection(seat, regions, &mut placement);
        Ok(placement)
    }

    fn plan_protection(&mut self, seat: usize, regions: &[WireRegion], placement: &mut Placement) {
        let of = |wanted: WireDirection| {
            let regions = regions.iter().filter(move |r| r.direction == wanted);
            regions.flat_map(|region| pages_of(region.address, Self::present_length(region)))
        };
        let own: BTreeSet<u64> = of(WireDirection::Protected).collect();
        let others: BTreeSet<u64> = self.protected.values().flatten().copied().collect();
        let written = placement.write.iter();
        let written: BTreeSet<u64> = written
            .flat_map(|(address, _, length)| pages_of(*address, *length as u64))
            .filter(|page| others.contains(page))
            .collect();
        let outputs = of(WireDirection::Out).chain(of(WireDirection::InOut));
        let outputs: BTreeSet<u64> = outputs.filter(|page| others.contains(page)).collect();
        placement.open.extend(written.union(&outputs));
        // Pages that this call may write to stay open, because the guest has made them writable
        // meanwhile.
        let again = written.difference(&outputs).copied();
        placement
            .protect
            .extend(own.iter().copied().chain(again).collect::<BTreeSet<u64>>());
        if !own.is_empty() {
            self.protected.insert(seat, own);
        }
    }

    /// The thread's call is over; returns the pages that need no protection any more.
    pub fn finish(&mut self, seat: usize) -> Vec<u64> {
        let own = self.protected.remove(&seat).unwrap_or_default();
        let free = |page: &u64| !self.protected.values().any(|pages| pages.contains(page));
        own.into_iter().filter(free).collect()
    }

    /// Gives up one use of a page; true when it was the last.
    fn release(&mut self, page: u64) -> bool {
        let Some(users) = self.users.get_mut(&page) else {
            return false;
        };
        *users -= 1;
        // Trap: two-threads-share-a-page
        if *users == 0 {
            self.users.remove(&page);
            return true;
        }
        false
    }

    /// Forgets what a thread holds (it ends); returns the ranges to drop.
    pub fn forget(&mut self, seat: usize) -> Vec<Range> {
        self.protected.remove(&seat);
        let mut ranges = Vec::new();
        for page in self.held.remove(&seat).unwrap_or_default() {
            if self.release(page) {
                append_range(&mut ranges, page);
            }
        }
        ranges
    }
}

fn append_page(runs: &mut Vec<(u64, Vec<u8>)>, page: u64) {
    let size = 4096;
    if let Some((start, bytes)) = runs.last_mut()
        && *start + bytes.len() as u64 == page
    {
        bytes.resize(bytes.len() + size, 0);
        return;
    }
    runs.push((page, vec![0; size]));
}

fn append_range(ranges: &mut Vec<Range>, page: u64) {
    if let Some(last) = ranges.last_mut()
        && last.end == page
    {
        last.end += PAGE_SIZE;
        return;
    }
    ranges.push(Range {
        start: page,
        end: page + PAGE_SIZE,
    });
}

/// Lays the regions' data over the pages to be placed; what falls on present pages is written.
fn fill(placement: &mut Placement, regions: &[WireRegion], tail: &[u8]) {
    let mut offset = 0usize;
    for region in regions {
        let length = usize::try_from(region.data_length).unwrap_or(usize::MAX);
        let end = offset.saturating_add(length).min(tail.len());
        if region.direction != WireDirection::Out {
            lay(
                placement,
                region.address,
                offset,
                &tail[offset.min(end)..end],
            );
        }
        offset = end;
    }
}

fn lay(placement: &mut Placement, address: u64, offset: usize, data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let here = address + at as u64;
        let found = placement.place.binary_search_by(|(start, bytes)| {
            if here < *start {
                std::cmp::Ordering::Greater
            } else if here >= *start + bytes.len() as u64 {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Equal
            }
        });
        if let Ok(index) = found {
            let (start, bytes) = &mut placement.place[index];
            let within = usize::try_from(here - *start).unwrap_or(usize::MAX);
            let count = (bytes.len() - within).min(data.len() - at);
            bytes[within..within + count].copy_from_slice(&data[at..at + count]);
            at += count;
            continue;
        }
        // This part is present already, up to the next page that is to be placed.
        let next = placement
            .place
            .iter()
            .map(|(start, _)| *start)
            .find(|start| *start > here);
        let limit = next.map_or(usize::MAX, |next| {
            usize::try_from(next - here).unwrap_or(usize::MAX)
        });
        let count = limit.min(data.len() - at);
        placement.write.push((here, offset + at, count));
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_journey::message::WireReturned;

    fn window() -> Window {
        let reserved = Range {
            start: 0x1000_0000_0000,
            end: 0x1100_0000_0000,
        };
        Window::new(
            reserved,
            &[Range {
                start: 0x7fff_0000_0000,
                end: 0x7fff_0000_2000,
            }],
        )
    }

    fn region(address: u64, length: u64, direction: WireDirection, data: u64) -> WireRegion {
        WireRegion {
            address,
            length,
            direction,
            returned: WireReturned::Whole,
            data_length: data,
        }
    }

    #[test]
    fn pieces_leave_out_what_is_not_the_window() {
        let pieces = window().pieces().to_vec();
        assert_eq!(pieces.len(), 3);
        assert_eq!(
            pieces[0],
            Range {
                start: LOWEST,
                end: 0x1000_0000_0000
            }
        );
        assert_eq!(
            pieces[2],
            Range {
                start: 0x7fff_0000_2000,
                end: HIGHEST
            }
        );
    }

    #[test]
    fn an_input_is_placed_whole_and_an_output_as_zeros() {
        let mut window = window();
        let regions = [
            region(0x20_0ffe, 4, WireDirection::In, 4),
            region(0x30_0000, 10, WireDirection::Out, 0),
        ];
        let plan = window.plan(0, &regions, b"abcd").expect("inside");
        assert_eq!(plan.place.len(), 2);
        assert_eq!(plan.place[0].0, 0x20_0000);
        assert_eq!(&plan.place[0].1[0xffe..0x1002], b"abcd");
        assert_eq!(plan.place[1], (0x30_0000, vec![0; 4096]));
        assert!(plan.write.is_empty() && plan.drop.is_empty());
    }

    #[test]
    fn pages_of_the_last_call_are_reused_or_dropped() {
        let mut window = window();
        let first = [region(0x20_0000, 0x2000, WireDirection::In, 0x2000)];
        window.plan(0, &first, &[1; 0x2000]).expect("inside");
        let second = [region(0x20_0ff0, 8, WireDirection::In, 8)];
        let plan = window.plan(0, &second, b"12345678").expect("inside");
        assert!(plan.place.is_empty());
        assert_eq!(plan.write, vec![(0x20_0ff0, 0, 8)]);
        assert_eq!(
            plan.drop,
            vec![Range {
                start: 0x20_1000,
                end: 0x20_2000
            }]
        );
    }

    #[test]
    fn a_page_that_two_threads_use_stays_until_the_second_is_done() {
        let mut window = window();
        let call = [region(0x20_0000, 8, WireDirection::Out, 0)];
        assert_eq!(window.plan(0, &call, &[]).expect("inside").place.len(), 1);
        assert_eq!(window.plan(1, &call, &[]).expect("inside").place.len(), 0);
        assert!(window.plan(0, &[], &[]).expect("inside").drop.is_empty());
        assert_eq!(window.plan(1, &[], &[]).expect("inside").drop.len(), 1);
    }

    #[test]
    fn a_page_that_may_only_be_read_is_protected_during_the_call() {
        let mut window = window();
        let read = [region(0x20_0000, 8, WireDirection::Protected, 8)];
        let plan = window.plan(0, &read, &[1; 8]).expect("inside");
        assert_eq!((plan.place.len(), plan.protect), (1, vec![0x20_0000]));
        // Another thread's input on the same page: opened for us to write it, and closed again.
        let input = [region(0x20_0100, 8, WireDirection::In, 8)];
        let plan = window.plan(1, &input, &[2; 8]).expect("inside");
        assert_eq!(plan.open, vec![0x20_0000]);
        assert_eq!(plan.protect, vec![0x20_0000]);
        // The guest has made it writable.
        let output = [region(0x20_0200, 8, WireDirection::Out, 0)];
        let plan = window.plan(2, &output, &[]).expect("inside");
        assert_eq!((plan.open, plan.protect), (vec![0x20_0000], vec![]));
        assert_eq!(window.finish(0), vec![0x20_0000]);
        assert!(window.finish(0).is_empty() && window.finish(1).is_empty());
    }

    #[test]
    fn what_the_guest_could_not_read_is_not_made_present() {
        let mut window = window();
        let call = [region(0x20_0000, 0x3000, WireDirection::In, 0x1000)];
        assert_eq!(
            window
                .plan(0, &call, &[7; 0x1000])
                .expect("inside")
                .place
                .len(),
            1
        );
    }

    #[test]
    fn addresses_outside_are_refused_and_change_nothing() {
        let mut window = window();
        for address in [0x1000_0000_0000, 0, u64::MAX - 3, 0x10ff_ffff_f000] {
            let call = [region(address, 8, WireDirection::Out, 0)];
            assert!(window.plan(0, &call, &[]).is_err(), "{address:#x}");
        }
        assert!(window.users.is_empty());
        let vdso = [region(0x7fff_0000_0100, 8, WireDirection::In, 8)];
        assert!(
            window
                .plan(0, &vdso, &[0; 8])
                .expect("the kernel's")
                .place
                .is_empty()
        );
    }
}
