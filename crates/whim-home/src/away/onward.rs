//! On from one host to the next, without coming home.

use super::{Away, CALLS, NEXT_CALLS, PAGES, lines};
use crate::client::Client;
use crate::company::Lent;
use crate::connections::Connections;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::moving::{Onward, Transition};
use crate::numbers::Ids;
use anyhow::{Context, Result};
use whim_journey::job::Event;
use whim_journey::message::ToGuest;

impl Away {
    pub(super) fn begin_onward(
        &mut self,
        slot: whim_journey::job::Slot,
        mut connections: Connections,
        client: Client,
        identity: &Identity,
    ) -> Result<()> {
        let ids = Ids::of(identity.job.pid)?;
        let prepare = ToGuest::Prepare {
            pid: ids.pid,
            own_pid: ids.own_pid.number(),
            uid: ids.uid,
            threads: u32::try_from(self.server.deputy.living()).unwrap_or(u32::MAX),
            resident_bytes: self.resident_bytes,
            clocks: connections.clocks,
            lease_ms: identity.job.lease_ms,
        };
        connections.queue(&prepare, &[])?;
        connections.calls.flush()?;
        let epoll = self.epoll.as_ref().context("epoll")?;
        lines::begin(epoll, &mut connections.calls, NEXT_CALLS)?;
        let onward = Onward::new(slot, connections, client, identity.lease);
        self.transition = Some(Transition::Onward(Box::new(onward)));
        Ok(())
    }

    pub(super) fn read_next(&mut self, journal: &mut Journal) -> Result<()> {
        let Some(Transition::Onward(mut onward)) = self.transition.take() else {
            return Ok(());
        };
        onward.stopped = self.stopped;
        match onward.receive(&mut self.connections, journal) {
            Ok(false) => self.transition = Some(Transition::Onward(onward)),
            Ok(true) => self.arrived(*onward, journal)?,
            Err(error) => self.onward_failed(*onward, &format!("{error:#}"))?,
        }
        Ok(())
    }

    /// The guest runs on the next host: calls come from there now.
    fn arrived(&mut self, onward: Onward, journal: &mut Journal) -> Result<()> {
        let epoll = self.epoll.as_ref().context("epoll")?;
        for line in [
            &self.connections.calls,
            &self.connections.pages,
            &onward.connections.calls,
        ] {
            lines::end(epoll, line);
        }
        self.connections.queue(&ToGuest::Discard, &[])?;
        let _ = self.connections.calls.flush();
        let from = self.connections.node.clone();
        let (connections, mut client, report) = onward.into_arrival(from);
        self.connections = Lent::new(connections, self.lease);
        lines::begin(epoll, &mut self.connections.calls, CALLS)?;
        lines::begin(epoll, &mut self.connections.pages, PAGES)?;
        self.begin_unsaid()?;
        self.watch.begin(self.begun.elapsed());
        self.left_host();
        self.moves += 1;
        // The thread that wants it asks again from there.
        self.wants_home = None;
        self.lacks_memory = None;
        self.excess = None;
        journal.note(&Event::Acknowledged {
            epoch: self.connections.epoch,
        });
        journal.note(&Event::Done {
            report: report.clone(),
        });
        client.send(&Event::Done { report });
        let continues = self.held.iter().filter(|held| held.signal == libc::SIGCONT);
        let continues = u32::try_from(continues.count()).unwrap_or(u32::MAX);
        self.server.deputy.count_continues_from(continues);
        // The guest asks for them from there.
        self.withheld.clear();
        self.release_held();
        self.look_at_group()?;
        whim_sys::heap::give_back();
        Ok(())
    }

    pub(super) fn onward_failed(&mut self, mut onward: Onward, reason: &str) -> Result<()> {
        if let Some(epoll) = &self.epoll {
            lines::end(epoll, &onward.connections.calls);
        }
        let _ = onward.connections.queue(&ToGuest::Discard, &[]);
        let _ = onward.connections.calls.flush();
        self.say_unsaid()?;
        self.connections.queue(&ToGuest::Resume, &[])?;
        self.release_held();
        onward.client.refuse(reason.to_owned());
        match self.wants_home.take() {
            Some(wanted) => self.begin_homeward(None, wanted),
            None => Ok(()),
        }
    }
}
