//! Files that all ranks have open together (MPI-IO).

use crate::error::LoadError;
use crate::library::call;
use crate::world::World;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{ptr, thread};
use whim_mpi::abi;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    /// It is there already.
    Write,
    /// It is made where there is none. It can be read as well.
    Create,
}

/// What one rank sees of a file, as if there were nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The first `block` of each `stride` bytes.
    Blocks { block: u64, stride: u64 },
    /// A part of an array whose elements have `element` bytes; the last side is that of neighbours in the file.
    Part {
        element: u32,
        sides: Vec<u32>,
        part: Vec<u32>,
        start: Vec<u32>,
    },
}

/// A file that all ranks have open. All close it together: by [`File::close`], or where they drop it.
pub struct File<'world> {
    world: &'world World,
    handle: abi::File,
    path: PathBuf,
}

impl World {
    /// Opens a file, as all ranks do.
    ///
    /// # Errors
    ///
    /// It cannot be opened so.
    pub fn open_file(&self, path: &Path, mode: Mode) -> Result<File<'_>, LoadError> {
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| LoadError::Name(path.to_owned()))?;
        let mode = match mode {
            Mode::Read => abi::READ,
            Mode::Write => abi::READ | abi::WRITE,
            Mode::Create => abi::READ | abi::WRITE | abi::CREATE,
        };
        let mut handle = ptr::null_mut();
        // JUSTIFICATION: a call of C.
        // SAFETY: the name ends with a zero and outlives the call, and the handle is our own variable.
        unsafe {
            call!(
                self.functions,
                format!("open {}", path.display()),
                file_open(self.handle, name.as_ptr(), mode, &raw mut handle)
            )
        }?;
        Ok(File {
            world: self,
            handle,
            path: path.to_owned(),
        })
    }
}

impl File<'_> {
    /// Sets what this rank sees of the file, from `displacement` on. All ranks do, each with its own.
    ///
    /// # Errors
    ///
    /// There is no such view.
    pub fn see(&self, displacement: u64, view: &View) -> Result<(), LoadError> {
        let what = || format!("see a part of {}", self.path.display());
        match view {
            View::Blocks { block, stride } => {
                // JUSTIFICATION: a call of C.
                // SAFETY: the file is open; numbers are checked there.
                unsafe {
                    call!(
                        self.world.functions,
                        what(),
                        file_view_blocks(self.handle, displacement, *block, *stride)
                    )
                }
            }
            View::Part {
                element,
                sides,
                part,
                start,
            } => {
                let dimensions = u32::try_from(sides.len()).unwrap_or(u32::MAX);
                if part.len() != sides.len() || start.len() != sides.len() {
                    let wrong = "the array, its part and where this begins differ in dimensions";
                    return Err(LoadError::View(wrong.to_owned()));
                }
                // JUSTIFICATION: a call of C.
                // SAFETY: the file is open; each list has as many numbers as there are dimensions, and their
                // values are checked there.
                unsafe {
                    call!(
                        self.world.functions,
                        what(),
                        file_view_part(
                            self.handle,
                            displacement,
                            *element,
                            dimensions,
                            sides.as_ptr(),
                            part.as_ptr(),
                            start.as_ptr()
                        )
                    )
                }
            }
        }
    }

    /// The file's bytes.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn length(&self) -> Result<u64, LoadError> {
        let mut length = 0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, and the length is our own variable.
        unsafe {
            call!(
                self.world.functions,
                format!("tell the length of {}", self.path.display()),
                file_length(self.handle, &raw mut length)
            )
        }?;
        Ok(length)
    }

    /// Cuts the file off, or makes it longer, as all ranks do.
    ///
    /// # Errors
    ///
    /// The MPI fails.
    pub fn set_length(&self, length: u64) -> Result<(), LoadError> {
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open.
        unsafe {
            call!(
                self.world.functions,
                format!("make {} {length} bytes long", self.path.display()),
                file_set_length(self.handle, length)
            )
        }
    }

    /// Reads from a place in the view on; gives how many bytes there were before the file's end.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, LoadError> {
        self.read(offset, bytes, 0)
    }

    /// As [`File::read_at`], as all ranks do, which may be faster than each by itself.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read_all(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, LoadError> {
        self.read(offset, bytes, 1)
    }

    /// Writes from a place in the view on.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), LoadError> {
        self.write(offset, bytes, 0)
    }

    /// As [`File::write_at`], as all ranks do, which may be faster than each by itself.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), LoadError> {
        self.write(offset, bytes, 1)
    }

    /// Closes the file, as all ranks do, and tells what went wrong.
    ///
    /// # Errors
    ///
    /// What was written is not in the file.
    pub fn close(mut self) -> Result<(), LoadError> {
        self.shut()
    }

    fn read(&self, offset: u64, bytes: &mut [u8], together: u32) -> Result<usize, LoadError> {
        let length = bytes.len() as u64;
        let mut done = 0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, there is a place for as many bytes, and `done` is our own variable.
        unsafe {
            call!(
                self.world.functions,
                format!("read {length} bytes of {}", self.path.display()),
                file_read(
                    self.handle,
                    offset,
                    bytes.as_mut_ptr(),
                    length,
                    together,
                    &raw mut done
                )
            )
        }?;
        Ok(usize::try_from(done).unwrap_or(usize::MAX).min(bytes.len()))
    }

    fn write(&self, offset: u64, bytes: &[u8], together: u32) -> Result<(), LoadError> {
        let length = bytes.len() as u64;
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, and there are as many bytes.
        unsafe {
            call!(
                self.world.functions,
                format!("write {length} bytes of {}", self.path.display()),
                file_write(self.handle, offset, bytes.as_ptr(), length, together)
            )
        }
    }

    fn shut(&mut self) -> Result<(), LoadError> {
        if self.handle.is_null() {
            return Ok(());
        }
        let handle = std::mem::replace(&mut self.handle, ptr::null_mut());
        // JUSTIFICATION: a call of C.
        // SAFETY: the file is open, and not used any more.
        unsafe {
            call!(
                self.world.functions,
                format!("close {}", self.path.display()),
                file_close(handle)
            )
        }
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        // A rank that panics must not wait for others, which wait for it.
        if !thread::panicking() {
            drop(self.shut());
        }
    }
}
