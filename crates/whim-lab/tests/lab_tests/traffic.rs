//! What passes between nodes, what does not, and what nobody is told.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

use whim_lab::{LinkSettings, NodeState};

use crate::support::{PATIENCE, TestLab, needs_root, until};

const SHORT: Duration = Duration::from_millis(500);

fn connect(lab: &TestLab, from: &str, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let address = SocketAddr::new(to, port);
    lab.on_network(from, || TcpStream::connect_timeout(&address, PATIENCE))
}

fn listen(lab: &TestLab, node: &str, address: IpAddr) -> TcpListener {
    lab.on_network(node, || TcpListener::bind((address, 0)).expect("listening"))
}

/// A connection from n1 to n2: the end at n1, and the end at n2.
fn connection(lab: &TestLab, address: &str) -> (TcpStream, TcpStream) {
    let address: IpAddr = address.parse().unwrap();
    let listener = listen(lab, "n2", address);
    let one = connect(lab, "n1", address, listener.local_addr().unwrap().port()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for end in [&one, &other] {
        end.set_nodelay(true).unwrap();
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (one, other)
}

fn round_trip(one: &mut TcpStream, other: &mut TcpStream) -> Duration {
    let began = Instant::now();
    let mut byte = [0];
    one.write_all(b"?").unwrap();
    other.read_exact(&mut byte).unwrap();
    other.write_all(b"!").unwrap();
    one.read_exact(&mut byte).unwrap();
    began.elapsed()
}

#[test]
fn a_cut_is_silence_and_heals() {
    needs_root!();
    let lab = TestLab::up("cut", |_| {});
    for address in ["10.99.0.2", "fd99::2"] {
        let (mut one, mut other) = connection(&lab, address);
        round_trip(&mut one, &mut other);
        lab.lab.cut("n2", "n1").unwrap();
        lab.lab.cut("n1", "n2").unwrap();
        for (from, to) in [(&one, &other), (&other, &one)] {
            (&mut &*from).write_all(b"x").unwrap();
            to.set_read_timeout(Some(SHORT)).unwrap();
            let error = (&mut &*to).read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            to.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let target = SocketAddr::new(address.parse().unwrap(), 9);
        let error = lab
            .on_network("n1", || TcpStream::connect_timeout(&target, SHORT))
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::TimedOut,
            "neither refused nor unreachable"
        );
        let other_way = connect(&lab, "n3", address.parse().unwrap(), 9).unwrap_err();
        assert_eq!(
            other_way.kind(),
            ErrorKind::ConnectionRefused,
            "the other links work"
        );
        let link = &lab.lab.status().unwrap().links[0];
        assert_eq!(
            (link.a.as_str(), link.b.as_str(), link.cut),
            ("n1", "n2", true)
        );

        lab.lab.heal("n1", "n2").unwrap();
        for end in [&mut one, &mut other] {
            end.read_exact(&mut [0]).expect("sent again and arrived");
        }
        round_trip(&mut one, &mut other);
        assert!(lab.lab.status().unwrap().links.is_empty());
    }
}

#[test]
fn a_killed_node_says_no_farewell() {
    needs_root!();
    let lab = TestLab::up("kill", |_| {});
    let listener = listen(&lab, "n1", "10.99.0.1".parse().unwrap());
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/10.99.0.1/{port}; echo hello >&3; exec cat <&3");
    let join = || {
        let mut command = lab.lab.command("n2", None, "bash").unwrap();
        let child = command
            .args(["-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.read_exact(&mut [0; 6]).unwrap();
        (child, socket)
    };
    let (mut child, mut socket) = join();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        socket.read(&mut [0]).unwrap(),
        0,
        "a process that ends does send a FIN"
    );

    let (mut child, mut socket) = join();
    lab.lab.kill("n2").unwrap();
    assert!(!child.wait().unwrap().success());
    socket.set_read_timeout(Some(SHORT)).unwrap();
    let error = socket.read(&mut [0]).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::WouldBlock,
        "no FIN and no RST: {error}"
    );
    socket.write_all(b"still there?").unwrap();
    let error = socket.read(&mut [0]).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::WouldBlock,
        "and nobody answers for it: {error}"
    );
    let state = format!("awk '$2 ~ /:{port:04X}$/ && $4 == \"01\"' /proc/net/tcp");
    assert_eq!(
        lab.out("n1", &state).lines().count(),
        1,
        "established as ever"
    );

    lab.lab.start("n2").unwrap();
    let (mut child, _socket) = join();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_node_that_ends_by_itself_is_silent_from_then_on() {
    needs_root!();
    let lab = TestLab::up("dies", |_| {});
    let pid = lab.node("n2").pid.unwrap();
    let handle = whim_sys::namespace::PidFd::open(pid).unwrap();
    handle.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(handle.wait_end(PATIENCE).unwrap());
    until("the end to show", || {
        (lab.node("n2").state == NodeState::Dead).then_some(())
    });
    let target = "10.99.0.2:9".parse().unwrap();
    let connect = || {
        let tried = lab.on_network("n1", || TcpStream::connect_timeout(&target, SHORT));
        tried.unwrap_err().kind()
    };
    // The kernel takes a network apart some time after the last process in it has ended, and until
    // then it answers for it.
    until("the network to be gone", || {
        (connect() == ErrorKind::TimedOut).then_some(())
    });
    assert_eq!(connect(), ErrorKind::TimedOut);
    lab.lab.start("n2").unwrap();
    assert_eq!(lab.out("n2", "hostname"), "n2");
}

#[test]
fn delay_makes_the_way_longer() {
    needs_root!();
    let lab = TestLab::up("delay", |o| o.link.delay_us = 20_000);
    let (mut one, mut other) = connection(&lab, "10.99.0.2");
    let slow = (0..5)
        .map(|_| round_trip(&mut one, &mut other))
        .min()
        .unwrap();
    assert!(slow >= Duration::from_millis(40), "{slow:?}");
    lab.lab.link("n1", "n2", &LinkSettings::default()).unwrap();
    let fast = (0..20)
        .map(|_| round_trip(&mut one, &mut other))
        .min()
        .unwrap();
    assert!(fast < slow, "{fast:?}, the same connection on a plain link");
    let links = lab.lab.status().unwrap().links;
    assert_eq!(links.len(), 2, "the other two keep their delay");
    assert!(links.iter().all(|l| l.wire_running == Some(true)));
}

/// Sends numbered datagrams from n1 to n2; how often each has arrived when the last has. No more
/// than a socket holds unread.
fn datagrams(lab: &TestLab, count: u32, copies_expected: u64) -> BTreeMap<u32, u32> {
    let address: IpAddr = "10.99.0.2".parse().unwrap();
    let to = lab.on_network("n2", || UdpSocket::bind((address, 0)).unwrap());
    let port = to.local_addr().unwrap().port();
    let from = lab.on_network("n1", || UdpSocket::bind("10.99.0.1:0").unwrap());
    for number in 0..count {
        from.send_to(&number.to_be_bytes(), (address, port))
            .unwrap();
    }
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut seen = BTreeMap::new();
    for _ in 0..copies_expected {
        let mut buffer = [0; 4];
        to.recv(&mut buffer).unwrap();
        *seen.entry(u32::from_be_bytes(buffer)).or_default() += 1;
    }
    to.set_nonblocking(true).unwrap();
    assert!(
        to.recv(&mut [0; 4]).is_err(),
        "no more arrive than were expected"
    );
    seen
}

/// How many datagrams the wire lets through and how many it loses, when all have come to it.
fn fate(lab: &TestLab, count: u64) -> whim_lab::WireCounters {
    until("all packets to come to the wire", || {
        let counters = lab.lab.status().unwrap().links[0].a_to_b?;
        let settled = counters.arrived >= count
            && counters.forwarded == count - counters.lost + counters.doubled;
        settled.then_some(counters)
    })
}

#[test]
fn loss_repeats_with_the_seed() {
    needs_root!();
    let lab = TestLab::up("loss", |o| o.nodes = 2);
    let lossy = |seed| LinkSettings {
        loss: 0.2,
        seed,
        ..LinkSettings::default()
    };
    let run = |seed: u64| {
        lab.lab.link("n1", "n2", &lossy(seed)).unwrap();
        // The seed alone decides how many arrive, so a first run is for counting.
        let address: SocketAddr = "10.99.0.2:9".parse().unwrap();
        let from = lab.on_network("n1", || UdpSocket::bind("10.99.0.1:0").unwrap());
        for number in 0..200_u32 {
            from.send_to(&number.to_be_bytes(), address).unwrap();
        }
        let counters = fate(&lab, 200);
        lab.lab.link("n1", "n2", &lossy(seed)).unwrap();
        (counters.lost, datagrams(&lab, 200, 200 - counters.lost))
    };
    let (lost, first) = run(1);
    assert!((20..60).contains(&lost), "{lost} of 200 at 20 %");
    assert_eq!(first.len() as u64, 200 - lost);
    assert_eq!(run(1), (lost, first.clone()));
    assert_ne!(run(2).1, first);
}

#[test]
fn packets_are_doubled_and_overtaken() {
    needs_root!();
    let lab = TestLab::up("twice", |o| o.nodes = 2);
    let twice = LinkSettings {
        duplicate: 1.0,
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &twice).unwrap();
    let seen = datagrams(&lab, 100, 200);
    assert!(seen.values().all(|n| *n == 2), "{seen:?}");
    let mixed = LinkSettings {
        reorder: 0.2,
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &mixed).unwrap();
    assert_eq!(datagrams(&lab, 200, 200).len(), 200);
    assert!(fate(&lab, 200).reordered > 10);
    // A stream survives all of it together.
    let bad = LinkSettings {
        loss: 0.02,
        duplicate: 0.1,
        reorder: 0.1,
        delay_us: 500,
        ..mixed
    };
    lab.lab.link("n1", "n2", &bad).unwrap();
    stream(&lab, "10.99.0.2", 300_000);
    stream(&lab, "fd99::2", 300_000);
}

/// Sends bytes from n1 to n2 and checks them; how long it took.
fn stream(lab: &TestLab, address: &str, bytes: usize) -> Duration {
    let (mut one, mut other) = connection(lab, address);
    let sent: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let began = Instant::now();
    let received = std::thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || {
            one.write_all(sent).unwrap();
            one.shutdown(std::net::Shutdown::Write).unwrap();
            // Kept until the other end has read everything.
            let _ = one.read(&mut [0]);
        });
        let mut received = Vec::new();
        other.read_to_end(&mut received).unwrap();
        drop(other);
        received
    });
    assert!(
        received == sent,
        "{} of {bytes} bytes arrived",
        received.len()
    );
    began.elapsed()
}

