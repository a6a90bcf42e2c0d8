//! The code that the kernel maps into every process (vDSO), where home's kernel and the host's differ.
//!
//! C libraries keep addresses within the vDSO, so a guest has to find home's code at home's
//! addresses. But that code reads data that the host's kernel lays out in another way, or nowhere.
//! So the guest gets a copy of home's code in which every function is overwritten by the plain
//! system call that it stands for. CRIU lets such a copy jump into the host's own vDSO. We do not,
//! because what a thread would leave on its stack there, or in the frame of a signal, would be
//! worth nothing at the next host. Instead a thread that is stopped within such a function is set
//! back to its first instruction ([`Proxy::begin_of`]), where every kernel's copy of home's code
//! has the same function.
//!
//! A process does not come here while one of its threads stands in the middle of home's code
//! ([`Proxy::stands_in`]). A thread that runs a signal handler which has interrupted home's code
//! returns into that code later. There it reads the kernel's data, which is not here, and then the
//! process goes home ([`Proxy::is_unfinished`]). It must not return, however, to one of the
//! instructions that were overwritten: if a stack remembers such an instruction, the process does
//! not come here either ([`Proxy::is_remembered`]).

use crate::maps::{self, MapsError};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol};
use std::sync::OnceLock;
use thiserror::Error;
use whim_model::{Backing, Mapping, ProcessImage, Range, Registers};
use whim_sys::process_vm;

/// Longest vDSO, in bytes; today's have two pages.
pub const LENGTH_MAX: usize = 64 << 10;
/// More symbols than any kernel's vDSO has.
const SYMBOLS_MAX: usize = 64;
const PREFIX: &[u8] = b"__vdso_";

#[derive(Debug, Error)]
pub enum VdsoError {
    #[error(
        "This process has no vDSO of at most {LENGTH_MAX} bytes: the kernel was told to make none"
    )]
    None,
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error("The vDSO cannot be read: {0}")]
    Unreadable(nix::errno::Errno),
    #[error("Home's vDSO is no library that this version understands: {0}")]
    Form(String),
}

/// The vDSO of this process, which is that of every process of this kernel. It is read once: code
/// that will need it in a freeze calls this before.
///
/// # Errors
/// [`VdsoError::None`], or the vDSO cannot be read.
pub fn own() -> Result<&'static [u8], VdsoError> {
    static OWN: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known);
    }
    let found = read_own()?;
    Ok(OWN.get_or_init(|| found))
}

fn read_own() -> Result<Vec<u8>, VdsoError> {
    let pid = std::process::id().cast_signed();
    let entries = maps::read(pid)?;
    let vdso = entries.iter().find(|entry| entry.name == "[vdso]");
    let range = vdso.ok_or(VdsoError::None)?.range;
    read(pid, range)
}

/// Reads the vDSO of a process that has it at `range`.
///
/// # Errors
/// As [`own`].
pub fn read(pid: i32, range: Range) -> Result<Vec<u8>, VdsoError> {
    let length = usize::try_from(range.len()).unwrap_or(usize::MAX);
    if length > LENGTH_MAX {
        return Err(VdsoError::None);
    }
    let mut bytes = vec![0; length];
    process_vm::read_exact(pid, range.start, &mut bytes).map_err(VdsoError::Unreadable)?;
    Ok(bytes)
}

/// What a thread does that is in the middle of the vDSO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It reads a clock, or does something that is not known.
    Clock,
    /// It makes random bytes, which can take long.
    Random,
    /// It asks for its processor.
    Processor,
}

/// What a thread of `pid` with these registers does in its vDSO, which is that of this kernel and at `place`; `None` if
/// it does not compute there.
#[must_use]
pub fn doing_of(pid: i32, place: Range, registers: &Registers) -> Option<Doing> {
    doing(place, registers, || {
        let mut word = [0; 8];
        let read = process_vm::read(pid, registers.rsp, &mut word);
        (read == Ok(word.len())).then(|| u64::from_le_bytes(word))
    })
}

