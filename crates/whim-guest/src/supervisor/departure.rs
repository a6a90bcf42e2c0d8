//! The way out: the guest is frozen, and its image and pages are sent home or onward.

use super::{Destination, Supervisor, SupervisorError};
use crate::allowance;
use crate::capture::OwnRuns;
use crate::connections::{ConnectionError, Next, STALL_MAX};
use crate::error::GuestError;
use crate::guest::Guest;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use whim_image::maps;
use whim_journey::frame::Kind;
use whim_journey::job::Phase;
use whim_journey::message::{self, Allowance, ToHome, Used};
use whim_journey::stay::Event as StayEvent;
use whim_model::Mapping;
use whim_net::{Channel, ChannelError};
use whim_sys::pagemap::Run;
use whim_sys::pulse;

/// The least time for which the next host may accept nothing.
const ONWARD_STALL_MIN: Duration = Duration::from_secs(5);
/// Longest sleep while it accepts nothing, in milliseconds.
const LOOK_MS: u8 = 50;

impl Supervisor {
    /// Freezes the guest and sends it away, once nothing is under way that cannot be taken back.
    pub(super) fn freeze_if_settled(&mut self) -> Result<(), SupervisorError> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        if self.wanted.is_none() || guest.is_settling() || guest.gone {
            return Ok(());
        }
        let Some(destination) = self.wanted.take() else {
            return Ok(());
        };
        let onward = matches!(destination, Destination::Onward(..));
        match self.leave(destination) {
            Ok(()) => Ok(()),
            Err(SupervisorError::Guest(GuestError::Ended)) => Ok(()),
            Err(error @ SupervisorError::Connection(_)) if onward => self.not_onward(&error),
            Err(error) => Err(error),
        }
    }

    /// Begins to connect to the next host, if that allows all that the guest has.
    pub(super) fn connect_onward(
        &mut self,
        next: Next,
        allowance: Allowance,
    ) -> Result<(), SupervisorError> {
        let too_much = self.guest.as_ref().and_then(|guest| {
            let has = (guest.host_tid, guest.threads.len());
            allowance::exceeded(has, &next.node, allowance)
        });
        if let Some(reason) = too_much {
            return self.not_onward(&reason);
        }
        self.next = Some(next.clone());
        let begun = self.reception.connect_onward(&self.parties, next);
        begun.or_else(|error| self.not_onward(&error))
    }

    /// Tells home that the guest could not be sent onward. Home decides whether it goes on here.
    pub(super) fn not_onward(
        &mut self,
        error: &dyn std::fmt::Display,
    ) -> Result<(), SupervisorError> {
        tracing::warn!(%error, "the guest could not be sent onward");
        self.say(ToHome::Failed {
            phase: Phase::Onward,
            reason: error.to_string(),
        })
    }

    /// How long the next host may accept nothing, as one that makes thousands of mappings does for a
    /// while. The guest stands still meanwhile, and if it is longer, goes on here.
    fn stall_max(&self) -> Duration {
        self.lease.map_or(STALL_MAX, |lease| {
            lease.max(ONWARD_STALL_MIN).min(STALL_MAX)
        })
    }

    fn leave(&mut self, destination: Destination) -> Result<(), SupervisorError> {
        let ahead = self.arrival.ahead();
        self.decide(StayEvent::Leave)?;
        let heartbeat = self.heartbeat();
        let begun = Instant::now();
        let guest = self.guest.as_mut().ok_or(GuestError::Ended)?;
        let pieces = maps::count(guest.host_tid).unwrap_or(0) + guest.threads.len();
        let take = || -> Result<(Vec<u8>, OwnRuns), SupervisorError> {
            guest.freeze()?;
            let image = guest.capture(ahead)?;
            let runs = guest.runs(&image)?;
            Ok((message::encode(&image)?, runs))
        };
        let (image, runs) = heartbeat.meanwhile(&mut self.calls, pieces, take)?;
        if let Some(guest) = &mut self.guest {
            guest.tell_released();
        }
        // Home must know of every call before it hears that a thread waits for one.
        self.send_all()?;
        let frozen = begun.elapsed();
        match destination {
            Destination::Onward(mut channel, epoch) => {
                let stall_max = self.stall_max();
                let guest = self.guest.as_mut().ok_or(GuestError::Ended)?;
                let mut next = NextHost::new(&mut channel, epoch, stall_max);
                let send = || next.send_guest(guest, &image, &runs);
                // However little it is, the next host may take nothing.
                heartbeat.meanwhile(&mut self.calls, usize::MAX, send)?;
            }
            Destination::Home => {
                let epoch = self.parties.epoch;
                if let Some(calls) = &mut self.calls {
                    message::send_encoded(&image, |parts| {
                        let sent = calls.send_to_a_living(Kind::Image, epoch, parts, STALL_MAX);
                        sent.map_err(ConnectionError::from)
                    })?;
                }
                self.send_pages(&runs)?;
                self.say(ToHome::Complete)?;
            }
        }
        tracing::info!(?frozen, total = ?begun.elapsed(), "the guest has been sent");
        Ok(())
    }

    /// Sends the pages home, and heartbeats in between.
    fn send_pages(&mut self, runs: &[(Mapping, Run)]) -> Result<(), SupervisorError> {
        let Some(mut guest) = self.guest.take() else {
            return Err(GuestError::Ended.into());
        };
        let mut failure = None;
        let mut sink = |_: &mut Guest, address: u64, bytes: &[u8]| {
            let parts: [&[u8]; 2] = [&address.to_le_bytes(), bytes];
            let sent = match &mut self.calls {
                // Pages that need not travel.
                _ if bytes.is_empty() => Ok(()),
                Some(calls) => {
                    // Home may wait for as long as its deputy's group is frozen.
                    let epoch = self.parties.epoch;
                    calls.send_to_a_living(Kind::Pages, epoch, &parts, STALL_MAX)
                }
                None => Err(ChannelError::Closed),
            };
            let beaten = self.beat_during_transfer();
            sent.map_err(ConnectionError::from)
                .map_err(SupervisorError::from)
                .and(beaten)
                .map_err(|error| {
                    failure = Some(error);
                    GuestError::Ended
                })
        };
        let result = guest.pages(runs, &mut sink);
        self.guest = Some(guest);
        match failure {
            Some(error) => Err(error),
            None => Ok(result?),
        }
    }

    fn beat_during_transfer(&mut self) -> Result<(), SupervisorError> {
        if !self.stay.beats(self.begun.elapsed()) {
            return Ok(());
        }
        let clocks = self.arrival.ahead().clocks()?;
        self.say(ToHome::Heartbeat {
            clocks,
            used: Used::default(),
        })
    }
}

