//! Making a cluster, joining it, and what can go wrong.
#![forbid(unsafe_code)]

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Mutex;
use std::time::Duration;

use support::{TIMEOUT, init, join_through, name, options, sockets};
use tempfile::TempDir;
use whim_attempts::{Attempt, Party};
use whim_net::join::{self, JoinError, JoinOptions, JoinRefusal};
use whim_net::token::{TOKEN_LIFE, TokenRefusal};
use whim_net::{State, StateError, unix_now};
use whim_secret::Token;
use whim_secret::files::FileError;

const DAY: u64 = 24 * 3600;

fn directory() -> TempDir {
    tempfile::tempdir().expect("directory")
}

#[test]
fn a_node_joins_and_knows_the_members() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = directory();
    let (n2, report) = join_through(&holder, &second, "n2", &token, now - 90).expect("joined");
    assert!((85..=95).contains(&report.skew), "{}", report.skew);
    let n1 = holder.into_inner().expect("whole");
    assert_eq!(n1.roster(), n2.roster());
    assert_eq!(n1.roster().holder, name("n1"));
    let names: Vec<_> = n2
        .roster()
        .members
        .iter()
        .map(|m| m.name.as_str())
        .collect();
    assert_eq!(names, ["n1", "n2"]);
    assert_eq!(
        n2.roster().member(&name("n2")).expect("there").addresses,
        ["n2.test:7946"]
    );
    assert!(n1.is_holder() && !n2.is_holder());
    assert_eq!(n1.cluster(), n2.cluster());
    // It is all on disk.
    let path = second.path().join("state");
    drop(n2);
    let again = State::open(&path).expect("opened");
    assert_eq!(again.roster(), n1.roster());
    assert_eq!(again.node(), &name("n2"));
    let error = State::open(&path).expect_err("in use");
    assert!(matches!(error, StateError::Busy(_)), "{error}");
    for file in std::fs::read_dir(&path).expect("list") {
        let about = file.expect("entry").metadata().expect("about");
        assert_eq!(about.mode() & 0o077, 0, "everything is private");
    }
    assert_eq!(
        std::fs::metadata(&path).expect("about").mode() & 0o777,
        0o700
    );
}

#[test]
fn an_address_is_found_when_none_is_given() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let (address, listener) = sockets();
    let second = directory();
    let (state, _) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("accept");
            join::serve(stream, &holder, &unix_now, TIMEOUT).expect("served");
        });
        let mut node = options("n2");
        node.addresses.clear();
        let options = JoinOptions {
            host: address.to_string(),
            token,
            node,
            port: 8000,
            timeout: TIMEOUT,
        };
        join::join(&second.path().join("state"), &options, &unix_now).expect("joined")
    });
    let member = state.roster().member(&name("n2")).expect("there");
    assert_eq!(member.addresses, ["127.0.0.1:8000"]);
}

#[test]
fn tokens_are_used_once_and_expire() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let old = n1.token(now - TOKEN_LIFE - 1).expect("token");
    let (_other, mut stranger) = init("x", now);
    let foreign = stranger.token(now).expect("token");
    let holder = Mutex::new(n1);
    let (second, third) = (directory(), directory());
    let join = |directory: &TempDir, node: &str, token: &Token| {
        join_through(&holder, directory, node, token, now).map(|(state, _)| state)
    };
    let tries = |what: &str| Attempt::new(Party::Stranger, what);
    let attempt = tries("join with a token that has expired");
    let error = join(&second, "n2", &old).expect_err("expired");
    assert!(
        matches!(error, JoinError::Token(TokenRefusal::Expired)),
        "{error}"
    );
    attempt.failed(error);
    let attempt = tries("join under the name of a member");
    // The name is taken: the token is not spent, and the same directory can be tried again.
    let error = join(&second, "n1", &token).expect_err("taken");
    let taken = JoinRefusal::NameTaken;
    assert!(
        matches!(&error, JoinError::Rejected { refusal, .. } if *refusal == taken),
        "{error}"
    );
    attempt.failed(taken);
    let n2 = join(&second, "n2", &token).expect("joined");
    let attempt = tries("join with a token that was used");
    let error = join(&third, "n3", &token).expect_err("used");
    assert!(
        matches!(error, JoinError::Token(TokenRefusal::Used)),
        "{error}"
    );
    attempt.failed(error);
    let attempt = tries("join with a token of another cluster");
    let error = join(&third, "n3", &foreign).expect_err("another cluster's");
    assert!(matches!(error, JoinError::OtherCluster { .. }), "{error}");
    attempt.failed("the cluster has another CA than the token says");
    let attempt = tries("join with a token that differs in one digit");
    let text = token.to_string();
    let wrong = if text.as_bytes()[10] == b'0' {
        "1"
    } else {
        "0"
    };
    let guess = [&text[..10], wrong, &text[11..]]
        .concat()
        .parse()
        .expect("a token");
    let error = join(&third, "n3", &guess).expect_err("guessed");
    assert!(
        matches!(error, JoinError::Token(TokenRefusal::Unknown)),
        "{error}"
    );
    attempt.failed(error);
    drop(n2);
    let error = join(&second, "n4", &token).expect_err("a member already");
    assert!(
        matches!(error, JoinError::State(StateError::Exists(_))),
        "{error}"
    );
    // Nothing of the failed attempts became a member.
    assert_eq!(holder.lock().expect("whole").roster().members.len(), 2);
}

