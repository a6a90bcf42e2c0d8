//! The ranks of one job, and what they tell each other.

use crate::error::LoadError;
use crate::launch::Launch;
use crate::library::{Functions, call};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{mem, process, ptr, thread};
use whim_mpi::abi;

/// Bytes that a message may have.
pub const MESSAGE_BYTES_MAX: u64 = 4 << 30;
/// Bytes of messages that are received at the same time, but for one that is longer by itself.
const RECEIVED_BYTES_MAX: u64 = 64 << 20;
/// Messages that are received at the same time.
const RECEIVED_MAX: usize = 64;
/// Up to so many bytes in all, what the ranks gather goes in one step; the library takes no more.
const GATHERED_BYTES_MAX: u64 = 1 << 30;
/// Bytes that go to all ranks in one step: the library takes up to `i32::MAX`, and a copy is made of each.
const BROADCAST_BYTES: usize = 64 << 20;
/// How long others are let go first, but no pause is made.
const WITHOUT_PAUSE: Duration = Duration::from_micros(100);
/// Pauses between two looks, at first and at last.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A message of another rank, or of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub from: usize,
    pub tag: u32,
    pub bytes: Vec<u8>,
}

/// How numbers of all ranks are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Minimum,
    Maximum,
    Sum,
}

impl Reduction {
    fn code(self) -> u32 {
        match self {
            Self::Minimum => abi::MINIMUM,
            Self::Maximum => abi::MAXIMUM,
            Self::Sum => abi::SUM,
        }
    }
}

/// The ranks of one job.
///
/// It stays with the thread that opened it; others hand their messages to that one. Dropping it waits until all
/// ranks have dropped theirs, and receives what nobody wants any more; who cannot go on calls [`World::abort`],
/// or ends the process without dropping it.
pub struct World {
    pub(crate) functions: Functions,
    pub(crate) handle: abi::World,
    rank: usize,
    size: usize,
    sending: RefCell<Vec<Sending>>,
    receiving: RefCell<VecDeque<Receiving>>,
}

/// A message on its way.
struct Sending {
    request: abi::Request,
    /// The MPI reads them until the request is done.
    bytes: Vec<u8>,
}

/// A message that comes in.
struct Receiving {
    /// None when it is there.
    request: Option<abi::Request>,
    /// The MPI writes up to their capacity, until the request is done; then they have this length.
    bytes: Vec<u8>,
    length: usize,
    from: usize,
    tag: u32,
}

