//! The inputs below `fuzz/corpus`, for tests: a fault once found stays found.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Hands every input of a target to its entry.
///
/// # Panics
/// With the name of the input if the entry does, and if the target has no inputs.
pub fn replay(target: &str, entry: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(&directory).expect("the corpus is part of the checkout");
    let mut count = 0;
    for file in files {
        let path = file.expect("readable").path();
        let bytes = std::fs::read(&path).expect("readable");
        if let Err(fault) = catch_unwind(AssertUnwindSafe(|| entry(&bytes))) {
            eprintln!("The input is {}", path.display());
            resume_unwind(fault);
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", directory.display());
}