/// The same. `caller` reads the word that its stack pointer points to: the code that makes random bytes calls some
/// without a name, which uses no stack.
fn doing(
    place: Range,
    registers: &Registers,
    caller: impl FnOnce() -> Option<u64>,
) -> Option<Doing> {
    // What is left after a call is the way back to who made it.
    let computes = registers.orig_rax.cast_signed() < 0;
    if !computes || !place.contains(registers.rip) {
        return None;
    }
    let function = |address: u64| {
        let offset = address.checked_sub(place.start)?;
        let mut known = known().iter();
        known.find(|(_, range)| range.contains(offset))
    };
    let found = function(registers.rip).map(|(doing, _)| *doing);
    Some(found.unwrap_or_else(|| {
        let caller = caller().and_then(function);
        match caller {
            Some((Doing::Random, _)) => Doing::Random,
            _ => Doing::Clock,
        }
    }))
}

/// What the functions of this kernel's vDSO do, and where they are, by offset.
fn known() -> &'static [(Doing, Range)] {
    static KNOWN: OnceLock<Vec<(Doing, Range)>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let functions = own().and_then(functions).unwrap_or_default();
        let known = functions.iter().filter_map(|(name, start, length)| {
            let doing = match &name[..] {
                b"getrandom" => Doing::Random,
                b"getcpu" => Doing::Processor,
                _ => Doing::Clock,
            };
            let (start, end) = (*start, start.checked_add(*length)?);
            Some((doing, Range { start, end }))
        });
        known.collect()
    })
}

/// A copy of home's vDSO whose functions are system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where home has its vDSO.
    range: Range,
    /// Where home has the kernel's data: nothing can be read there.
    data: Vec<Range>,
    /// Where the code is that replaces the functions.
    entries: Vec<Range>,
    /// The copy, as long as `range`.
    bytes: Vec<u8>,
}

impl Proxy {
    /// For an image with home's vDSO in it.
    ///
    /// # Errors
    /// [`VdsoError::Form`].
    pub fn of(image: &ProcessImage) -> Result<Option<Self>, VdsoError> {
        Self::new(&image.mappings, &image.vdso)
    }

    fn new(mappings: &[Mapping], vdso: &[u8]) -> Result<Option<Self>, VdsoError> {
        let (mut range, mut data) = (None, Vec::new());
        for mapping in mappings {
            let place = Range {
                start: mapping.start,
                end: mapping.end,
            };
            match &mapping.backing {
                Backing::Kernel { name } if name == "[vdso]" => range = Some(place),
                Backing::Kernel { .. } => data.push(place),
                _ => {}
            }
        }
        let Some(range) = range else {
            return Ok(None);
        };
        let mut bytes = vdso.to_vec();
        if bytes.len() > LENGTH_MAX || bytes.len() as u64 != range.len() {
            let length = bytes.len();
            let text = format!("{length} bytes for a mapping of {:#x}", range.len());
            return Err(VdsoError::Form(text));
        }
        let entries = replace_functions(&mut bytes, range.start)?;
        Ok(Some(Self {
            range,
            data,
            entries,
            bytes,
        }))
    }

    /// Where the copy belongs, and what it is.
    #[must_use]
    pub fn contents(&self) -> (Range, &[u8]) {
        (self.range, &self.bytes)
    }

    /// Where nothing can be read.
    #[must_use]
    pub fn data(&self) -> &[Range] {
        &self.data
    }

    /// Whether `range` overlaps the copy, or the data that is missing.
    #[must_use]
    pub fn covers(&self, range: Range) -> bool {
        self.range.overlaps(range) || self.data.iter().any(|data| data.overlaps(range))
    }

    /// The first instruction of the replaced function that `rip` is in. All of them can be begun
    /// anew at any point, because they change only the result's register and return what is true
    /// now.
    #[must_use]
    pub fn begin_of(&self, rip: u64) -> Option<u64> {
        let found = self.entries.iter().find(|code| code.contains(rip));
        found.map(|code| code.start)
    }