/// Pauses that grow, after a time without any: an answer of another rank is often there at once.
struct Pauses {
    start: Instant,
    pause: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            pause: PAUSE_MIN,
        }
    }

    /// Where a message is on its way, which needs further calls, they do not grow.
    fn pause(&mut self, is_moving: bool) {
        if self.start.elapsed() < WITHOUT_PAUSE {
            return thread::yield_now();
        }
        if is_moving {
            self.pause = PAUSE_MIN;
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl World {
    /// Opens the library for the launcher, out of the first directory that has it or as `$PIPT_MPI_LIBRARY` says,
    /// and starts its MPI.
    ///
    /// # Errors
    ///
    /// There is none, or it does not match this program or the launcher.
    pub fn open(launch: &Launch, directories: &[PathBuf]) -> Result<Self, LoadError> {
        static OPENED: AtomicBool = AtomicBool::new(false);
        let functions = Functions::open(launch, directories)?;
        if OPENED.swap(true, Ordering::SeqCst) {
            return Err(LoadError::Twice);
        }
        let mut handle: abi::World = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the handle is our own variable, and this is the first call in this process.
        unsafe { call!(functions, "start".to_owned(), open(&raw mut handle)) }?;
        // JUSTIFICATION: calls of C.
        // SAFETY: the world has just been opened, by this thread.
        let (rank, size) = unsafe {
            (
                (functions.table.rank)(handle),
                (functions.table.size)(handle),
            )
        };
        let (rank, size) = (whole(rank), whole(size));
        let world = Self {
            functions,
            handle,
            rank,
            size,
            sending: RefCell::default(),
            receiving: RefCell::default(),
        };
        if size != launch.size {
            return Err(LoadError::Size(launch.size, size, functions.name()));
        }
        if rank != launch.rank {
            return Err(LoadError::Rank(launch.rank, rank));
        }
        Ok(world)
    }

    /// Which rank this is, from 0 on.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// What the MPI calls itself.
    #[must_use]
    pub fn name(&self) -> String {
        self.functions.name()
    }

    /// Sends a message to a rank, which may be this one. It never waits: a copy of the bytes is kept until they
    /// have gone, which needs further calls ([`World::poll`]) here and there. Messages of one rank to another
    /// arrive in the order in which they were sent, whatever their tags.
    ///
    /// # Errors
    ///
    /// There is no such rank or tag, the message is too long, or the MPI fails.
    pub fn send(&self, to: usize, tag: u32, bytes: &[u8]) -> Result<(), LoadError> {
        let rank = self.known(to)?;
        // JUSTIFICATION: a call of C.
        // SAFETY: the world is open.
        let most = unsafe { (self.functions.table.tag_max)(self.handle) };
        if tag > most {
            return Err(LoadError::Tag(tag, most));
        }
        let length = bytes.len() as u64;
        if length > MESSAGE_BYTES_MAX {
            return Err(LoadError::TooLong(length));
        }
        let mut kept = reserved(length)?;
        kept.extend_from_slice(bytes);
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the bytes are kept, where they are, until the request is done, or for ever.
        unsafe {
            call!(
                self.functions,
                format!("send {length} bytes to rank {to}"),
                send(
                    self.handle,
                    rank,
                    tag,
                    kept.as_ptr(),
                    length,
                    &raw mut request
                )
            )
        }?;
        let bytes = kept;
        self.sending.borrow_mut().push(Sending { request, bytes });
        self.progress()
    }

    /// How many bytes wait to be sent: who sends faster than others receive looks here.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        let sending = self.sending.borrow();
        sending.iter().map(|one| one.bytes.len() as u64).sum()
    }

    /// A message that is there; never waits. Lets what is being sent go on.
    ///
    /// # Errors
    ///
    /// The MPI fails, or there is no memory for a message.
    pub fn poll(&self) -> Result<Option<Message>, LoadError> {
        self.progress()?;
        self.start_receiving()?;
        self.received()
    }

    /// The next message. Waits without occupying a processor.
    ///
    /// # Errors
    ///
    /// Those of [`World::poll`].
    pub fn wait(&self) -> Result<Message, LoadError> {
        let mut pauses = Pauses::new();
        loop {
            if let Some(message) = self.poll()? {
                return Ok(message);
            }
            pauses.pause(self.is_moving());
        }
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn barrier(&self) -> Result<(), LoadError> {
        let request = self.start_barrier()?;
        self.finish(request, "wait for all ranks")
    }

    /// Gives all ranks the bytes of one of them; those that others bring are replaced.
    ///
    /// # Errors
    ///
    /// There is no such rank, they are too many bytes, there is no memory for them, or the MPI fails.
    pub fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), LoadError> {
        let own = if self.rank == root { bytes.len() } else { 0 };
        let mut length = (own as u64).to_le_bytes();
        self.broadcast_slice(root, &mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MESSAGE_BYTES_MAX {
            return Err(LoadError::TooLong(length));
        }
        if self.rank != root {
            *bytes = zeros(length)?;
        }
        self.broadcast_slice(root, bytes)
    }

    /// Gives all ranks the bytes of all ranks, in their order.
    ///
    /// # Errors
    ///
    /// They are too many, there is no memory for them, or the MPI fails.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, LoadError> {
        let lengths = self.all_gather_numbers(bytes.len() as u64)?;
        let sum = lengths
            .iter()
            .fold(0_u64, |sum, length| sum.saturating_add(*length));
        if sum > MESSAGE_BYTES_MAX {
            return Err(LoadError::TooLong(sum));
        }
        if sum <= GATHERED_BYTES_MAX {
            return self.gather_at_once(bytes, &lengths, sum);
        }
        let mut all = Vec::with_capacity(self.size);
        for (root, length) in lengths.iter().enumerate() {
            let mut part = zeros(*length)?;
            if root == self.rank {
                part.copy_from_slice(bytes);
            }
            self.broadcast_slice(root, &mut part)?;
            all.push(part);
        }
        Ok(all)
    }

    /// Gives all ranks the number of each rank, in their order.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn all_gather_numbers(&self, own: u64) -> Result<Vec<u64>, LoadError> {
        let mut all = vec![0; self.size];
        let what = "gather a number of all ranks";
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: there is a place for the number of each rank, until the request is done, below.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                gather_numbers(self.handle, own, all.as_mut_ptr(), &raw mut request)
            )
        }?;
        self.finish_with(request, what, all)
    }

    /// The sum of the numbers of all ranks before this one: where each begins, if its number is how much it has.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn exclusive_sum(&self, own: u64) -> Result<u64, LoadError> {
        let what = "add up the numbers of ranks";
        let mut sum = vec![0];
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the sum has its place until the request is done, below.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                exclusive_sum(self.handle, own, sum.as_mut_ptr(), &raw mut request)
            )
        }?;
        Ok(self.finish_with(request, what, sum)?[0])
    }

    /// Puts numbers of all ranks together, each with those at its place; all ranks give as many, and get the same.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn reduce_u64(&self, how: Reduction, own: &[u64]) -> Result<Vec<u64>, LoadError> {
        let what = "put numbers of all ranks together";
        let (own, mut all) = (own.to_vec(), vec![0; own.len()]);
        let count = own.len() as u64;
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: both have as many numbers, and their places until the request is done, below.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                reduce_u64(
                    self.handle,
                    how.code(),
                    own.as_ptr(),
                    all.as_mut_ptr(),
                    count,
                    &raw mut request
                )
            )
        }?;
        Ok(self.finish_with(request, what, (own, all))?.1)
    }

    /// As [`World::reduce_u64`]. A sum is the same on all ranks, but may differ from that of another MPI.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn reduce_f64(&self, how: Reduction, own: &[f64]) -> Result<Vec<f64>, LoadError> {
        let what = "put numbers of all ranks together";
        let (own, mut all) = (own.to_vec(), vec![0.0; own.len()]);
        let count = own.len() as u64;
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: both have as many numbers, and their places until the request is done, below.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                reduce_f64(
                    self.handle,
                    how.code(),
                    own.as_ptr(),
                    all.as_mut_ptr(),
                    count,
                    &raw mut request
                )
            )
        }?;
        Ok(self.finish_with(request, what, (own, all))?.1)
    }

    /// Ends all ranks, this one too, with a code that the launcher gives on where it can.
    pub fn abort(&self, code: i32) -> ! {
        // JUSTIFICATION: a call of C.
        // SAFETY: the world is open.
        unsafe { (self.functions.table.abort)(self.handle, code) };
        process::exit(code)
    }

    /// Whether a message is on its way from or to this rank.
    fn is_moving(&self) -> bool {
        !self.receiving.borrow().is_empty() || !self.sending.borrow().is_empty()
    }

    fn known(&self, rank: usize) -> Result<u32, LoadError> {
        let known = u32::try_from(rank).ok().filter(|_| rank < self.size);
        known.ok_or(LoadError::NoRank(rank, self.size))
    }

    /// Lets go what has been sent.
    fn progress(&self) -> Result<(), LoadError> {
        let mut sending = self.sending.borrow_mut();
        let mut index = 0;
        while index < sending.len() {
            match self.is_done(sending[index].request, "send a message") {
                Ok(false) => index += 1,
                Ok(true) => drop(sending.remove(index)),
                Err(error) => {
                    // Nobody knows whether the MPI still reads them.
                    mem::forget(sending.remove(index).bytes);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes in the messages that have arrived, as far as there may be at a time.
    fn start_receiving(&self) -> Result<(), LoadError> {
        let mut receiving = self.receiving.borrow_mut();
        let mut taken: u64 = receiving.iter().map(|one| one.length as u64).sum();
        while receiving.is_empty() || (taken < RECEIVED_BYTES_MAX && receiving.len() < RECEIVED_MAX)
        {
            let Some(one) = self.receive_next()? else {
                return Ok(());
            };
            taken += one.length as u64;
            receiving.push_back(one);
        }
        Ok(())
    }

    fn receive_next(&self) -> Result<Option<Receiving>, LoadError> {
        let mut found = abi::Found {
            envelope: ptr::null_mut(),
            length: 0,
            from: 0,
            tag: 0,
        };
        // JUSTIFICATION: a call of C.
        // SAFETY: the world is open, and what is found is written into our own variable.
        unsafe {
            call!(
                self.functions,
                "look for messages".to_owned(),
                probe(self.handle, &raw mut found)
            )
        }?;
        if found.envelope.is_null() {
            return Ok(None);
        }
        if found.length > MESSAGE_BYTES_MAX {
            return Err(LoadError::TooLong(found.length));
        }
        let mut bytes = reserved(found.length)?;
        let mut request = ptr::null_mut();
        let from = whole(found.from);
        // JUSTIFICATION: a call of C.
        // SAFETY: the envelope has just been found, and is not used any more; there is a place for as many
        // bytes as it has, which is kept until the request is done, or for ever.
        unsafe {
            call!(
                self.functions,
                format!("receive {} bytes of rank {from}", found.length),
                receive(found.envelope, bytes.as_mut_ptr(), &raw mut request)
            )
        }?;
        Ok(Some(Receiving {
            request: Some(request),
            length: whole_length(found.length),
            bytes,
            from,
            tag: found.tag,
        }))
    }

    /// The first message that is there and has none before it of its rank that is not.
    fn received(&self) -> Result<Option<Message>, LoadError> {
        let mut receiving = self.receiving.borrow_mut();
        let mut late: Vec<usize> = Vec::new();
        for index in 0..receiving.len() {
            let one = &mut receiving[index];
            if let Some(request) = one.request {
                match self.is_done(request, "receive a message") {
                    Ok(false) => {
                        late.push(one.from);
                        continue;
                    }
                    Ok(true) => one.request = None,
                    Err(error) => {
                        // Nobody knows whether the MPI still writes there.
                        mem::forget(receiving.remove(index));
                        return Err(error);
                    }
                }
            }
            if late.contains(&one.from) {
                continue;
            }
            let Some(mut one) = receiving.remove(index) else {
                continue;
            };
            // JUSTIFICATION: bytes that the MPI has written are not known to be there.
            // SAFETY: it has written as many as the message has, which is what was reserved for it.
            unsafe { one.bytes.set_len(one.length) };
            return Ok(Some(Message {
                from: one.from,
                tag: one.tag,
                bytes: one.bytes,
            }));
        }
        Ok(None)
    }

    fn is_done(&self, request: abi::Request, what: &str) -> Result<bool, LoadError> {
        let mut done = 0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the request goes on: who asks forgets it when it is done, or has failed.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                test(request, &raw mut done)
            )
        }?;
        Ok(done != 0)
    }

    /// Waits for a request; what is being sent goes on.
    fn finish(&self, request: abi::Request, what: &str) -> Result<(), LoadError> {
        let mut pauses = Pauses::new();
        while !self.is_done(request, what)? {
            self.progress()?;
            pauses.pause(self.is_moving());
        }
        Ok(())
    }

    /// Waits for a request that uses memory, which is given back if all went well, and never used again if not.
    fn finish_with<T>(&self, request: abi::Request, what: &str, used: T) -> Result<T, LoadError> {
        match self.finish(request, what) {
            Ok(()) => Ok(used),
            Err(error) => {
                mem::forget(used);
                Err(error)
            }
        }
    }

    fn start_barrier(&self) -> Result<abi::Request, LoadError> {
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the world is open, and the request is written into our own variable.
        unsafe {
            call!(
                self.functions,
                "wait for all ranks".to_owned(),
                barrier(self.handle, &raw mut request)
            )
        }?;
        Ok(request)
    }

    fn broadcast_slice(&self, root: usize, bytes: &mut [u8]) -> Result<(), LoadError> {
        let rank = self.known(root)?;
        for part in bytes.chunks_mut(BROADCAST_BYTES) {
            let what = format!("give all ranks {} bytes of rank {root}", part.len());
            let mut request = ptr::null_mut();
            // The MPI has a copy of its own to work on: if it fails, nobody else sees that memory again.
            let mut copy = reserved(part.len() as u64)?;
            copy.extend_from_slice(part);
            let length = copy.len() as u64;
            // JUSTIFICATION: a call of C.
            // SAFETY: the copy stays where it is until the request is done, below.
            unsafe {
                call!(
                    self.functions,
                    what.clone(),
                    broadcast(
                        self.handle,
                        rank,
                        copy.as_mut_ptr(),
                        length,
                        &raw mut request
                    )
                )
            }?;
            part.copy_from_slice(&self.finish_with(request, &what, copy)?);
        }
        Ok(())
    }

    fn gather_at_once(
        &self,
        bytes: &[u8],
        lengths: &[u64],
        sum: u64,
    ) -> Result<Vec<Vec<u8>>, LoadError> {
        let what = "gather the bytes of all ranks";
        let (own, mut all) = (bytes.to_vec(), zeros(sum)?);
        let mut request = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the lengths are those of all ranks, in this call alone; there is a place for their sum, and
        // both stay where they are until the request is done, below.
        unsafe {
            call!(
                self.functions,
                what.to_owned(),
                gather_bytes(
                    self.handle,
                    own.as_ptr(),
                    lengths.as_ptr(),
                    all.as_mut_ptr(),
                    &raw mut request
                )
            )
        }?;
        let (_, all) = self.finish_with(request, what, (own, all))?;
        let mut rest = all.as_slice();
        let parts = lengths.iter().map(|length| {
            let (part, after) = rest.split_at(whole_length(*length));
            rest = after;
            part.to_vec()
        });
        Ok(parts.collect())
    }

    /// Sends the last, receives what nobody wants, and waits until all ranks are so far.
    fn wind_up(&self) -> Result<(), LoadError> {
        let mut pauses = Pauses::new();
        while self.unsent() > 0 {
            while self.poll()?.is_some() {}
            pauses.pause(self.is_moving());
        }
        let barrier = self.start_barrier()?;
        let mut pauses = Pauses::new();
        while !self.is_done(barrier, "wait for all ranks")? {
            while self.poll()?.is_some() {}
            pauses.pause(self.is_moving());
        }
        while !self.receiving.borrow().is_empty() {
            while self.poll()?.is_some() {}
        }
        // JUSTIFICATION: a call of C.
        // SAFETY: nothing goes on any more, and the world is not used again.
        unsafe { call!(self.functions, "end".to_owned(), close(self.handle)) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A rank that panics must not wait for others, which wait for it: its launcher ends them.
        if thread::panicking() || self.wind_up().is_err() {
            mem::forget(self.sending.take());
            mem::forget(self.receiving.take());
        }
    }
}

/// An empty vector with a place for so many bytes.
fn reserved(length: u64) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(whole_length(length))
        .map_err(|_| LoadError::Memory(length))?;
    Ok(bytes)
}

fn zeros(length: u64) -> Result<Vec<u8>, LoadError> {
    let mut bytes = reserved(length)?;
    bytes.resize(whole_length(length), 0);
    Ok(bytes)
}

fn whole(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn whole_length(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
