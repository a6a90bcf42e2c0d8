//! The guest is frozen, and becomes an image again.

use crate::clocks::Ahead;
use crate::cut::{asking, is_made_again, rewound, was_cut};
use crate::error::GuestError;
use crate::guest::{Guest, Kind, Thread, Trace};
use crate::signals::Effect;
use crate::table::PageSource;
use std::time::Duration;
use whim_image::freeze_calls::{self, ERESTARTNOINTR};
use whim_image::maps::{self, FlagTable};
use whim_image::rebuild::runner::{SIGTRAP_BIT, check, pass_over_interrupt, working_mask};
use whim_image::settings;
use whim_model::Syscall;
use whim_model::overruns;
use whim_model::{
    Activity, AlternateStack, Backing, CPU_TIMERS, CpuTimer, Mapping, PAGE_SIZE, ProcessImage,
    QueuedSignal, Registers, RseqRegistration, SignalAction, ThreadImage, ThreadSettings,
};
use whim_sys::foreign;
use whim_sys::kernel_file;
use whim_sys::pagemap::Run;
use whim_sys::process_vm::{self, MemFile};
use whim_sys::ptrace::{Polled, Running, Stop, Stopped, Waited, info_word};
use whim_sys::pulse;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of pages in one frame: as many as home sends in one. The other side does nothing about a frame before it is whole,
/// and has room made for it by the kernel, page by page.
const PAGES_IN_FRAME: usize = 128 << 10;
const SIGNALS: u64 = 64;
/// Room for the list of one thread in the runner's memory, in operations.
const OWN_MAX: usize = 6;
/// How many questions each thread is asked: two whose answers are stored, and its settings.
const OWN_ASKED: usize = 2 + settings::OF_THREAD;
/// Space for the answers of one thread: `stack_t`, an address, and what tells of its settings.
const ANSWER: usize = SETTINGS_AT + settings::STORED;
const SETTINGS_AT: usize = 32;
/// Bytes of the kernel's `struct sigaction`.
pub(crate) const ACTION: usize = 32;
const PR_GET_TID_ADDRESS: u64 = 40;
/// Time in which a pending signal is delivered to a thread that was let go for it.
const DELIVERY_WITHIN: Duration = Duration::from_millis(5);

/// Pages of the guest's own, each run with its mapping.
pub(crate) type OwnRuns = Vec<(Mapping, Run)>;

/// Receives pages, one run after the other: address and bytes. No bytes: pages there were looked at.
pub(crate) type PageSink<'a> = dyn FnMut(&mut Guest, u64, &[u8]) -> Result<(), GuestError> + 'a;

impl Guest {
    /// Whether a thread waits for something that home does at once and that cannot be taken back:
    /// the freeze has to wait for it.
    #[must_use]
    pub(crate) fn is_settling(&self) -> bool {
        self.threads.values().any(|thread| {
            let kind = thread.waiting.as_ref().map(|waiting| &waiting.kind);
            matches!(
                kind,
                Some(
                    Kind::MapFile
                        | Kind::RemapFile
                        | Kind::Disposition(_)
                        | Kind::NewThread(_)
                        | Kind::ThreadExit
                        | Kind::ProcessExit
                )
            )
        })
    }

    /// Stops all threads where they can be captured.
    ///
    /// # Errors
    /// Tracing failed, or the guest ended.
    pub(crate) fn freeze(&mut self) -> Result<(), GuestError> {
        self.holds.move_away = true;
        let sleepers = self.interrupt_sleepers()?;
        let host_tids: Vec<i32> = self.threads.keys().copied().collect();
        for host_tid in &host_tids {
            self.leave_call(*host_tid)?;
        }
        for unread in std::mem::take(&mut self.backlog) {
            let restart = whim_sys::seccomp::Response::Result(ERESTARTNOINTR);
            self.listener.respond(unread.id, restart)?;
        }
        for host_tid in host_tids {
            match self.stop_of(host_tid).and_then(|stopped| match stopped {
                Some(stopped) => self.settle(host_tid, stopped),
                None => Ok(()),
            }) {
                Err(GuestError::Ended) => {}
                other => other?,
            }
        }
        self.note_deadlines(&sleepers)?;
        if self.threads.contains_key(&self.host_tid) {
            Ok(())
        } else {
            Err(GuestError::Ended)
        }
    }

