//! The table of `docs/pipt-routines.md` has each routine, as the program describes it, and names its oracle and a test
//! that is there.

#![forbid(unsafe_code)]

use pipt::routine;
use std::path::Path;

/// A row's cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(str::trim).collect()
    })
    .collect()
}

#[test]
fn every_routine_has_its_oracle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/pipt-routines.md")).expect("the table");
    let rows = rows(&text);
    let routines: Vec<_> = routine::all().collect();
    assert_eq!(rows.len(), routines.len(), "a row for each routine");
    for (row, routine) in rows.iter().zip(routines) {
        let [name, about, oracle, tests, equal] = row.as_slice() else {
            panic!("{row:?} has not five cells");
        };
        assert_eq!(*name, format!("`{}`", routine.name), "in their order");
        assert_eq!(
            about.replace('\\', ""),
            routine.about,
            "{name}: as `pipt list` says it"
        );
        assert!(!oracle.is_empty() && !equal.is_empty(), "{name}");
        assert!(text.contains(routine.family.about()), "{name}: its family");
        for test in tests.split(", ") {
            let path = root.join(test.trim_matches('`'));
            assert!(path.is_file(), "{name}: {} is no test", path.display());
        }
    }
}