#[test]
fn mtu_and_rate_need_no_process() {
    needs_root!();
    let lab = TestLab::up("rate", |o| o.nodes = 2);
    let narrow = LinkSettings {
        mtu: Some(576),
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &narrow).unwrap();
    stream(&lab, "10.99.0.2", 300_000);
    let target = "[fd99::2]:9".parse().unwrap();
    let error = lab
        .on_network("n1", || TcpStream::connect_timeout(&target, SHORT))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "IPv6 needs 1280 bytes");

    let slow = LinkSettings {
        rate_bits: Some(8_000_000),
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &slow).unwrap();
    // 1 MB are 1 s at 8 Mbit/s; a burst of 15 KB goes at once.
    let took = stream(&lab, "10.99.0.2", 1_000_000);
    assert!(took >= Duration::from_millis(800), "{took:?}");
    stream(&lab, "fd99::2", 100_000);
    let link = &lab.lab.status().unwrap().links[0];
    assert_eq!(link.wire_running, None);

    let both = LinkSettings {
        delay_us: 1000,
        mtu: Some(1280),
        ..slow
    };
    lab.lab.link("n1", "n2", &both).unwrap();
    assert!(stream(&lab, "fd99::2", 1_000_000) >= Duration::from_millis(800));
    lab.lab.link("n1", "n2", &LinkSettings::default()).unwrap();
    stream(&lab, "10.99.0.2", 1_000_000);
}