    /// Lets a thread leave its reported call. If home executes that call, the thread will ask for
    /// its result.
    fn leave_call(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let Some(thread) = self.threads.get_mut(&host_tid) else {
            return Ok(());
        };
        if thread.waiting.is_none() {
            return Ok(());
        }
        if thread.leaves_its_call_to_home() {
            thread.awaits = true;
        }
        self.answer(
            host_tid,
            whim_sys::seccomp::Response::Result(ERESTARTNOINTR),
        )
    }

    fn stop_of(&mut self, host_tid: i32) -> Result<Option<Stopped>, GuestError> {
        let Some(thread) = self.threads.get_mut(&host_tid) else {
            return Ok(None);
        };
        match std::mem::replace(&mut thread.trace, Trace::Interrupted) {
            Trace::Stopped(stopped) => Ok(Some(stopped)),
            _ => self.await_stop(host_tid).map(Some),
        }
    }

    /// Brings a stopped thread to a point where its registers tell everything. A signal that
    /// interrupts a call here is delivered here, because only this kernel knows that it interrupts
    /// the call.
    fn settle(&mut self, host_tid: i32, stopped: Stopped) -> Result<(), GuestError> {
        let mut stopped = stopped;
        let thread = self.threads.get(&host_tid);
        if thread.is_some_and(|thread| thread.at_our_stop || thread.fatal.is_some()) {
            self.set_trace(host_tid, Trace::Stopped(stopped));
            return Ok(());
        }
        loop {
            if let Stop::Signal(signal) = stopped.stop() {
                let raw = stopped.signal_info()?;
                let info = self.tickets.redeem(&raw);
                let effect = self.effect_of(signal, &info);
                // Trap: a-frame-on-a-substitute
                self.leave_suspension(&stopped, effect)?;
                if effect == Effect::Caught {
                    (stopped, _) = self.leave_kernel_code_first(stopped, raw)?;
                }
                let early = self.comes_before_its_call(&stopped, &info, effect)?;
                if effect == Effect::Ends && !early {
                    self.keep_fatal(host_tid, signal, info);
                    break;
                }
                if self.postpone(&stopped, signal, &info)? {
                    if let Some(thread) = self.threads.get_mut(&host_tid) {
                        thread.at_our_stop = true;
                    }
                    break;
                }
                Running::assume(host_tid).interrupt()?;
                match effect {
                    Effect::Caught => {
                        stopped.set_signal_info(&info)?;
                        if let Some(thread) = self.threads.get_mut(&host_tid) {
                            // The handler ends the wait.
                            thread.timed = None;
                        }
                        stopped.resume(signal)?;
                    }
                    Effect::Stops => {
                        // The process stops where it moves to.
                        self.keep(host_tid, signal, info);
                        stopped.resume(0)?;
                    }
                    Effect::Nothing | Effect::Ends => {
                        stopped.resume(0)?;
                    }
                }
                stopped = self.await_stop(host_tid)?;
                continue;
            }
            let thread = self.threads.get(&host_tid);
            let awaits = thread.is_some_and(|thread| thread.awaits);
            let registers = stopped.registers()?;
            // Trap: a-fault-on-its-way
            if !awaits && self.has_fault(&stopped)? {
                stopped = self.await_delivery(stopped)?;
                continue;
            }
            if awaits
                || !was_cut(&registers)
                || is_made_again(&registers)
                || !self.has_deliverable(host_tid, None)
            {
                // A call that waits for signals is made again, and finds there what is pending.
                stopped = self.leave_kernel_code(stopped)?;
                if matches!(stopped.stop(), Stop::Signal(_)) {
                    continue;
                }
                break;
            }
            stopped = self.await_delivery(stopped)?;
        }
        self.set_trace(host_tid, Trace::Stopped(stopped));
        Ok(())
    }

