//! A host that has to send the process home, whether it likes that or not: returns that do not get on are
//! cut, and nothing is executed for a host that was removed from the cluster.

use super::{Away, Ending, MOVING};
use crate::client::Client;
use crate::moving::{Homeward, Transition};
use anyhow::{Result, bail};
use std::time::Duration;
use whim_journey::frame::Frame;
use whim_journey::job::{Event, Phase};
use whim_journey::message::{ToGuest, ToHome};
use whim_journey::recall::{Cut, Event as RecallEvent};
use whim_sys::cgroup::memory_room;

/// An encoded image of up to so many bytes, a few hundred mappings and threads, is taken over within
/// milliseconds, unless a thread of the deputy has to be waited for.
const SMALL: usize = 64 << 10;

impl Away {
    pub(super) fn recall(&mut self, event: RecallEvent) -> Option<Cut> {
        self.recall.handle(self.begun.elapsed(), event)
    }

    /// Begins the way home.
    pub(crate) fn begin_homeward(
        &mut self,
        mut client: Option<Client>,
        reason: String,
    ) -> Result<()> {
        // If it goes on just now, what had to wait for that begins first.
        let frozen = self.stands_still()?;
        if let Some(mut client) = client.take_if(|_| frozen || self.transition.is_some()) {
            client.refuse(self.stays().unwrap_or_else(|| MOVING.into()));
            return Ok(());
        }
        if self.transition.is_some() || self.stopped || frozen {
            self.wants_home = Some(reason);
            return Ok(());
        }
        let room = memory_room(self.server.deputy.pid());
        if let Some(lack) = self.lack_of_room(&room, client.is_some()) {
            self.stay_away(client, reason, lack);
            return Ok(());
        }
        self.lacks_memory = None;
        self.reserve.for_return();
        whim_sys::crash::section();
        self.connections.queue(&ToGuest::Freeze, &[])?;
        self.recall(RecallEvent::Called);
        let mut homeward = Homeward::new(client, reason, self.lease, room.left);
        homeward.announce_wait(self.clock_ahead);
        self.transition = Some(Transition::Homeward(Box::new(homeward)));
        Ok(())
    }

    /// A piece of the guest's image, or pages of it.
    pub(super) fn returning(&mut self, frame: &Frame) -> Result<()> {
        let is_homeward = |moves: &mut Transition| matches!(moves, Transition::Homeward(_));
        let Some(Transition::Homeward(mut homeward)) = self.transition.take_if(is_homeward) else {
            bail!("The guest sends an image that nobody asked for");
        };
        let taken = self.take_over(&mut homeward, frame);
        let total = homeward.progress();
        self.transition = Some(Transition::Homeward(homeward));
        taken?;
        self.recall(RecallEvent::Came { total });
        // Thousands of such frames may have come at once.
        Ok(self.connections.beat()?)
    }

    fn take_over(&mut self, homeward: &mut Homeward, frame: &Frame) -> Result<()> {
        let Some(image) = homeward.frame(&self.server, frame)? else {
            return Ok(());
        };
        if image.len() <= SMALL {
            // However little there is to be done, the deputy may be waited for: its company keeps the
            // lines then. A thread that does, as below, costs more than the work itself: it was 1 ms of a
            // return of 21 ms, where both sides want all CPUs of one machine.
            return self.accompanied(|away| {
                homeward.begin(&mut away.server, &away.original, &mut away.held, &image)
            });
        }
        let (server, original, held) = (&mut self.server, &self.original, &mut self.held);
        self.connections.meanwhile(usize::MAX, || {
            homeward.begin(server, original, held, &image)
        })
    }

    /// The guest has sent everything.
    pub(super) fn completed(&mut self) -> Result<()> {
        match &self.transition {
            Some(Transition::Homeward(home)) if home.begun_restoring() => {}
            Some(Transition::Homeward(home)) if home.is_declined() => return self.not_taken(),
            _ => bail!("The guest's image ends before it has begun"),
        }
        self.image_is_here();
        if self.server.deputy.is_group_stopped() || self.stands_still()? {
            self.home_waits = true;
            return Ok(());
        }
        self.finish = Some(Ending::Home(Box::default()));
        Ok(())
    }

