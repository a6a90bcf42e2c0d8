//! Freezes, captures and releases a process some times, and prints how long each step took.
#![forbid(unsafe_code)]

use std::time::Instant;
use whim_image::capture::CaptureOptions;
use whim_image::freeze::{FreezeLimits, freeze};
use whim_model::Range;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let pid: i32 = arguments[1].parse().expect("a pid");
    let times: u32 = arguments
        .get(2)
        .map_or(1, |text| text.parse().expect("a number"));
    let capture = arguments.get(3).is_some_and(|word| word == "capture");
    for _ in 0..times {
        let began = Instant::now();
        let mut frozen = match freeze(pid, &FreezeLimits::default()) {
            Ok(frozen) => frozen,
            Err(error) => {
                println!("{error}");
                return;
            }
        };
        let stopped = began.elapsed();
        let threads = frozen.threads().len();
        if times <= 5 {
            for thread in frozen.threads() {
                println!("{:?} rax {:#x}", thread.call(), thread.registers().rax);
            }
        }
        let mut captured_in = None;
        let mut count = (0, 0);
        if capture {
            let reserved = Range {
                start: 0x1000_0000_0000,
                end: 0x2000_0000_0000,
            };
            let begins_in_guest =
                |number: u64| matches!(number, 202 | 35 | 230 | 24 | 34 | 130 | 128);
            let options = CaptureOptions {
                reserved,
                begins_in_guest: &begins_in_guest,
            };
            let captured = frozen.capture(&options).expect("a capture");
            captured_in = Some(began.elapsed() - stopped);
            count = (captured.image.mappings.len(), captured.in_flight.len());
            if times == 1 {
                for call in &captured.in_flight {
                    println!("{call:?}");
                }
                println!("{:?}", captured.image.layout.brk);
                println!(
                    "{:?}",
                    captured
                        .image
                        .threads
                        .iter()
                        .map(|t| (t.tid, t.tid_address, t.alternate_stack, &t.name))
                        .collect::<Vec<_>>()
                );
            }
        }
        let before = Instant::now();
        let held = frozen.release().expect("a release");
        println!("{} held", held.len());
        println!(
            "{threads} threads, {} mappings, {} in flight: stop {stopped:?}, capture {captured_in:?}, release {:?}, all {:?}",
            count.0,
            count.1,
            before.elapsed(),
            began.elapsed()
        );
    }
}