    /// Lets a thread run for the delivery of its pending signal. If no delivery comes, because
    /// another thread has taken the signal, the thread is stopped again.
    fn await_delivery(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        let host_tid = stopped.tid();
        let begun = std::time::Instant::now();
        let mut running = self.resume_followed(stopped)?;
        while begun.elapsed() < DELIVERY_WITHIN {
            match running.poll()? {
                Polled::Event(Waited::Stopped(stopped)) if stopped.stop() == Stop::SyscallStop => {
                    self.in_a_wait(stopped)?;
                    running = Running::assume(host_tid);
                }
                Polled::Event(Waited::Stopped(stopped)) => return Ok(stopped),
                Polled::Event(_) => {
                    self.ended(host_tid);
                    return Err(GuestError::Ended);
                }
                Polled::Still(still) => running = still,
            }
            std::thread::yield_now();
        }
        running.interrupt()?;
        self.await_stop(host_tid)
    }

    /// Takes the image of the frozen guest.
    ///
    /// # Errors
    /// The guest ended, or the kernel refuses something.
    pub(crate) fn capture(&mut self, ahead: Ahead) -> Result<ProcessImage, GuestError> {
        let clocks = ahead.clocks()?;
        let host_tids = self.leader_first();
        let mut states = Vec::with_capacity(host_tids.len());
        for host_tid in &host_tids {
            pulse::advance();
            states.push(self.thread_state(*host_tid)?);
        }
        let answers = self.ask(&host_tids, &states)?;
        let entries = self.entries()?;
        let remarks = self.remarks(&states[0], &entries)?;
        let mut threads = Vec::with_capacity(host_tids.len());
        for ((host_tid, state), answer) in host_tids.iter().zip(states).zip(&answers.threads) {
            pulse::advance();
            let mut thread = self.thread_image(*host_tid, state, answer)?;
            thread.deadline_ns = thread
                .deadline_ns
                .map(|deadline| deadline.saturating_add_signed(ahead.monotonic_ns));
            threads.push(thread);
        }
        let leader = self.stopped_thread(self.host_tid)?;
        let mut pending = self.true_signals(leader.queued_signals(true)?);
        pending.extend(self.unqueued_for(None));
        overruns::merge_queued(&mut pending);
        let own = threads.iter_mut().flat_map(|thread| &mut thread.pending);
        self.tickets.tell_counted(own.chain(&mut pending));
        let mut layout = self.origin.layout.clone();
        layout.brk = answers.brk;
        let flags = FlagTable::read(self.host_tid).map_err(unreadable_maps)?;
        let mappings = self.mappings(&entries, &flags);
        let guards =
            maps::guards(self.host_tid, &mappings).map_err(|source| GuestError::Unreadable {
                what: "pages",
                source,
            })?;
        Ok(ProcessImage {
            pid: self.pid,
            threads,
            actions: answers.actions,
            pending,
            mappings,
            guards,
            layout,
            limits: self.origin.limits.clone(),
            personality: self.origin.personality,
            no_transparent_huge_pages: !self.status(self.host_tid).transparent_huge_pages,
            barriers: answers.barriers,
            denies_memory: self.origin.denies_memory,
            filters: self.origin.filters.clone(),
            locks_future: self.context.locks_future,
            descriptor_signals: self.context.descriptor_signals,
            remarks,
            reserved: self.origin.reserved,
            vdso: self.origin.vdso.clone(),
            clocks,
            cpu_away: self.cpu_away(),
            cpu_timers: answers.cpu_timers,
        })
    }

    fn leader_first(&self) -> Vec<i32> {
        let others = self
            .threads
            .keys()
            .copied()
            .filter(|host_tid| *host_tid != self.host_tid);
        std::iter::once(self.host_tid).chain(others).collect()
    }

    fn stopped_thread(&self, host_tid: i32) -> Result<&Stopped, GuestError> {
        match self.threads.get(&host_tid).map(|thread| &thread.trace) {
            Some(Trace::Stopped(stopped)) => Ok(stopped),
            _ => Err(GuestError::Ended),
        }
    }

    fn true_signals(&self, raw: Vec<[u8; 128]>) -> Vec<QueuedSignal> {
        let signal = |info: [u8; 128]| {
            let info = self.tickets.look_up(&info);
            QueuedSignal::new(info_word(&info, 0), &info)
        };
        raw.into_iter().filter_map(signal).collect()
    }

