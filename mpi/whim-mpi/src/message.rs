//! Messages of bytes, found before they are received.

use crate::constants;
use crate::datatype::{Run, address, address_mut, count};
use crate::error::{MpiError, checked};
use crate::request::{Kept, Request};
use crate::world::World;
use mpi_sys as c;
use std::mem::{self, MaybeUninit};

/// A message that has been found, and that nobody else finds any more (a matched probe).
pub struct Envelope {
    pub from: u32,
    pub tag: u32,
    /// Its bytes.
    pub length: u64,
    message: c::MPI_Message,
    world: World,
}

/// A message on its way. If it is dropped before it has gone, it goes nevertheless, and its bytes are not freed.
pub struct Sending {
    request: Request,
    bytes: Vec<u8>,
    _world: World,
}

/// A message that comes in. If it is dropped before it is there, its memory is not freed.
pub struct Receiving {
    request: Request,
    bytes: Vec<u8>,
    length: usize,
    _world: World,
}

impl World {
    /// Starts to send a message of any length.
    ///
    /// # Errors
    ///
    /// There is no such rank or tag, or the MPI fails.
    pub fn send(&self, to: u32, tag: u32, bytes: Vec<u8>) -> Result<Sending, MpiError> {
        // JUSTIFICATION: MPI reads what it sends later.
        // SAFETY: the bytes are kept until the request is done, or for ever.
        let request = unsafe { self.start_send(to, tag, bytes.as_ptr(), bytes.len() as u64) }?;
        Ok(Sending {
            request,
            bytes,
            _world: self.clone(),
        })
    }

    /// # Safety
    ///
    /// The bytes are there until the request is done.
    pub(crate) unsafe fn start_send(
        &self,
        to: u32,
        tag: u32,
        bytes: *const u8,
        length: u64,
    ) -> Result<Request, MpiError> {
        let run = Run::of(length)?;
        let bytes = address(bytes, length);
        let (to, tag) = (count(u64::from(to))?, count(u64::from(tag))?);
        Request::start(Kept::default(), |_, request| {
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps the bytes; rank and tag are checked by MPI.
            unsafe { c::MPI_Isend(bytes, run.count, run.kind, to, tag, self.comm(), request) }
        })
    }

    /// Finds a message that is there, of one rank or any, with one tag or any; never waits.
    ///
    /// # Errors
    ///
    /// There is no such rank or tag, or the MPI fails.
    pub fn probe(&self, from: Option<u32>, tag: Option<u32>) -> Result<Option<Envelope>, MpiError> {
        self.find(from, tag, false)
    }

    /// Finds the next message. It waits as the MPI does, which occupies a processor.
    ///
    /// # Errors
    ///
    /// As [`World::probe`].
    pub fn wait_for(&self, from: Option<u32>, tag: Option<u32>) -> Result<Envelope, MpiError> {
        let found = self.find(from, tag, true)?;
        found.ok_or_else(|| MpiError::Refused("the MPI has found no message".to_owned()))
    }

    fn find(
        &self,
        from: Option<u32>,
        tag: Option<u32>,
        wait: bool,
    ) -> Result<Option<Envelope>, MpiError> {
        let from = from.map_or(Ok(constants::any_source()), |from| count(u64::from(from)))?;
        let tag = tag.map_or(Ok(constants::any_tag()), |tag| count(u64::from(tag)))?;
        let mut is_there = 1;
        let mut message = constants::message_null();
        let mut status = MaybeUninit::<c::MPI_Status>::zeroed();
        let (place, comm) = (status.as_mut_ptr(), self.comm());
        // JUSTIFICATION: calls of C.
        // SAFETY: all that is written are our own variables.
        checked(unsafe {
            match wait {
                true => c::MPI_Mprobe(from, tag, comm, &raw mut message, place),
                false => {
                    c::MPI_Improbe(from, tag, comm, &raw mut is_there, &raw mut message, place)
                }
            }
        })?;
        if is_there == 0 {
            return Ok(None);
        }
        // JUSTIFICATION: a record of C's.
        // SAFETY: it is made of numbers, which were zeros at first.
        let status = unsafe { status.assume_init() };
        Ok(Some(Envelope {
            from: u32::try_from(status.MPI_SOURCE).unwrap_or(u32::MAX),
            tag: u32::try_from(status.MPI_TAG).unwrap_or(u32::MAX),
            length: bytes_of(&status)?,
            message,
            world: self.clone(),
        }))
    }
}

/// How many bytes a status tells of.
pub(crate) fn bytes_of(status: &c::MPI_Status) -> Result<u64, MpiError> {
    let mut bytes: c::MPI_Count = 0;
    // JUSTIFICATION: a call of C.
    // SAFETY: the status is one that MPI has written, and the number is our own variable.
    checked(unsafe { c::MPI_Get_elements_x(status, constants::byte(), &raw mut bytes) })?;
    u64::try_from(bytes)
        .map_err(|_| MpiError::Refused("the MPI does not know how many bytes there are".to_owned()))
}

impl Envelope {
    /// Starts to receive the message.
    ///
    /// # Errors
    ///
    /// There is no memory for it, or the MPI fails.
    pub fn receive(mut self) -> Result<Receiving, MpiError> {
        let memory = |_| MpiError::Refused(format!("there is no memory for {} bytes", self.length));
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(memory)?;
        // JUSTIFICATION: MPI writes what it receives later.
        // SAFETY: the bytes are kept until the request is done, or for ever.
        let request = unsafe { self.start(bytes.as_mut_ptr()) }?;
        Ok(Receiving {
            request,
            bytes,
            length,
            _world: self.world.clone(),
        })
    }

    /// # Safety
    ///
    /// There is a place for as many bytes as the message has, until the request is done.
    pub(crate) unsafe fn start(&mut self, bytes: *mut u8) -> Result<Request, MpiError> {
        let run = Run::of(self.length)?;
        let bytes = address_mut(bytes, self.length);
        Request::start(Kept::default(), |_, request| {
            // JUSTIFICATION: a call of C.
            // SAFETY: the caller keeps the place; the message was found, and is null afterwards, which is
            // refused by MPI.
            unsafe { c::MPI_Imrecv(bytes, run.count, run.kind, &raw mut self.message, request) }
        })
    }
}

impl Sending {
    /// Whether the message has gone; never waits.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn is_done(&mut self) -> Result<bool, MpiError> {
        let done = self.request.is_done()?;
        if done {
            self.bytes = Vec::new();
        }
        Ok(done)
    }

    /// Waits until it has gone.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn finish(mut self) -> Result<(), MpiError> {
        self.request.finish()?;
        self.bytes = Vec::new();
        Ok(())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        mem::forget(mem::take(&mut self.bytes));
    }
}

impl Receiving {
    /// The message, if it is there; never waits. It is given once.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn done(&mut self) -> Result<Option<Vec<u8>>, MpiError> {
        Ok(match self.request.is_done()? {
            true => Some(self.take()),
            false => None,
        })
    }

    /// Waits for the message.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn finish(mut self) -> Result<Vec<u8>, MpiError> {
        self.request.finish()?;
        Ok(self.take())
    }

    fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.bytes);
        let length = mem::take(&mut self.length);
        // JUSTIFICATION: bytes that the MPI has written are not known to be there.
        // SAFETY: it has written as many as the message has; after the first time it is none.
        unsafe { bytes.set_len(length) };
        bytes
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        mem::forget(mem::take(&mut self.bytes));
    }
}
