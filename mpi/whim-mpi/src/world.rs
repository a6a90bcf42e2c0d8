//! The ranks of one job.

use crate::abi;
use crate::constants;
use crate::datatype::{address, address_mut, count};
use crate::error::{MpiError, checked, text};
use crate::request::{Kept, Request};
use mpi_sys as c;
use std::ffi::{c_char, c_int};
use std::mem;
use std::ptr;
use std::rc::Rc;

/// The smallest of the largest tags that an MPI may have.
const TAGS: c_int = 32_767;

/// The ranks of one job. A copy is the same world, which ends with its last copy, message and file.
///
/// It stays with the thread that opened it. All functions that wait leave the processor to others, but for
/// [`World::wait_for`], the last end, and those of files, which wait in the MPI.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    /// That of all ranks, for us alone.
    comm: c::MPI_Comm,
    rank: u32,
    size: u32,
    tag_max: u32,
}

/// How numbers of all ranks are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Minimum,
    Maximum,
    Sum,
}

impl Reduction {
    fn operation(self) -> c::MPI_Op {
        match self {
            Self::Minimum => constants::minimum(),
            Self::Maximum => constants::maximum(),
            Self::Sum => constants::sum(),
        }
    }
}

/// What the MPI calls itself. It may be asked before it is started.
#[must_use]
pub fn name() -> String {
    let mut said: Vec<c_char> = vec![0; c::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut length = 0;
    // JUSTIFICATION: a call of C.
    // SAFETY: the text has a place of the length that MPI says is the longest; the call is allowed before
    // MPI_Init.
    unsafe { c::MPI_Get_library_version(said.as_mut_ptr(), &raw mut length) };
    let said = text(&said, length);
    let line = said.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["MPICH", "Version:", version, ..] => format!("MPICH {version}"),
        _ => line.split(',').next().unwrap_or_default().to_owned(),
    }
}

/// The MPI's family, as [`abi`] numbers them. It may be asked before it is started.
#[must_use]
pub fn family() -> u32 {
    let name = name();
    match () {
        () if name.starts_with("Open MPI") => abi::OPEN_MPI,
        // Others that have its binary interface.
        () if ["MPICH", "Intel", "MVAPICH", "CRAY MPICH"]
            .iter()
            .any(|known| name.starts_with(known)) =>
        {
            abi::MPICH
        }
        () => 0,
    }
}

impl World {
    /// Starts the MPI, which can be once in a process.
    ///
    /// # Errors
    ///
    /// It was started before, or fails. Some MPIs end the process where they cannot start.
    pub fn open() -> Result<Self, MpiError> {
        let (mut started, mut level) = (0, 0);
        // JUSTIFICATION: calls of C.
        // SAFETY: what is written are our own variables; without arguments of the program MPI reads none.
        unsafe {
            checked(c::MPI_Initialized(&raw mut started))?;
            if started != 0 {
                let said = "it was started before in this process, and can be once";
                return Err(MpiError::Refused(said.to_owned()));
            }
            let wanted = constants::funneled();
            checked(c::MPI_Init_thread(
                ptr::null_mut(),
                ptr::null_mut(),
                wanted,
                &raw mut level,
            ))?;
            if level < wanted {
                let said = "it does not allow a program to have threads (MPI_THREAD_FUNNELED)";
                return Err(MpiError::Refused(said.to_owned()));
            }
            // Errors come back, and do not end the process.
            for comm in [constants::comm_world(), constants::comm_self()] {
                checked(c::MPI_Comm_set_errhandler(comm, constants::errors_return()))?;
            }
        }
        Ok(Self(Rc::new(Inner::of_all()?)))
    }

    /// Which rank this is, from 0 on.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// The largest tag that a message can have.
    #[must_use]
    pub fn tag_max(&self) -> u32 {
        self.0.tag_max
    }

    pub(crate) fn comm(&self) -> c::MPI_Comm {
        self.0.comm
    }