    /// Registers and mask before our own work in the thread.
    fn thread_state(&mut self, host_tid: i32) -> Result<State, GuestError> {
        let pid = self.host_tid;
        let (registers, mask, rseq) = {
            let stopped = self.stopped_thread(host_tid)?;
            (
                stopped.registers()?,
                stopped.signal_mask()?,
                stopped.rseq()?,
            )
        };
        let mut registers = registers;
        freeze_calls::complete_random((pid, host_tid), &mut registers);
        let thread = self.threads.get(&host_tid).ok_or(GuestError::Ended)?;
        registers.orig_rax = thread.true_number(pid, &registers);
        if let Some(rseq) = &rseq
            && let Some(abort) = abort_address(pid, rseq.address, registers.rip)
        {
            registers.rip = abort;
            registers.orig_rax = u64::MAX;
        }
        let thread = self.threads.get_mut(&host_tid).ok_or(GuestError::Ended)?;
        if let Some(suspended) = thread.suspended.take() {
            registers = rewound(&suspended);
        }
        Ok(State {
            registers,
            mask,
            rseq: rseq.map(|rseq| RseqRegistration {
                address: rseq.address,
                length: rseq.length,
                signature: rseq.signature,
                flags: rseq.flags,
            }),
        })
    }

    fn thread_image(
        &mut self,
        host_tid: i32,
        state: State,
        answer: &Answer,
    ) -> Result<ThreadImage, GuestError> {
        let stopped = self.stopped_thread(host_tid)?;
        let robust_list = foreign::robust_list(host_tid).map_err(|errno| GuestError::Os {
            what: "Reading a list of robust futexes",
            errno,
        })?;
        let path = format!("/proc/{}/task/{host_tid}/comm", self.host_tid);
        let mut name = kernel_file::read(path).map_err(|source| GuestError::Unreadable {
            what: "name",
            source,
        })?;
        // The kernel ends it with a newline.
        name.pop();
        let xstate = stopped.xstate()?;
        let mut pending = self.true_signals(stopped.queued_signals(false)?);
        let thread = self.threads.get(&host_tid).ok_or(GuestError::Ended)?;
        pending.splice(0..0, thread.postponed.iter().chain(&thread.fatal).cloned());
        pending.extend(self.unqueued_for(Some(host_tid)));
        overruns::merge_queued(&mut pending);
        let (mut registers, mut activity) = image_registers(thread, &state.registers);
        let deadline_ns = thread.deadline_ns;
        let cut = was_cut(&state.registers) && registers.rip == state.registers.rip;
        if cut && deadline_ns.is_some() {
            // The kernel would have gone on with this wait. Elsewhere the call is made again.
            registers.rax = state.registers.orig_rax;
            registers.rip -= 2;
        }
        if let Some(begin) = self.proxy.as_ref().and_then(|p| p.begin_of(registers.rip)) {
            (registers.rip, registers.orig_rax) = (begin, u64::MAX);
            activity = Activity::Computing;
        }
        tracing::trace!(
            host_tid,
            ?activity,
            rax = state.registers.rax.cast_signed(),
            orig_rax = state.registers.orig_rax.cast_signed(),
            rip = state.registers.rip,
            "captured"
        );
        Ok(ThreadImage {
            tid: thread.tid,
            registers,
            activity,
            awaited: thread.awaited,
            xstate,
            signal_mask: state.mask,
            alternate_stack: answer.alternate_stack,
            rseq: state.rseq,
            robust_list,
            tid_address: answer.tid_address,
            pending,
            name,
            settings: answer.settings,
            deadline_ns,
            cpu_away: self.thread_cpu_away(thread),
        })
    }

