use super::*;
use proptest::prelude::*;
use whim_attempts::{Attempt, Party};

const NOW: Duration = Duration::from_secs(1000);

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// Two nodes after a session for which n1 has asked.
fn pair() -> (Keyring, Keyring) {
    let (mut one, mut two) = (Keyring::new(name("n1")), Keyring::new(name("n2")));
    agree(&mut one, &mut two, 7);
    (one, two)
}

fn agree(asking: &mut Keyring, answering: &mut Keyring, byte: u8) {
    let secret = Secret::made_up(byte);
    let (asker, answerer) = (asking.own.clone(), answering.own.clone());
    let fresh = answering.install(NOW, &asker, &secret, Part::Answering, None);
    assert!(fresh.expect("installed"));
    let fresh = asking.install(NOW, &answerer, &secret, Part::Asking, Some(address(2)));
    assert!(fresh.expect("installed"));
}

fn text(received: Result<Received, DatagramError>) -> String {
    match received {
        Ok(Received::Text { from, text }) => {
            format!("{from}: {}", String::from_utf8_lossy(&text))
        }
        other => format!("{other:?}"),
    }
}

fn take(ring: &mut Keyring, datagram: &[u8]) -> Result<Received, DatagramError> {
    ring.receive(NOW, address(1), &mut datagram.to_vec())
}

#[test]
fn a_pair_talks_in_both_directions() {
    let (mut one, mut two) = pair();
    // n2 does not know yet that n1 has the keys, nor where it is.
    assert_eq!(
        two.seal(&name("n1"), b"early"),
        Err(DatagramError::NoAddress)
    );
    let (datagram, to) = one.seal(&name("n2"), b"hello").expect("sealed");
    assert_eq!(to, address(2));
    assert!(!datagram.windows(5).any(|part| part == b"hello"));
    assert_eq!(text(take(&mut two, &datagram)), "n1: hello");
    let (datagram, to) = two.seal(&name("n1"), b"and back").expect("sealed");
    assert_eq!(to, address(1));
    assert_eq!(text(take(&mut one, &datagram)), "n2: and back");
}

#[test]
fn datagrams_that_overtake_each_other_are_taken_once() {
    let (mut one, mut two) = pair();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for number in 0..300u32 {
        let sealed = one.seal(&name("n2"), &number.to_le_bytes());
        sent.push(sealed.expect("sealed").0);
    }
    for datagram in [&sent[5], &sent[0], &sent[3], &sent[130], &sent[4]] {
        assert!(take(&mut two, datagram).is_ok());
    }
    let attempt = Attempt::new(Party::Stranger, "repeat a datagram of a member");
    for datagram in [&sent[0], &sent[3], &sent[4], &sent[5], &sent[130]] {
        assert_eq!(take(&mut two, datagram), Err(DatagramError::Replayed));
    }
    attempt.failed(DatagramError::Replayed);
    let attempt = Attempt::new(
        Party::Stranger,
        "hold back a datagram for long, then send it",
    );
    assert!(take(&mut two, &sent[299]).is_ok());
    assert_eq!(take(&mut two, &sent[150]), Err(DatagramError::Replayed));
    assert!(take(&mut two, &sent[172]).is_ok());
    assert_eq!(take(&mut two, &sent[171]), Err(DatagramError::Replayed));
    attempt.failed(DatagramError::Replayed);
}