#[test]
fn a_token_is_spent_for_good() {
    let now = unix_now();
    let (first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = directory();
    join_through(&holder, &second, "n2", &token, now).expect("joined");
    drop(holder);
    // The holder comes back after a crash.
    let holder = Mutex::new(State::open(&first.path().join("state")).expect("opened"));
    let attempt = Attempt::new(
        Party::Stranger,
        "join with a used token after the holder has started anew",
    );
    let third = directory();
    let error = join_through(&holder, &third, "n3", &token, now).expect_err("used");
    assert!(
        matches!(error, JoinError::Token(TokenRefusal::Used)),
        "{error}"
    );
    attempt.failed(error);
}

#[test]
fn a_wrong_clock_is_named() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    for clock in [now - 30 * DAY, now + 30 * DAY, now - 25 * 3600] {
        let error = join_through(&holder, &directory(), "n2", &token, clock).expect_err("clock");
        assert!(matches!(error, JoinError::Clock), "{error}");
    }
    let second = directory();
    join_through(&holder, &second, "n2", &token, now - 23 * 3600).expect("tolerated");
}

#[test]
fn causes_are_told_apart() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let ask = |host: &str, timeout: Duration| {
        let options = JoinOptions {
            host: host.into(),
            token: token.clone(),
            node: options("n2"),
            port: 7946,
            timeout,
        };
        join::join(&directory().path().join("state"), &options, &unix_now).expect_err("fails")
    };
    let error = ask("no-such-host.invalid", TIMEOUT);
    assert!(matches!(error, JoinError::Name { .. }), "{error}");
    let error = ask("a b", TIMEOUT);
    assert!(matches!(error, JoinError::Host(_)), "{error}");
    let (address, listener) = sockets();
    drop(listener);
    let error = ask(&address.to_string(), TIMEOUT);
    assert!(matches!(error, JoinError::Refused { .. }), "{error}");
    // Somebody listens and says nothing.
    let (address, _silent) = sockets();
    let error = ask(&address.to_string(), Duration::from_millis(100));
    assert!(matches!(error, JoinError::Silent { .. }), "{error}");
    // Somebody speaks something else; somebody hangs up.
    let answer = |bytes: &'static [u8]| {
        let (address, listener) = sockets();
        let server = std::thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().expect("accept");
            stream.write_all(bytes).expect("written");
            // Read to the end: closing with unread bytes would reset the connection.
            stream.shutdown(std::net::Shutdown::Write).expect("shut");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let error = ask(&address.to_string(), TIMEOUT);
        server.join().expect("joined");
        error
    };
    let error = answer(b"SSH-2.0-OpenSSH_9.2\r\n");
    assert!(matches!(error, JoinError::NotWhim { .. }), "{error}");
    let error = answer(b"");
    assert!(matches!(error, JoinError::NotHolder { .. }), "{error}");
    // A node that is not the holder hangs up when it has seen for whom the connection is.
    let (address, listener) = sockets();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        // Something has come, and is not read.
        let _ = stream.peek(&mut [0]).expect("a first byte");
    });
    let error = ask(&address.to_string(), TIMEOUT);
    server.join().expect("joined");
    assert!(matches!(error, JoinError::NotHolder { .. }), "{error}");
}

#[test]
fn what_joins_badly_is_refused_by_the_holder() {
    let now = unix_now();
    let (_first, n1) = init("n1", now);
    let holder = Mutex::new(n1);
    let (address, listener) = sockets();
    let attempt = Attempt::new(Party::Stranger, "speak HTTP to the holder where nodes join");
    let mut client = TcpStream::connect(address).expect("connect");
    client
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("written");
    let (stream, _) = listener.accept().expect("accept");
    let error = join::serve(stream, &holder, &unix_now, TIMEOUT).expect_err("garbage");
    assert!(error.to_string().contains("breaks the protocol"), "{error}");
    attempt.failed(error);
}