    /// Asks the threads themselves for what nothing else can tell. Afterwards each has its
    /// registers and mask back.
    fn ask(&mut self, host_tids: &[i32], states: &[State]) -> Result<Answers, GuestError> {
        let mut arguments = self.runner.arguments();
        let space = arguments.add(&vec![0; host_tids.len() * ANSWER]);
        let actions = arguments.add(&vec![0; ACTION * 64]);
        let timers = arguments.add(&[0; 2 * CpuTimer::LENGTH]);
        self.runner.store(&arguments)?;
        let mut lists: Vec<Vec<Syscall>> = Vec::with_capacity(host_tids.len());
        for index in 0..host_tids.len() {
            let into = space + (index * ANSWER) as u64;
            let mut list = vec![
                Syscall::new(libc::SYS_sigaltstack, &[0, into]),
                Syscall::new(libc::SYS_prctl, &[PR_GET_TID_ADDRESS, into + 24]),
            ];
            list.extend(settings::ask_thread(into + SETTINGS_AT as u64));
            debug_assert!(list.len() <= OWN_MAX);
            lists.push(list);
        }
        // The questions about the whole process are in the leader's list. It is stored behind all
        // others, where it may be long.
        let mut leaders = lists.remove(0);
        leaders.push(Syscall::new(libc::SYS_brk, &[0]));
        leaders.extend(settings::ask_barriers());
        let of_process = leaders.len();
        for (index, which) in (0..).zip(CPU_TIMERS) {
            let into = timers + index * CpuTimer::LENGTH as u64;
            leaders.push(Syscall::new(libc::SYS_getitimer, &[which, into]));
        }
        leaders.extend((1..=SIGNALS).map(|signal| {
            let into = actions + (signal - 1) * 32;
            Syscall::new(libc::SYS_rt_sigaction, &[signal, 0, into, 8])
        }));
        let results = self.run_lists(host_tids, states, leaders, lists)?;
        for results in &results {
            for result in results.iter().take(2) {
                check("Asking the guest", *result)?;
            }
        }
        let of_leader = &results[0];
        let brk = check("brk", of_leader[OWN_ASKED])?;
        let mut bytes = [0; 2 * CpuTimer::LENGTH];
        self.runner.read(timers, &mut bytes)?;
        let (first, second) = bytes.split_at(CpuTimer::LENGTH);
        let mut answers = self.read_answers(&results, space, actions, brk)?;
        answers.barriers = settings::barriers(&of_leader[OWN_ASKED + 1..of_process]);
        answers.cpu_timers = [first, second].map(CpuTimer::from_kernel);
        Ok(answers)
    }

    /// Runs the leader's list and, at the same time, those of the others; returns the results, the
    /// leader's first.
    pub(crate) fn run_lists(
        &mut self,
        host_tids: &[i32],
        states: &[State],
        leaders: Vec<Syscall>,
        others: Vec<Vec<Syscall>>,
    ) -> Result<Vec<Vec<i64>>, GuestError> {
        let skip = OWN_MAX * others.len();
        let trap_ignored = self.status(self.host_tid).ignored & SIGTRAP_BIT != 0;
        let mut at = vec![skip];
        at.extend((0..others.len()).map(|index| index * OWN_MAX));
        let lists: Vec<Vec<Syscall>> = std::iter::once(leaders).chain(others).collect();
        let runner = self.runner;
        let mut running = Vec::new();
        let mut stepped = Vec::new();
        for ((host_tid, list), at) in host_tids.iter().zip(&lists).zip(&at) {
            let Some(thread) = self.threads.get_mut(host_tid) else {
                return Err(GuestError::Ended);
            };
            let trace = std::mem::replace(&mut thread.trace, Trace::Running);
            let Trace::Stopped(mut stopped) = trace else {
                return Err(GuestError::Ended);
            };
            stopped.set_signal_mask(working_mask())?;
            if trap_ignored {
                // An int3 would reset the action of SIGTRAP, so the calls are made one by one.
                let mut results = Vec::with_capacity(list.len());
                for operation in list {
                    let (back, result) = runner.step(stopped, operation)?;
                    stopped = back;
                    results.push(result);
                }
                stepped.push(results);
                thread.trace = Trace::Stopped(stopped);
            } else {
                runner.prepare(&stopped, *at, list)?;
                running.push((*host_tid, stopped.resume(0)?));
            }
        }
        for (host_tid, thread) in running {
            let back = runner.await_end(thread, &mut pass_over_interrupt)?;
            self.set_trace(host_tid, Trace::Stopped(back));
        }
        for (host_tid, state) in host_tids.iter().zip(states) {
            self.put_back(*host_tid, state, trap_ignored)?;
        }
        if trap_ignored {
            return Ok(stepped);
        }
        let results = lists.iter().zip(at);
        let results = results.map(|(list, at)| Ok(runner.results(at, list.len())?));
        results.collect()
    }

