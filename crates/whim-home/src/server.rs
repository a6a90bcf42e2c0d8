//! Serves the guest: calls, pages, dispositions, signals. Everything that the deputy does for it.

mod expiry;
mod files;
mod kinds;
mod nudge;
mod opens;
mod outputs;
mod owners;
mod requests;
pub mod timers;
mod title;

use crate::attic::Attic;
use crate::deputy::waiting::Waiting;
use crate::deputy::{Deputy, DeputyError};
use crate::held::HeldSignal;
use crate::masks;
use crate::numbers::OwnTid;
use crate::queues::{Arrived, Queues, Waited};
use crate::window::{Placement, Window};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_image::capture::InFlight;
use whim_image::freeze_calls;
use whim_journey::message::{CallRequest, MessageError, ToGuest, WireRegion, WireReturned};
use whim_journey::turn::{Request, Turn, Verdict};
use whim_model::{MappingId, PAGE_SIZE, Range, Syscall};
use whim_sys::process_vm;
use whim_sys::ptrace::{RawSigInfo, info_word};
use whim_sys::uffd::{Placed, Uffd};

pub use files::FileRemapping;
pub use requests::FileMapping;

/// How often the supervisor yields to the deputy before it lets itself be notified of the end of a call that
/// does not block.
const PATIENCE: u32 = 60;

/// Address that stands for "a handler" in the deputy. Nothing is ever delivered to it.
const HANDLER_STAND_IN: u64 = 0x1000;

/// A thread that has not dropped its old pages by then will never do so.
const DROPS_WITHIN: Duration = Duration::from_secs(10);