#[test]
fn certificates_are_renewed() {
    let start = unix_now() - 61 * DAY;
    let (_first, mut n1) = init("n1", start);
    let token = n1.token(unix_now()).expect("token");
    assert!(!n1.renew_due(start + 59 * DAY));
    assert!(n1.renew_due(start + 60 * DAY));
    let now = unix_now();
    n1.renew_self(now).expect("renewed");
    assert!(!n1.renew_due(now));
    assert_eq!(n1.expires(), now + 90 * DAY);
    let holder = Mutex::new(n1);
    let second = directory();
    let (mut n2, _) = join_through(&holder, &second, "n2", &token, now).expect("joined");
    let mut n1 = holder.into_inner().expect("whole");
    let peer = n2.credentials(now).expect("made").identity().expect("own");
    let later = now + 61 * DAY;
    let renewal = n2.start_renewal().expect("started");
    // Somebody else's key, somebody else's name, a supervisor: all refused.
    let tries = |what: &str| Attempt::new(Party::Member, format!("have {what} signed"));
    let attempt = tries("somebody else's key");
    let mut forged = renewal.request.clone();
    let another = if forged.public_key[2..4] == *"00" {
        "01"
    } else {
        "00"
    };
    forged.public_key.replace_range(2..4, another);
    attempt.failed(n1.renew(&peer, &forged, later).expect_err("forged"));
    let attempt = tries("a certificate in another node's name");
    let mut other = peer.clone();
    other.node = name("n1");
    attempt.failed(
        n1.renew(&other, &renewal.request, later)
            .expect_err("another"),
    );
    let attempt = tries("a node's certificate for a supervisor");
    let journey = n2.journey_credentials(&support::journey("j1"), whim_net::Role::Home, now);
    let journey = journey.expect("made").identity().expect("own");
    attempt.failed(
        n1.renew(&journey, &renewal.request, later)
            .expect_err("no node"),
    );
    let issued = n1.renew(&peer, &renewal.request, later).expect("signed");
    let old = n2.start_renewal().expect("started");
    assert!(
        n2.finish_renewal(old, issued.clone()).is_err(),
        "an answer for another key"
    );
    n2.finish_renewal(renewal, issued).expect("taken up");
    assert_eq!(n2.expires(), later + 90 * DAY);
    let renewed = n2
        .credentials(later)
        .expect("made")
        .identity()
        .expect("own");
    assert_ne!(renewed.node_serial, peer.node_serial);
    // A removal covers both certificates, the old and the new.
    n1.remove(&name("n2"), later).expect("removed");
    assert!(n1.revocations().refuses(&renewed) && n1.revocations().refuses(&peer));
    drop(n2);
    let n2 = State::open(&second.path().join("state")).expect("opened");
    assert_eq!(n2.expires(), later + 90 * DAY);
}

#[test]
fn lists_of_members_are_signed_and_only_go_forward() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = directory();
    let (mut n2, _) = join_through(&holder, &second, "n2", &token, now).expect("joined");
    let mut n1 = holder.into_inner().expect("whole");
    let old = n1.signed_roster().clone();
    let addresses = ["10.0.0.9:7946".to_owned()];
    assert!(
        n1.update_member(&name("n2"), &addresses, "x", now)
            .expect("changed")
    );
    assert!(
        !n1.update_member(&name("n2"), &addresses, "x", now)
            .expect("the same")
    );
    let new = n1.signed_roster().clone();
    let tries = |what: &str| Attempt::new(Party::Member, what);
    let attempt = tries("change the list of members on its way");
    let mut forged = new.clone();
    forged.json = forged.json.replace("10.0.0.9", "10.0.0.8");
    let error = n2.accept_roster(&forged).expect_err("forged");
    assert!(error.to_string().contains("not signed"), "{error}");
    attempt.failed(error);
    let attempt = Attempt::new(Party::ForeignNode, "send another cluster's list of members");
    let (_other, stranger) = init("n1", now + 5);
    let error = n2.accept_roster(stranger.signed_roster());
    attempt.failed(error.expect_err("another CA's"));
    assert!(n2.accept_roster(&new).expect("taken"));
    assert!(!n2.accept_roster(&new).expect("known"));
    let attempt = tries("bring back a removed member by an older list");
    assert!(!n2.accept_roster(&old).expect("older"));
    attempt.failed("passed over: the list that is known is newer");
    assert_eq!(
        n2.roster().member(&name("n2")).expect("there").addresses,
        addresses
    );
    // What only the holder may do.
    let attempt = tries("do what only the holder of the CA's key may");
    for error in [
        n2.token(now).map(|_| ()).expect_err("no CA"),
        n2.remove(&name("n1"), now).expect_err("no CA"),
        n2.backup().map(|_| ()).expect_err("no CA"),
        n2.renew_self(now).expect_err("no CA"),
    ] {
        assert!(
            matches!(&error, StateError::NotHolder(n) if *n == name("n1")),
            "{error}"
        );
    }
    attempt.failed("no token, no removal, no backup, no renewal: the key is not there");
    let error = n1.remove(&name("n1"), now).expect_err("the holder");
    assert!(matches!(error, StateError::RemoveHolder(_)), "{error}");
    let error = n1.remove(&name("n9"), now).expect_err("nobody");
    assert!(matches!(error, StateError::UnknownMember(_)), "{error}");
    let many = vec!["a:1".to_owned(); 17];
    assert!(n1.update_member(&name("n2"), &many, "x", now).is_err());
}

