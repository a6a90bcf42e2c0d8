//! Labs with real namespaces. Needs root; says so and passes otherwise.

mod support;

use std::time::{Duration, Instant};

use support::{TestLab, needs_root};
use whim_lab::NodeState;

#[test]
fn nodes_are_machines_of_their_own() {
    needs_root!();
    let lab = TestLab::up("own", |_| {});
    let began = Instant::now();
    assert_eq!(lab.out("n1", "hostname"), "n1");
    println!("exec took {:?}", began.elapsed());
    assert_eq!(lab.out("n3", "uname -n"), "n3");
}
