//! Types of MPI for long runs of bytes, and for parts of files.

use crate::constants;
use crate::error::{MpiError, checked};
use mpi_sys as c;
use std::ffi::{c_int, c_void};
use std::ptr;

/// Bytes of one element where there are too many for a count.
const CHUNK: u64 = 1 << 30;

/// Bytes as MPI counts them: some elements of a type, which is freed with this. What goes on with that type may
/// still do so then.
pub struct Run {
    pub count: c_int,
    pub kind: c::MPI_Datatype,
    _own: Option<Datatype>,
}

/// A type that is freed with this.
pub struct Datatype(pub c::MPI_Datatype);

impl Drop for Datatype {
    fn drop(&mut self) {
        // JUSTIFICATION: a call of C.
        // SAFETY: the type is ours, and is not used any more.
        unsafe { c::MPI_Type_free(&raw mut self.0) };
    }
}

impl Run {
    /// Any number of bytes.
    pub fn of(length: u64) -> Result<Self, MpiError> {
        if let Ok(count) = c_int::try_from(length) {
            return Ok(Self {
                count,
                kind: constants::byte(),
                _own: None,
            });
        }
        let own = Datatype::bytes(length)?;
        own.commit()?;
        Ok(Self {
            count: 1,
            kind: own.0,
            _own: Some(own),
        })
    }
}

impl Datatype {
    /// A type of any number of bytes.
    pub fn bytes(length: u64) -> Result<Self, MpiError> {
        if let Ok(count) = c_int::try_from(length) {
            return Self::contiguous(count, constants::byte());
        }
        let rest = length % CHUNK;
        let whole = Self::contiguous(count(CHUNK)?, constants::byte())?;
        let chunks = Self::contiguous(count(length / CHUNK)?, whole.0)?;
        let counts = [1, count(rest)?];
        let places = [0, place(length - rest)?];
        let kinds = [chunks.0, constants::byte()];
        let mut made = constants::datatype_null();
        // JUSTIFICATION: a call of C.
        // SAFETY: there are two of each list, and the type is our own variable.
        checked(unsafe {
            c::MPI_Type_create_struct(
                2,
                counts.as_ptr(),
                places.as_ptr(),
                kinds.as_ptr(),
                &raw mut made,
            )
        })?;
        Ok(Self(made))
    }

    fn contiguous(count: c_int, of: c::MPI_Datatype) -> Result<Self, MpiError> {
        let mut made = constants::datatype_null();
        // JUSTIFICATION: a call of C.
        // SAFETY: the type is our own variable.
        checked(unsafe { c::MPI_Type_contiguous(count, of, &raw mut made) })?;
        Ok(Self(made))
    }

    /// The first `block` of each `stride` bytes.
    pub fn blocks(block: u64, stride: u64) -> Result<Self, MpiError> {
        if block == 0 || block > stride {
            return Err(MpiError::Refused(format!(
                "blocks of {block} in each {stride} bytes: a block has at least one, and fits in"
            )));
        }
        let inner = Self::bytes(block)?;
        let mut made = constants::datatype_null();
        // JUSTIFICATION: a call of C.
        // SAFETY: the type is our own variable.
        checked(unsafe { c::MPI_Type_create_resized(inner.0, 0, place(stride)?, &raw mut made) })?;
        let made = Self(made);
        made.commit()?;
        Ok(made)
    }

    /// A part of an array.
    pub fn part(
        element: u32,
        sides: &[u32],
        part: &[u32],
        start: &[u32],
    ) -> Result<Self, MpiError> {
        let fits = (0..sides.len()).all(|side| {
            let end = u64::from(start[side]) + u64::from(part[side]);
            part[side] > 0 && end <= u64::from(sides[side])
        });
        if element == 0 || !fits {
            return Err(MpiError::Refused(format!(
                "a part of the sides {part:?} at {start:?} in an array of the sides {sides:?}, with {element} \
                 bytes for an element: it has at least one, and lies within"
            )));
        }
        let inner = Self::contiguous(count(u64::from(element))?, constants::byte())?;
        let lists: Result<Vec<Vec<c_int>>, MpiError> = [sides, part, start]
            .into_iter()
            .map(|list| list.iter().map(|side| count(u64::from(*side))).collect())
            .collect();
        let lists = lists?;
        let mut made = constants::datatype_null();
        // JUSTIFICATION: a call of C.
        // SAFETY: each list has as many numbers as there are sides, and the type is our own variable.
        checked(unsafe {
            c::MPI_Type_create_subarray(
                count(sides.len() as u64)?,
                lists[0].as_ptr(),
                lists[1].as_ptr(),
                lists[2].as_ptr(),
                count(u64::from(c::MPI_ORDER_C))?,
                inner.0,
                &raw mut made,
            )
        })?;
        let made = Self(made);
        made.commit()?;
        Ok(made)
    }

    fn commit(&self) -> Result<(), MpiError> {
        let mut kind = self.0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the type is there; committing it does not make it another one.
        checked(unsafe { c::MPI_Type_commit(&raw mut kind) })
    }
}

/// The address of some bytes for MPI. Rust's address of none is 1, which is Open MPI's `MPI_IN_PLACE`.
pub fn address(bytes: *const u8, length: u64) -> *const c_void {
    if length == 0 {
        ptr::null()
    } else {
        bytes.cast()
    }
}

/// As [`address`], of bytes that are written.
pub fn address_mut(bytes: *mut u8, length: u64) -> *mut c_void {
    address(bytes, length).cast_mut()
}

/// A number as MPI counts.
pub fn count(number: u64) -> Result<c_int, MpiError> {
    c_int::try_from(number)
        .map_err(|_| MpiError::Refused(format!("{number} is more than MPI counts to")))
}

/// A distance in memory or in a file.
pub fn place(bytes: u64) -> Result<c::MPI_Aint, MpiError> {
    c::MPI_Aint::try_from(bytes)
        .map_err(|_| MpiError::Refused(format!("{bytes} bytes are farther than there is a file")))
}
