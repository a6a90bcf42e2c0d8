//! The process that carries the packets of one link with properties: two TUN devices in the
//! switch, and between them what [`crate::wire`] decides.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;
use whim_sys::tun::Tun;

use crate::node::{enter_cgroups, enter_switch};
use crate::role::WireTask;
use crate::state::{address4, address6};
use crate::wire::{OneWay, WireCounters};

/// Packets taken from one device before the other gets its turn.
const BATCH: usize = 64;
const PACKET_BYTES_MAX: usize = 65_536;
/// The counters' file holds one line of this many bytes, so that a reader sees old or new digits
/// but never a torn line.
const COUNTERS_BYTES: usize = 256;

pub(crate) fn prepare(task: &WireTask) -> Result<(), String> {
    enter_cgroups(&task.cgroup_entries)?;
    enter_switch(task.switch, task.rootless)
}

pub(crate) fn begin(task: WireTask) -> Result<Wire, String> {
    let make = |name: &str| Tun::create(name).map_err(|e| e.to_string());
    let counters = File::create(&task.counters)
        .map_err(|e| format!("cannot write {}: {e}", task.counters.display()))?;
    let wire = Wire {
        devices: [make(&task.device_a)?, make(&task.device_b)?],
        ways: [OneWay::new(task.link.clone(), 0), OneWay::new(task.link, 1)],
        pair: [Addresses::of(task.node_a), Addresses::of(task.node_b)],
        counters,
        began: Instant::now(),
    };
    wire.note_counters();
    Ok(wire)
}

/// The addresses of one node as they stand in a packet.
#[derive(Debug)]
struct Addresses {
    v4: [u8; 4],
    v6: [u8; 16],
}

impl Addresses {
    fn of(node: usize) -> Addresses {
        use std::net::{Ipv4Addr, Ipv6Addr};
        let v4: Ipv4Addr = address4(node).parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let v6: Ipv6Addr = address6(node).parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
        Addresses {
            v4: v4.octets(),
            v6: v6.octets(),
        }
    }
}

/// A wire at work.
#[derive(Debug)]
pub(crate) struct Wire {
    devices: [Tun; 2],
    /// From device 0 to device 1, and back.
    ways: [OneWay; 2],
    pair: [Addresses; 2],
    counters: File,
    began: Instant,
}

impl Wire {
    /// Carries packets until killed.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let mut noted = self.count();
        loop {
            let now = self.count();
            if now != noted {
                self.note_counters();
                noted = now;
            }
            self.wait()?;
            for side in 0..2 {
                self.take_in(side, &mut buffer)?;
            }
            for side in 0..2 {
                self.let_out(side);
            }
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn count(&self) -> [WireCounters; 2] {
        [self.ways[0].counters, self.ways[1].counters]
    }

    fn wait(&self) -> Result<(), String> {
        let next = self.ways.iter().filter_map(OneWay::next_release_us).min();
        let timeout = next.map(|at| {
            let left_us = at.saturating_sub(self.now_us());
            TimeSpec::from_duration(std::time::Duration::from_micros(left_us))
        });
        let mut fds = [
            PollFd::new(self.devices[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.devices[1].as_fd(), PollFlags::POLLIN),
        ];
        match nix::poll::ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(format!("cannot wait for packets ({errno})")),
        }
    }

    fn take_in(&mut self, side: usize, buffer: &mut [u8]) -> Result<(), String> {
        for _ in 0..BATCH {
            let received = self.devices[side].receive(buffer);
            let Some(length) = received.map_err(|e| format!("cannot take packets ({e})"))? else {
                break;
            };
            let packet = &buffer[..length];
            // Only the pair's own packets count; anything else is the kernel talking to itself.
            if is_between(packet, &self.pair[side], &self.pair[1 - side]) {
                let now_us = self.now_us();
                self.ways[side].arrive(now_us, packet);
            }
        }
        Ok(())
    }

    fn let_out(&mut self, side: usize) {
        let now_us = self.now_us();
        while let Some(packet) = self.ways[side].release(now_us) {
            // A packet that the kernel does not take is lost, as on any link.
            let _ = self.devices[1 - side].send(&packet);
        }
    }

    fn note_counters(&self) {
        let Ok(text) = serde_json::to_string(&self.count()) else {
            return;
        };
        let line = format!("{text:width$}\n", width = COUNTERS_BYTES - 1);
        let _ = self.counters.write_all_at(line.as_bytes(), 0);
    }
}

fn is_between(packet: &[u8], from: &Addresses, to: &Addresses) -> bool {
    match packet.first().map(|b| b >> 4) {
        Some(4) => packet
            .get(12..20)
            .is_some_and(|a| a[..4] == from.v4 && a[4..] == to.v4),
        Some(6) => packet
            .get(8..40)
            .is_some_and(|a| a[..16] == from.v6 && a[16..] == to.v6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pairs_packets_count() {
        let (one, two) = (Addresses::of(1), Addresses::of(2));
        let mut v4 = vec![0x45; 20];
        v4[12..16].copy_from_slice(&one.v4);
        v4[16..20].copy_from_slice(&two.v4);
        assert!(is_between(&v4, &one, &two));
        assert!(!is_between(&v4, &two, &one));
        let mut v6 = vec![0x60; 40];
        v6[8..24].copy_from_slice(&one.v6);
        v6[24..40].copy_from_slice(&two.v6);
        assert!(is_between(&v6, &one, &two));
        for short in [&[][..], &[0x45][..], &[0x60; 39][..]] {
            assert!(!is_between(short, &one, &two));
        }
    }
}
