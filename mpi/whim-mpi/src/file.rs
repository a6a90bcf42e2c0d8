//! Files that all ranks have open together (MPI-IO).

use crate::constants;
use crate::datatype::{Datatype, address, address_mut, count};
use crate::error::{MpiError, checked};
use crate::message::bytes_of;
use crate::seen::Seen;
use crate::world::{Reduction, World};
use mpi_sys as c;
use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

/// Bytes that one call reads or writes.
const PART: usize = 1 << 30;
/// Sides that an array may have.
pub const DIMENSIONS_MAX: u32 = 16;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// It is there already. It can be read as well.
    Write,
    /// It is made where there is none. It can be read as well.
    Create,
}

/// What one rank sees of a file, as if there were nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View<'lists> {
    /// The first `block` of each `stride` bytes.
    Blocks { block: u64, stride: u64 },
    /// A part of an array whose elements have `element` bytes; the last side is that of neighbours in the file.
    Part {
        element: u32,
        sides: &'lists [u32],
        part: &'lists [u32],
        start: &'lists [u32],
    },
}

/// A file that all ranks have open. All close it together: by [`File::close`], or where they drop it.
pub struct File {
    handle: c::MPI_File,
    world: World,
    seen: RefCell<Seen>,
}

impl File {
    /// Opens a file, as all ranks do.
    ///
    /// # Errors
    ///
    /// It cannot be opened so.
    pub fn open(world: &World, path: &CStr, mode: Mode) -> Result<Self, MpiError> {
        let mode = match mode {
            Mode::Read => c::MPI_MODE_RDONLY,
            Mode::Write => c::MPI_MODE_RDWR,
            Mode::Create => c::MPI_MODE_RDWR | c::MPI_MODE_CREATE,
        };
        let mode = count(u64::from(mode))?;
        let mut handle = constants::file_null();
        let (comm, info) = (world.comm(), constants::info_null());
        // JUSTIFICATION: a call of C.
        // SAFETY: the path ends with a zero, and the handle is our own variable.
        checked(unsafe { c::MPI_File_open(comm, path.as_ptr(), mode, info, &raw mut handle) })?;
        Ok(Self {
            handle,
            world: world.clone(),
            seen: RefCell::new(Seen::All),
        })
    }

    /// Sets what this rank sees of the file, from `displacement` on. All ranks do, each with its own.
    ///
    /// # Errors
    ///
    /// There is no such view.
    pub fn see(&self, displacement: u64, view: &View<'_>) -> Result<(), MpiError> {
        let (kind, seen) = match *view {
            View::Blocks { block, stride } => (
                Datatype::blocks(block, stride)?,
                Seen::Blocks(displacement, block, stride),
            ),
            View::Part {
                element,
                sides,
                part,
                start,
            } => {
                let dimensions = u32::try_from(sides.len()).unwrap_or(u32::MAX);
                if part.len() != sides.len()
                    || start.len() != sides.len()
                    || !(1..=DIMENSIONS_MAX).contains(&dimensions)
                {
                    let wrong = "an array and its part have the same sides, 1 to 16";
                    return Err(MpiError::Refused(wrong.to_owned()));
                }
                let each = (0..sides.len())
                    .map(|side| [sides[side], part[side], start[side]].map(u64::from))
                    .collect();
                (
                    Datatype::part(element, sides, part, start)?,
                    Seen::Part(displacement, u64::from(element), each),
                )
            }
        };
        let (byte, info) = (constants::byte(), constants::info_null());
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, the type is committed, and the word ends with a zero.
        checked(unsafe {
            c::MPI_File_set_view(
                self.handle,
                offset_of(displacement)?,
                byte,
                kind.0,
                c"native".as_ptr(),
                info,
            )
        })?;
        self.seen.replace(seen);
        Ok(())
    }