    /// A node was removed from the cluster. If the process is there, it comes home, and the daemon is told
    /// how that goes on.
    pub(super) fn evict(&mut self, node: &str, mut client: Client) -> Result<()> {
        if node != self.connections.node {
            self.do_not_go_to(node)?;
            client.refuse(format!("The process is on {}", self.connections.node));
            return Ok(());
        }
        if !self.recall.is_removed() {
            tracing::warn!("The host {node} was removed: nothing is executed for it any more");
            self.recall(RecallEvent::Removed);
            self.connections.dismiss();
        }
        if let Some(mut before) = self.evicting.replace(client) {
            before.refuse("Another one waits for the process");
        }
        let reason = format!("its host {node} was removed from the cluster");
        match self.transition.take() {
            Some(Transition::Connecting(connecting)) => {
                connecting.into_parts().1.refuse(reason.clone());
            }
            Some(Transition::Onward(onward)) if onward.can_be_given_up() => {
                self.onward_failed(*onward, &format!("It comes home: {reason}"))?;
            }
            other => self.transition = other,
        }
        // If something else is under way, the return begins when that has failed.
        self.begin_homeward(None, reason)
    }

    /// A move onward to a node that was removed is given up, if it still can be.
    fn do_not_go_to(&mut self, node: &str) -> Result<()> {
        let reason = format!("Node {node} was removed from the cluster");
        match self.transition.take() {
            Some(Transition::Connecting(connecting)) if connecting.goes_to(node) => {
                connecting.into_parts().1.refuse(reason);
            }
            Some(Transition::Onward(onward))
                if onward.connections.node == node && onward.can_be_given_up() =>
            {
                self.onward_failed(*onward, &reason)?;
            }
            other => self.transition = other,
        }
        Ok(())
    }

    /// The process is on another host now; the client that waited for its return is told so.
    pub(super) fn left_host(&mut self) {
        self.recall(RecallEvent::Left);
        if let Some(mut client) = self.evicting.take() {
            client.refuse(format!(
                "The process has gone on to {}",
                self.connections.node
            ));
        }
    }

    /// The guest could not leave. That does not excuse a host that was removed, which is asked again.
    pub(super) fn return_failed(&mut self, reason: &str) {
        self.recall(RecallEvent::Failed);
        if self.recall.is_removed() {
            tracing::debug!(reason, "it could not leave, and is asked again");
            self.wants_home = Some("its host was removed from the cluster".into());
        }
    }

    /// Whether a request of the guest is executed. A request that is not executed is made at home when the
    /// guest is there, because home never got it, as far as the guest can know. Once its image is being
    /// restored, nothing is executed any more.
    pub(super) fn does(&mut self, request: &ToHome, tail: &[u8]) -> bool {
        let returned = match &self.transition {
            Some(Transition::Homeward(homeward)) => homeward.begun_restoring(),
            _ => false,
        };
        let executes = !matches!(request, ToHome::Call(_)) || self.recall.may_execute();
        if let ToHome::Call(call) = request
            && (returned || !executes)
        {
            let _ = self.tails.finish(call.tid, tail);
        }
        !returned && executes
    }

    /// Ends a return that does not get on.
    pub(super) fn look_at_return(&mut self) -> Result<()> {
        let Some(Cut { idle }) = self.recall(RecallEvent::Tick) else {
            return Ok(());
        };
        let node = &self.connections.node;
        let why = if self.recall.is_removed() {
            format!("The host {node} was removed from the cluster")
        } else {
            format!("The host {node} does not send the process home")
        };
        let lack = self.lacks_memory.as_ref();
        let lack = lack.map_or_else(String::new, |lack| format!(" ({lack})"));
        let stopped = if self.stopped {
            " (it is stopped by job control)"
        } else {
            ""
        };
        bail!("{why}: its return has not got on for {idle:.1?}{stopped}{lack}")
    }

    /// The whole image is here, so nothing more is wanted of the host.
    pub(super) fn image_is_here(&mut self) {
        self.recall(RecallEvent::Whole);
        let at_ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        let phase = Phase::Rebuild;
        if let Some(client) = &mut self.evicting {
            client.send(&Event::Phase { phase, at_ms });
        }
    }

    /// Reports how far a return from a host that was removed has come, which shows that this supervisor acts.
    pub(super) fn tell_evicting(&mut self) {
        let bytes = match &self.transition {
            Some(Transition::Homeward(homeward)) => homeward.bytes(),
            _ => 0,
        };
        let of = self.resident_bytes;
        if let Some(client) = &mut self.evicting {
            client.send(&Event::Progress { bytes, of });
        }
    }

    pub(super) fn until_cut(&self) -> Duration {
        self.recall.patience(self.begun.elapsed())
    }
}
