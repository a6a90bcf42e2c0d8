//! The table of functions that programs call which link no MPI.
//!
//! Handles are boxes: the caller has their addresses, and gives each back once.

use crate::abi;
use crate::error::MpiError;
use crate::file::{DIMENSIONS_MAX, File, Mode, View};
use crate::message::Envelope;
use crate::request::Request;
use crate::world::{Reduction, World, family, name};
use std::ffi::{CStr, c_char};
use std::{ptr, slice};

static TABLE: abi::Table = abi::Table {
    version: abi::VERSION,
    family: family_of,
    name: name_of,
    open,
    close,
    abort,
    rank,
    size,
    tag_max,
    send,
    probe,
    receive,
    test,
    barrier,
    broadcast,
    gather_numbers,
    gather_bytes,
    exclusive_sum,
    reduce_u64,
    reduce_f64,
    file_open,
    file_view_blocks,
    file_view_part,
    file_length,
    file_set_length,
    file_read,
    file_write,
    file_close,
};

/// The functions of this version, or null where there are none: [`abi::Entry`].
#[unsafe(no_mangle)]
pub extern "C" fn whim_mpi_table(version: u32) -> *const abi::Table {
    if version == abi::VERSION {
        &raw const TABLE
    } else {
        ptr::null()
    }
}

/// Writes a sentence into the caller's place.
///
/// # Safety
///
/// The text is null, or has a place for as many bytes as it says.
unsafe fn write(text: *mut abi::Text, sentence: &str) {
    // JUSTIFICATION: the caller gives addresses.
    // SAFETY: the caller says that they are of a text and its place, or null.
    unsafe {
        let Some(text) = text.as_mut() else { return };
        let capacity = usize::try_from(text.capacity).unwrap_or(0);
        let mut length = sentence.len().min(capacity);
        while !sentence.is_char_boundary(length) {
            length -= 1;
        }
        if !text.bytes.is_null() {
            ptr::copy_nonoverlapping(sentence.as_ptr(), text.bytes, length);
            text.length = length as u64;
        }
    }
}

/// Gives a result, by its code, its place and its sentence.
///
/// # Safety
///
/// There is a place for what it gives, and the text is as for `write`.
unsafe fn give<T>(result: Result<T, MpiError>, place: *mut T, text: *mut abi::Text) -> i32 {
    let error = match result {
        Ok(value) => {
            // JUSTIFICATION: the caller gives addresses.
            // SAFETY: the caller says that there is a place.
            unsafe { place.write(value) };
            return abi::DONE;
        }
        Err(error) => error,
    };
    // JUSTIFICATION: as above.
    // SAFETY: as for `write`.
    unsafe { write(text, &error.to_string()) };
    match error {
        MpiError::Mpi(class, _) => class,
        MpiError::Refused(_) => abi::REFUSED,
    }
}

/// As `give`, of what gives nothing.
///
/// # Safety
///
/// The text is as for `write`.
unsafe fn tell(result: Result<(), MpiError>, text: *mut abi::Text) -> i32 {
    let mut nothing = ();
    // JUSTIFICATION: as for `give`.
    // SAFETY: the place is our own variable.
    unsafe { give(result, &raw mut nothing, text) }
}

/// As `give`, of a thing that the caller gives back later.
///
/// # Safety
///
/// As for `give`.
unsafe fn hand<T>(result: Result<T, MpiError>, place: *mut *mut T, text: *mut abi::Text) -> i32 {
    let boxed = result.map(|thing| Box::into_raw(Box::new(thing)));
    // JUSTIFICATION: as for `give`.
    // SAFETY: as for `give`.
    unsafe { give(boxed, place, text) }
}

/// The world that a caller means.
///
/// # Safety
///
/// It was opened, and not closed.
unsafe fn world<'caller>(handle: abi::World) -> &'caller World {
    // JUSTIFICATION: the caller has an address.
    // SAFETY: the caller says that it is that of an open world.
    unsafe { &*handle.cast::<World>() }
}

