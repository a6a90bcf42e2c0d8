//! Gathers the regions of one forwarded call.

use crate::shape::{Argument, Row};
use crate::types::{
    AWAY_BYTES_MAX, Context, Decision, Direction, Forward, GuestMemory, REGIONS_MAX, Region,
    Returned, Special, TimeoutArgument, TimeoutFormat, low, word,
};
use whim_model::Syscall;

/// The kernel reads a string up to this many bytes, its NUL included.
const STRING_MAX: usize = 4096;
/// Most strings end within this many bytes: they cost one small read.
const STRING_FIRST: usize = 256;
const PAGE: u64 = 4096;
/// No structure that is read and written is longer, except for the longest arrays.
const PROTECTED_MAX: u64 = 1 << 20;

const RESERVED_BUFFER: &str = "a buffer lies in the address range that is reserved while away";
const TOO_LARGE: &str = "the buffers of this call are too large to be forwarded";
const TOO_MANY: &str = "this call has too many buffers to be forwarded";

/// `Ok`: forward with what the builder holds. `Err`: another decision.
pub(crate) type Flow<T = ()> = Result<T, Box<Decision>>;

pub(crate) fn go_home<T>(reason: &'static str) -> Flow<T> {
    Err(Box::new(Decision::GoHome(reason)))
}

pub(crate) fn answer_errno<T>(errno: i32) -> Flow<T> {
    Err(Box::new(Decision::Answer(-i64::from(errno))))
}

pub(crate) fn answer<T>(value: i64) -> Flow<T> {
    Err(Box::new(Decision::Answer(value)))
}

pub(crate) fn run_here<T>() -> Flow<T> {
    Err(Box::new(Decision::Continue))
}

pub(crate) fn special<T>(special: Special) -> Flow<T> {
    Err(Box::new(Decision::Special(special)))
}

