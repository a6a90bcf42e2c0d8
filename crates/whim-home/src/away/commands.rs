//! Commands that clients give while the process is away, and their answers.

use super::{Away, MOVING};
use crate::client::{Client, read_command};
use crate::identity::Identity;
use crate::moving::{Connecting, Transition};
use anyhow::Result;
use std::os::unix::net::UnixListener;
use whim_journey::job::{Command, Event, Phase, State, Status};

impl Away {
    pub(super) fn read_commands(
        &mut self,
        identity: &Identity,
        listener: &UnixListener,
    ) -> Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(false)?;
            match read_command(stream) {
                Ok((command, client)) => self.command(command, client, identity)?,
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
    }

    fn command(&mut self, command: Command, mut client: Client, identity: &Identity) -> Result<()> {
        let moves = matches!(command, Command::Move { .. } | Command::Bring { .. });
        let frozen = moves && self.stands_still()?;
        let busy = self.transition.is_some();
        match command {
            Command::Status => client.send(&Event::Status {
                status: self.status(identity),
            }),
            Command::Calls => client.send(&Event::Calls {
                calls: self.server.counts(),
            }),
            Command::Channel => client.refuse("Home makes its connections itself"),
            Command::Evict { node } => self.evict(&node, client)?,
            Command::Move { .. } | Command::Bring { .. } if busy => {
                client.refuse(MOVING);
            }
            Command::Move { .. } if self.recall.is_removed() => {
                client.refuse("Its host was removed from the cluster: it comes home");
            }
            Command::Move { .. } | Command::Bring { .. } if self.stopped || frozen => {
                client.refuse(self.stays().unwrap_or_default());
            }
            Command::Bring { .. } => self.begin_homeward(Some(client), "asked for".into())?,
            Command::Move { slot } if slot.node == self.connections.node => {
                client.refuse(format!("The process is on {} already", slot.node));
            }
            Command::Move { slot } => {
                let connecting = Connecting::begin(identity, slot, client);
                self.transition = Some(Transition::Connecting(Box::new(connecting)));
            }
        }
        Ok(())
    }

    fn status(&self, identity: &Identity) -> Status {
        let (state, phase) = match &self.transition {
            Some(Transition::Connecting(_) | Transition::Onward(_)) => {
                (State::Moving, Phase::Onward)
            }
            Some(Transition::Homeward(_)) => (State::Moving, Phase::Home),
            None if self.stopped => (State::Stopped, Phase::Away),
            None => (State::Away, Phase::Away),
        };
        Status {
            journey: identity.job.journey.clone(),
            pid: identity.job.pid,
            home: identity.job.node.clone(),
            location: self.connections.node.clone(),
            state,
            phase,
            epoch: self.connections.epoch,
            moves: self.moves,
            supervisor_pid: i32::try_from(std::process::id()).unwrap_or(0),
            cpu_ns: self.cpu_away.user_ns + self.cpu_away.system_ns,
            busy_ns: self.busy_ns,
            counted_ms: self.counted_ms,
            resident_bytes: self.resident_bytes,
            forwarded_calls: self.server.calls,
            held_threads: 0,
            reason: self.standstill().or_else(|| self.lacks_memory.clone()),
        }
    }
}
