//! Reported calls. The table decides whether a call is executed here, at home, or by going home.

use crate::cut::end_call;
use crate::error::GuestError;
use crate::guest::{After, Forwarded, Guest, Kind, Outgoing, Place, Thread, Trace, Waiting};
use crate::mirrored::Mirror;
use crate::numbers::low;
use crate::pager::Shared;
use crate::reply::Reply;
use crate::table::Piece;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use whim_calls::judge::{Answer, Judged};
use whim_calls::{AtOnce, Decision, Forward, Region, Special, at_once, resolve};
use whim_image::freeze_calls::{
    ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS,
};
use whim_journey::message::{
    CallRequest, Disposition, MAPPED_WITHOUT_EXECUTION, ToHome, WireRegion,
};
use whim_model::{MappingFlags, PAGE_SIZE, Syscall};
use whim_sys::ptrace::{Stopped, TraceError};
use whim_sys::seccomp::{Notification, Response};
use whim_sys::uffd::Mode;

/// Calls taken from the listener before other work gets its turn.
const BATCH: usize = 64;

impl Guest {
    /// Receives reported calls and decides them.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn take_calls(&mut self) -> Result<(), GuestError> {
        for notification in std::mem::take(&mut self.backlog) {
            self.reported(notification)?;
        }
        for _ in 0..BATCH {
            let mut set = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut set, PollTimeout::ZERO).unwrap_or(0);
            let events = set[0].revents().unwrap_or(PollFlags::empty());
            if ready == 0 || !events.contains(PollFlags::POLLIN) || !self.listens() {
                return Ok(());
            }
            if let Some(notification) = self.listener.receive()? {
                self.reported(notification)?;
            }
        }
        Ok(())
    }

    fn reported(&mut self, notification: Notification) -> Result<(), GuestError> {
        let host_tid = notification.tid;
        let Notification {
            id,
            number,
            architecture,
            args,
            ..
        } = notification;
        let Some(thread) = self.threads.get_mut(&host_tid) else {
            // We have seen this thread end.
            self.listener
                .respond(id, Response::Result(-i64::from(libc::EINTR)))?;
            return Ok(());
        };
        thread.told_interrupted = false;
        thread.waiting = Some(Waiting {
            id,
            call: whim_calls::notified(architecture, number, args),
            judged: Judged {
                number: number.cast_unsigned(),
                architecture,
                args: args.map(Some),
            },
            kind: Kind::Undecided,
            sequence: 0,
            cancelled: false,
            again: false,
        });
        self.calls += 1;
        self.decide(host_tid)
    }

    /// Decides a thread's reported call, as soon as all pages that it names are here.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn decide(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let Some(call) = self.call_of(host_tid) else {
            return Ok(());
        };
        if self.is_fatal(host_tid) {
            self.go_home(host_tid, "its seccomp filter ends it for that");
            return Ok(());
        }
        // What it moves, and onto what, is asked of the table, and the kernel here moves it without us.
        if call.number == libc::SYS_mremap.cast_unsigned() {
            drop(self.shared.settled());
        }
        let decision = resolve(&call, &self.context, &self.memory);
        // Trap: a-futex-on-a-missing-page
        self.memory.prepare(&call);
        self.memory.prepare_to_populate(&call);
        if self.must_wait() {
            return Ok(());
        }
        tracing::trace!(host_tid, call.number, args = ?call.args, ?decision, "call");
        match decision {
            Decision::Continue => {
                self.note_policy(&call);
                self.memory.note(&call);
                if self.memory.meets_end(&call) {
                    self.populate(host_tid, &call)?;
                } else {
                    self.respond(host_tid, Response::Continue)?;
                }
            }
            Decision::Answer(value) => self.respond(host_tid, Response::Result(value))?,
            Decision::GoHome(reason) => self.go_home(host_tid, reason),
            Decision::Forward(forward) => self.forward(host_tid, forward, After::Result)?,
            Decision::Special(special) => self.special(host_tid, &call, special)?,
        }
        self.requeue_once_begun(host_tid)
    }

    /// Whether the program's own filters end it, or the thread, for a reported call. The kernel at home does
    /// that, so that whoever waits for the program hears what it has to.
    fn is_fatal(&self, host_tid: i32) -> bool {
        let thread = self.threads.get(&host_tid);
        let waiting = thread.and_then(|thread| thread.waiting.as_ref());
        let judges = &self.origin.judges;
        !judges.is_empty()
            && waiting.is_some_and(|waiting| judges.answer(&waiting.judged) == Answer::Kill)
    }

    fn call_of(&self, host_tid: i32) -> Option<Syscall> {
        let waiting = self.threads.get(&host_tid)?.waiting.as_ref()?;
        Some(waiting.call)
    }

    /// Whether pages have to come first. If so, they are asked for.
    pub(crate) fn must_wait(&self) -> bool {
        let needed = self.memory.take_needed();
        let wait = !needed.is_empty();
        if wait {
            self.shared.wish(needed);
        }
        wait
    }

    /// Pages have come: calls that waited for them are decided now.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn decide_again(&mut self) -> Result<(), GuestError> {
        if self.holds.move_away || self.holds.asks_nothing() {
            return Ok(());
        }
        let undecided = |thread: &&Thread| {
            let waiting = thread.waiting.as_ref();
            waiting.is_some_and(|waiting| waiting.kind == Kind::Undecided)
        };
        let host_tids: Vec<i32> = self
            .threads
            .values()
            .filter(undecided)
            .map(|t| t.host_tid)
            .collect();
        for host_tid in host_tids {
            self.decide(host_tid)?;
        }
        Ok(())
    }

    /// The process goes home; the call that demands it is executed there.
    pub(crate) fn go_home(&mut self, host_tid: i32, reason: &str) {
        let Some(thread) = self.threads.get_mut(&host_tid) else {
            return;
        };
        let tid = thread.tid;
        let mut reason = reason.to_owned();
        if let Some(waiting) = &mut thread.waiting {
            waiting.kind = Kind::GoHome;
            if let Some(row) = whim_calls::row(waiting.call.number) {
                reason = format!("{}: {reason}", row.name());
            }
        }
        self.say(ToHome::GoHome { tid, reason });
    }

    /// Notes what a thread waits for now; returns its number and its next sequence number.
    pub(crate) fn waits(&mut self, host_tid: i32, kind: Kind) -> Option<(i32, u64)> {
        let thread = self.threads.get_mut(&host_tid)?;
        thread.sequence += 1;
        let waiting = thread.waiting.as_mut()?;
        waiting.kind = kind;
        waiting.sequence = thread.sequence;
        waiting.cancelled = false;
        Some((thread.tid, thread.sequence))
    }

    /// Sends a call home.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn forward(
        &mut self,
        host_tid: i32,
        mut forward: Forward,
        after: After,
    ) -> Result<(), GuestError> {
        // Home's answer must not meet a missing page either.
        for region in &forward.regions {
            self.memory.is_here(region.address, region.length);
        }
        if self.must_wait() {
            return Ok(());
        }
        let Some(waiting) = self
            .threads
            .get(&host_tid)
            .and_then(|thread| thread.waiting.as_ref())
        else {
            return Ok(());
        };
        let (call, cancelled, again) = (waiting.call, waiting.cancelled, waiting.again);
        let masked = self.mask_for_home(host_tid, &call, again);
        if self.goes_home_for(host_tid, forward.wait_mask) {
            return Ok(());
        }
        if cancelled && forward.may_block {
            // A handler became due while the call's pages were fetched. The call begins after the
            // handler.
            return self.respond(host_tid, Response::Result(ERESTARTNOINTR));
        }
        let due = forward
            .wait_mask
            .filter(|mask| self.is_due(host_tid, *mask, again));
        let (mut number, mut looks_for) = (call.number, None);
        if let Some(mask) = due {
            // Trap: what-is-ready-comes-before-a-signal
            forward = match at_once(&call, forward) {
                AtOnce::Sleeps => return self.interrupt_under_mask(host_tid, mask),
                AtOnce::AsItStands(forward) => forward,
                AtOnce::By(other, forward) => {
                    (number, looks_for) = (other, Some(call.number));
                    forward
                }
            };
        }
        let kind = Kind::Forward(Forwarded {
            regions: places(&forward.regions),
            wait_mask: forward.wait_mask,
            after,
            is_quick: !forward.may_block,
            is_await: false,
        });
        let Some((tid, sequence)) = self.waits(host_tid, kind) else {
            return Ok(());
        };
        let length = forward.regions.iter().map(|region| region.data.len()).sum();
        let mut tail = Vec::with_capacity(length);
        for region in &forward.regions {
            tail.extend_from_slice(&region.data);
        }
        // Trap: a-removed-file-keeps-its-room
        self.tell_released();
        self.tell_title_before_call();
        let message = ToHome::Call(CallRequest {
            tid,
            sequence,
            number,
            args: forward.args,
            may_block: forward.may_block,
            looks_for,
            masked,
            regions: forward.regions.iter().map(WireRegion::from).collect(),
        });
        self.outbox.push(Outgoing { message, tail });
        Ok(())
    }

    fn special(
        &mut self,
        host_tid: i32,
        call: &Syscall,
        special: Special,
    ) -> Result<(), GuestError> {
        match special {
            Special::MapFile => {
                self.map_file(host_tid, call);
                Ok(())
            }
            Special::RemapFile => self.remap_file(host_tid, call),
            Special::Signal(signal) if self.waits_at_home(&signal) => {
                self.forward(host_tid, signal.forward, After::Result)
            }
            Special::Signal(signal) => self.own_signal(host_tid, *signal),
            Special::SignalAction => self.signal_action(host_tid, call),
            Special::SignalMask(change) => self.change_mask(host_tid, change),
            Special::NewThread(new) => {
                self.new_thread(host_tid, new);
                Ok(())
            }
            Special::ThreadExit if self.outlives_first(host_tid) => {
                self.go_home(host_tid, "its first thread ends, and others go on");
                Ok(())
            }
            Special::ThreadExit => {
                let code = low(call.args[0]);
                if let Some((tid, sequence)) = self.waits(host_tid, Kind::ThreadExit) {
                    self.say(ToHome::ThreadExit {
                        tid,
                        sequence,
                        code,
                    });
                }
                Ok(())
            }
            Special::ProcessExit => {
                let code = low(call.args[0]);
                if let Some((tid, _)) = self.waits(host_tid, Kind::ProcessExit) {
                    let cpu_away = self.cpu_away();
                    self.say(ToHome::ProcessExit {
                        tid,
                        code,
                        cpu_away,
                    });
                }
                Ok(())
            }
            Special::ReservedMemory => {
                self.go_home(host_tid, "it uses the address range that is home's");
                Ok(())
            }
            Special::ProcessTimes(forward) => self.forward(host_tid, forward, After::AddTimes),
            Special::Both(forward) => self.forward(host_tid, forward, After::RunHere),
            Special::Limit(forward) => self.forward(host_tid, forward, After::OwnLimit),
            Special::Await => self.await_home(host_tid),
        }
    }

    fn map_file(&mut self, host_tid: i32, call: &Syscall) {
        let [_, length, protection, flags, fd, offset] = call.args;
        let aligned = length.checked_next_multiple_of(PAGE_SIZE).unwrap_or(0);
        if aligned == 0 || offset % PAGE_SIZE != 0 {
            // The kernel's errors: ENOMEM for a length that overflows, EINVAL for all else. The
            // kernel itself is not asked, so that nothing is mapped by mistake.
            let errno = if length > 0 && aligned == 0 {
                libc::ENOMEM
            } else {
                libc::EINVAL
            };
            if let Err(error) = self.respond(host_tid, Response::Result(-i64::from(errno))) {
                tracing::warn!(%error, "a call could not be answered");
            }
            return;
        }
        if let Some((tid, sequence)) = self.waits(host_tid, Kind::MapFile) {
            self.tell_released();
            self.say(ToHome::MapFile {
                tid,
                sequence,
                length,
                protection: low(protection).cast_unsigned(),
                flags: low(flags).cast_unsigned(),
                fd: low(fd),
                offset,
            });
        }
    }

    fn signal_action(&mut self, host_tid: i32, call: &Syscall) -> Result<(), GuestError> {
        let action = whim_calls::signal_action(call, &self.memory);
        if self.must_wait() {
            return Ok(());
        }
        let sound = action.and_then(|action| {
            let signal = u8::try_from(action.signal).ok()?;
            let disposition = match action.disposition {
                whim_calls::Disposition::Default => Disposition::Default,
                whim_calls::Disposition::Ignored => Disposition::Ignore,
                whim_calls::Disposition::Caught => Disposition::Caught,
            };
            (1..=64).contains(&signal).then_some(Mirror {
                signal,
                disposition,
                flags: action.flags,
            })
        });
        let unknown = sound.filter(|action| !self.mirrored.is_known(*action));
        let Some(action) = unknown else {
            return self.respond(host_tid, Response::Continue);
        };
        if let Some((tid, sequence)) = self.waits(host_tid, Kind::Disposition(action)) {
            self.mirrored.told(action);
            self.say(ToHome::Disposition {
                tid,
                sequence,
                signal: action.signal,
                disposition: action.disposition,
                flags: action.flags,
            });
        }
        Ok(())
    }

    /// The thread asks for the result of the call that was in flight when it moved here. The call
    /// itself tells where its outputs go.
    fn await_home(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let call = self
            .threads
            .get(&host_tid)
            .and_then(|thread| thread.in_flight);
        let mut forwarded = Forwarded {
            is_await: true,
            ..Forwarded::default()
        };
        let decision = call.map(|call| resolve(&call, &self.context, &self.memory));
        match decision {
            Some(Decision::Special(Special::ProcessTimes(_))) => forwarded.after = After::AddTimes,
            Some(Decision::Special(Special::Both(_))) => forwarded.after = After::RunHere,
            Some(Decision::Special(Special::Limit(_))) => forwarded.after = After::OwnLimit,
            _ => {}
        }
        if let Some(
            Decision::Forward(forward)
            | Decision::Special(
                Special::ProcessTimes(forward) | Special::Both(forward) | Special::Limit(forward),
            ),
        ) = decision
        {
            for region in &forward.regions {
                self.memory.is_here(region.address, region.length);
            }
            forwarded.regions = places(&forward.regions);
            forwarded.wait_mask = forward.wait_mask;
            forwarded.is_quick = !forward.may_block;
        }
        if self.must_wait() {
            return Ok(());
        }
        if self.goes_home_for(host_tid, forwarded.wait_mask) {
            return Ok(());
        }
        let waiting = self
            .threads
            .get(&host_tid)
            .and_then(|thread| thread.waiting.as_ref());
        // The call's mask acts from now on, also on signals that came before.
        let interrupted =
            forwarded.wait_mask.is_some() && self.has_deliverable(host_tid, forwarded.wait_mask);
        let cancelled = interrupted || waiting.is_some_and(|waiting| waiting.cancelled);
        if let Some((tid, sequence)) = self.waits(host_tid, Kind::Forward(forwarded)) {
            let awaited = self
                .threads
                .get(&host_tid)
                .map_or(0, |thread| thread.awaited);
            self.say(ToHome::Await {
                tid,
                sequence,
                awaited,
            });
        }
        if cancelled {
            self.cancel(host_tid);
        }
        Ok(())
    }

    /// Home has answered.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn replied(&mut self, reply: &Reply) -> Result<(), GuestError> {
        let Some(thread) = self.thread_of(reply.tid) else {
            return Ok(());
        };
        let host_tid = thread.host_tid;
        tracing::trace!(host_tid, reply.sequence, reply.result, outputs = ?reply.outputs, "answer");
        let waiting = thread.waiting.clone();
        let Some(waiting) = waiting.filter(|waiting| waiting.sequence == reply.sequence) else {
            tracing::debug!(tid = reply.tid, "an answer that nobody waits for");
            return Ok(());
        };
        self.hear_of_the_end(&waiting.call)?;
        let result = match waiting.kind {
            Kind::Forward(forwarded) => self.forwarded(host_tid, &forwarded, reply),
            Kind::NewThread(new) => self.begin_thread(host_tid, &new, reply.result),
            Kind::MapFile => self.mapped(host_tid, &waiting.call, reply),
            Kind::RemapFile => self.remapped(host_tid, &waiting.call, reply),
            Kind::Disposition(action) => {
                self.mirrored.answered(action);
                self.respond(host_tid, Response::Continue)
            }
            Kind::ThreadExit => self.respond(host_tid, Response::Continue),
            Kind::Undecided | Kind::ProcessExit | Kind::GoHome => Ok(()),
        };
        match result {
            Err(GuestError::Ended | GuestError::Trace(TraceError::Died)) => Ok(()),
            other => other,
        }
    }

    fn forwarded(
        &mut self,
        host_tid: i32,
        forwarded: &Forwarded,
        reply: &Reply,
    ) -> Result<(), GuestError> {
        let is_due = reply.result == 0 && self.is_due_behind(host_tid, forwarded);
        if is_due || (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&reply.result) {
            // That nothing has happened, and the time that is left.
            self.write_outputs(&forwarded.regions, reply, |place| place.is_always_written);
            let result = if is_due { ERESTARTNOHAND } else { reply.result };
            return self.interrupted(host_tid, forwarded, result);
        }
        let first = self.write_outputs(&forwarded.regions, reply, |_| true);
        // If the thread moved while it waited, the reported call only asks for the result. The call
        // itself is in `in_flight`.
        let moved = self
            .threads
            .get_mut(&host_tid)
            .and_then(|t| t.in_flight.take());
        match forwarded.after {
            // Trap: a-name-in-the-moment-of-a-move
            After::RunHere if reply.result >= 0 => match moved.filter(|_| forwarded.is_await) {
                Some(call) => self.run_here(host_tid, &call),
                None => self.respond(host_tid, Response::Continue),
            },
            After::AddTimes if reply.result >= 0 => {
                let call = moved.or_else(|| self.call_of(host_tid));
                let (address, bytes) = first.unwrap_or((0, Vec::new()));
                if let Some(call) = call {
                    self.add_times(host_tid, &call, address, bytes);
                }
                self.respond(host_tid, Response::Result(reply.result))
            }
            After::OwnLimit if reply.result >= 0 => {
                let call = moved.or_else(|| self.call_of(host_tid));
                if let (Some(call), Some((address, _))) = (call, first) {
                    self.tell_own_limit(&call, address);
                }
                self.respond(host_tid, Response::Result(reply.result))
            }
            _ => self.respond(host_tid, Response::Result(reply.result)),
        }
    }

    /// Writes the limit for which this call has asked home, whose deputy has another one, to `address`.
    fn tell_own_limit(&self, call: &Syscall, address: u64) {
        let index = usize::from(call.number == libc::SYS_prlimit64.cast_unsigned());
        let mut limits = self.origin.limits.iter();
        let asked = call.args[index] & 0xffff_ffff;
        let Some(own) = limits.find(|limit| u64::from(limit.resource) == asked) else {
            return;
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&own.soft.to_ne_bytes());
        bytes[8..].copy_from_slice(&own.hard.to_ne_bytes());
        // The guest may have unmapped it meanwhile, in another thread.
        let _ = self.memory.write(address, &bytes);
    }

    /// A call that home has executed before the thread came here is executed here too.
    fn run_here(&mut self, host_tid: i32, call: &Syscall) -> Result<(), GuestError> {
        let stopped = self.take_out(host_tid)?;
        let operation = Syscall::new(call.number.cast_signed(), &call.args);
        let (stopped, result) = self.inject(stopped, &operation)?;
        self.go_on_with(host_tid, stopped, result)
    }

    /// The call was interrupted at home. The kernel here may see that only if a handler is to run
    /// here. Otherwise the call is made again.
    fn interrupted(
        &mut self,
        host_tid: i32,
        forwarded: &Forwarded,
        result: i64,
    ) -> Result<(), GuestError> {
        if forwarded.is_await {
            return self.await_interrupted(host_tid, forwarded, result);
        }
        // Trap: restart-number-without-a-signal
        let due = match forwarded.wait_mask {
            Some(mask) => self.is_due(host_tid, mask, false),
            None => self.has_deliverable(host_tid, None),
        };
        if !due {
            return self.make_again(host_tid);
        }
        if let Some(mask) = forwarded.wait_mask {
            return self.interrupt_under_mask(host_tid, mask);
        }
        let result = self.tells_interrupted(host_tid, result);
        self.respond(host_tid, Response::Result(result))
    }

    /// Home has interrupted the thread's call with this result. Returns the result for the kernel
    /// here.
    fn tells_interrupted(&mut self, host_tid: i32, result: i64) -> i64 {
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.told_interrupted = true;
        }
        // The kernel would use the restart block of this thread's last sleep here.
        if result == ERESTART_RESTARTBLOCK {
            ERESTARTNOHAND
        } else {
            result
        }
    }

    /// Sends the call home once more. If the process stands still at home, that happens when the
    /// process goes on.
    fn make_again(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let waiting = self
            .threads
            .get_mut(&host_tid)
            .and_then(|t| t.waiting.as_mut());
        if let Some(waiting) = waiting {
            waiting.again = true;
            waiting.kind = Kind::Undecided;
        }
        if self.holds.asks_nothing() {
            return Ok(());
        }
        self.decide(host_tid)
    }

    /// The call that was in flight when the thread came here has not been executed: from now on it
    /// is a call of this thread like any other, and the kernel decides whether a handler comes first.
    fn await_interrupted(
        &mut self,
        host_tid: i32,
        forwarded: &Forwarded,
        result: i64,
    ) -> Result<(), GuestError> {
        let thread = self.threads.get_mut(&host_tid);
        let Some(call) = thread.and_then(|thread| thread.in_flight.take()) else {
            return self.respond(host_tid, Response::Result(-i64::from(libc::EINTR)));
        };
        let mut due = None;
        let result = match forwarded.wait_mask {
            // No signal ends such a call, so home has never received it.
            _ if forwarded.is_quick => ERESTARTNOINTR,
            Some(mask) if self.has_deliverable(host_tid, Some(mask)) => {
                due = Some(mask);
                result
            }
            // As of a call that has not begun: what its mask keeps away comes behind it.
            Some(_) => ERESTARTSYS,
            None => self.tells_interrupted(host_tid, result),
        };
        let stopped = self.take_out(host_tid)?;
        let mut registers = stopped.registers()?;
        (registers.orig_rax, registers.rax) = (call.number, result.cast_unsigned());
        if let Some(mask) = due {
            return self.suspend_under_mask(stopped, registers, mask);
        }
        stopped.set_registers(&registers)?;
        self.go_on(host_tid, stopped)
    }

    /// Lets a thread that was taken out of its call go on after the call, with this result.
    pub(crate) fn go_on_with(
        &mut self,
        host_tid: i32,
        stopped: Stopped,
        result: i64,
    ) -> Result<(), GuestError> {
        end_call(&stopped, result)?;
        let stopped = if self.stale.is_empty() || self.holds.any() {
            stopped
        } else {
            self.drop_stale(stopped)?
        };
        self.go_on(host_tid, stopped)
    }

    /// Lets a thread go, unless it is to be held.
    pub(crate) fn go_on(&mut self, host_tid: i32, stopped: Stopped) -> Result<(), GuestError> {
        if self.holds.any() {
            self.set_trace(host_tid, Trace::Stopped(stopped));
        } else {
            self.set_trace(host_tid, Trace::Running);
            self.resume_in_time(stopped)?;
        }
        Ok(())
    }

    /// Home has mapped the file in its attic. The guest gets memory of its own here, which is
    /// filled from the attic.
    fn mapped(&mut self, host_tid: i32, call: &Syscall, reply: &Reply) -> Result<(), GuestError> {
        let Some(mapping) = reply.mapping else {
            if reply.result == ERESTARTNOHAND {
                self.go_home(host_tid, "it maps memory that is no file's");
                return Ok(());
            }
            let result = reply.result.min(-1);
            return self.respond(host_tid, Response::Result(result));
        };
        self.shared.table().restrict(
            mapping,
            MappingFlags {
                never_execute: reply.result == MAPPED_WITHOUT_EXECUTION,
                ..MappingFlags::default()
            },
        );
        let stopped = self.take_out(host_tid)?;
        let [address, length, protection, flags, ..] = call.args;
        let kept = libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_NORESERVE
            | libc::MAP_32BIT
            | libc::MAP_PRIVATE;
        let flags = (low(flags) & kept) | libc::MAP_ANONYMOUS;
        let operation = Syscall::new(
            libc::SYS_mmap,
            &[
                address,
                length,
                protection,
                u64::from(flags.cast_unsigned()),
                u64::MAX,
                0,
            ],
        );
        let (stopped, result) = self.inject(stopped, &operation)?;
        match u64::try_from(result) {
            Ok(start) => show(
                &self.shared,
                Piece {
                    start,
                    end: start + length.next_multiple_of(PAGE_SIZE),
                    mapping,
                    offset: 0,
                },
            )?,
            Err(_) => self.shared.table().release(mapping),
        }
        self.go_on_with(host_tid, stopped, result)
    }
}

/// Notes a new file mapping, and registers it with the userfaultfd.
pub(crate) fn show(shared: &Shared, piece: Piece) -> Result<(), GuestError> {
    let range = piece.range();
    // The table comes first, because a fault must find the mapping in it.
    shared.settled().show(piece);
    // Trap: a-file-page-becomes-zeros
    match shared
        .uffd
        .register(range.start, range.len(), Mode::MissingAndProtected)
    {
        Ok(()) => Ok(()),
        // Another thread has unmapped it already, or mapped something else over it.
        Err(Errno::ENOMEM | Errno::EINVAL) => {
            shared.table().unmap(range);
            Ok(())
        }
        Err(errno) => Err(GuestError::Os {
            what: "Registering a file mapping",
            errno,
        }),
    }
}

fn places(regions: &[Region]) -> Vec<Place> {
    /// What the kernel answers when a signal ends a call that is not to be made again unseen.
    const ENDED: i64 = -libc::EINTR as i64;
    let place = |region: &Region| Place {
        address: region.address,
        length: region.length,
        is_always_written: region.returned.bytes(region.length, ENDED) > 0,
    };
    regions.iter().map(place).collect()
}