/// The connection to the next host, which hears nothing from home meanwhile.
struct NextHost<'a> {
    channel: &'a mut Channel,
    epoch: u32,
    stall_max: Duration,
}

impl<'a> NextHost<'a> {
    fn new(channel: &'a mut Channel, epoch: u32, stall_max: Duration) -> Self {
        Self {
            channel,
            epoch,
            stall_max,
        }
    }

    /// Sends all of a frozen guest.
    fn send_guest(
        &mut self,
        guest: &mut Guest,
        image: &[u8],
        runs: &[(Mapping, Run)],
    ) -> Result<(), SupervisorError> {
        message::send_encoded(image, |parts| self.send(Kind::Image, parts))?;
        let mut failure = None;
        let mut sink = |_: &mut Guest, address: u64, bytes: &[u8]| {
            pulse::advance();
            if bytes.is_empty() {
                return Ok(());
            }
            let sent = self.send(Kind::Pages, &[&address.to_le_bytes(), bytes]);
            sent.map_err(|error| {
                failure = Some(error);
                GuestError::Ended
            })
        };
        let result = guest.pages(runs, &mut sink);
        if let Some(error) = failure {
            return Err(error.into());
        }
        result?;
        let complete = message::encode(&ToHome::Complete)?;
        Ok(self.send(Kind::ToHome, &[&complete])?)
    }

    /// Sends a frame. While the next host takes nothing, we are not hung.
    fn send(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), ConnectionError> {
        self.channel.queue(kind, self.epoch, parts);
        let begun = Instant::now();
        while !self.channel.flush()? {
            if begun.elapsed() > self.stall_max {
                let (doing, seconds) = ("sending a frame", self.stall_max.as_secs_f64());
                return Err(ChannelError::Timeout { doing, seconds }.into());
            }
            pulse::advance();
            let mut set = [PollFd::new(self.channel.as_fd(), PollFlags::POLLOUT)];
            // Whether it may be written to, or the connection is lost, the next try shows.
            let _ = poll(&mut set, PollTimeout::from(LOOK_MS));
        }
        Ok(())
    }
}
