//! Notices of removals: who believes which, and for how long.
#![forbid(unsafe_code)]

mod support;

use std::sync::Mutex;

use support::{init, join_through, name, options};
use tempfile::TempDir;
use whim_attempts::{Attempt, Party};
use whim_net::{SignedRemoval, State, StateError, unix_now};
use whim_secret::Token;

fn directory() -> TempDir {
    tempfile::tempdir().expect("directory")
}

fn member(holder: &Mutex<State>, directory: &TempDir, node: &str, token: &Token) -> State {
    let joined = join_through(holder, directory, node, token, unix_now());
    joined.expect("joined").0
}

/// n1, which holds the CA, and its members n2 and n3.
fn three() -> (Vec<TempDir>, State, State, State) {
    let (first, mut n1) = init("n1", unix_now());
    let tokens = [(); 2].map(|()| n1.token(unix_now()).expect("token"));
    let holder = Mutex::new(n1);
    let (second, third) = (directory(), directory());
    let n2 = member(&holder, &second, "n2", &tokens[0]);
    let n3 = member(&holder, &third, "n3", &tokens[1]);
    let n1 = holder.into_inner().expect("whole");
    (vec![first, second, third], n1, n2, n3)
}

fn removed(holder: &mut State, node: &str) -> SignedRemoval {
    holder.remove(&name(node), unix_now()).expect("removed");
    holder.removals().pop().expect("a notice")
}

#[test]
fn whoever_refuses_a_removed_node_can_say_so_by_the_ca() {
    let (directories, mut n1, mut n2, mut n3) = three();
    removed(&mut n1, "n2");
    // The holder need not be reached: any member has it.
    assert!(n3.accept_roster(n1.signed_roster()).expect("taken"));
    assert!(n3.accept_removals(&n1.removals()).expect("taken"));
    assert!(!n3.accept_removals(&n1.removals()).expect("known"));
    drop(n3);
    let mut n3 = State::open(&directories[2].path().join("state")).expect("opened");
    let credentials = n2.credentials(unix_now()).expect("made");
    let notice = n3.removal_of(&credentials.identity().expect("n2's"));
    let notice = notice.expect("it is kept over a restart");
    let own = n3.credentials(unix_now()).expect("made");
    assert_eq!(n3.removal_of(&own.identity().expect("n3's")), None);
    assert!(!notice.json.contains("n3") && !notice.json.contains("test:7946"));
    assert!(n2.accept_removal(&notice).expect("believed"));
    assert!(!n2.accept_removal(&notice).expect("known"));
    drop(n2);
    let path = directories[1].path().join("state");
    let n2 = State::open(&path).expect("opened");
    let when = n2.removed().expect("it is kept").at;
    assert!(when.abs_diff(unix_now()) < 60);
    assert!(n3.accept_removal(&notice).is_err(), "it is not of n3");
    // It leaves, and may come back: the notice is of the certificates of before.
    n2.forget().expect("forgotten");
    let token = n1.token(unix_now()).expect("token");
    let holder = Mutex::new(n1);
    let mut n2 = member(&holder, &directories[1], "n2", &token);
    assert_eq!(n2.removed(), None);
    let attempt = Attempt::new(
        Party::Member,
        "tell a member that it was removed, by the notice of a removal before it came back",
    );
    let error = n2.accept_removal(&notice).expect_err("of before");
    assert!(matches!(error, StateError::Removal(_)), "{error}");
    assert_eq!(n2.removed(), None);
    attempt.failed(error);
}

#[test]
fn only_the_ca_removes_and_a_later_list_undoes_it() {
    let (_directories, mut n1, mut n2, mut n3) = three();
    let backup = n1.backup().expect("a copy");
    let notice = removed(&mut n1, "n2");
    let tries = |what: &str| {
        let what = format!("tell a member that it was removed, {what}");
        Attempt::new(Party::Member, what)
    };
    let other = removed(&mut n1, "n3");
    let forged = SignedRemoval {
        json: other.json.replace("n3", "n2"),
        ..other.clone()
    };
    let list = SignedRemoval {
        json: n1.signed_roster().json.clone(),
        signature: n1.signed_roster().signature.clone(),
    };
    let (_elsewhere, mut foreign, foreign_n2, _) = three();
    drop(foreign_n2);
    for (what, bad) in [
        ("by a notice of another member", other),
        ("by another member's notice with its name", forged),
        ("by a list of members in place of a notice", list),
        (
            "by a notice of another cluster",
            removed(&mut foreign, "n2"),
        ),
    ] {
        let attempt = tries(what);
        let error = n2.accept_removal(&bad).expect_err(what);
        assert!(matches!(error, StateError::Removal(_)), "{error}");
        assert_eq!(n2.removed(), None);
        attempt.failed(error);
    }
    assert!(
        n3.accept_removals(std::slice::from_ref(&notice))
            .expect("taken")
    );
    assert!(n2.accept_removal(&notice).expect("believed"));
    // The CA is taken up from a copy of before the removal: its list names n2.
    drop(n1);
    let later = unix_now() + 100;
    let place = directory();
    let copy = backup.reveal().as_bytes();
    let n1 = State::restore(&place.path().join("state"), copy, &options("n1"), later);
    let n1 = n1.expect("restored");
    assert!(n2.accept_roster(n1.signed_roster()).expect("taken"));
    assert_eq!(n2.removed(), None, "it is a member again");
    let attempt = tries("by a notice that is older than the list that names it");
    let error = n2.accept_removal(&notice).expect_err("older");
    assert_eq!(n2.removed(), None);
    attempt.failed(error);
}
