//! Random calls on random memory: no panic, bounded buffers, nothing in the reserved range.

use crate::common::*;
use proptest::prelude::*;
use whim_calls::{
    AWAY_BYTES_MAX, Decision, Direction, Forward, Places, REGIONS_MAX, Special, guest_filter,
    home_may_execute, resolve, row,
};
use whim_model::Syscall;

const BASE: u64 = 0x10000;
const PAGES: u64 = 8;

/// Values that mean something to some call: small numbers, pointers, borders.
fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..64u64,
        6 => BASE..BASE + PAGES * PAGE,
        1 => Just(BASE + PAGES * PAGE - 1),
        1 => prop::sample::select(vec![
            0x5413, 0x8912, 0xc020_660b, 0xc018_9436, 0x4000_ff0b, 0x1000, 1024, 65536, 1 << 20,
        ]),
        1 => RESERVED.0 - PAGE..RESERVED.0 + PAGE,
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

/// Words that look like the structures that calls lead to.
fn contents() -> impl Strategy<Value = Vec<u64>> {
    let words = usize::try_from(PAGES * PAGE / 8).unwrap();
    prop::collection::vec(argument(), 64)
        .prop_map(move |some| some.iter().copied().cycle().take(words).collect())
}

fn memory(words: &[u64], permissions: &[u8]) -> Pages {
    let mut pages = Pages::default();
    let per_page = usize::try_from(PAGE / 8).unwrap();
    for (index, permission) in permissions.iter().enumerate() {
        let address = BASE + PAGE * index as u64;
        if *permission > 0 {
            pages.map(address, 1, *permission > 1);
            pages.words(address, &words[index * per_page..(index + 1) * per_page]);
        }
    }
    pages
}

fn check(forward: &Forward, memory: &Pages) {
    use whim_calls::GuestMemory;
    assert!(forward.regions.len() <= REGIONS_MAX);
    let total: u64 = forward.regions.iter().map(|region| region.length).sum();
    assert!(total <= AWAY_BYTES_MAX, "{total} bytes");
    for region in &forward.regions {
        assert!(region.length > 0);
        assert!(region.data.len() as u64 <= region.length);
        assert!(!context().touches_reserved(region.address, region.length));
        if region.direction == Direction::Out {
            assert!(region.data.is_empty());
        }
        if matches!(region.direction, Direction::Out | Direction::InOut) {
            assert!(memory.writable(region.address, region.length));
        }
        if region.direction != Direction::Out && (region.data.len() as u64) < region.length {
            assert!(forward.may_fault);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn resolve_is_total_and_bounded(
        number in 0..480u64,
        args in prop::array::uniform6(argument()),
        words in contents(),
        permissions in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 2]), 8),
    ) {
        let memory = memory(&words, &permissions);
        let call = Syscall { number, args };
        let decision = resolve(&call, &context(), &memory);
        match &decision {
            Decision::Forward(forward)
            | Decision::Special(
            Special::ProcessTimes(forward) | Special::Both(forward) | Special::Limit(forward),
        ) => {
                check(forward, &memory);
                prop_assert!(home_may_execute(number));
            }
            Decision::Special(Special::Signal(signal)) => {
                check(&signal.forward, &memory);
                prop_assert!(home_may_execute(number));
            }
            Decision::GoHome(reason) => prop_assert!(!reason.is_empty()),
            Decision::Continue | Decision::Special(_) => prop_assert!(row(number).is_some()),
            Decision::Answer(value) => prop_assert!(*value <= 0),
        }
        prop_assert!(memory.longest.get() as u64 <= AWAY_BYTES_MAX);
    }

    #[test]
    fn filters_of_all_ranges_are_well_formed(start in 0..127u64, length in 1..8u64) {
        let range = (start << 40, (start + length) << 40);
        let others = (start..start + 2 * length).map(|place| (place << 35, (place << 35) + 1));
        let places = Places { reserved: range, others: others.collect(), locks_future: false, reads_signals: true };
        let program = guest_filter(&places);
        prop_assert!(program.len() < 4096);
    }
}
