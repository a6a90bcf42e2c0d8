//! Running system calls in a frozen process, so that it is unharmed if the tracer dies at any
//! instant.
//!
//! A thread runs a list of calls in the batch stub of `whim_sys::stub`. The first thread to do so
//! runs it in the unused tail of the vDSO's last page (a write through /proc/PID/mem makes a
//! private copy of the page; afterwards the tail is zero again) and maps, for all threads, a page
//! range of code and one of data; [`Frozen::remove_injection`] unmaps them in the same way.
//!
//! # Order of every change
//! 1. The stub and its data (the registers and the mask to be restored) are complete.
//! 2. One request sets the registers, so that the thread is in the stub; a thread in a restartable
//!    call enters such that the kernel itself decides between restart and EINTR.
//! 3. Only then all signals are blocked: the mask differs only while rip is in the stub.
//! 4. The way out is the same, backwards: the list is emptied, rip set to the entry, the mask put
//!    back, the registers put back.
//!
//! A stub is never overwritten while any thread's rip is in it.

use crate::freeze::{FreezeError, Frozen, FrozenThread};
use crate::freeze_calls::{self, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTSYS};
use crate::freeze_groups::{Awaited, Waiting};
use crate::freeze_observe::Observation;
use crate::maps::{self, MapEntry};
use nix::errno::Errno;
use std::time::Duration;
use whim_model::Syscall;
use whim_model::{PAGE_SIZE, Range, Registers};
use whim_sys::process_vm::{self, RemotePiece};
use whim_sys::ptrace::{Phase, Polled, Running, Stop, Stopped, Tid, TraceError, Waited};
use whim_sys::pulse;
use whim_sys::stub::{self, BatchData, OPERATION_WORDS};

/// Operations of one thread in one batch; more are run as several batches.
pub const OPERATIONS_MAX: usize = 63;
/// Bytes of one operation in memory.
const OPERATION: u64 = OPERATION_WORDS as u64 * 8;
/// Code of one thread, in bytes.
const CODE_SLOT: u64 = 1024;
/// Data of one thread: operations, results, the word `done`, the word `pending`, two words of
/// the wait.
const DATA_SLOT: u64 = PAGE_SIZE;
const RESULTS_OFFSET: u64 = OPERATIONS_MAX as u64 * OPERATION;
const DONE_OFFSET: u64 = RESULTS_OFFSET + OPERATIONS_MAX as u64 * 8;
const PENDING_OFFSET: u64 = DONE_OFFSET + 8;
const _: () = assert!(
    PENDING_OFFSET + 8 == DONE_OFFSET + stub::WAIT_OFFSET
        && DONE_OFFSET + stub::WAIT_OFFSET + 16 <= DATA_SLOT
);
/// Memory for data of the operations, in bytes, beside [`SCRATCH_PER_THREAD`].
const SCRATCH: u64 = 64 << 10;
const SCRATCH_PER_THREAD: u64 = 256;
/// Alignment of what stands in the tail of the vDSO.
const CAVE_ALIGNMENT: u64 = 16;
/// The most operations of a bootstrap. The bootstrap stands at the same place whatever their
/// number, so that the remains of a tracer that died here are recognised.
const BOOTSTRAP_OPERATIONS: u64 = 2;
/// Below the red zone: where a bootstrap has its 8 bytes for the pending signals.
const BELOW_STACK: u64 = 256;
/// A batch that takes longer than this has failed.
const BATCH_LIMIT: Duration = Duration::from_secs(30);
/// Stops of a bootstrap: entry and exit of each of its calls, and signals that cannot be blocked.
const BOOTSTRAP_STOPS_MAX: u32 = 64;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
/// MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE
const MAP_FLAGS: u64 = 0x2 | 0x20 | 0x10_0000 | 0x4000;

/// Where our code and memory are in the process.
#[derive(Debug)]
pub(crate) struct Injection {
    /// Code, data and scratch, one behind the other.
    whole: Range,
    data: u64,
    scratch: Range,
    sequence: u64,
}