    /// Gives a thread its own registers and mask back. After a syscall stop the kernel would not
    /// restart a call, so there the registers are rewound.
    fn put_back(
        &mut self,
        host_tid: i32,
        state: &State,
        at_syscall: bool,
    ) -> Result<(), GuestError> {
        let registers = if at_syscall {
            rewound(&state.registers)
        } else {
            state.registers
        };
        let stopped = self.stopped_thread(host_tid)?;
        stopped.set_registers(&registers)?;
        stopped.set_signal_mask(state.mask)?;
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.at_our_stop = true;
        }
        Ok(())
    }

    fn read_answers(
        &self,
        results: &[Vec<i64>],
        space: u64,
        actions: u64,
        brk: u64,
    ) -> Result<Answers, GuestError> {
        let mut bytes = vec![0; results.len() * ANSWER];
        self.runner.read(space, &mut bytes)?;
        let threads = bytes
            .chunks_exact(ANSWER)
            .zip(results)
            .map(|(answer, results)| Answer {
                alternate_stack: AlternateStack {
                    address: word(answer, 0),
                    flags: i32::from_ne_bytes([answer[8], answer[9], answer[10], answer[11]]),
                    size: word(answer, 16),
                },
                tid_address: word(answer, 24),
                settings: settings::of_thread(&results[2..OWN_ASKED], &answer[SETTINGS_AT..]).0,
            })
            .collect();
        let mut bytes = vec![0; ACTION * 64];
        self.runner.read(actions, &mut bytes)?;
        let actions = bytes
            .chunks_exact(ACTION)
            .map(|action| SignalAction {
                handler: word(action, 0),
                flags: word(action, 8),
                restorer: word(action, 16),
                mask: word(action, 24),
            })
            .collect();
        Ok(Answers {
            threads,
            actions,
            brk,
            barriers: 0,
            cpu_timers: Default::default(),
        })
    }

    /// The pages of the guest's own in an image's mappings, ascending.
    ///
    /// # Errors
    /// The guest ended.
    pub(crate) fn runs(&self, image: &ProcessImage) -> Result<OwnRuns, GuestError> {
        let runs = maps::private_runs(self.host_tid, &image.mappings);
        let runs = runs.map_err(unreadable_memory)?.into_iter();
        Ok(runs.map(|(mapping, run)| (mapping.clone(), run)).collect())
    }

    /// Passes on every page that the image needs and home does not have, in ascending order; of
    /// pages that do not travel, nothing but that they were looked at.
    ///
    /// # Errors
    /// The guest ended, or the sink failed.
    pub(crate) fn pages(
        &mut self,
        runs: &[(Mapping, Run)],
        sink: &mut PageSink<'_>,
    ) -> Result<(), GuestError> {
        let memory = MemFile::open(self.host_tid).map_err(unreadable_memory)?;
        let mut buffer = vec![0; PAGES_IN_FRAME];
        for (mapping, run) in runs {
            let mut at = run.start;
            while at < run.end {
                let end = run.end.min(at + PAGES_IN_FRAME as u64);
                let readable = self.readable(mapping, at, end);
                if readable == 0 {
                    at += PAGE_SIZE;
                    continue;
                }
                let length = usize::try_from(readable).unwrap_or(0);
                let bytes = &mut buffer[..length];
                if process_vm::read_exact(self.host_tid, at, bytes).is_err() {
                    memory.read_exact(at, bytes).map_err(unreadable_memory)?;
                }
                self.sift(mapping, at, bytes, sink)?;
                at += length as u64;
            }
        }
        Ok(())
    }

    /// How many bytes can be read before the first page that does not exist at home either. All
    /// that this kernel knows about such a page is that it must not be accessed.
    fn readable(&self, mapping: &Mapping, start: u64, end: u64) -> u64 {
        let Backing::File { id, offset } = mapping.backing else {
            return end - start;
        };
        let table = self.shared.table();
        let nothing = |at: &u64| {
            let number = (offset + (at - mapping.start)) / PAGE_SIZE;
            table.arrival((id, number)) == Some(PageSource::Nothing)
        };
        let first = (start..end).step_by(4096).find(nothing);
        first.unwrap_or(end) - start
    }

    /// Passes on the pages that travel. Pages of zeros do not, where memory is zero anyway, nor do
    /// pages that are as home has them.
    fn sift(
        &mut self,
        mapping: &Mapping,
        address: u64,
        bytes: &[u8],
        sink: &mut PageSink<'_>,
    ) -> Result<(), GuestError> {
        let wanted: Vec<bool> = {
            let table = self.shared.table();
            let travels = |(index, page): (usize, &[u8])| match mapping.backing {
                Backing::File { id, offset } => {
                    let at = address + index as u64 * PAGE_SIZE;
                    let number = (offset + (at - mapping.start)) / PAGE_SIZE;
                    table.arrival((id, number)) != Some(PageSource::Fetched(xxh3_64(page)))
                }
                _ => page.iter().any(|byte| *byte != 0),
            };
            bytes.chunks_exact(4096).enumerate().map(travels).collect()
        };
        let mut begin = None;
        for index in 0..=wanted.len() {
            let here = wanted.get(index).copied().unwrap_or(false);
            match (here, begin) {
                (true, None) => begin = Some(index),
                (false, Some(from)) => {
                    let start = address + from as u64 * PAGE_SIZE;
                    sink(self, start, &bytes[from * 4096..index * 4096])?;
                    begin = None;
                }
                _ => {}
            }
        }
        sink(self, address, &[])
    }

    /// The move has failed: all threads go on.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn thaw(&mut self) -> Result<(), GuestError> {
        self.holds.move_away = false;
        let mut again = Vec::new();
        for thread in self.threads.values_mut() {
            let Trace::Stopped(stopped) = &thread.trace else {
                continue;
            };
            if std::mem::take(&mut thread.awaits) {
                let registers = stopped.registers()?;
                stopped.set_registers(&asking(&registers))?;
            }
            if let Some(fatal) = &thread.fatal {
                again.push((thread.tid, fatal.signal));
            }
        }
        let host_tids: Vec<i32> = self.threads.keys().copied().collect();
        for host_tid in host_tids {
            self.requeue_postponed(host_tid)?;
        }
        for (tid, signal) in again {
            let reason = format!("signal {signal} ends it");
            self.say(whim_journey::message::ToHome::GoHome { tid, reason });
        }
        self.resume()
    }
}