    /// The file's bytes.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn length(&self) -> Result<u64, MpiError> {
        let mut length = 0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, and the length is our own variable.
        checked(unsafe { c::MPI_File_get_size(self.handle, &raw mut length) })?;
        u64::try_from(length).map_err(|_| MpiError::Refused("it has no length".to_owned()))
    }

    /// Cuts the file off, or makes it longer, as all ranks do.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn set_length(&self, length: u64) -> Result<(), MpiError> {
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open.
        checked(unsafe { c::MPI_File_set_size(self.handle, offset_of(length)?) })
    }

    /// Reads from a place in the view on; gives how many bytes there were before the file's end. With `together`
    /// all ranks do so at a time, which may be faster than each by itself.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read_at(
        &self,
        offset: u64,
        bytes: &mut [u8],
        together: bool,
    ) -> Result<usize, MpiError> {
        let mut done = 0;
        let mut at_end = false;
        for round in 0..self.rounds(bytes.len(), together)? {
            let start = round.saturating_mul(PART).min(bytes.len());
            let end = start.saturating_add(PART).min(bytes.len());
            // Others may have more to read, and wait for this rank.
            let end = if at_end { start } else { end };
            let place = offset_of(offset.saturating_add(start as u64))?;
            let part = &mut bytes[start..end];
            let wanted = part.len();
            let read = self.transfer(wanted, |count, status| {
                let to = address_mut(part.as_mut_ptr(), part.len() as u64);
                let (handle, kind) = (self.handle, constants::byte());
                // JUSTIFICATION: calls of C.
                // SAFETY: the file is open, and there is a place for as many bytes.
                unsafe {
                    match together {
                        true => c::MPI_File_read_at_all(handle, place, to, count, kind, status),
                        false => c::MPI_File_read_at(handle, place, to, count, kind, status),
                    }
                }
            })?;
            let read = read.min(self.left(offset.saturating_add(start as u64))?);
            done += read;
            at_end |= read < wanted;
        }
        Ok(done)
    }

    /// Writes from a place in the view on. With `together` all ranks do so at a time, which may be faster than
    /// each by itself.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_at(&self, offset: u64, bytes: &[u8], together: bool) -> Result<(), MpiError> {
        for round in 0..self.rounds(bytes.len(), together)? {
            let start = round.saturating_mul(PART).min(bytes.len());
            let end = start.saturating_add(PART).min(bytes.len());
            let place = offset_of(offset.saturating_add(start as u64))?;
            let part = &bytes[start..end];
            let written = self.transfer(part.len(), |count, status| {
                let from = address(part.as_ptr(), part.len() as u64);
                let (handle, kind) = (self.handle, constants::byte());
                // JUSTIFICATION: calls of C.
                // SAFETY: the file is open, and there are as many bytes.
                unsafe {
                    match together {
                        true => c::MPI_File_write_at_all(handle, place, from, count, kind, status),
                        false => c::MPI_File_write_at(handle, place, from, count, kind, status),
                    }
                }
            })?;
            if written < part.len() {
                let short = format!("{written} of {} bytes were written", part.len());
                return Err(MpiError::Refused(short));
            }
        }
        Ok(())
    }

    /// Closes the file, as all ranks do, and tells what went wrong.
    ///
    /// # Errors
    ///
    /// What was written is not in the file.
    pub fn close(mut self) -> Result<(), MpiError> {
        self.shut()
    }

    /// How many calls read or write so many bytes: where all do so together, as many as the rank needs that has
    /// the most.
    fn rounds(&self, length: usize, together: bool) -> Result<usize, MpiError> {
        let own = length.div_ceil(PART);
        if !together {
            return Ok(own);
        }
        let most = self
            .world
            .reduce_u64(Reduction::Maximum, vec![own as u64])?;
        Ok(usize::try_from(most[0]).unwrap_or(usize::MAX))
    }

    /// How many bytes there are in the view from a place on.
    fn left(&self, offset: u64) -> Result<usize, MpiError> {
        let seen = self.seen.borrow();
        if *seen == Seen::All {
            return Ok(usize::MAX);
        }
        let all = seen.of(self.length()?);
        Ok(usize::try_from(all.saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    /// Calls what reads or writes; gives how many bytes it has.
    fn transfer(
        &self,
        length: usize,
        call: impl FnOnce(c_int, *mut c::MPI_Status) -> c_int,
    ) -> Result<usize, MpiError> {
        let mut status = MaybeUninit::<c::MPI_Status>::zeroed();
        checked(call(count(length as u64)?, status.as_mut_ptr()))?;
        if length == 0 {
            return Ok(0);
        }
        // JUSTIFICATION: a record of C's.
        // SAFETY: it is made of numbers, which were zeros at first.
        let done = bytes_of(&unsafe { status.assume_init() })?;
        Ok(usize::try_from(done).unwrap_or(usize::MAX).min(length))
    }

    fn shut(&mut self) -> Result<(), MpiError> {
        if self.handle == constants::file_null() {
            return Ok(());
        }
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, and set to null by MPI.
        let code = unsafe { c::MPI_File_close(&raw mut self.handle) };
        self.handle = constants::file_null();
        checked(code)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A rank that panics must not wait for others, which wait for it.
        if !std::thread::panicking() {
            drop(self.shut());
        }
    }
}

/// A place in a file.
fn offset_of(bytes: u64) -> Result<c::MPI_Offset, MpiError> {
    c::MPI_Offset::try_from(bytes)
        .map_err(|_| MpiError::Refused(format!("byte {bytes} is farther than there is a file")))
}