    /// Whether a thread with this `rip` is in the middle of home's code.
    #[must_use]
    pub fn stands_in(&self, rip: u64) -> bool {
        self.range.contains(rip) && self.begin_of(rip) != Some(rip)
    }

    /// Whether memory holds the address of an instruction that was overwritten. `bytes` begin at a
    /// multiple of 8, as frames of signals and calls do.
    #[must_use]
    pub fn is_remembered(&self, bytes: &[u8]) -> bool {
        let (words, _) = bytes.as_chunks::<8>();
        words
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .any(|word| {
                // Nearly no word is in the range, and this has to be fast.
                self.range.contains(word) && self.begin_of(word).is_some_and(|begin| begin != word)
            })
    }

    /// Whether an access to `address` from `rip` is home's code looking for the kernel's data.
    #[must_use]
    pub fn is_unfinished(&self, rip: u64, address: u64) -> bool {
        self.range.contains(rip) && self.data.iter().any(|data| data.contains(address))
    }

    /// The mappings of the kernel as home has them.
    #[must_use]
    pub fn kernel_mappings(image: &ProcessImage) -> Vec<Mapping> {
        let kernel = |mapping: &&Mapping| matches!(mapping.backing, Backing::Kernel { .. });
        image.mappings.iter().filter(kernel).cloned().collect()
    }
}

/// The code that takes the place of a function of the kernel.
fn replacement(name: &[u8]) -> Vec<u8> {
    let number = match name {
        b"clock_gettime" => libc::SYS_clock_gettime,
        b"gettimeofday" => libc::SYS_gettimeofday,
        b"clock_getres" => libc::SYS_clock_getres,
        b"time" => libc::SYS_time,
        b"getcpu" => libc::SYS_getcpu,
        b"getrandom" => return random(),
        // A function that a later kernel has added: its callers know that it may be missing.
        _ => return missing(),
    };
    call(number)
}

/// `mov eax, NUMBER ; syscall ; ret`
fn call(number: libc::c_long) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    code.extend([0x0f, 0x05, 0xc3]);
    code
}

/// `mov eax, -ENOSYS ; cdqe ; ret`
fn missing() -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend((-libc::ENOSYS).to_le_bytes());
    code.extend([0x48, 0x98, 0xc3]);
    code
}

/// A `getrandom` that ignores its caller's state, which is for the generator of home's kernel. A
/// caller that asks how long a state is (its length is -1) learns that there is no generator.
///
/// `cmp r8, -1 ; je missing ; call of getrandom ; missing: ...`
fn random() -> Vec<u8> {
    let by_call = call(libc::SYS_getrandom);
    let length = u8::try_from(by_call.len()).unwrap_or(0);
    let mut code = vec![0x49, 0x83, 0xf8, 0xff, 0x74, length];
    code.extend(by_call);
    code.extend(missing());
    code
}

/// Overwrites every function of a vDSO that is mapped at `base`.
fn replace_functions(bytes: &mut [u8], base: u64) -> Result<Vec<Range>, VdsoError> {
    let mut entries = Vec::new();
    for (name, offset, size) in functions(bytes)? {
        let code = replacement(&name);
        let room = usize::try_from(size).unwrap_or(0);
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let text = String::from_utf8_lossy(&name).into_owned();
        let place = bytes
            .get_mut(at..)
            .and_then(|rest| rest.get_mut(..code.len()))
            .filter(|_| code.len() <= room)
            .ok_or_else(|| VdsoError::Form(format!("no room in the function {text:.20}")))?;
        place.copy_from_slice(&code);
        let start = base.saturating_add(offset);
        entries.push(Range {
            start,
            end: start + code.len() as u64,
        });
    }
    let overlap = |one: &Range| {
        let mut others = entries.iter().filter(|other| *other != one);
        others.any(|other| other.overlaps(*one))
    };
    if entries.iter().any(overlap) {
        return Err(VdsoError::Form("functions that overlap".into()));
    }
    Ok(entries)
}

