//! The deciding parts of a journey (`whim_journey`: session, turn, commit, lease, recall, stay), which the
//! supervisors run, run here through many schedules of what may go wrong: connections that break, for
//! one side or both, frames that are lost, doubled and reordered, links that are cut, nodes that stall
//! or die, journals that cannot be written, clocks that differ. What a program does has serial
//! numbers:
//!
//! - no effect comes twice or is left out;
//! - a program that could go on is not given up ([`trouble`] says what that means), and does go on;
//! - no guest stays behind that nobody wants;
//! - a host that does not let go of its guest, or was removed, has no effect beyond a lease;
//! - neither side says what the other has to refuse.
//!
//! A seed is a schedule; one that fails is printed as a command, which then prints all that happens.

mod home;
mod host;
mod trouble;
mod wire;
mod world;

use std::time::Instant;

use whim_system_tests::{Case, Result, Setting, anyhow, ensure};

/// Schedules of the quick test.
const SOME: u64 = 10_000;
/// The slow tests together run a million, each of them for about two minutes of one processor.
const PARTS: u64 = 5;
const MANY: u64 = 1_000_000 / PARTS;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("schedules::some", |setting| many(setting.seed, SOME)),
        Case::new("schedules::full::one", |setting| {
            let outcome = world::run(setting.seed, true)?;
            println!("{outcome:?}");
            Ok(())
        }),
    ];
    for part in 1..=PARTS {
        cases.push(Case::new(
            format!("schedules::full::million_{part}"),
            move |setting| many(setting.seed.wrapping_add((part - 1) * MANY), MANY),
        ));
    }
    cases
}

/// Schedules of seeds one after the other.
fn many(first: u64, count: u64) -> Result<()> {
    ensure!(trouble::is_sound(), "The judgement itself is wrong");
    let begun = Instant::now();
    let mut total = world::Outcome::default();
    let (mut ended, mut gentle) = (0, 0);
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let outcome = world::run(seed, false).map_err(|error| {
            let one = Setting {
                seed,
                name: "schedules::full::one".into(),
            };
            anyhow!("{error:#}\n    this schedule: {}", one.repeat())
        })?;
        total.effects += outcome.effects;
        total.moves += outcome.moves;
        total.breaks += outcome.breaks;
        total.cuts += outcome.cuts;
        ended += u64::from(outcome.ended);
        gentle += u64::from(outcome.gentle);
    }
    println!(
        "{count} schedules, {gentle} of them gentle: {} effects, {} moves, {} breaks, {ended} programs ended, {} by a cut; {:.0} s",
        total.effects,
        total.moves,
        total.breaks,
        total.cuts,
        begun.elapsed().as_secs_f64()
    );
    // Else the faults are too much, or too little, to show anything.
    ensure!(ended > count / 50 && ended < count / 2, "{ended} ended");
    ensure!(u64::from(total.cuts) > count / 200, "{} cuts", total.cuts);
    ensure!(u64::from(total.moves) > count, "{} moves", total.moves);
    Ok(())
}