/// The file that a caller means.
///
/// # Safety
///
/// It was opened, and not closed.
unsafe fn file<'caller>(handle: abi::File) -> &'caller File {
    // JUSTIFICATION: the caller has an address.
    // SAFETY: the caller says that it is that of an open file.
    unsafe { &*handle.cast::<File>() }
}

/// Defines functions of the table: all are called with what `abi` says of them.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            // JUSTIFICATION: this is called through C, with addresses.
            // SAFETY: the caller gives what `abi` describes: handles that are open and of their kind, places
            // for what is written, memory that stays as long as the request that uses it.
            unsafe { $body }
        })*
    };
}

functions! {
    name_of(text: *mut abi::Text) {
        write(text, &name());
    }

    open(place: *mut abi::World, text: *mut abi::Text) -> i32 {
        hand(World::open(), place.cast::<*mut World>(), text)
    }

    close(handle: abi::World, _text: *mut abi::Text) -> i32 {
        drop(Box::from_raw(handle.cast::<World>()));
        abi::DONE
    }

    abort(handle: abi::World, code: i32) {
        world(handle).abort(code);
    }

    rank(handle: abi::World) -> u32 {
        world(handle).rank()
    }

    size(handle: abi::World) -> u32 {
        world(handle).size()
    }

    tag_max(handle: abi::World) -> u32 {
        world(handle).tag_max()
    }

    send(
        handle: abi::World,
        to: u32,
        tag: u32,
        bytes: *const u8,
        length: u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let started = world(handle).start_send(to, tag, bytes, length);
        hand(started, request.cast::<*mut Request>(), text)
    }

    probe(handle: abi::World, found: *mut abi::Found, text: *mut abi::Text) -> i32 {
        let seen = world(handle).probe(None, None).map(|envelope| match envelope {
            None => abi::Found { envelope: ptr::null_mut(), length: 0, from: 0, tag: 0 },
            Some(envelope) => abi::Found {
                length: envelope.length,
                from: envelope.from,
                tag: envelope.tag,
                envelope: Box::into_raw(Box::new(envelope)).cast(),
            },
        });
        give(seen, found, text)
    }

    receive(
        envelope: abi::Envelope,
        bytes: *mut u8,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let mut envelope = Box::from_raw(envelope.cast::<Envelope>());
        hand(envelope.start(bytes), request.cast::<*mut Request>(), text)
    }

    test(request: abi::Request, done: *mut u32, text: *mut abi::Text) -> i32 {
        let request = request.cast::<Request>();
        let is_done = (*request).is_done();
        if !matches!(is_done, Ok(false)) {
            drop(Box::from_raw(request));
        }
        give(is_done.map(u32::from), done, text)
    }

    barrier(handle: abi::World, request: *mut abi::Request, text: *mut abi::Text) -> i32 {
        hand(world(handle).start_barrier(), request.cast::<*mut Request>(), text)
    }

    broadcast(
        handle: abi::World,
        root: u32,
        bytes: *mut u8,
        length: u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let started = world(handle).start_broadcast(root, bytes, length);
        hand(started, request.cast::<*mut Request>(), text)
    }

    gather_numbers(
        handle: abi::World,
        own: u64,
        all: *mut u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let started = world(handle).start_gather_numbers(own, all);
        hand(started, request.cast::<*mut Request>(), text)
    }

    gather_bytes(
        handle: abi::World,
        own: *const u8,
        lengths: *const u64,
        all: *mut u8,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let world = world(handle);
        let ranks = usize::try_from(world.size()).unwrap_or(0);
        let started = world.start_gather(own, slice::from_raw_parts(lengths, ranks), all);
        hand(started, request.cast::<*mut Request>(), text)
    }

    exclusive_sum(
        handle: abi::World,
        own: u64,
        sum: *mut u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let started = world(handle).start_exclusive_sum(own, sum);
        hand(started, request.cast::<*mut Request>(), text)
    }

    reduce_u64(
        handle: abi::World,
        how: u32,
        own: *const u64,
        all: *mut u64,
        count: u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let world = world(handle);
        let started = reduction(how)
            .and_then(|how| world.start_reduce(how, own.cast(), all.cast(), count, false));
        hand(started, request.cast::<*mut Request>(), text)
    }

    reduce_f64(
        handle: abi::World,
        how: u32,
        own: *const f64,
        all: *mut f64,
        count: u64,
        request: *mut abi::Request,
        text: *mut abi::Text,
    ) -> i32 {
        let world = world(handle);
        let started = reduction(how)
            .and_then(|how| world.start_reduce(how, own.cast(), all.cast(), count, true));
        hand(started, request.cast::<*mut Request>(), text)
    }

    file_open(
        handle: abi::World,
        path: *const c_char,
        mode: u32,
        place: *mut abi::File,
        text: *mut abi::Text,
    ) -> i32 {
        let mode = match (mode & abi::WRITE != 0, mode & abi::CREATE != 0) {
            (false, _) => Mode::Read,
            (true, false) => Mode::Write,
            (true, true) => Mode::Create,
        };
        let opened = File::open(world(handle), CStr::from_ptr(path), mode);
        hand(opened, place.cast::<*mut File>(), text)
    }

    file_view_blocks(
        handle: abi::File,
        displacement: u64,
        block: u64,
        stride: u64,
        text: *mut abi::Text,
    ) -> i32 {
        tell(file(handle).see(displacement, &View::Blocks { block, stride }), text)
    }

    file_view_part(
        handle: abi::File,
        displacement: u64,
        element: u32,
        dimensions: u32,
        sides: *const u32,
        part: *const u32,
        start: *const u32,
        text: *mut abi::Text,
    ) -> i32 {
        // The file refuses as many as there cannot be.
        let known = if dimensions > DIMENSIONS_MAX { 0 } else { dimensions };
        let known = usize::try_from(known).unwrap_or(0);
        let view = View::Part {
            element,
            sides: slice::from_raw_parts(sides, known),
            part: slice::from_raw_parts(part, known),
            start: slice::from_raw_parts(start, known),
        };
        tell(file(handle).see(displacement, &view), text)
    }

    file_length(handle: abi::File, length: *mut u64, text: *mut abi::Text) -> i32 {
        give(file(handle).length(), length, text)
    }

    file_set_length(handle: abi::File, length: u64, text: *mut abi::Text) -> i32 {
        tell(file(handle).set_length(length), text)
    }

    file_read(
        handle: abi::File,
        offset: u64,
        bytes: *mut u8,
        length: u64,
        together: u32,
        done: *mut u64,
        text: *mut abi::Text,
    ) -> i32 {
        let length = usize::try_from(length).unwrap_or(0);
        let bytes = slice::from_raw_parts_mut(bytes, length);
        let read = file(handle).read_at(offset, bytes, together != 0);
        give(read.map(|read| read as u64), done, text)
    }

    file_write(
        handle: abi::File,
        offset: u64,
        bytes: *const u8,
        length: u64,
        together: u32,
        text: *mut abi::Text,
    ) -> i32 {
        let length = usize::try_from(length).unwrap_or(0);
        let bytes = slice::from_raw_parts(bytes, length);
        tell(file(handle).write_at(offset, bytes, together != 0), text)
    }

    file_close(handle: abi::File, text: *mut abi::Text) -> i32 {
        tell(Box::from_raw(handle.cast::<File>()).close(), text)
    }
}

unsafe extern "C" fn family_of() -> u32 {
    family()
}

fn reduction(how: u32) -> Result<Reduction, MpiError> {
    match how {
        abi::MINIMUM => Ok(Reduction::Minimum),
        abi::MAXIMUM => Ok(Reduction::Maximum),
        abi::SUM => Ok(Reduction::Sum),
        _ => Err(MpiError::Refused(format!("there is no reduction {how}"))),
    }
}
