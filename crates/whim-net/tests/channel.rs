//! Frames over real sockets.
#![forbid(unsafe_code)]

mod support;

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use support::{TIMEOUT, channel};
use whim_attempts::{Attempt, Party};
use whim_journey::frame::{FRAME_PAYLOAD_MAX, Frame, Kind};
use whim_net::channel::{Channel, ChannelError, READY_MAX, Received};

fn wait_readable(channel: &Channel) {
    let mut set = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    assert_eq!(
        poll(&mut set, PollTimeout::from(10_000_u16)),
        Ok(1),
        "something comes"
    );
}

#[test]
fn frames_of_all_sizes_arrive_in_order() {
    let (mut left, mut right, _kept) = channel();
    let sizes = [
        0,
        1,
        64,
        4096,
        16_367,
        16_368,
        16_369,
        100_000,
        FRAME_PAYLOAD_MAX,
    ];
    let sender = std::thread::spawn(move || {
        for (size, epoch) in sizes.iter().zip(1_u32..) {
            let payload: Vec<u8> = (0..*size)
                .map(|n| u8::try_from(n % 251).expect("fits"))
                .collect();
            let (a, b) = payload.split_at(size / 3);
            left.send_now(Kind::Data, epoch, &[a, b, &[]], TIMEOUT)
                .expect("sent");
        }
        left
    });
    for (size, number) in sizes.iter().zip(1_u32..) {
        let Frame {
            kind,
            epoch,
            payload,
            ..
        } = right.receive_frame(TIMEOUT).expect("received");
        assert_eq!((kind, epoch, payload.len()), (Kind::Data, number, *size));
        assert!(
            payload
                .iter()
                .enumerate()
                .all(|(n, b)| usize::from(*b) == n % 251)
        );
    }
    drop(sender.join().expect("joined"));
    let error = right.receive_frame(TIMEOUT).expect_err("closed");
    assert!(matches!(error, ChannelError::Closed), "{error}");
}

#[test]
fn nothing_blocks_and_what_waits_is_counted() {
    let (mut left, mut right, _kept) = channel();
    assert_eq!(right.receive().expect("open"), Received::Open);
    assert!(right.next_frame().expect("none").is_none());
    let error = right
        .receive_frame(Duration::from_millis(20))
        .expect_err("none");
    assert!(matches!(error, ChannelError::Timeout { .. }), "{error}");
    let payload = vec![7; 1 << 20];
    // Until the socket takes no more: nobody reads at the other end.
    let mut frames = 0;
    loop {
        left.queue(Kind::Pages, 1, &[&payload]);
        frames += 1;
        if !left.flush().expect("open") {
            break;
        }
        assert_eq!(left.queued_bytes(), 0);
        assert!(frames < 1000, "the socket has no bound");
    }
    assert!(left.queued_bytes() > 0 && left.queued_bytes() <= 2 << 20);
    let mut got = 0;
    while got < frames {
        wait_readable(&right);
        assert_eq!(right.receive().expect("open"), Received::Open);
        while let Some(frame) = right.next_frame().expect("good") {
            assert_eq!(frame.payload.len(), 1 << 20);
            got += 1;
        }
        left.flush().expect("open");
    }
    assert!(left.flush().expect("open"));
    assert_eq!(left.queued_bytes(), 0);
}

#[test]
fn two_sides_that_send_at_once_do_not_block_each_other() {
    let (mut left, mut right, _kept) = channel();
    let run = |channel: &mut Channel| {
        let payload = vec![1; 1 << 20];
        for _ in 0..20 {
            channel
                .send_now(Kind::Pages, 1, &[&payload], TIMEOUT)
                .expect("sent");
        }
        for _ in 0..20 {
            assert_eq!(
                channel
                    .receive_frame(TIMEOUT)
                    .expect("received")
                    .payload
                    .len(),
                1 << 20
            );
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(&mut left));
        run(&mut right);
    });
}

