//! Mappings of processes that change them meanwhile.
#![forbid(unsafe_code)]

mod guests;

use guests::Guest;
use whim_image::maps;

/// Where the kernel shows some twice, one reading in forty did.
const READINGS: usize = 2000;

#[test]
fn mappings_that_change_meanwhile_are_read() {
    let program = guests::compile("remaps");
    let mut guest = Guest::start(&program, &[]);
    assert_eq!(guest.line().as_deref(), Some("ready"));
    for reading in 0..READINGS {
        let read = maps::read(guest.pid());
        assert!(read.is_ok(), "{reading}: {read:?}");
    }
}