    /// Ends all ranks, this one too.
    pub fn abort(&self, code: i32) {
        // JUSTIFICATION: a call of C.
        // SAFETY: the world is open.
        unsafe { c::MPI_Abort(self.comm(), code) };
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn barrier(&self) -> Result<(), MpiError> {
        self.start_barrier()?.finish()
    }

    pub(crate) fn start_barrier(&self) -> Result<Request, MpiError> {
        Request::start(Kept::default(), |_, request| {
            // JUSTIFICATION: a call of C.
            // SAFETY: the world is open.
            unsafe { c::MPI_Ibarrier(self.comm(), request) }
        })
    }

    /// Gives all ranks the bytes of one of them; all bring as many, up to `i32::MAX`: MPICH 4.0 fails with a type
    /// of more bytes here.
    ///
    /// # Errors
    ///
    /// There is no such rank, they are more, or the MPI fails.
    pub fn broadcast(&self, root: u32, mut bytes: Vec<u8>) -> Result<Vec<u8>, MpiError> {
        // JUSTIFICATION: MPI reads and writes them until the request is done.
        // SAFETY: they stay where they are until then.
        let request = unsafe { self.start_broadcast(root, bytes.as_mut_ptr(), bytes.len() as u64) };
        finished(request, bytes)
    }

    /// # Safety
    ///
    /// The bytes are there, for nobody else, until the request is done.
    pub(crate) unsafe fn start_broadcast(
        &self,
        root: u32,
        bytes: *mut u8,
        length: u64,
    ) -> Result<Request, MpiError> {
        let bytes = address_mut(bytes, length);
        let (length, root) = (count(length)?, count(u64::from(root))?);
        let kind = constants::byte();
        Request::start(Kept::default(), |_, request| {
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps the bytes.
            unsafe { c::MPI_Ibcast(bytes, length, kind, root, self.comm(), request) }
        })
    }

    /// Gives all ranks the number of each rank, in their order.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn all_gather_numbers(&self, own: u64) -> Result<Vec<u64>, MpiError> {
        let mut all = vec![0; usize::try_from(self.size()).unwrap_or(usize::MAX)];
        // JUSTIFICATION: MPI writes them until the request is done.
        // SAFETY: there is one for each rank, and they stay where they are until then.
        let request = unsafe { self.start_gather_numbers(own, all.as_mut_ptr()) };
        finished(request, all)
    }

    /// # Safety
    ///
    /// There is a place for a number of each rank, until the request is done.
    pub(crate) unsafe fn start_gather_numbers(
        &self,
        own: u64,
        all: *mut u64,
    ) -> Result<Request, MpiError> {
        let kept = Kept {
            numbers: Box::new([own, 0]),
            ..Kept::default()
        };
        let kind = constants::number();
        Request::start(kept, |kept, request| {
            let own = kept.numbers.as_ptr();
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps the place for all; our own number is kept with the request.
            unsafe {
                c::MPI_Iallgather(
                    own.cast(),
                    1,
                    kind,
                    all.cast(),
                    1,
                    kind,
                    self.comm(),
                    request,
                )
            }
        })
    }

    /// Gives all ranks the bytes of each rank, in their order: up to `i32::MAX` in all.
    ///
    /// # Errors
    ///
    /// They are more, or the MPI fails.
    pub fn all_gather(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, MpiError> {
        let lengths = self.all_gather_numbers(bytes.len() as u64)?;
        let sum = lengths
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(*one));
        let mut all = vec![0; usize::try_from(count(sum)?).unwrap_or(0)];
        // JUSTIFICATION: MPI reads and writes them until the request is done.
        // SAFETY: there is a place for the bytes of all, and both stay where they are until then.
        let request = unsafe { self.start_gather(bytes.as_ptr(), &lengths, all.as_mut_ptr()) };
        let (_, all) = finished(request, (bytes, all))?;
        let mut rest = all.as_slice();
        let parts = lengths.iter().map(|length| {
            let (part, after) = rest.split_at(usize::try_from(*length).unwrap_or(0));
            rest = after;
            part.to_vec()
        });
        Ok(parts.collect())
    }

    /// # Safety
    ///
    /// There are as many bytes as this rank's length says, and a place for the sum of all lengths, until the
    /// request is done.
    pub(crate) unsafe fn start_gather(
        &self,
        own: *const u8,
        lengths: &[u64],
        all: *mut u8,
    ) -> Result<Request, MpiError> {
        let mut kept = Kept::default();
        let mut sum = 0_u64;
        for length in lengths {
            kept.places.push(count(sum)?);
            kept.counts.push(count(*length)?);
            sum = sum.saturating_add(*length);
        }
        count(sum)?;
        let rank = usize::try_from(self.rank()).unwrap_or(usize::MAX);
        let (own, all) = (address(own, lengths[rank]), address_mut(all, sum));
        let kind = constants::byte();
        Request::start(kept, |kept, request| {
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps both; counts and places are kept with the request.
            unsafe {
                c::MPI_Iallgatherv(
                    own,
                    kept.counts[rank],
                    kind,
                    all,
                    kept.counts.as_ptr(),
                    kept.places.as_ptr(),
                    kind,
                    self.comm(),
                    request,
                )
            }
        })
    }