#[test]
fn nobody_else_is_believed() {
    let (mut one, mut two) = pair();
    let mut three = Keyring::new(name("n3"));
    agree(&mut three, &mut two, 9);
    let (datagram, _) = one.seal(&name("n2"), b"hello").expect("sealed");
    let attempt = Attempt::new(Party::Stranger, "change a datagram between members");
    for place in 1 + ID_LENGTH..datagram.len() {
        let mut changed = datagram.clone();
        changed[place] ^= 1;
        assert_eq!(
            take(&mut two, &changed),
            Err(DatagramError::Forged),
            "{place}"
        );
    }
    attempt.failed(DatagramError::Forged);
    let attempt = Attempt::new(Party::Member, "speak for another member by datagram");
    let (mut datagram, _) = three.seal(&name("n2"), b"I am n1").expect("sealed");
    datagram[1..=ID_LENGTH].copy_from_slice(&Secret::made_up(7).id());
    assert_eq!(take(&mut two, &datagram), Err(DatagramError::Forged));
    attempt.failed(DatagramError::Forged);
    let attempt = Attempt::new(Party::Stranger, "send a member's datagram back to itself");
    let (datagram, _) = one.seal(&name("n2"), b"hello").expect("sealed");
    assert_eq!(take(&mut one, &datagram), Err(DatagramError::Forged));
    attempt.failed(DatagramError::Forged);
    let attempt = Attempt::new(Party::Stranger, "send a member's datagram to a third one");
    let answer = take(&mut three, &datagram).expect("an answer");
    assert!(matches!(answer, Received::Answer(_)), "{answer:?}");
    attempt.failed(DatagramError::UnknownKey);
    // None of that has changed anything.
    assert_eq!(text(take(&mut two, &datagram)), "n1: hello");
}

#[test]
fn what_is_cut_or_too_long_is_refused_unread() {
    let (mut one, mut two) = pair();
    let longest = vec![1; TEXT_MAX];
    let (datagram, _) = one.seal(&name("n2"), &longest).expect("sealed");
    assert_eq!(datagram.len(), DATAGRAM_MAX);
    for length in 0..datagram.len() {
        assert!(take(&mut two, &datagram[..length]).is_err(), "{length}");
    }
    let longer = [&datagram[..], &[0]].concat();
    let refused = Err(DatagramError::Length(DATAGRAM_MAX + 1));
    assert_eq!(take(&mut two, &longer), refused);
    let too_long = one.seal(&name("n2"), &vec![1; TEXT_MAX + 1]);
    assert_eq!(too_long, Err(DatagramError::TooLong(TEXT_MAX + 1)));
    assert!(take(&mut two, &datagram).is_ok());
}

#[test]
fn a_node_that_was_restarted_says_so_and_is_asked_again() {
    let (mut one, _) = pair();
    let mut anew = Keyring::new(name("n2"));
    let (datagram, _) = one.seal(&name("n2"), b"are you there?").expect("sealed");
    let Ok(Received::Answer(answer)) = take(&mut anew, &datagram) else {
        panic!("no answer");
    };
    assert!(
        answer.len() < datagram.len(),
        "nobody is hit by more than he sent"
    );
    let doubted = Received::Doubted { node: name("n2") };
    assert_eq!(take(&mut one, &answer), Ok(doubted));
    agree(&mut one, &mut anew, 8);
    let (datagram, _) = one.seal(&name("n2"), b"and now?").expect("sealed");
    assert_eq!(text(take(&mut anew, &datagram)), "n1: and now?");
    // The old keys are no longer used, so it is no news that they are unknown.
    assert_eq!(take(&mut one, &answer), Err(DatagramError::UnknownKey));
}

#[test]
fn answers_to_strangers_have_a_limit() {
    let (_, mut two) = pair();
    let attempt = Attempt::new(
        Party::Stranger,
        "have a node answer any number of datagrams",
    );
    let stray = [&[SEALED][..], &[3; HEADER + TAG_LENGTH]].concat();
    let mut answers = 0;
    for _ in 0..1000 {
        answers += u32::from(take(&mut two, &stray).is_ok());
    }
    assert_eq!(answers, ANSWERS_PER_SECOND);
    let later = two.receive(NOW + Duration::from_secs(1), address(9), &mut stray.clone());
    assert!(later.is_ok());
    attempt.failed(format!("{ANSWERS_PER_SECOND} answers a second"));
}

