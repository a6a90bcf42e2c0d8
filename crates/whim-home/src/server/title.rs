//! The program's arguments and environment, which the deputy keeps in sight of `ps`.

use super::Server;
use whim_journey::message::TITLE_MAX;
use whim_model::Range;
use whim_sys::process_vm;

impl Server {
    /// Takes over what the guest has written over its arguments and environment, which are `within`. A host
    /// can direct that nowhere else.
    pub fn set_title(&self, within: Range, address: u64, bytes: &[u8]) {
        let Some(told) = place_of(within, address, bytes.len()) else {
            tracing::debug!("a title lies elsewhere than the program's arguments");
            return;
        };
        // What a call in flight writes there is the call's.
        let active = self
            .callers
            .iter()
            .filter_map(|caller| caller.active.as_ref());
        let mut regions = active.flat_map(|active| &active.regions);
        let in_use = regions.any(|region| {
            let end = region.address.saturating_add(region.length);
            let start = region.address;
            Range { start, end }.overlaps(told)
        });
        if !in_use {
            // Without these pages in the deputy, there is nothing to be seen.
            let _ = process_vm::write(self.deputy.pid(), address, bytes);
        }
    }
}

/// Where a title of this length stands, if that is within the arguments.
fn place_of(within: Range, address: u64, length: usize) -> Option<Range> {
    let end = address.checked_add(length as u64)?;
    let start = address;
    let fits = length <= TITLE_MAX && start >= within.start && end <= within.end;
    fits.then_some(Range { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_stands_in_the_arguments_alone() {
        let within = Range {
            start: 4096,
            end: 4096 + (1 << 20),
        };
        let place = |address, length| place_of(within, address, length);
        assert_eq!(
            place(4096, 8),
            Some(Range {
                start: 4096,
                end: 4104
            })
        );
        assert!(place(4096, TITLE_MAX).is_some());
        assert_eq!(place(4096, TITLE_MAX + 1), None);
        assert_eq!(place(4095, 8), None);
        assert_eq!(place(within.end - 7, 8), None);
        assert_eq!(place(u64::MAX - 3, 8), None);
        assert_eq!(place_of(Range::default(), 4096, 1), None);
    }
}
