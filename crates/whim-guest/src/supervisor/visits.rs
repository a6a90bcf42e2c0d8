//! Handles what the reception brings: the daemon's requests, and connections.

use super::{Destination, Supervisor, SupervisorError};
use crate::control;
use crate::guest::Guest;
use crate::reception::Visit;
use std::sync::Arc;
use whim_journey::job::{Command, Event, Phase, State, Status};
use whim_journey::message::ChannelRole;
use whim_journey::stay::Event as StayEvent;
use whim_net::{Door, Fresh, Line};

impl Supervisor {
    pub(super) fn visits(&mut self) -> Result<(), SupervisorError> {
        let visits: Vec<Visit> = self.reception.visits().collect();
        for visit in visits {
            match visit {
                Visit::Request(request) => self.command(request),
                Visit::Connection(role, fresh) => self.connected(role, *fresh)?,
                // Home may have changed its mind meanwhile.
                Visit::Onward(next, _) if self.next.as_ref() != Some(&next) => {}
                Visit::Onward(next, Ok(channel)) => {
                    self.next = None;
                    self.wanted = Some(Destination::Onward(channel, next.epoch));
                }
                Visit::Onward(_, Err(error)) => {
                    self.next = None;
                    self.not_onward(&error)?;
                }
            }
        }
        Ok(())
    }

    fn command(&self, request: control::Request) {
        match request.command {
            Command::Status => {
                let status = self.status();
                request.answer(&Event::Status { status });
            }
            // Handled by the reception.
            Command::Channel => {}
            Command::Move { .. }
            | Command::Bring { .. }
            | Command::Evict { .. }
            | Command::Calls => request.answer(&Event::Refused {
                reason: "A guest is moved by its home, which counts its calls too".into(),
                stays: false,
            }),
        }
    }

    fn connected(&mut self, role: ChannelRole, fresh: Fresh) -> Result<(), SupervisorError> {
        let taken = match role {
            ChannelRole::Calls => self.calls.is_some(),
            ChannelRole::Pages => self.pages.is_some() || self.paired,
            ChannelRole::Source => self.source.is_some(),
        };
        if taken || self.guest.is_some() {
            tracing::warn!(?role, "a second connection was refused");
            return Ok(());
        }
        let at = self.begun.elapsed();
        self.decide(StayEvent::Heard { at })?;
        let (epoch, lease) = (self.parties.epoch, self.lease.map(|lease| lease * 2));
        let line = |fresh: Fresh, door: &Arc<Door>| {
            Some(Line::waiting(fresh, epoch, Arc::clone(door), lease))
        };
        match role {
            ChannelRole::Calls => self.calls = line(fresh, &self.reception.calls),
            ChannelRole::Pages => self.pages = line(fresh, &self.reception.pages),
            ChannelRole::Source => {
                self.source = Some(fresh.channel);
                // Data that came with its first message has been read already, and makes no
                // descriptor readable.
                return self.read_source();
            }
        }
        if self.calls.is_some() && self.pages.is_some() {
            self.paired = true;
            return self.read_calls();
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let guest = self.guest.as_ref();
        let (user, system) = guest.map_or((0, 0), Guest::cpu_times);
        let state = match guest {
            None => State::Moving,
            Some(guest) if guest.holds.move_away => State::Moving,
            Some(guest) if guest.holds.stopped => State::Stopped,
            Some(_) if !self.stay.is_valid() || self.stay.is_held() => State::InDoubt,
            Some(_) => State::Away,
        };
        let phase = match guest {
            None => Phase::Rebuild,
            Some(guest) if guest.holds.move_away => Phase::Onward,
            Some(_) if !self.stay.is_valid() => Phase::Commit,
            Some(_) => Phase::Away,
        };
        Status {
            journey: self.job.journey.clone(),
            pid: self.arrival.pid(),
            home: self.job.home.clone(),
            location: self.job.node.clone(),
            state,
            phase,
            epoch: self.job.epoch,
            moves: 0,
            supervisor_pid: std::process::id().cast_signed(),
            cpu_ns: user + system,
            busy_ns: 0,
            counted_ms: 0,
            resident_bytes: guest.map_or(0, |guest| guest.status(guest.host_tid).resident),
            forwarded_calls: guest.map_or(0, |guest| guest.calls),
            held_threads: 0,
            reason: Some(format!("since {} s", self.begun.elapsed().as_secs())),
        }
    }
}
