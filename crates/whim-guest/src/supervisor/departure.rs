//! The way out: the guest is frozen, and its image and pages are sent home or onward.

use super::{Destination, Supervisor, SupervisorError};
use crate::connections::{ConnectionError, STALL_MAX};
use crate::error::GuestError;
use crate::guest::Guest;
use std::time::{Duration, Instant};
use whim_journey::frame::Kind;
use whim_journey::job::Phase;
use whim_journey::message::{self, ToHome};
use whim_journey::stay::Event as StayEvent;
use whim_model::{CpuTime, ProcessImage};
use whim_net::{Channel, ChannelError};

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

    /// How long the next host may accept nothing. Home hears nothing from us meanwhile, and must
    /// not give us up because another host stands still.
    fn stall_max(&self) -> Duration {
        self.lease
            .map_or(STALL_MAX, |lease| (lease / 2).min(STALL_MAX))
    }

    fn leave(&mut self, destination: Destination) -> Result<(), SupervisorError> {
        let mut next = match destination {
            Destination::Home => None,
            Destination::Onward(channel, epoch) => Some((channel, epoch)),
        };
        let stall_max = self.stall_max();
        let ahead = self.arrival.ahead();
        self.decide(StayEvent::Leave)?;
        let guest = self.guest.as_mut().ok_or(GuestError::Ended)?;
        let begun = Instant::now();
        guest.freeze()?;
        let image = guest.capture(ahead)?;
        // Home must know of every call before it hears that a thread waits for one.
        self.send_all()?;
        let frozen = begun.elapsed();
        match &mut next {
            Some((channel, epoch)) => {
                message::send_image(&image, |parts| {
                    let sent = channel.send_now(Kind::Image, *epoch, parts, stall_max);
                    sent.map_err(ConnectionError::from)
                })?;
                self.send_pages(&image, Some((channel, *epoch)))?;
                let complete = message::encode(&ToHome::Complete)?;
                channel
                    .send_now(Kind::ToHome, *epoch, &[&complete], stall_max)
                    .map_err(ConnectionError::from)?;
            }
            None => {
                let epoch = self.parties.epoch;
                if let Some(calls) = &mut self.calls {
                    message::send_image(&image, |parts| {
                        let sent = calls.send_now(Kind::Image, epoch, parts, STALL_MAX);
                        sent.map_err(ConnectionError::from)
                    })?;
                }
                self.send_pages(&image, None)?;
                self.say(ToHome::Complete)?;
            }
        }
        tracing::info!(?frozen, total = ?begun.elapsed(), "the guest has been sent");
        Ok(())
    }

    /// Sends the pages to the next host or to home. Home gets heartbeats from us meanwhile.
    fn send_pages(
        &mut self,
        image: &ProcessImage,
        next: Option<(&mut Channel, u32)>,
    ) -> Result<(), SupervisorError> {
        let Some(mut guest) = self.guest.take() else {
            return Err(GuestError::Ended.into());
        };
        let mut failure = None;
        let (mut next, stall_max) = (next, self.stall_max());
        let mut sink = |_: &mut Guest, address: u64, bytes: &[u8]| {
            let parts: [&[u8]; 2] = [&address.to_le_bytes(), bytes];
            let sent = match &mut next {
                Some((channel, epoch)) => channel.send_now(Kind::Pages, *epoch, &parts, stall_max),
                None => match &mut self.calls {
                    Some(calls) => {
                        calls.send_now(Kind::Pages, self.parties.epoch, &parts, STALL_MAX)
                    }
                    None => Err(ChannelError::Closed),
                },
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
        let result = guest.pages(image, &mut sink);
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
            cpu_away: CpuTime::default(),
            resident_bytes: 0,
        })
    }
}