#[test]
fn a_receiver_that_takes_nothing_is_not_filled() {
    let attempt = Attempt::new(
        Party::Member,
        "fill a peer's memory with frames that it does not take",
    );
    let (mut left, mut right, _kept) = channel();
    let sender = std::thread::spawn(move || {
        let payload = vec![1; 1 << 20];
        for _ in 0..64 {
            left.send_now(Kind::Pages, 1, &[&payload], TIMEOUT)
                .expect("sent");
        }
        left
    });
    // The limit holds however often it is asked; one call may pass it by what it reads.
    let mut frames = 0;
    while frames < 64 {
        for _ in 0..40 {
            right.receive().expect("open");
        }
        let mut waiting = 0;
        while let Some(frame) = right.next_frame().expect("good") {
            waiting += frame.payload.len();
            frames += 1;
        }
        assert!(waiting <= READY_MAX + (6 << 20), "{waiting}");
    }
    sender.join().expect("joined");
    attempt.failed("no more is read while what was read waits");
}

#[test]
fn a_small_frame_is_one_segment() {
    let (mut left, mut right, _kept) = channel();
    let before = tcp_segments_out(&left);
    for _ in 0..10 {
        left.queue(Kind::ToHome, 1, &[&[1; 24], &[2; 40]]);
        assert!(left.flush().expect("open"));
        right.receive_frame(TIMEOUT).expect("received");
    }
    assert_eq!(
        tcp_segments_out(&left) - before,
        10,
        "each frame left in one segment of its own"
    );
}

/// Segments with data that a socket has sent, as the kernel counts them (`ss -ti`).
fn tcp_segments_out(channel: &Channel) -> u32 {
    let port = channel.socket().local_addr().expect("address").port();
    let output = std::process::Command::new("ss")
        .args(["-tinH", "src", &format!(":{port}")])
        .output()
        .expect("ss runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut words = text.split_whitespace();
    words
        .find_map(|word| word.strip_prefix("data_segs_out:"))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no count in {text}"))
}

#[test]
fn a_lost_peer_is_an_error_not_a_signal() {
    let (mut left, right, _kept) = channel();
    drop(right);
    let payload = vec![0; 1 << 20];
    let failed = (0..100).find_map(|_| {
        left.queue(Kind::Pages, 1, &[&payload]);
        left.flush().err()
    });
    let error = failed.expect("the loss shows");
    assert!(matches!(error, ChannelError::Lost(_)), "{error}");
}

#[test]
fn goodbye_comes_after_all_frames() {
    let (mut left, mut right, _kept) = channel();
    left.queue(Kind::ToHome, 3, &[b"last"]);
    left.close();
    wait_readable(&right);
    let started = Instant::now();
    while right.receive().expect("no error") == Received::Open {
        assert!(started.elapsed() < TIMEOUT);
        wait_readable(&right);
    }
    assert_eq!(
        right.next_frame().expect("good").expect("there").payload,
        b"last"
    );
    assert!(right.next_frame().expect("good").is_none());
}

#[test]
fn tampering_on_the_way_is_noticed() {
    let attempt = Attempt::new(Party::Stranger, "change what is sent on its way");
    let (left, mut right, _kept) = channel();
    // Bytes that no TLS session has made, into the same stream.
    left.socket().set_nonblocking(false).expect("set");
    left.socket()
        .write_all(&[23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        .expect("written");
    left.socket().write_all(&[0; 10]).expect("written");
    let error = right.receive_frame(TIMEOUT).expect_err("refused");
    assert!(matches!(error, ChannelError::Protocol(_)), "{error}");
    attempt.failed(error);
}

#[test]
fn throughput_is_shown() {
    let (mut left, mut right, _kept) = channel();
    let total: usize = 256 << 20;
    let echo = std::thread::spawn(move || {
        for _ in 0..2000 {
            let frame = right.receive_frame(TIMEOUT).expect("received");
            right.queue(Kind::ToHome, 1, &[&frame.payload]);
            assert!(right.flush().expect("open"));
        }
        let mut got = 0;
        while got < total {
            got += right
                .receive_frame(TIMEOUT)
                .expect("received")
                .payload
                .len();
        }
    });
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let started = Instant::now();
            left.queue(Kind::ToGuest, 1, &[&[0; 64]]);
            assert!(left.flush().expect("open"));
            left.receive_frame(TIMEOUT).expect("received");
            started.elapsed()
        })
        .collect();
    times.sort();
    let payload = vec![3; 1 << 20];
    let started = Instant::now();
    for _ in 0..total >> 20 {
        left.send_now(Kind::Pages, 1, &[&payload], TIMEOUT)
            .expect("sent");
    }
    echo.join().expect("joined");
    let rate = 256.0 / started.elapsed().as_secs_f64();
    println!(
        "64-byte round trip: {:?} median; bulk: {rate:.0} MiB/s",
        times[1000]
    );
}