/// One call while its shape is being found.
pub(crate) struct Builder<'a> {
    pub(crate) call: &'a Syscall,
    pub(crate) context: &'a Context,
    memory: &'a dyn GuestMemory,
    regions: Vec<Region>,
    total: u64,
    pub(crate) args: [u64; 6],
    pub(crate) may_block: bool,
    may_fault: bool,
    timeout: Option<TimeoutArgument>,
    wait_mask: Option<u64>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        call: &'a Syscall,
        context: &'a Context,
        memory: &'a dyn GuestMemory,
        row: &Row,
    ) -> Self {
        Self {
            call,
            context,
            memory,
            regions: Vec::new(),
            total: 0,
            args: call.args,
            may_block: row.may_block,
            may_fault: false,
            timeout: None,
            wait_mask: None,
        }
    }

    /// The forward with all that has been gathered.
    pub(crate) fn finish(&mut self) -> Forward {
        if self.may_fault {
            self.show_partial_output();
        }
        Forward {
            regions: std::mem::take(&mut self.regions),
            may_block: self.may_block,
            may_fault: self.may_fault,
            timeout: self.timeout,
            wait_mask: self.wait_mask,
            args: self.args,
        }
    }

    /// A call that ends with EFAULT has often written something before: the writable half of a
    /// structure, or the first of two. So whatever stands in the buffers afterwards comes back, and
    /// what stands there now goes out, so that the rest stays as it is.
    fn show_partial_output(&mut self) {
        let mut regions = std::mem::take(&mut self.regions);
        for region in &mut regions {
            let shown = region.returned == Returned::Changed;
            if shown || matches!(region.direction, Direction::In | Direction::Protected) {
                continue;
            }
            if region.direction == Direction::Out {
                region.data = self.peek(region.address, region.length);
                region.length = to_u64(region.data.len());
                region.direction = Direction::InOut;
            }
            region.returned = Returned::WholeAlways;
        }
        self.regions = regions;
    }

    /// Whether a byte of this range belongs to the mapping of a file.
    pub(crate) fn has_file(&self, address: u64, length: u64) -> bool {
        self.memory.has_file(address, length)
    }

    /// As [`GuestMemory::is_file`].
    pub(crate) fn is_file(&self, address: u64, length: u64) -> bool {
        self.memory.is_file(address, length)
    }

    /// As [`GuestMemory::is_run`].
    pub(crate) fn is_run(&self, address: u64, length: u64) -> bool {
        self.memory.is_run(address, length)
    }

    /// As [`GuestMemory::is_one`].
    pub(crate) fn is_one(&self, address: u64, length: u64) -> bool {
        self.memory.is_one(address, length)
    }

    /// As [`GuestMemory::forbids`].
    pub(crate) fn forbids(&self, address: u64, length: u64, protection: u32) -> bool {
        self.memory.forbids(address, length, protection)
    }

    /// As [`GuestMemory::is_room`].
    pub(crate) fn is_room(&self, address: u64, length: u64) -> bool {
        self.memory.is_room(address, length)
    }

    /// An argument as the guest gave it.
    pub(crate) fn value(&self, index: usize) -> u64 {
        self.call.args[index]
    }

    /// An argument that the kernel takes as `unsigned int`.
    pub(crate) fn unsigned(&self, index: usize) -> u32 {
        low(self.value(index))
    }

    /// An argument that the kernel takes as `int`.
    pub(crate) fn int(&self, index: usize) -> i32 {
        self.unsigned(index).cast_signed()
    }

    /// Gathers the regions of the arguments, one after the other.
    pub(crate) fn flat(&mut self, arguments: &[Argument]) -> Flow {
        for (index, argument) in arguments.iter().enumerate() {
            self.argument(index, argument)?;
        }
        Ok(())
    }

    fn argument(&mut self, index: usize, argument: &Argument) -> Flow {
        let address = self.value(index);
        match *argument {
            Argument::Value => Ok(()),
            Argument::Path => self.path(index),
            Argument::Text => self.text(index).map(|_| ()),
            Argument::Buffer(size, direction, returned) => {
                let length = size.of(&self.call.args);
                self.region(address, length, direction, returned)
            }
        }
    }

    /// Adds a range that the kernel may touch.
    pub(crate) fn region(
        &mut self,
        address: u64,
        length: u64,
        direction: Direction,
        returned: Returned,
    ) -> Flow {
        if length == 0 {
            return Ok(());
        }
        if address == 0 {
            self.may_fault = true;
            return Ok(());
        }
        if self.context.touches_reserved(address, length) {
            return go_home(RESERVED_BUFFER);
        }
        if direction == Direction::In {
            return self.read_region(address, length, direction, returned);
        }
        // Trap: a-hole-in-the-table
        let present = self.writable_prefix(address, length);
        if direction == Direction::InOut {
            self.read_region(address, present, direction, returned)?;
        } else {
            self.charge(present)?;
            self.push(Region {
                address,
                length: present,
                direction,
                returned,
                data: Vec::new(),
            })?;
        }
        // Trap: a-read-that-cannot-be-delivered
        if present == length {
            return Ok(());
        }
        self.may_fault = true;
        self.protect(address.saturating_add(present), length - present, direction)
    }

    /// Adds output that the guest may only read. The kernel must see it if it reads it first, and
    /// must not write to it, although another buffer or thread may make the page present in the
    /// deputy. Otherwise a message would be taken from its queue and be lost.
    fn protect(&mut self, address: u64, length: u64, direction: Direction) -> Flow {
        let length = match direction {
            Direction::InOut => length.min(PROTECTED_MAX),
            // The kernel gets no further than the first byte that it cannot write.
            _ => length.min(PAGE - address % PAGE),
        };
        self.charge(length)?;
        let data = self.peek(address, length);
        self.push(Region {
            address,
            length: to_u64(data.len()),
            direction: Direction::Protected,
            returned: Returned::Nothing,
            data,
        })
    }

    /// As [`Builder::region`], and returns the bytes that were read. The deputy's kernel will see
    /// the same bytes, whatever another thread of the guest writes there meanwhile.
    pub(crate) fn region_with_bytes(
        &mut self,
        address: u64,
        length: u64,
        direction: Direction,
        returned: Returned,
    ) -> Flow<Vec<u8>> {
        let count = self.regions.len();
        self.region(address, length, direction, returned)?;
        // At most two regions were added: the writable part, and the rest.
        let added = self.regions[count..].iter();
        Ok(added.flat_map(|region| region.data.clone()).collect())
    }

    /// An `InOut` range that the kernel changes only if it can.
    pub(crate) fn tolerant(&mut self, address: u64, length: u64, returned: Returned) -> Flow {
        if self.memory.writable(address, length) {
            return self.region(address, length, Direction::InOut, returned);
        }
        self.region(address, length, Direction::In, Returned::Nothing)
    }

    fn read_region(
        &mut self,
        address: u64,
        length: u64,
        direction: Direction,
        returned: Returned,
    ) -> Flow {
        self.charge(length)?;
        let data = self.peek(address, length);
        self.may_fault |= to_u64(data.len()) < length;
        self.push(Region {
            address,
            length,
            direction,
            returned,
            data,
        })
    }

    fn push(&mut self, region: Region) -> Flow {
        if region.length == 0 {
            return Ok(());
        }
        if self.regions.len() >= REGIONS_MAX {
            return go_home(TOO_MANY);
        }
        self.regions.push(region);
        Ok(())
    }

    /// Counts bytes before anything is allocated for them.
    fn charge(&mut self, length: u64) -> Flow {
        self.total = self.total.saturating_add(length);
        if self.total > AWAY_BYTES_MAX {
            return go_home(TOO_LARGE);
        }
        Ok(())
    }

    /// Reads without adding a region: only for what the deputy's kernel will not read itself.
    /// At most [`AWAY_BYTES_MAX`] bytes.
    pub(crate) fn peek(&self, address: u64, length: u64) -> Vec<u8> {
        let length = usize::try_from(length.min(AWAY_BYTES_MAX)).unwrap_or(0);
        if length == 0 {
            return Vec::new();
        }
        let mut data = vec![0; length];
        let count = self.memory.read(address, &mut data).min(length);
        data.truncate(count);
        if count < length / 2 {
            data.shrink_to_fit();
        }
        data
    }

    /// True if the guest can read a byte there.
    pub(crate) fn readable(&self, address: u64) -> bool {
        self.memory.read(address, &mut [0]) == 1
    }

    /// True if an argument is no address in the guest: it cannot lead the kernel to a buffer.
    pub(crate) fn is_no_address(&self, index: usize) -> bool {
        let address = self.value(index);
        !self.readable(address) && !self.context.touches_reserved(address, 1)
    }

    /// Notes that the kernel may reach memory that is not there.
    pub(crate) fn may_fault(&mut self) {
        self.may_fault = true;
    }

    /// How many bytes from the address on the guest may write, up to `length`. What can be written
    /// changes only at page borders, so a binary search finds it.
    fn writable_prefix(&self, address: u64, length: u64) -> u64 {
        let length = length.min(u64::MAX - address);
        // A prefix longer than this goes home anyway.
        let length = length.min(AWAY_BYTES_MAX + PAGE);
        if length == 0 || self.memory.writable(address, length) {
            return length;
        }
        let to_border = PAGE - address % PAGE;
        let prefix = |pages: u64| to_border + pages * PAGE;
        if to_border >= length || !self.memory.writable(address, to_border) {
            return 0;
        }
        let (mut good, mut bad) = (0, (length - to_border).div_ceil(PAGE));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if self.memory.writable(address, prefix(middle)) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        prefix(good)
    }

    /// A string in an argument.
    pub(crate) fn text(&mut self, index: usize) -> Flow<Vec<u8>> {
        self.text_at(self.value(index))
    }

    /// A string: its bytes and its NUL. If it has no end within 4096 bytes, that many are sent, and
    /// the kernel answers with ENAMETOOLONG.
    pub(crate) fn text_at(&mut self, address: u64) -> Flow<Vec<u8>> {
        if address == 0 {
            self.may_fault = true;
            return Ok(Vec::new());
        }
        let mut data = vec![0; STRING_FIRST];
        let count = self.memory.read(address, &mut data).min(STRING_FIRST);
        data.truncate(count);
        if count == STRING_FIRST && !data.contains(&0) {
            data.resize(STRING_MAX, 0);
            let rest = &mut data[STRING_FIRST..];
            let more = self.memory.read(address + to_u64(STRING_FIRST), rest);
            data.truncate(STRING_FIRST + more.min(STRING_MAX - STRING_FIRST));
        }
        let end = data.iter().position(|byte| *byte == 0);
        // If there is no end, the next byte is wanted too, and it is not there.
        let wanted = end.map_or(data.len() + 1, |end| end + 1).min(STRING_MAX);
        data.truncate(wanted);
        let length = to_u64(wanted);
        if self.context.touches_reserved(address, length) {
            return go_home(RESERVED_BUFFER);
        }
        self.may_fault |= data.len() < wanted;
        self.charge(length)?;
        let seen = data.clone();
        self.push(Region {
            address,
            length,
            direction: Direction::In,
            returned: Returned::Nothing,
            data,
        })?;
        Ok(seen)
    }

    /// Notes a relative timeout in milliseconds.
    pub(crate) fn milliseconds(&mut self, index: usize) {
        if self.int(index) >= 0 {
            self.timeout = Some(TimeoutArgument {
                index,
                format: TimeoutFormat::Milliseconds,
            });
        }
    }

    /// Notes a relative timeout that a pointer leads to.
    pub(crate) fn timeout_at(&mut self, index: usize, format: TimeoutFormat) {
        if self.value(index) != 0 {
            self.timeout = Some(TimeoutArgument { index, format });
        }
    }

    /// Takes the mask that must act in the guest while it waits, and hides it from the deputy,
    /// where it would block or let through the wrong signals. Returns false if the mask is invalid:
    /// then it stays as it is, so that the kernel refuses it when it comes to it.
    pub(crate) fn mask(&mut self, index: usize, pointer: u64, size: u64) -> bool {
        if pointer == 0 {
            self.args[index] = 0;
            return true;
        }
        let bytes = self.peek(pointer, 8);
        if size != 8 || bytes.len() != 8 {
            self.may_fault = true;
            return false;
        }
        self.wait_mask = Some(word(&bytes, 0));
        self.args[index] = 0;
        true
    }
}

pub(crate) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