#[test]
fn the_ca_is_backed_up_and_restored() {
    let now = unix_now();
    let (_first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = directory();
    let (mut n2, _) = join_through(&holder, &second, "n2", &token, now).expect("joined");
    let n1 = holder.into_inner().expect("whole");
    let copy = n1.backup().expect("the holder's");
    let key = "PRIVATE KEY";
    assert!(copy.reveal().contains(key) && !format!("{copy:?}").contains(key));
    let copy = copy.reveal().as_bytes();
    let lost = n1.credentials(now).expect("made").identity().expect("own");
    drop(n1);
    let third = directory();
    let path = third.path().join("state");
    let mut n1 = State::restore(&path, copy, &options("n1"), now + 60).expect("restored");
    assert!(n1.is_holder());
    assert!(
        n1.revocations().refuses(&lost),
        "the lost machine may be in wrong hands"
    );
    assert!(n2.accept_roster(n1.signed_roster()).expect("the same CA"));
    assert_eq!(n2.roster().members.len(), 2);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    join_through(&holder, &directory(), "n3", &token, now).expect("joined");
    for (what, bad) in [
        ("a half", &copy[..copy.len() / 2]),
        ("nothing", b""),
        ("another file", b"root:$6$5ec4e7:19000:0:99999:7:::\n"),
    ] {
        let error = State::restore(&directory().path().join("s"), bad, &options("n1"), now);
        let error = error.expect_err(what);
        assert!(matches!(error, StateError::Backup(_)), "{error}");
        assert!(!error.to_string().contains("5ec4e7"), "{error}");
    }
}

/// A cluster of n1, which holds the CA, and n2; and a copy of the CA.
fn with_a_copy(now: u64) -> ([TempDir; 2], State, State, String) {
    let (first, mut n1) = init("n1", now);
    let token = n1.token(now).expect("token");
    let holder = Mutex::new(n1);
    let second = directory();
    let (n2, _) = join_through(&holder, &second, "n2", &token, now).expect("joined");
    let n1 = holder.into_inner().expect("whole");
    let copy = n1.backup().expect("the holder's").reveal().to_owned();
    ([first, second], n1, n2, copy)
}

fn changed(holder: &mut State, times: usize, now: u64) {
    for time in 0..times {
        let addresses = [format!("n2.test:{}", 1000 + time)];
        let update = holder.update_member(&name("n2"), &addresses, "x", now);
        assert!(update.expect("changed"));
    }
}

fn restored(copy: &str, node: &str, now: u64) -> (TempDir, State) {
    let place = directory();
    let path = place.path().join("state");
    let state = State::restore(&path, copy.as_bytes(), &options(node), now).expect("restored");
    (place, state)
}

#[test]
fn a_restored_list_is_above_all_that_others_hold() {
    let now = unix_now();
    let (_places, mut n1, mut n2, copy) = with_a_copy(now);
    // More changes than seconds have passed; and the clock of the one that takes up the CA is behind.
    changed(&mut n1, 50, now + 10);
    assert!(n2.accept_roster(n1.signed_roster()).expect("newer"));
    let (_third, n3) = restored(&copy, "n3", now - 3600);
    assert!(n2.accept_roster(n3.signed_roster()).expect("the same CA"));
    assert_eq!(n2.roster().holder, name("n3"));
}

#[test]
fn a_copy_that_is_taken_up_twice_goes_above_the_first_time() {
    let now = unix_now();
    let (_places, _n1, mut n2, copy) = with_a_copy(now);
    let (_third, mut n3) = restored(&copy, "n3", now);
    changed(&mut n3, 50, now);
    assert!(n2.accept_roster(n3.signed_roster()).expect("newer"));
    // The node that had taken it up is lost, too, before a minute is over.
    let (_fourth, mut n4) = restored(&copy, "n4", now + 10);
    assert!(n4.accept_roster(n2.signed_roster()).expect("signed"));
    assert!(n4.is_holder(), "it has taken up the CA last");
    assert_eq!(n4.roster().holder, name("n4"));
    assert!(n2.accept_roster(n4.signed_roster()).expect("newer"));
    assert_eq!(n2.roster().holder, name("n4"));
    assert!(n3.accept_roster(n4.signed_roster()).expect("newer"));
    assert!(!n3.is_holder(), "two would hold the CA");
}

#[test]
fn a_holder_that_comes_back_gives_way_to_the_one_that_took_up_its_ca() {
    let now = unix_now();
    let (places, mut n1, _n2, copy) = with_a_copy(now);
    let (_third, n3) = restored(&copy, "n3", now - 3600);
    assert!(n1.accept_roster(n3.signed_roster()).expect("newer"));
    let path = places[0].path().join("state");
    for opened in [false, true] {
        assert!(!n1.is_holder(), "opened again: {opened}");
        let error = n1.token(now).expect_err("not its CA any more").to_string();
        assert!(error.contains("Only n3 holds the CA"), "{error}");
        drop(n1);
        n1 = State::open(&path).expect("opened");
    }
}

#[test]
fn what_lies_on_disk_is_checked() {
    let now = unix_now();
    let (first, n1) = init("n1", now);
    let path = first.path().join("state");
    drop(n1);
    let error = State::init(&path, &options("n1"), None, now).expect_err("there");
    assert!(matches!(error, StateError::Exists(_)), "{error}");
    let error = State::open(first.path()).expect_err("nothing there");
    assert!(matches!(error, StateError::Missing(_)), "{error}");
    let node = path.join("node.json");
    let good = std::fs::read(&node).expect("read");
    std::fs::write(&node, &good[..good.len() / 2]).expect("written");
    let error = State::open(&path).expect_err("cut");
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");
    std::fs::write(&node, &good).expect("written");
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o644)).expect("set");
    let error = State::open(&path).expect_err("exposed");
    assert!(
        matches!(error, StateError::File(FileError::Exposed { .. })),
        "{error}"
    );
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o600)).expect("set");
    State::open(&path)
        .expect("whole again")
        .forget()
        .expect("forgotten");
    assert!(!State::exists(&path));
    State::init(&path, &options("n1"), None, now).expect("made anew");
}