#[test]
fn a_link_whose_wire_ends_is_a_cut_link() {
    needs_root!();
    let lab = TestLab::up("wire", |o| o.nodes = 2);
    let delay = LinkSettings {
        delay_us: 1000,
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &delay).unwrap();
    let (mut one, mut other) = connection(&lab, "10.99.0.2");
    round_trip(&mut one, &mut other);
    let directory = lab.lab.status().unwrap().directory;
    let line = format!("lab-node\0wire\0{}\0", directory.display());
    let wire = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok())
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|l| l.contains(&line))
        })
        .expect("a wire process");
    whim_sys::namespace::PidFd::open(wire)
        .and_then(|p| p.signal(nix::sys::signal::Signal::SIGKILL))
        .unwrap();
    until("the end to show", || {
        (lab.lab.status().unwrap().links[0].wire_running == Some(false)).then_some(())
    });
    let target = "10.99.0.2:9".parse().unwrap();
    let error = lab
        .on_network("n1", || TcpStream::connect_timeout(&target, SHORT))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    lab.lab.link("n1", "n2", &delay).unwrap();
    round_trip(&mut one, &mut other);
}

#[test]
fn links_stay_as_they_are_while_a_node_is_off() {
    needs_root!();
    let lab = TestLab::up("keep", |_| {});
    let delay = LinkSettings {
        delay_us: 20_000,
        ..LinkSettings::default()
    };
    lab.lab.link("n1", "n2", &delay).unwrap();
    lab.lab.cut("n2", "n3").unwrap();
    lab.lab.kill("n2").unwrap();
    lab.lab.start("n2").unwrap();
    let (mut one, mut other) = connection(&lab, "10.99.0.2");
    let took = round_trip(&mut one, &mut other);
    assert!(took >= Duration::from_millis(40), "{took:?}");
    let target = "10.99.0.3:9".parse().unwrap();
    let knock = || {
        lab.on_network("n2", || {
            TcpStream::connect_timeout(&target, SHORT).unwrap_err()
        })
    };
    assert_eq!(knock().kind(), ErrorKind::TimedOut);
    lab.lab.heal("n2", "n3").unwrap();
    assert_eq!(knock().kind(), ErrorKind::ConnectionRefused);
}
