//! What the library and the programs that open it agree upon.
//!
//! The library exports one function, `whim_mpi_table`, of the type [`Entry`]. All others are in the [`Table`] that
//! it gives. None of them waits, but for [`Table::open`], [`Table::close`] and those of files: what takes time gives
//! a request, and [`Table::test`] tells when it is done. For both MPIs spin where they wait, on processors that
//! others compute on.
//!
//! A function that can fail gives [`DONE`], the class of MPI's error (above 0), or [`REFUSED`], and then writes a
//! sentence into the caller's [`Text`]. All functions are called by the thread that called [`Table::open`].

use std::ffi::{c_char, c_void};

/// The version of the table that is described here.
pub const VERSION: u32 = 1;
/// The name of the function that gives it.
pub const ENTRY: &[u8] = b"whim_mpi_table\0";

/// The function that the library exports: its table of this version, or null where it has none.
pub type Entry = unsafe extern "C" fn(version: u32) -> *const Table;

/// All went well.
pub const DONE: i32 = 0;
/// The library itself refuses, not its MPI.
pub const REFUSED: i32 = -1;

/// What [`Table::family`] gives.
pub const MPICH: u32 = 1;
/// What [`Table::family`] gives.
pub const OPEN_MPI: u32 = 2;

/// How [`Table::reduce_u64`] and [`Table::reduce_f64`] put numbers together.
pub const MINIMUM: u32 = 0;
/// As above.
pub const MAXIMUM: u32 = 1;
/// As above.
pub const SUM: u32 = 2;

/// A file is read. These are put together for [`Table::file_open`].
pub const READ: u32 = 1;
/// A file is written.
pub const WRITE: u32 = 2;
/// A file is made where there is none.
pub const CREATE: u32 = 4;

/// The ranks of one job.
pub type World = *mut c_void;
/// A message that has been found, and that nobody else finds any more.
pub type Envelope = *mut c_void;
/// Something that goes on. It is no more when [`Table::test`] says that it is done, or fails.
pub type Request = *mut c_void;
/// An open file.
pub type File = *mut c_void;

/// Where a sentence is written, in UTF-8. What does not fit is left off.
#[repr(C)]
#[derive(Debug)]
pub struct Text {
    pub bytes: *mut u8,
    pub capacity: u64,
    /// How many bytes were written.
    pub length: u64,
}

/// A message that has been found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Null where there is no message.
    pub envelope: Envelope,
    pub length: u64,
    pub from: u32,
    pub tag: u32,
}

/// The functions of a library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// [`MPICH`], [`OPEN_MPI`], or 0 for another one. It may be asked before all others.
    pub family: unsafe extern "C" fn() -> u32,
    /// What the MPI calls itself. It may be asked before all others.
    pub name: unsafe extern "C" fn(text: *mut Text),
    /// Starts the MPI. It can be started once in a process.
    pub open: unsafe extern "C" fn(world: *mut World, text: *mut Text) -> i32,
    /// Ends the MPI, as all ranks do; nothing else may go on.
    pub close: unsafe extern "C" fn(world: World, text: *mut Text) -> i32,
    /// Ends all ranks of the job, this one too.
    pub abort: unsafe extern "C" fn(world: World, code: i32),
    pub rank: unsafe extern "C" fn(world: World) -> u32,
    pub size: unsafe extern "C" fn(world: World) -> u32,
    /// The largest tag that a message can have.
    pub tag_max: unsafe extern "C" fn(world: World) -> u32,
    /// Sends a message of any length. The bytes stay where they are until it is done.
    pub send: unsafe extern "C" fn(
        world: World,
        to: u32,
        tag: u32,
        bytes: *const u8,
        length: u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// Finds a message from any rank, with any tag, if one is there.
    pub probe: unsafe extern "C" fn(world: World, found: *mut Found, text: *mut Text) -> i32,
    /// Receives a message that was found, into as many bytes as it has, which stay where they are until it is done.
    /// The envelope is no more.
    pub receive: unsafe extern "C" fn(
        envelope: Envelope,
        bytes: *mut u8,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// Whether a request is done (then it is no more).
    pub test: unsafe extern "C" fn(request: Request, done: *mut u32, text: *mut Text) -> i32,
    /// Done when all ranks have called it.
    pub barrier: unsafe extern "C" fn(world: World, request: *mut Request, text: *mut Text) -> i32,
    /// The bytes of one rank for all: up to `i32::MAX`. All have the same number of them.
    pub broadcast: unsafe extern "C" fn(
        world: World,
        root: u32,
        bytes: *mut u8,
        length: u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// The number of each rank, for all. `all` holds as many numbers as there are ranks.
    pub gather_numbers: unsafe extern "C" fn(
        world: World,
        own: u64,
        all: *mut u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// The bytes of each rank one after another, for all: up to `i32::MAX` in all. `lengths` holds how many each
    /// rank has, and `all` their sum.
    pub gather_bytes: unsafe extern "C" fn(
        world: World,
        own: *const u8,
        lengths: *const u64,
        all: *mut u8,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// The sum of the numbers of all ranks before this one.
    pub exclusive_sum: unsafe extern "C" fn(
        world: World,
        own: u64,
        sum: *mut u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// Puts numbers of all ranks together, each with those at its place.
    pub reduce_u64: unsafe extern "C" fn(
        world: World,
        how: u32,
        own: *const u64,
        all: *mut u64,
        count: u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// As above.
    pub reduce_f64: unsafe extern "C" fn(
        world: World,
        how: u32,
        own: *const f64,
        all: *mut f64,
        count: u64,
        request: *mut Request,
        text: *mut Text,
    ) -> i32,
    /// Opens a file, as all ranks do. The path ends with a zero.
    pub file_open: unsafe extern "C" fn(
        world: World,
        path: *const c_char,
        mode: u32,
        file: *mut File,
        text: *mut Text,
    ) -> i32,
    /// This rank sees, from `displacement` on, the first `block` of each `stride` bytes. All ranks set a view.
    pub file_view_blocks: unsafe extern "C" fn(
        file: File,
        displacement: u64,
        block: u64,
        stride: u64,
        text: *mut Text,
    ) -> i32,
    /// This rank sees, from `displacement` on, a part of an array whose elements have `element` bytes, and whose
    /// last side is that of neighbours in the file. All ranks set a view.
    pub file_view_part: unsafe extern "C" fn(
        file: File,
        displacement: u64,
        element: u32,
        dimensions: u32,
        sides: *const u32,
        part: *const u32,
        start: *const u32,
        text: *mut Text,
    ) -> i32,
    pub file_length: unsafe extern "C" fn(file: File, length: *mut u64, text: *mut Text) -> i32,
    /// Cuts a file off, or makes it longer. All ranks do.
    pub file_set_length: unsafe extern "C" fn(file: File, length: u64, text: *mut Text) -> i32,
    /// Reads from a place in the view; `done` is less than `length` at the file's end. All ranks do where
    /// `together` is not 0.
    pub file_read: unsafe extern "C" fn(
        file: File,
        offset: u64,
        bytes: *mut u8,
        length: u64,
        together: u32,
        done: *mut u64,
        text: *mut Text,
    ) -> i32,
    /// Writes from a place in the view on. All ranks do where `together` is not 0.
    pub file_write: unsafe extern "C" fn(
        file: File,
        offset: u64,
        bytes: *const u8,
        length: u64,
        together: u32,
        text: *mut Text,
    ) -> i32,
    /// Closes a file, as all ranks do. It is no more, also where this fails.
    pub file_close: unsafe extern "C" fn(file: File, text: *mut Text) -> i32,
}