/// Name without its prefix, offset and length of each function that programs may call.
fn functions(bytes: &[u8]) -> Result<Vec<(Vec<u8>, u64, u64)>, VdsoError> {
    let malformed = |error: object::Error| VdsoError::Form(error.to_string());
    let file = ElfFile64::<Endianness>::parse(bytes).map_err(malformed)?;
    if file.architecture() != object::Architecture::X86_64 {
        return Err(VdsoError::Form("it is for another CPU".into()));
    }
    // Symbols of a kernel's vDSO are relative to its first byte: it is linked at 0.
    let header: &FileHeader64<Endianness> = file.elf_header();
    let segments = header
        .program_headers(file.endian(), bytes)
        .map_err(malformed)?;
    if segments.is_empty() {
        return Err(VdsoError::Form("it has no segments".into()));
    }
    let mut found = Vec::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name_bytes().map_err(malformed)?;
        let Some(name) = name.strip_prefix(PREFIX) else {
            // The same functions have names without a prefix too.
            continue;
        };
        if !symbol.is_definition() {
            continue;
        }
        if found.len() == SYMBOLS_MAX {
            return Err(VdsoError::Form(format!(
                "more than {SYMBOLS_MAX} functions"
            )));
        }
        found.push((name.to_vec(), symbol.address(), symbol.size()));
    }
    if found.is_empty() {
        return Err(VdsoError::Form("it has no functions".into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_model::Protection;

    const BASE: u64 = 0x7ffe_0000_4000;

    #[test]
    fn what_a_thread_does_is_told_by_where_it_is() {
        let length = own().expect("this kernel has a vDSO").len() as u64;
        let place = Range {
            start: BASE,
            end: BASE + length,
        };
        let at = |rip: u64| Registers {
            rip,
            orig_rax: u64::MAX,
            ..Registers::default()
        };
        let within = |wanted: Doing| {
            let mut known = known().iter();
            known.find(|(doing, _)| *doing == wanted)
        };
        let (_, clock) = within(Doing::Clock).expect("every kernel's reads clocks");
        let inside = at(BASE + clock.start + 1);
        assert_eq!(doing(place, &inside, || None), Some(Doing::Clock));
        let called = Registers {
            orig_rax: 228,
            ..inside
        };
        assert_eq!(doing(place, &called, || None), None, "it is in a call");
        assert_eq!(doing(place, &at(place.end), || None), None);
        // The header is no function's.
        let unnamed = at(BASE);
        assert_eq!(doing(place, &unnamed, || None), Some(Doing::Clock));
        let by = |address: u64| doing(place, &unnamed, || Some(address));
        assert_eq!(by(BASE + clock.start + 1), Some(Doing::Clock));
        assert_eq!(by(1), Some(Doing::Clock), "below it");
        // Since Linux 6.11.
        if let Some((_, random)) = within(Doing::Random) {
            let inside = at(BASE + random.start + 1);
            assert_eq!(doing(place, &inside, || None), Some(Doing::Random));
            assert_eq!(by(BASE + random.start + 1), Some(Doing::Random));
        }
    }

    fn proxy() -> Proxy {
        let mut bytes = own().expect("this kernel has a vDSO").to_vec();
        let range = Range {
            start: BASE,
            end: BASE + bytes.len() as u64,
        };
        let entries = replace_functions(&mut bytes, BASE).expect("it is understood");
        let data = vec![Range {
            start: BASE - 0x4000,
            end: BASE,
        }];
        Proxy {
            range,
            data,
            entries,
            bytes,
        }
    }

    fn offset_of(name: &[u8]) -> usize {
        let bytes = own().expect("a vDSO");
        let found = functions(bytes).expect("functions");
        let found = found.iter().find(|(known, ..)| known == name);
        usize::try_from(found.expect("the function").1).expect("an offset")
    }

    #[test]
    fn functions_become_calls_and_all_else_stays() {
        let (before, proxy) = (own().expect("a vDSO"), proxy());
        let (_, after) = proxy.contents();
        for (name, number) in [
            (&b"clock_gettime"[..], libc::SYS_clock_gettime),
            (b"gettimeofday", libc::SYS_gettimeofday),
            (b"time", libc::SYS_time),
            (b"getcpu", libc::SYS_getcpu),
        ] {
            let at = offset_of(name);
            let number = u32::try_from(number).expect("a number").to_le_bytes();
            assert_eq!(after[at], 0xb8, "mov eax");
            assert_eq!(after[at + 1..at + 5], number);
            assert_eq!(after[at + 5..at + 8], [0x0f, 0x05, 0xc3], "syscall, ret");
        }
        let replaced = |index: usize| proxy.begin_of(BASE + index as u64).is_some();
        let differs = |index: &usize| before[*index] != after[*index];
        assert!((0..before.len()).filter(differs).all(replaced));
        assert_eq!(before.len(), after.len());
    }

    #[test]
    fn places_in_a_function_are_told_apart() {
        let proxy = proxy();
        let begin = BASE + offset_of(b"clock_gettime") as u64;
        assert_eq!(proxy.begin_of(begin + 7), Some(begin));
        assert_eq!(proxy.begin_of(begin + 8), None);
        assert!(!proxy.stands_in(begin) && proxy.stands_in(begin + 1));
        assert!(proxy.stands_in(begin + 9) && !proxy.stands_in(BASE - 1));
        assert!(proxy.is_unfinished(begin + 9, BASE - 0x1000));
        assert!(!proxy.is_unfinished(begin + 9, BASE + 0x10));
        let words = |word: u64| [1u64, word, 2].map(u64::to_le_bytes).concat();
        assert!(proxy.is_remembered(&words(begin + 1)));
        // A pointer to the function, and one far into it.
        assert!(!proxy.is_remembered(&words(begin)));
        assert!(!proxy.is_remembered(&words(begin + 9)));
        assert!(proxy.covers(Range {
            start: BASE - 1,
            end: BASE
        }));
    }

    #[test]
    fn what_is_no_vdso_is_refused() {
        let whole = own().expect("a vDSO");
        for cut in (0..whole.len()).step_by(7) {
            let mut bytes = whole[..cut].to_vec();
            let _ = replace_functions(&mut bytes, BASE);
        }
        for (at, byte) in (0..whole.len()).zip([0xff, 0x80, 0x01, 0x00].iter().cycle()) {
            let mut bytes = whole.to_vec();
            bytes[at] = *byte;
            let _ = replace_functions(&mut bytes, BASE);
        }
        assert!(replace_functions(&mut [], BASE).is_err());
        assert!(replace_functions(&mut vec![0; 8192], BASE).is_err());
        // For another CPU (EM_AARCH64).
        let mut other = whole.to_vec();
        other[18] = 183;
        assert!(replace_functions(&mut other, BASE).is_err());
    }

    #[test]
    fn its_length_is_that_of_the_mapping() {
        let kernel = |start: u64, end: u64, name: &str| Mapping {
            start,
            end,
            protection: Protection(5),
            flags: whim_model::MappingFlags::default(),
            backing: Backing::Kernel { name: name.into() },
        };
        let vdso = own().expect("a vDSO");
        let end = BASE + vdso.len() as u64;
        let mappings = vec![
            kernel(BASE - 0x4000, BASE, "[vvar]"),
            kernel(BASE, end, "[vdso]"),
        ];
        let made = Proxy::new(&mappings, vdso).expect("sound");
        let made = made.expect("there is a vDSO");
        assert_eq!(made.contents().0, Range { start: BASE, end });
        assert_eq!(made.data().len(), 1);
        assert!(Proxy::new(&mappings, &vdso[1..]).is_err());
        assert!(Proxy::new(&mappings[..1], vdso).expect("sound").is_none());
    }
}