    /// The sum of the numbers of all ranks before this one (`MPI_Exscan`); 0 for the first.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn exclusive_sum(&self, own: u64) -> Result<u64, MpiError> {
        let mut sum = Box::new(0);
        // JUSTIFICATION: MPI writes it until the request is done.
        // SAFETY: it stays where it is until then.
        let request = unsafe { self.start_exclusive_sum(own, &raw mut *sum) };
        finished(request, sum).map(|sum| *sum)
    }

    /// # Safety
    ///
    /// There is a place for the sum, until the request is done.
    pub(crate) unsafe fn start_exclusive_sum(
        &self,
        own: u64,
        sum: *mut u64,
    ) -> Result<Request, MpiError> {
        let kept = Kept {
            numbers: Box::new([own, 0]),
            ..Kept::default()
        };
        let is_first = self.rank() == 0;
        if is_first {
            // JUSTIFICATION: what MPI leaves undefined for the first rank.
            // SAFETY: the caller says that there is a place.
            unsafe { *sum = 0 };
        }
        Request::start(kept, |kept, request| {
            let [own, scrap] = &mut *kept.numbers;
            let sum = if is_first { scrap } else { sum };
            let (kind, operation) = (constants::number(), constants::sum());
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps the place of the sum; our own number is kept with the request.
            unsafe {
                c::MPI_Iexscan(
                    (&raw const *own).cast(),
                    sum.cast(),
                    1,
                    kind,
                    operation,
                    self.comm(),
                    request,
                )
            }
        })
    }

    /// Puts numbers of all ranks together, each with those at its place; all bring as many.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn reduce_u64(&self, how: Reduction, own: Vec<u64>) -> Result<Vec<u64>, MpiError> {
        let mut all = vec![0; own.len()];
        let (from, to, length) = (own.as_ptr(), all.as_mut_ptr(), own.len() as u64);
        // JUSTIFICATION: MPI reads and writes them until the request is done.
        // SAFETY: both have as many, and stay where they are until then.
        let request = unsafe { self.start_reduce(how, from.cast(), to.cast(), length, false) };
        finished(request, (own, all)).map(|(_, all)| all)
    }

    /// As [`World::reduce_u64`].
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn reduce_f64(&self, how: Reduction, own: Vec<f64>) -> Result<Vec<f64>, MpiError> {
        let mut all = vec![0.0; own.len()];
        let (from, to, length) = (own.as_ptr(), all.as_mut_ptr(), own.len() as u64);
        // JUSTIFICATION: MPI reads and writes them until the request is done.
        // SAFETY: both have as many, and stay where they are until then.
        let request = unsafe { self.start_reduce(how, from.cast(), to.cast(), length, true) };
        finished(request, (own, all)).map(|(_, all)| all)
    }

    /// # Safety
    ///
    /// Both have so many numbers, floating or not, and stay where they are until the request is done.
    pub(crate) unsafe fn start_reduce(
        &self,
        how: Reduction,
        own: *const u8,
        all: *mut u8,
        numbers: u64,
        floating: bool,
    ) -> Result<Request, MpiError> {
        let (own, all) = (address(own, numbers), address_mut(all, numbers));
        let numbers = count(numbers)?;
        let kind = if floating {
            constants::double()
        } else {
            constants::number()
        };
        Request::start(Kept::default(), |_, request| {
            let operation = how.operation();
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps both.
            unsafe { c::MPI_Iallreduce(own, all, numbers, kind, operation, self.comm(), request) }
        })
    }
}

impl Inner {
    fn of_all() -> Result<Self, MpiError> {
        let mut comm = constants::comm_null();
        let (mut rank, mut size, mut has) = (0, 0, 0);
        let mut tag: *const c_int = ptr::null();
        // JUSTIFICATION: calls of C.
        // SAFETY: what is written are our own variables; the tag, where it is given, is a number of MPI's that
        // stays.
        let tag_max = unsafe {
            checked(c::MPI_Comm_dup(constants::comm_world(), &raw mut comm))?;
            checked(c::MPI_Comm_set_errhandler(comm, constants::errors_return()))?;
            checked(c::MPI_Comm_rank(comm, &raw mut rank))?;
            checked(c::MPI_Comm_size(comm, &raw mut size))?;
            let key = c_int::try_from(c::MPI_TAG_UB).unwrap_or(0);
            let world = constants::comm_world();
            checked(c::MPI_Comm_get_attr(
                world,
                key,
                (&raw mut tag).cast(),
                &raw mut has,
            ))?;
            if has != 0 && !tag.is_null() {
                *tag
            } else {
                TAGS
            }
        };
        let number = |of: c_int| u32::try_from(of).unwrap_or(0);
        Ok(Self {
            comm,
            rank: number(rank),
            size: number(size),
            tag_max: number(tag_max),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A rank that panics must not wait for others, which wait for it: its launcher ends them.
        if std::thread::panicking() {
            return;
        }
        // JUSTIFICATION: calls of C.
        // SAFETY: nobody has the world any more.
        unsafe {
            c::MPI_Comm_free(&raw mut self.comm);
            c::MPI_Finalize();
        }
    }
}

/// Waits for a request that uses memory, which is given back if all went well, and never used again if not.
fn finished<T>(request: Result<Request, MpiError>, used: T) -> Result<T, MpiError> {
    match request.and_then(|mut request| request.finish()) {
        Ok(()) => Ok(used),
        Err(error) => {
            mem::forget(used);
            Err(error)
        }
    }
}