const EFAULT: i64 = -14;
const EPERM: i64 = -1;
const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
const EINVAL: i64 = -22;
const ENOMEM: i64 = -12;
/// The guest's kernel turns it into EINTR if a handler runs, and restarts the call otherwise.
const RESTART_UNLESS_HANDLED: i64 = freeze_calls::ERESTARTNOHAND;

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Deputy(#[from] DeputyError),
    #[error("The guest's supervisor broke the protocol: {0}")]
    Protocol(#[from] MessageError),
    #[error("The guest's supervisor named thread {0}, which the process does not have")]
    UnknownThread(i32),
    #[error("Thread {0} made a call while another of its calls was in flight")]
    Overlap(i32),
    #[error("Placing a buffer at {address:#x} failed: {errno}")]
    Place {
        address: u64,
        errno: nix::errno::Errno,
    },
    #[error("The page at {address:#x} is not absent as the accounting says ({placed:?})")]
    Accounting { address: u64, placed: Placed },
}

/// A call that was in flight at the freeze, with what the deputy needs to go on with it.
#[derive(Debug)]
pub struct Continuation {
    pub call: InFlight,
    pub regions: Vec<WireRegion>,
    pub tail: Vec<u8>,
    pub args: [u64; 6],
    pub may_block: bool,
}

/// A call that the deputy executes.
#[derive(Debug)]
pub struct Active {
    /// The guest's number for it; 0 for the call that was in flight when the process left home.
    pub sequence: u64,
    /// What the answer is addressed to: the call, or the guest's last question about it.
    asked_by: Option<u64>,
    pub number: u64,
    pub args: [u64; 6],
    pub regions: Vec<WireRegion>,
    /// Which operation of the batch the call is.
    operation: usize,
    pub started: Instant,
    /// A signal, the guest or a move has interrupted this call.
    disturbed: bool,
    /// A signal without effect has interrupted it.
    nudged: bool,
    /// Bytes that the interrupted original had already done; part of the result.
    pub already: i64,
    /// Number of the call that transfers one piece.
    piecewise: u64,
    /// Further pieces of the buffer, for the same call, as long as each is done whole.
    pub further: VecDeque<Range>,
    /// Bytes done by this call's pieces so far.
    pub sum: i64,
    /// For a relative timeout of which a part had passed: when its time is over.
    deadline_ns: Option<u64>,
    /// That time is over.
    expired: bool,
    /// It looks for another call, whose number is `number`, whether something is ready.
    looks: bool,
    /// Signals of job control that are blocked meanwhile.
    pub masked: u64,
    /// The earlier contents of buffers of which only changes travel back.
    kept: Vec<Vec<u8>>,
}

/// A result, kept until the thread's next call: the guest may ask again after a move.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// As [`Active::sequence`].
    pub sequence: u64,
    pub result: i64,
    pub outputs: Vec<u32>,
    pub tail: Vec<u8>,
    pub regions: Vec<WireRegion>,
    pub number: u64,
    pub args: [u64; 6],
    /// It was interrupted, so that it may have done less than it would have.
    pub disturbed: bool,
    /// For a call with a relative timeout that was cut off: when its time is over, by CLOCK_MONOTONIC.
    pub deadline_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Caller {
    active: Option<Active>,
    finished: Option<Finished>,
    turn: Turn,
}

impl Caller {
    /// What is to be done about a request of this thread.
    fn asks(&mut self, request: Request) -> Verdict {
        let active = self.active.as_ref().map(|active| active.sequence);
        let finished = self.finished.as_ref().map(|finished| finished.sequence);
        self.turn.handle(request, active, finished)
    }

    fn finished_as(&self, sequence: u64) -> Option<Finished> {
        let finished = self.finished.as_ref();
        finished
            .filter(|finished| finished.sequence == sequence)
            .cloned()
    }
}

/// What is to be sent to the guest.
#[derive(Debug)]
pub struct Outgoing {
    pub message: ToGuest,
    pub tail: Vec<u8>,
}

/// The deputy at work.
#[derive(Debug)]
pub struct Server {
    pub deputy: Deputy,
    pub window: Window,
    pub attic: Attic,
    pub uffd: Uffd,
    callers: Vec<Caller>,
    pub outgoing: Vec<Outgoing>,
    pub calls: u64,
    /// The same by number. Numbers that no call has are not counted, so this stays small.
    counts: BTreeMap<u64, u64>,
    /// A call that changes shares of the CPU has ended.
    pub priorities_changed: bool,
    /// Why the process has to come home: it has made a call that can be made at home alone.
    pub wants_home: Option<&'static str>,
    /// Signals that waited when the process left.
    pub queues: Queues,
    /// Mappings of the attic that the guest does not show any more.
    given_back: BTreeSet<MappingId>,
    /// The file that was mapped last, and the descriptor that it was mapped by.
    pub mapped: Option<(MappingId, i32)>,
}

impl Server {
    #[must_use]
    pub fn new(deputy: Deputy, window: Window, attic: Attic, uffd: Uffd, queues: Queues) -> Self {
        let callers = (0..deputy.thread_count())
            .map(|_| Caller::default())
            .collect();
        Self {
            deputy,
            window,
            attic,
            uffd,
            callers,
            outgoing: Vec::new(),
            calls: 0,
            counts: BTreeMap::new(),
            priorities_changed: false,
            wants_home: None,
            queues,
            given_back: BTreeSet::new(),
            mapped: None,
        }
    }

    fn seat(&self, tid: i32) -> Result<usize, ServeError> {
        self.deputy
            .seat_of(OwnTid::named(tid))
            .ok_or(ServeError::UnknownThread(tid))
    }

    /// Executes a call for the guest.
    ///
    /// # Errors
    /// A protocol fault of the guest supervisor, or the loss of the deputy.
    pub fn call(&mut self, request: CallRequest, tail: &[u8]) -> Result<(), ServeError> {
        request.check()?;
        let announced: u64 = request
            .regions
            .iter()
            .map(|region| region.data_length)
            .sum();
        if announced != tail.len() as u64 {
            return Err(MessageError::TailTooLong(announced).into());
        }
        let (tid, sequence) = (request.tid, request.sequence);
        let Some(seat) = self.judge_request(tid, Request::Call { sequence })? else {
            return Ok(());
        };
        self.calls += 1;
        if whim_calls::row(request.number).is_some() {
            *self.counts.entry(request.number).or_default() += 1;
        }
        let call = Syscall {
            number: request.number,
            args: request.args,
        };
        let looks_for = request.looks_for.unwrap_or(request.number);
        if !whim_calls::home_may_execute_call(&call) || !whim_calls::home_may_execute(looks_for) {
            self.answer(request.tid, request.sequence, EPERM);
            return Ok(());
        }
        let active = Active {
            sequence: request.sequence,
            asked_by: Some(request.sequence),
            number: looks_for,
            args: request.args,
            regions: request.regions,
            operation: 0,
            started: Instant::now(),
            disturbed: false,
            nudged: false,
            already: 0,
            piecewise: request.number,
            further: VecDeque::new(),
            sum: 0,
            deadline_ns: None,
            expired: false,
            looks: request.looks_for.is_some(),
            masked: request.masked,
            kept: Vec::new(),
        };
        self.execute(seat, active, request.number, request.may_block, tail)
    }

    /// Decides whether a thread's request is to be executed, and returns its seat in that case. A request
    /// that was executed before, or that asks about an earlier one, is answered here, or when that call ends.
    fn judge_request(&mut self, tid: i32, request: Request) -> Result<Option<usize>, ServeError> {
        let seat = self.seat(tid)?;
        let caller = &mut self.callers[seat];
        let (Request::Call { sequence }
        | Request::Await { sequence, .. }
        | Request::Other { sequence }) = request;
        match caller.asks(request) {
            Verdict::Execute => {
                self.release_given_back(seat)?;
                return Ok(Some(seat));
            }
            Verdict::Repeat => {
                if let Some(finished) = caller.finished.clone() {
                    self.reply(tid, sequence, &finished);
                }
            }
            Verdict::Attend => {
                if let Some(active) = &mut caller.active {
                    active.asked_by = Some(sequence);
                }
            }
            // Home never got it: the guest's kernel decides between EINTR and a restart.
            Verdict::Unknown => self.answer(tid, sequence, RESTART_UNLESS_HANDLED),
            Verdict::Stale => tracing::warn!(tid, sequence, "a request came again"),
            Verdict::Overlap => return Err(ServeError::Overlap(tid)),
        }
        Ok(None)
    }

    fn answer(&mut self, tid: i32, sequence: u64, result: i64) {
        let message = ToGuest::Reply {
            tid,
            sequence,
            result,
            outputs: Vec::new(),
            mapping: None,
        };
        self.outgoing.push(Outgoing {
            message,
            tail: Vec::new(),
        });
    }

    /// Places the buffers and lets the deputy thread run; `number` may differ from the call's own
    /// (`restart_syscall`).
    ///
    /// # Errors
    /// The deputy is lost.
    pub fn execute(
        &mut self,
        seat: usize,
        mut active: Active,
        number: u64,
        may_block: bool,
        tail: &[u8],
    ) -> Result<(), ServeError> {
        let tid = self.deputy.own_of(seat).number();
        let Ok(placement) = self.window.plan(seat, &active.regions, tail) else {
            if let Some(sequence) = active.asked_by {
                self.answer(tid, sequence, EFAULT);
            }
            return Ok(());
        };
        self.place(seat, &placement, tail)?;
        active.kept = outputs::kept(&active.regions, tail);
        let mut operations: Vec<Syscall> = placement.drop.iter().copied().map(dropping).collect();
        let room = whim_sys::resident::OPERATIONS_MAX - 3;
        if operations.len() > room {
            self.deputy.run(seat, &operations)?;
            operations.clear();
        }
        let call = Syscall {
            number,
            args: active.args,
        };
        // The kernel tells of the end of a call that signals in its turn, behind what others have been given by it.
        // Trap: a-result-ahead-of-its-signal
        let is_told = may_block || self.deputy.thread_count() > 1 && whim_calls::may_signal(&call);
        let masked = masks::job_control(active.masked);
        if masked == 0 {
            active.operation = operations.len();
            operations.push(call);
        } else {
            active.operation = operations.len() + 1;
            let change = |how| masks::changing(&self.deputy, how, masked);
            operations.extend([change(libc::SIG_BLOCK), call, change(libc::SIG_UNBLOCK)]);
        }
        self.callers[seat].active = Some(active);
        let patience = if is_told { 0 } else { PATIENCE };
        if self.deputy.start(seat, &operations, patience) {
            self.finished(seat)?;
        }
        Ok(())
    }

    /// Goes on with a call that was in flight when the original was frozen.
    ///
    /// # Errors
    /// An unknown thread, or the loss of the deputy.
    pub fn continue_in_flight(&mut self, continuation: Continuation) -> Result<(), ServeError> {
        let seat = self.seat(continuation.call.tid)?;
        let number = if continuation.call.restart {
            freeze_calls::RESTART_SYSCALL
        } else {
            continuation.call.number
        };
        let active = Active {
            sequence: 0,
            asked_by: None,
            number: continuation.call.original_number,
            args: continuation.args,
            regions: continuation.regions,
            operation: 0,
            started: Instant::now(),
            disturbed: false,
            nudged: false,
            already: continuation.call.already,
            piecewise: number,
            further: continuation.call.further.into(),
            sum: 0,
            deadline_ns: continuation.call.deadline_ns,
            expired: false,
            looks: false,
            masked: 0,
            kept: Vec::new(),
        };
        self.execute(
            seat,
            active,
            number,
            continuation.may_block,
            &continuation.tail,
        )
    }

    /// A page that another thread's batch is about to drop must be gone before it is placed anew. Drops stand
    /// at the front of their batch, so this is a matter of microseconds. But that thread may stand in a stop
    /// (a signal), and then we have to help it out.
    fn wait_for_drops(&mut self, except: usize) -> Result<(), ServeError> {
        let mut waiting = Waiting::begin();
        for seat in 0..self.callers.len() {
            let Some(drops) = self.callers[seat]
                .active
                .as_ref()
                .map(|active| active.operation)
            else {
                continue;
            };
            while seat != except
                && !self.deputy.is_gone(seat)
                && !self.deputy.deck().is_done(seat)
                && self.deputy.deck().progress(seat) < drops
            {
                self.deputy.attend()?;
                self.deputy.urge(seat)?;
                if self.deputy.is_late(&mut waiting, DROPS_WITHIN)? {
                    return Err(DeputyError::Stuck(drops).into());
                }
                std::thread::yield_now();
            }
            self.deputy.relax(seat)?;
        }
        Ok(())
    }

    fn place(&mut self, seat: usize, placement: &Placement, tail: &[u8]) -> Result<(), ServeError> {
        if !placement.place.is_empty() {
            self.wait_for_drops(seat)?;
        }
        for (address, bytes) in &placement.place {
            let placed = self
                .uffd
                .copy(*address, bytes)
                .map_err(|errno| ServeError::Place {
                    address: *address,
                    errno,
                })?;
            if placed != Placed::Whole {
                return Err(ServeError::Accounting {
                    address: *address,
                    placed,
                });
            }
        }
        for page in &placement.open {
            self.set_protected(*page, false)?;
        }
        for (address, offset, length) in &placement.write {
            let bytes = &tail[*offset..*offset + *length];
            process_vm::write_exact(self.deputy.pid(), *address, bytes).map_err(|errno| {
                ServeError::Place {
                    address: *address,
                    errno,
                }
            })?;
        }
        for page in &placement.protect {
            self.set_protected(*page, true)?;
        }
        Ok(())
    }

    fn set_protected(&self, page: u64, is_protected: bool) -> Result<(), ServeError> {
        let done = self.uffd.protect(page, PAGE_SIZE, is_protected);
        done.map_err(|errno| ServeError::Place {
            address: page,
            errno,
        })
    }

    /// Takes the result of a seat's call, if its batch has ended.
    ///
    /// # Errors
    /// The deputy's memory cannot be read.
    pub fn finished(&mut self, seat: usize) -> Result<(), ServeError> {
        if !self.deputy.deck().is_done(seat) {
            return Ok(());
        }
        let Some(mut active) = self.callers[seat].active.take() else {
            return Ok(());
        };
        let mut raw = self.deputy.deck().result(seat, active.operation);
        if self.next_piece(seat, &mut active, raw) || self.go_on(seat, &mut active, raw) {
            self.callers[seat].active = Some(active);
            return Ok(());
        }
        if active.sum > 0 {
            raw = active.sum + raw.max(0);
        }
        let mut result = raw;
        let mut deadline_ns = None;
        let cut = raw == EINTR && whim_calls::ends_at_stop(active.number);
        if cut && active.expired {
            result = whim_calls::result_when_over(active.number);
        } else if cut && active.disturbed {
            result = RESTART_UNLESS_HANDLED;
            deadline_ns = self.deadline(&active);
        }
        // poll itself, by which is looked, would be restarted by its number of a call that went on without a mask.
        if active.looks && (result == 0 || result == freeze_calls::ERESTART_RESTARTBLOCK) {
            result = RESTART_UNLESS_HANDLED;
        }
        if active.already > 0 {
            // What was done is done, whatever became of the rest.
            result = active.already + result.max(0);
        }
        if result >= 0
            && whim_calls::effect(active.number) == whim_calls::Effect::Opens
            && let Some(reason) = self.takes_back(seat, result)?
        {
            // The call is made again at home, as if it had not been made; until then the guest hears nothing
            // of it.
            result = RESTART_UNLESS_HANDLED;
            active.asked_by = None;
            self.wants_home = Some(reason);
        }
        let (outputs, tail) = self.collect(&active.regions, &active.kept, result);
        for page in self.window.finish(seat) {
            self.set_protected(page, false)?;
        }
        let finished = Finished {
            sequence: active.sequence,
            result,
            outputs,
            tail,
            regions: active.regions,
            number: active.number,
            args: active.args,
            disturbed: active.disturbed,
            deadline_ns,
        };
        if let Some(sequence) = active.asked_by {
            self.reply(self.deputy.own_of(seat).number(), sequence, &finished);
        }
        self.priorities_changed |= finished.result >= 0
            && whim_calls::effect(finished.number) == whim_calls::Effect::Priority;
        self.callers[seat].finished = Some(finished);
        Ok(())
    }

    /// Begins the next piece of a transfer that the freeze had cut in the middle of a vector. All pieces were
    /// placed when the call was taken up.
    fn next_piece(&mut self, seat: usize, active: &mut Active, raw: i64) -> bool {
        // In the middle of a move no new piece is begun: the next side does what is left.
        let whole = raw > 0 && raw.cast_unsigned() == active.args[2] && !active.disturbed;
        let next = if whole {
            active.further.pop_front()
        } else {
            None
        };
        let Some(piece) = next else { return false };
        active.sum += raw;
        active.args[1] = piece.start;
        active.args[2] = piece.len();
        self.start_piece(seat, active);
        true
    }

    /// Lets the deputy do the next part of a call, whose buffers are placed already.
    fn start_piece(&mut self, seat: usize, active: &mut Active) {
        active.operation = 0;
        let operation = Syscall {
            number: active.piecewise,
            args: active.args,
        };
        // We ask for notice of its end, because it may block as the part before it did.
        self.deputy.start(seat, &[operation], 0);
    }

    fn reply(&mut self, tid: i32, sequence: u64, finished: &Finished) {
        let message = ToGuest::Reply {
            tid,
            sequence,
            result: finished.result,
            outputs: finished.outputs.clone(),
            mapping: None,
        };
        self.outgoing.push(Outgoing {
            message,
            tail: finished.tail.clone(),
        });
    }

    fn collect(
        &self,
        regions: &[WireRegion],
        kept: &[Vec<u8>],
        result: i64,
    ) -> (Vec<u32>, Vec<u8>) {
        let mut kept = kept.iter();
        let mut outputs = Vec::with_capacity(regions.len());
        let mut tail = Vec::new();
        for region in regions {
            let wanted = outputs::returned_length(region, result);
            let begin = tail.len();
            tail.resize(begin + wanted, 0);
            let got = if wanted == 0 {
                0
            } else {
                process_vm::read(self.deputy.pid(), region.address, &mut tail[begin..]).unwrap_or(0)
            };
            let mut got = got;
            if region.returned == WireReturned::Changed {
                let before = kept.next().map_or(&[][..], Vec::as_slice);
                got = outputs::changed_length(before, &tail[begin..begin + got]);
            }
            tail.truncate(begin + got);
            outputs.push(u32::try_from(got).unwrap_or(u32::MAX));
        }
        (outputs, tail)
    }

    /// The guest asks for the call that was in flight when it was frozen.
    ///
    /// # Errors
    /// An unknown thread.
    pub fn await_call(&mut self, tid: i32, sequence: u64, awaited: u64) -> Result<(), ServeError> {
        let request = Request::Await { sequence, awaited };
        self.judge_request(tid, request).map(drop)
    }

    /// The guest needs this thread for a handler.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn cancel(&mut self, tid: i32, sequence: u64) -> Result<(), ServeError> {
        let seat = self.seat(tid)?;
        if let Some(active) = &mut self.callers[seat].active
            && active.asked_by.is_none_or(|asked_by| asked_by == sequence)
        {
            active.disturbed = true;
            self.deputy.cancel(seat)?;
        }
        Ok(())
    }

    /// The thread to which a signal is addressed; none if it is for the process.
    pub fn addressee(&self, arrived: &Arrived) -> Option<OwnTid> {
        const SI_TKILL: i32 = -6;
        const SI_TIMER: i32 = -2;
        let (seat, info) = (arrived.held.seat, &arrived.held.info);
        match info_word(info, 8) {
            _ if arrived.waited == Waited::Thread || self.is_by_call(arrived) => {
                Some(self.deputy.own_of(seat))
            }
            SI_TKILL => Some(self.deputy.own_of(seat)),
            SI_TIMER => {
                let tid = timers::thread_of(self.deputy.pid(), info_word(info, 16))?;
                let seat = self.deputy.seat_traced_as(tid)?;
                Some(self.deputy.own_of(seat))
            }
            // Trap: a-descriptor-s-thread
            _ if self.deputy.thread_count() > 1 => {
                let traced = self.deputy.traced_as(seat);
                let is_its = owners::sent_to_thread(self.deputy.pid(), traced, info);
                is_its.then(|| self.deputy.own_of(seat))
            }
            _ => None,
        }
    }

    /// Whether the call of its thread has caused a signal: then it is for that thread.
    fn is_by_call(&self, arrived: &Arrived) -> bool {
        const SI_KERNEL: i32 = 0x80;
        let HeldSignal { signal, info, .. } = &arrived.held;
        let caused = match *signal {
            libc::SIGTTIN | libc::SIGTTOU => info_word(info, 8) == SI_KERNEL,
            // What has waited, or is sent by others, is no call's.
            libc::SIGPIPE | libc::SIGXFSZ => {
                arrived.waited == Waited::Not && self.deputy.is_its_own(info)
            }
            _ => false,
        };
        caused && arrived.held.in_call
    }

    /// A signal that has come to this seat. It may be kept until its call has ended.
    #[must_use]
    pub fn held(&self, seat: usize, signal: i32, info: RawSigInfo) -> HeldSignal {
        HeldSignal {
            seat,
            signal,
            info,
            in_call: self.callers[seat].active.is_some(),
        }
    }

    /// Notes that a signal has come to this seat, and may have ended its call. Must be called once, when the
    /// signal comes, even if it is kept for later: otherwise a plain EINTR would reach the program before its
    /// handler.
    pub fn interrupted_by(&mut self, seat: usize, signal: i32) {
        let without_effect = self.is_without_effect(signal);
        if let Some(active) = &mut self.callers[seat].active {
            if without_effect {
                active.nudged = true;
            } else {
                active.disturbed = true;
            }
        }
    }

    /// Passes on a signal that was sent to the deputy; the guest's kernel decides what becomes of it.
    pub fn signal(&mut self, signal: HeldSignal) {
        for arrived in self.queues.arrived(signal) {
            self.pass_on(&arrived);
        }
    }

    fn pass_on(&mut self, arrived: &Arrived) {
        let HeldSignal { signal, info, .. } = arrived.held;
        // Trap: a-thread-s-own-signals
        let tid = self.addressee(arrived).map(OwnTid::number);
        let Ok(signal) = u8::try_from(signal) else {
            return;
        };
        let message = ToGuest::Signal {
            tid,
            signal,
            info: info.to_vec(),
        };
        self.outgoing.push(Outgoing {
            message,
            tail: Vec::new(),
        });
    }

    /// How often each call was forwarded, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, u64)> {
        let named = |(number, count): (&u64, &u64)| {
            Some((whim_calls::row(*number)?.name().to_owned(), *count))
        };
        self.counts.iter().filter_map(named).collect()
    }

    /// Seats whose call is in flight.
    #[must_use]
    pub fn active_seats(&self) -> Vec<usize> {
        (0..self.callers.len())
            .filter(|seat| self.callers[*seat].active.is_some())
            .collect()
    }

    /// The result of this call of a thread, for the way home; none if home never got it.
    #[must_use]
    pub fn result_of(&self, seat: usize, sequence: u64) -> Option<Finished> {
        self.callers[seat].finished_as(sequence)
    }
}

fn dropping(range: Range) -> Syscall {
    let advice = u64::from(libc::MADV_DONTNEED.cast_unsigned());
    Syscall::new(libc::SYS_madvise, &[range.start, range.len(), advice])
}