/// Runs itself in a mount namespace with a disk of 256 KiB.
#[test]
fn a_full_disk_changes_nothing() {
    let Some(disk) = std::env::var_os("WHIM_TEST_SMALL_DISK") else {
        let disk = directory();
        let status = std::process::Command::new("unshare")
            .args(["-Urm", "sh", "-c"])
            .arg(
                "mount -t tmpfs -o size=256k tmpfs \"$WHIM_TEST_SMALL_DISK\" && exec \"$0\" \"$@\"",
            )
            .arg(std::env::current_exe().expect("own name"))
            .args(["--exact", "a_full_disk_changes_nothing"])
            .env("WHIM_TEST_SMALL_DISK", disk.path())
            .status()
            .expect("unshare runs");
        assert!(status.success());
        return;
    };
    let path = std::path::Path::new(&disk).join("state");
    let now = unix_now();
    let mut n1 = State::init(&path, &options("n1"), None, now).expect("made");
    let token = n1.token(now).expect("token");
    let filler = std::path::Path::new(&disk).join("filler");
    let mut file = std::fs::File::create(&filler).expect("made");
    while file.write_all(&[0; 512]).is_ok() {}
    let full = |error: &StateError| matches!(error, StateError::File(FileError::DiskFull { .. }));
    let error = n1.token(now).expect_err("full");
    assert!(full(&error), "{error}");
    let error = n1.renew_self(now + 70 * DAY).expect_err("full");
    assert!(full(&error), "{error}");
    // A join fails there before the token is spent.
    let holder = Mutex::new(n1);
    let other = std::path::Path::new(&disk).join("other");
    let options = JoinOptions {
        host: "127.0.0.1:1".into(),
        token: token.clone(),
        node: options("n2"),
        port: 7946,
        timeout: TIMEOUT,
    };
    let error = join::join(&other, &options, &unix_now).expect_err("full");
    assert!(matches!(&error, JoinError::State(e) if full(e)), "{error}");
    std::fs::remove_file(&filler).expect("removed");
    drop((file, holder));
    let holder = Mutex::new(State::open(&path).expect("as it was"));
    join_through(&holder, &directory(), "n2", &token, now).expect("the token is still good");
}