impl Injection {
    fn code_of(&self, index: usize) -> u64 {
        self.whole.start + index as u64 * CODE_SLOT
    }

    fn data_of(&self, index: usize) -> u64 {
        self.data + index as u64 * DATA_SLOT
    }
}

/// Addresses that one instance of the stub works with.
struct Instance {
    /// Address of the stub.
    base: u64,
    operations: u64,
    count: u64,
    results: u64,
    done: u64,
    sequence: u64,
    pending: u64,
}

fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_SIZE)
}

impl Frozen {
    /// Runs system calls in one thread, in order, and gives back what they returned.
    ///
    /// # Errors
    /// [`FreezeError`]; a failed call is not an error but a negative result.
    pub fn run(&mut self, tid: Tid, ops: &[Syscall]) -> Result<Vec<i64>, FreezeError> {
        let mut results = Vec::with_capacity(ops.len());
        for batch in ops.chunks(OPERATIONS_MAX) {
            results.extend(
                self.run_many(&[(tid, batch.to_vec())])?
                    .pop()
                    .unwrap_or_default(),
            );
        }
        Ok(results)
    }

    /// Runs a list of at most [`OPERATIONS_MAX`] calls in each of several threads, all at the same
    /// time; the results come in the order of `lists`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_many(
        &mut self,
        lists: &[(Tid, Vec<Syscall>)],
    ) -> Result<Vec<Vec<i64>>, FreezeError> {
        if let Some((_, list)) = lists.iter().find(|(_, list)| list.len() > OPERATIONS_MAX) {
            return Err(FreezeError::TooManyOperations(list.len()));
        }
        self.prepare_injection(None)?;
        let sequence = self.next_sequence();
        let mut indices = Vec::with_capacity(lists.len());
        for (place, (tid, _)) in lists.iter().enumerate() {
            // Mostly all of them, in their order.
            let there = self.threads.get(place).is_some_and(|one| one.tid == *tid);
            indices.push(if there { place } else { self.index_of(*tid)? });
        }
        let mut started = Vec::with_capacity(lists.len());
        let mut failed = None;
        for (index, (_, list)) in indices.iter().zip(lists) {
            match self.start(*index, list, sequence) {
                Ok(running) => started.push((*index, running)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if failed.is_none() {
            failed = self.wait_until_done(&mut started, sequence).err();
        }
        // Whatever has happened: none of them may be left running in our code.
        for (index, running) in started {
            if let Err(error) = self.stop_in_stub(index, running) {
                failed = failed.or(Some(error));
            }
        }
        match failed {
            Some(error) => Err(error),
            None => indices
                .iter()
                .zip(lists)
                .map(|(at, (_, list))| self.results(*at, list.len()))
                .collect(),
        }
    }

    /// Memory in the process for data of the operations, readable and writable from outside by
    /// `process_vm`: at least 64 KiB, and 256 bytes per thread.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn scratch(&mut self) -> Result<Range, FreezeError> {
        self.prepare_injection(None)?;
        self.injected().map(|injection| injection.scratch)
    }

    /// Everything that we have mapped in the process at the moment.
    #[must_use]
    pub fn injected_range(&self) -> Option<Range> {
        self.injection.as_ref().map(|injection| injection.whole)
    }

    fn injected(&self) -> Result<&Injection, FreezeError> {
        self.injection.as_ref().ok_or(FreezeError::NoRoomForMemory)
    }

    fn next_sequence(&mut self) -> u64 {
        self.injection.as_mut().map_or(0, |injection| {
            injection.sequence += 1;
            injection.sequence
        })
    }

    /// Maps our code and memory, if that has not been done: at the beginning of `place`, or in the
    /// middle of the largest hole.
    ///
    /// # Errors
    /// [`FreezeError`]
    pub fn prepare_injection(&mut self, place: Option<Range>) -> Result<(), FreezeError> {
        if self.injection.is_some() {
            return Ok(());
        }
        let entries = self.entries()?.to_vec();
        let threads = self.threads.len() as u64;
        let code = pages(threads * CODE_SLOT);
        let data = threads * DATA_SLOT;
        let scratch = pages(SCRATCH + threads * SCRATCH_PER_THREAD);
        let length = code + data + scratch;
        let whole = match place {
            Some(place) => Range {
                start: place.start,
                end: place.start + length,
            },
            None => {
                let within = Range {
                    start: maps::USER_BEGIN,
                    end: whim_model::USER_END,
                };
                maps::find_free(&entries, within, length, PAGE_SIZE)
                    .ok_or(FreezeError::NoRoomForMemory)?
            }
        };
        let writable = [whole.start + code, data + scratch];
        let ops = [
            Syscall::new(
                libc::SYS_mmap,
                &[
                    whole.start,
                    code,
                    PROT_READ | PROT_EXEC,
                    MAP_FLAGS,
                    u64::MAX,
                    0,
                ],
            ),
            Syscall::new(
                libc::SYS_mmap,
                &[
                    writable[0],
                    writable[1],
                    PROT_READ | PROT_WRITE,
                    MAP_FLAGS,
                    u64::MAX,
                    0,
                ],
            ),
        ];
        let index = self.bootstrap_thread()?;
        let cave = self.bootstrap(index, &entries, &ops)?;
        let scratch = Range {
            start: whole.start + code + data,
            end: whole.end,
        };
        let data = whole.start + code;
        self.injection = Some(Injection {
            whole,
            data,
            scratch,
            sequence: 0,
        });
        self.move_to_own_code(index)?;
        self.memory
            .write_all(cave.start, &vec![0; bytes_of(cave)])
            .map_err(FreezeError::Memory)
    }

    /// The thread that is least disturbed: one whose call, if any, cannot end with EINTR.
    fn bootstrap_thread(&self) -> Result<usize, FreezeError> {
        let preference = |index: &usize| {
            let thread = &self.threads[*index];
            if thread.stopped.is_none() {
                return 3;
            }
            if !thread.restartable() {
                return 0;
            }
            match thread.original.rax.cast_signed() {
                ERESTARTNOHAND | ERESTART_RESTARTBLOCK => 2,
                _ => 1,
            }
        };
        (0..self.threads.len())
            .min_by_key(preference)
            .ok_or(FreezeError::Gone(self.pid))
    }

    /// Runs `ops` in the tail of the vDSO; returns the range that was written there. The thread
    /// then stands in the stub there, with all signals blocked.
    fn bootstrap(
        &mut self,
        index: usize,
        entries: &[MapEntry],
        ops: &[Syscall],
    ) -> Result<Range, FreezeError> {
        let code = stub::batch_code().len() as u64;
        let cave = self.find_cave(entries, code + BOOTSTRAP_OPERATIONS * OPERATION)?;
        let thread = &self.threads[index];
        let instance = Instance {
            base: cave.start,
            operations: cave.start + code,
            count: ops.len() as u64,
            results: 0,
            done: 0,
            sequence: 0,
            pending: thread.original.rsp.wrapping_sub(BELOW_STACK),
        };
        let list: Vec<u8> = ops.iter().flat_map(Syscall::bytes).collect();
        self.memory
            .write_all(instance.operations, &list)
            .map_err(FreezeError::Memory)?;
        self.enter(index, &instance, true)?;
        let results = match self.follow_bootstrap(index, cave.start) {
            Err(error @ FreezeError::GroupFrozen { .. }) => {
                // A thread that did not stop leaves the stub by itself when it is thawed.
                if !self.escaped {
                    self.leave_cave(index, cave)?;
                }
                return Err(error);
            }
            followed => followed?,
        };
        match results.iter().find(|result| **result < 0) {
            None => Ok(cave),
            Some(error) => {
                self.leave_cave(index, cave)?;
                let errno = Errno::from_raw(i32::try_from(-error).unwrap_or(0));
                Err(FreezeError::MapFailed(errno))
            }
        }
    }

    /// Takes a thread out of the tail of the vDSO, which is zero again then.
    fn leave_cave(&mut self, index: usize, cave: Range) -> Result<(), FreezeError> {
        self.leave(index)?;
        self.memory
            .write_all(cave.start, &vec![0; bytes_of(cave)])
            .map_err(FreezeError::Memory)
    }

    /// The unused end of the vDSO's last page.
    fn find_cave(&self, entries: &[MapEntry], length: u64) -> Result<Range, FreezeError> {
        // A process that was killed meanwhile has no mappings any more.
        if entries.is_empty() {
            return Err(FreezeError::Gone(self.pid));
        }
        let vdso = entries.iter().find(|entry| entry.name == "[vdso]");
        let end = vdso.ok_or(FreezeError::NoRoomForCode)?.range.end;
        let start = (end - length) & !(CAVE_ALIGNMENT - 1);
        let cave = Range { start, end };
        if end - start > PAGE_SIZE {
            return Err(FreezeError::NoRoomForCode);
        }
        let mut found = vec![0; bytes_of(cave)];
        self.memory
            .read_exact(start, &mut found)
            .map_err(FreezeError::Memory)?;
        // A tracer that died here has left our own complete code, which its thread has left, or
        // only the operations behind that code.
        let code = stub::batch_code();
        let ours = &code[..usize::try_from(stub::batch_data_offset()).unwrap_or(0)];
        let unused = found.iter().take(code.len()).all(|byte| *byte == 0);
        let free = unused || found.starts_with(ours);
        let occupied = self
            .threads
            .iter()
            .any(|thread| cave.contains(thread.original.rip));
        match (free, occupied) {
            (true, false) => Ok(cave),
            (true, true) => Err(FreezeError::Busy {
                pid: self.pid,
                reason: "a thread is still leaving the code of an earlier move".into(),
            }),
            (false, _) => Err(FreezeError::NoRoomForCode),
        }
    }

    /// Follows a thread from call to call until it waits in the stub at `base`; returns the
    /// results.
    fn follow_bootstrap(&mut self, index: usize, base: u64) -> Result<Vec<i64>, FreezeError> {
        let mut results = Vec::new();
        let waiting = base + stub::batch_waiting_offset();
        for _ in 0..BOOTSTRAP_STOPS_MAX {
            let stopped = self.threads[index].take()?;
            let signal = if let Stop::Signal(signal) = stopped.stop() {
                signal
            } else {
                0
            };
            let stopped = match self.await_event(stopped.resume_to_syscall(signal)?)? {
                Awaited::Event(Waited::Stopped(stopped)) => stopped,
                Awaited::Event(_) => return Err(TraceError::Died.into()),
                Awaited::Frozen(running, error) => {
                    self.recall(index, running)?;
                    return Err(error);
                }
            };
            let at_call = stopped.stop() == Stop::SyscallStop;
            let phase = if at_call {
                stopped.phase()?
            } else {
                Phase::None
            };
            let registers = stopped.registers()?;
            if phase == Phase::Entry && registers.rip == waiting {
                // An interruption now cuts the wait short.
                stopped.interrupt()?;
                let running = stopped.resume(0)?;
                self.stop_in(index, running, base)?;
                return Ok(results);
            }
            self.threads[index].stopped = Some(stopped);
            if phase == Phase::Exit {
                results.push(registers.rax.cast_signed());
            }
        }
        Err(FreezeError::Escaped(self.threads[index].tid))
    }

    /// Moves a thread from the stub in the vDSO to its own code, whose list is empty.
    fn move_to_own_code(&mut self, index: usize) -> Result<(), FreezeError> {
        let instance = self.own_instance(index, 0, 0)?;
        self.enter(index, &instance, true)
    }

    fn own_instance(
        &self,
        index: usize,
        count: usize,
        sequence: u64,
    ) -> Result<Instance, FreezeError> {
        let injection = self.injected()?;
        let data = injection.data_of(index);
        Ok(Instance {
            base: injection.code_of(index),
            operations: data,
            count: count as u64,
            results: data + RESULTS_OFFSET,
            done: data + DONE_OFFSET,
            sequence,
            pending: data + PENDING_OFFSET,
        })
    }

    /// Lets a thread begin its list.
    fn start(
        &mut self,
        index: usize,
        list: &[Syscall],
        sequence: u64,
    ) -> Result<Running, FreezeError> {
        let instance = self.own_instance(index, list.len(), sequence)?;
        let bytes: Vec<u8> = list.iter().flat_map(Syscall::bytes).collect();
        self.memory
            .write_all(instance.operations, &bytes)
            .map_err(FreezeError::Memory)?;
        self.enter(index, &instance, false)?;
        Ok(self.threads[index].take()?.resume(0)?)
    }

    /// Places code and data of an instance and points the thread at it.
    fn enter(&mut self, index: usize, at: &Instance, whole: bool) -> Result<(), FreezeError> {
        // Trap: a-sequence-is-not-aborted
        self.leave_critical_section(index)?;
        let mask = self.threads[index].mask()?;
        let thread = &self.threads[index];
        let data = self.batch_data(index, at, mask);
        let first = whole || thread.inside != Some(at.base);
        let offset = if first { 0 } else { stub::batch_data_offset() };
        let mut bytes = Vec::with_capacity(stub::batch_code().len());
        if first {
            let code = usize::try_from(stub::batch_data_offset()).unwrap_or(0);
            bytes.extend_from_slice(&stub::batch_code()[..code]);
        }
        bytes.extend_from_slice(&data.to_bytes());
        self.memory
            .write_all(at.base + offset, &bytes)
            .map_err(FreezeError::Memory)?;
        let blocked = thread.inside.is_some();
        let thread = &mut self.threads[index];
        let registers = entry_registers(thread, at.base, !blocked);
        let stopped = thread.stopped()?;
        stopped.set_registers(&registers)?;
        if !blocked {
            // Trap: signal-during-our-calls
            stopped.set_signal_mask(u64::MAX)?;
        }
        thread.inside = Some(at.base);
        Ok(())
    }

    fn batch_data(&self, index: usize, at: &Instance, mask: u64) -> BatchData {
        let thread = &self.threads[index];
        let mut registers = thread.original;
        let deliverable = self.status.caught & !mask;
        let mut interrupting = 0;
        if thread.restartable() {
            let rax = registers.rax.cast_signed();
            interrupting = match rax {
                ERESTARTNOHAND | ERESTART_RESTARTBLOCK => deliverable,
                ERESTARTSYS => deliverable & self.no_restart,
                _ => 0,
            };
            registers.rax = match rax {
                ERESTART_RESTARTBLOCK => freeze_calls::RESTART_SYSCALL,
                _ => registers.orig_rax,
            };
            registers.rip -= 2;
        }
        BatchData {
            operations: at.operations,
            count: at.count,
            results: at.results,
            done: at.done,
            sequence: at.sequence,
            pending: at.pending,
            interrupting,
            // Trap: a-dead-tracer-leaves-a-deaf-program
            mask,
            registers,
            interrupted_rip: thread.original.rip,
        }
    }

    /// Moves a thread that is in a restartable sequence to its abort handler, as the kernel would
    /// do, because the kernel forgets the sequence as soon as rip is elsewhere.
    pub(crate) fn leave_critical_section(&mut self, index: usize) -> Result<(), FreezeError> {
        let thread = &mut self.threads[index];
        if thread.call.is_some() || thread.inside.is_some() {
            return Ok(());
        }
        let Some(abort) = abort_address(self.pid, thread.stopped()?, &thread.original)? else {
            return Ok(());
        };
        thread.original.rip = abort;
        thread.original.orig_rax = u64::MAX;
        Ok(())
    }

    fn wait_until_done(
        &mut self,
        started: &mut [(usize, Running)],
        sequence: u64,
    ) -> Result<(), FreezeError> {
        let injection = self.injected()?;
        let words: Vec<RemotePiece> = started
            .iter()
            .map(|(index, _)| RemotePiece {
                address: injection.data_of(*index) + DONE_OFFSET,
                length: 8,
            })
            .collect();
        let mut bytes = vec![0u8; words.len() * 8];
        let mut waiting = Waiting::begin();
        let (mut looks, mut before) = (0u32, 0);
        loop {
            let got = process_vm::read_ranges(self.pid, &words, &mut bytes)
                .map_err(|errno| FreezeError::Memory(errno.into()))?;
            let expected = sequence.to_le_bytes();
            let ended = bytes.chunks_exact(8).filter(|word| *word == expected);
            let ended = ended.count();
            if got == bytes.len() && ended == words.len() {
                return Ok(());
            }
            if ended != before {
                before = ended;
                pulse::advance();
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                pass_unmaskable_stops(started)?;
                if self.groups.is_late(&mut waiting, BATCH_LIMIT)? {
                    let index = started.first().map_or(0, |(index, _)| *index);
                    return Err(FreezeError::Escaped(self.threads[index].tid));
                }
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn stop_in_stub(&mut self, index: usize, running: Running) -> Result<(), FreezeError> {
        running.interrupt()?;
        let base = self.threads[index].inside.unwrap_or(0);
        self.stop_in(index, running, base)
    }

    /// Accepts the stop of a thread that was interrupted where it waits in the stub at `base`. A
    /// thread that no longer waited has undone everything, or is about to: it is accepted as it is,
    /// and our code stays where it is.
    fn stop_in(&mut self, index: usize, running: Running, base: u64) -> Result<(), FreezeError> {
        let stopped = match self.await_interrupt(running) {
            Ok(stopped) => stopped,
            Err(FreezeError::Trace(TraceError::Died)) => return Err(TraceError::Died.into()),
            Err(error) => {
                self.escaped = true;
                return Err(error);
            }
        };
        let rip = stopped.registers()?.rip;
        let stub = Range {
            start: base,
            end: base + stub::batch_finish_offset() + 1,
        };
        if stub.contains(rip) {
            self.threads[index].stopped = Some(stopped);
            return Ok(());
        }
        self.escaped = true;
        let (tid, before) = (stopped.tid(), Observation::default());
        self.threads[index] = FrozenThread::take_in(self.pid, &self.memory, stopped, &before)?;
        Err(FreezeError::Escaped(tid))
    }

    fn results(&self, index: usize, count: usize) -> Result<Vec<i64>, FreezeError> {
        let address = self.injected()?.data_of(index) + RESULTS_OFFSET;
        let mut bytes = vec![0u8; count * 8];
        self.memory
            .read_exact(address, &mut bytes)
            .map_err(FreezeError::Memory)?;
        let words = bytes.chunks_exact(8);
        Ok(words
            .map(|word| word.try_into().map_or(0, i64::from_le_bytes))
            .collect())
    }

    /// Takes a thread out of the stub and gives it back its own registers and mask.
    fn leave(&mut self, index: usize) -> Result<(), FreezeError> {
        let mask = self.threads[index].mask()?;
        let thread = &mut self.threads[index];
        let Some(base) = thread.inside else {
            return Ok(());
        };
        let count = base + stub::batch_data_offset() + BatchData::COUNT_OFFSET;
        self.memory
            .write_all(count, &0u64.to_le_bytes())
            .map_err(FreezeError::Memory)?;
        let registers = entry_registers(thread, base, true);
        let stopped = thread.stopped()?;
        stopped.set_registers(&registers)?;
        stopped.set_signal_mask(mask)?;
        stopped.set_registers(&thread.original)?;
        thread.inside = None;
        Ok(())
    }

    /// Takes our code and memory out of the process; every thread has its own registers and mask
    /// again. Nothing happens when nothing was injected.
    ///
    /// # Errors
    /// [`FreezeError`]; the threads restore themselves when they are let go.
    pub fn remove_injection(&mut self) -> Result<(), FreezeError> {
        let Some(whole) = self.injected_range() else {
            return Ok(());
        };
        let chosen = self.bootstrap_thread()?;
        for index in 0..self.threads.len() {
            let stays = index == chosen && !self.escaped;
            if !stays && self.threads[index].stopped.is_some() {
                match self.leave(index) {
                    Ok(()) | Err(FreezeError::Trace(TraceError::Died)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if self.escaped {
            // A thread may still be in our code, so the code stays, as after the death of a tracer.
            self.injection = None;
            return Ok(());
        }
        let entries = maps::read(self.pid)?;
        let ops = [Syscall::new(libc::SYS_munmap, &[whole.start, whole.len()])];
        let cave = self.bootstrap(chosen, &entries, &ops);
        // In a frozen group our code stays mapped, as after the death of a tracer.
        self.injection = None;
        self.leave_cave(chosen, cave?)
    }
}

fn bytes_of(range: Range) -> usize {
    usize::try_from(range.len()).unwrap_or(0)
}

/// Registers with which a thread stands at the entry of the stub at `base`. With `decide`, the
/// kernel decides whether a thread in a restartable call restarts the call or ends it.
fn entry_registers(thread: &crate::freeze::FrozenThread, base: u64, decide: bool) -> Registers {
    /// The trap flag: the stub is not single-stepped.
    const TRAP_FLAG: u64 = 0x100;
    let mut registers = thread.original;
    registers.eflags &= !TRAP_FLAG;
    if decide && thread.restartable() {
        registers.rip = base + stub::RESTART_ENTRY;
    } else {
        registers.rip = base + stub::ENTRY;
        registers.orig_rax = u64::MAX;
    }
    registers
}

/// Waits for the stop that an interruption causes, passing on what cannot be blocked (SIGSTOP).
pub(crate) fn wait_for_interrupt(mut running: Running) -> Result<Stopped, FreezeError> {
    loop {
        let stopped = match running.wait_gently()? {
            Waited::Stopped(stopped) => stopped,
            _ => return Err(TraceError::Died.into()),
        };
        let signal = match stopped.stop() {
            Stop::Interrupt => return Ok(stopped),
            Stop::Signal(signal) => signal,
            _ => 0,
        };
        stopped.interrupt()?;
        running = stopped.resume(signal)?;
    }
}

/// Lets threads go on that SIGSTOP has stopped in the midst of their list; the group stop takes
/// hold of them again when they are let go for good.
fn pass_unmaskable_stops(started: &mut [(usize, Running)]) -> Result<(), FreezeError> {
    for (_, running) in started {
        let tid = running.tid();
        match std::mem::replace(running, Running::assume(tid)).poll_gently()? {
            Polled::Still(still) => *running = still,
            Polled::Event(Waited::Stopped(stopped)) => {
                let signal = if let Stop::Signal(signal) = stopped.stop() {
                    signal
                } else {
                    0
                };
                *running = stopped.resume(signal)?;
            }
            Polled::Event(_) => return Err(TraceError::Died.into()),
        }
    }
    Ok(())
}

/// Where the thread has to go on if it stands inside a restartable sequence.
fn abort_address(
    pid: i32,
    stopped: &Stopped,
    registers: &Registers,
) -> Result<Option<u64>, FreezeError> {
    const SECTION_OFFSET: u64 = 8;
    let Ok(Some(rseq)) = stopped.rseq() else {
        return Ok(None);
    };
    let mut pointer = [0u8; 8];
    if process_vm::read_exact(pid, rseq.address + SECTION_OFFSET, &mut pointer).is_err() {
        return Ok(None);
    }
    let section = u64::from_le_bytes(pointer);
    let mut words = [0u8; 32];
    if section == 0 || process_vm::read_exact(pid, section, &mut words).is_err() {
        return Ok(None);
    }
    let word = |at: usize| words[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let (start, length, abort) = (word(8), word(16), word(24));
    Ok((registers.rip.wrapping_sub(start) < length).then_some(abort))
}