pub(crate) struct State {
    registers: Registers,
    mask: u64,
    rseq: Option<RseqRegistration>,
}

struct Answer {
    alternate_stack: AlternateStack,
    tid_address: u64,
    settings: ThreadSettings,
}

struct Answers {
    threads: Vec<Answer>,
    actions: Vec<SignalAction>,
    brk: u64,
    barriers: u32,
    cpu_timers: [CpuTimer; 2],
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

fn unreadable_memory(source: std::io::Error) -> GuestError {
    GuestError::Unreadable {
        what: "memory",
        source,
    }
}

fn unreadable_maps(error: maps::MapsError) -> GuestError {
    GuestError::Unreadable {
        what: "mappings",
        source: std::io::Error::other(error),
    }
}

fn image_registers(thread: &Thread, registers: &Registers) -> (Registers, Activity) {
    let mut again = rewound(registers);
    let mut image = if thread.awaits {
        asking(registers)
    } else if thread.is_about_to_ask(registers) {
        // The thread came here waiting, and has not asked for the result yet.
        again
    } else {
        let rewinds = again.rip != registers.rip && again.rax == registers.orig_rax;
        if thread.enters || (rewinds && whim_calls::waits_for_signals(again.rax)) {
            // From this the next side knows that it stands right before its call.
            again.orig_rax = again.rax;
        }
        return (again, Activity::Computing);
    };
    let call = thread.in_flight.unwrap_or(Syscall {
        number: u64::MAX,
        args: [0; 6],
    });
    // From this the next side knows where the outputs belong.
    image.orig_rax = call.number;
    (image, Activity::AwaitsHome)
}

/// Where a restartable sequence that contains `rip` goes when it is interrupted. The kernel forgets
/// the sequence as soon as rip is elsewhere, so we do what it would do.
fn abort_address(pid: i32, registration: u64, rip: u64) -> Option<u64> {
    let mut pointer = [0; 8];
    process_vm::read_exact(pid, registration + 8, &mut pointer).ok()?;
    let section = u64::from_ne_bytes(pointer);
    if section == 0 {
        return None;
    }
    // struct rseq_cs: version, flags, start, length, abort.
    let mut bytes = [0; 32];
    process_vm::read_exact(pid, section, &mut bytes).ok()?;
    let (start, length, abort) = (word(&bytes, 8), word(&bytes, 16), word(&bytes, 24));
    (rip.wrapping_sub(start) < length).then_some(abort)
}