#[test]
fn keys_of_a_removed_member_are_gone() {
    let (mut one, mut two) = pair();
    let attempt = Attempt::new(
        Party::ForeignNode,
        "send datagrams as a node that was removed",
    );
    let (datagram, _) = one.seal(&name("n2"), b"still here").expect("sealed");
    two.retain(|member| *member != name("n1"));
    assert!(matches!(take(&mut two, &datagram), Ok(Received::Answer(_))));
    assert_eq!(two.seal(&name("n1"), b""), Err(DatagramError::NoKeys));
    attempt.failed(DatagramError::UnknownKey);
}

#[test]
fn both_sides_may_ask_at_once_and_keys_are_renewed() {
    let (mut one, mut two) = pair();
    let secret = Secret::made_up(8);
    let known = one.install(NOW, &name("n2"), &Secret::made_up(7), Part::Asking, None);
    assert!(!known.expect("checked"), "numbers must not begin again");
    // n2 asks, and n1 does not know yet that n2 has its answer.
    let fresh = one.install(NOW, &name("n2"), &secret, Part::Answering, None);
    assert!(fresh.expect("installed"));
    let (datagram, _) = one.seal(&name("n2"), b"old").expect("sealed");
    assert_eq!(text(take(&mut two, &datagram)), "n1: old");
    let fresh = two.install(NOW, &name("n1"), &secret, Part::Asking, None);
    assert!(fresh.expect("installed"));
    let (datagram, _) = two.seal(&name("n1"), b"new").expect("sealed");
    assert_eq!(text(take(&mut one, &datagram)), "n2: new");
    let (datagram, _) = one.seal(&name("n2"), b"new, too").expect("sealed");
    assert_eq!(datagram[1..=ID_LENGTH], secret.id());
    assert_eq!(text(take(&mut two, &datagram)), "n1: new, too");
    let day = NOW + RENEWED_AFTER + Duration::from_secs(1);
    assert!(!one.wants_keys(NOW, &name("n2")) && one.wants_keys(day, &name("n2")));
    assert!(!two.wants_keys(day, &name("n1")));
    let later = NOW + RENEWED_LATEST + Duration::from_secs(1);
    assert!(two.wants_keys(later, &name("n1")));
}

#[test]
fn asking_again_and_again_takes_no_keys_from_use() {
    let (mut one, mut two) = pair();
    let (datagram, _) = one.seal(&name("n2"), b"hello").expect("sealed");
    assert!(take(&mut two, &datagram).is_ok());
    for byte in 20..40 {
        let secret = Secret::made_up(byte);
        let fresh = two.install(NOW, &name("n1"), &secret, Part::Answering, None);
        assert!(fresh.expect("installed"));
    }
    assert_eq!(two.peers[&name("n1")].keys.len(), KEYS_MAX);
    assert_eq!(two.by_id.len(), KEYS_MAX);
    let (datagram, _) = two.seal(&name("n1"), b"still").expect("sealed");
    assert_eq!(text(take(&mut one, &datagram)), "n2: still");
}

proptest! {
    #[test]
    fn what_comes_is_taken_once_whatever_its_order(
        order in proptest::collection::vec(0..200usize, 1..400)
    ) {
        let (mut one, mut two) = pair();
        let mut sent = Vec::new();
        for number in 0..200u32 {
            sent.push(one.seal(&name("n2"), &number.to_le_bytes()).expect("sealed").0);
        }
        let mut taken = std::collections::BTreeSet::new();
        let mut highest = 0;
        for place in order {
            let fresh = !taken.contains(&place) && place as u64 + REPLAY_WINDOW > highest;
            prop_assert_eq!(take(&mut two, &sent[place]).is_ok(), fresh);
            taken.insert(place);
            highest = highest.max(place as u64);
        }
    }

    #[test]
    fn nothing_made_up_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let (_, mut two) = pair();
        let believed = matches!(take(&mut two, &bytes), Ok(Received::Text { .. }));
        prop_assert!(!believed);
    }
}
