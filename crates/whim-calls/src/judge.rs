//! A program's own seccomp filters: what they answer to a call, and how a guest is given the same answers.
//!
//! A filter is a classic BPF program over the number, the architecture and the arguments of a call. Of what the
//! kernel lets such a program do, everything is understood here but what depends on the place of the call: a
//! guest's calls are made again by its deputy, at another one. Jumps go forward only, so a filter ends.
//!
//! Filters stand in the order in which they were installed, the oldest first.

use crate::filter::Instruction;
use crate::types::NATIVE;

/// The most filters that travel with a program.
pub const FILTERS_MAX: usize = 64;
/// The most instructions that all filters of a program have together, and that a guest's program has for them
/// beside its own: podman's default has some hundreds for each of three architectures.
pub const INSTRUCTIONS_MAX: usize = 2800;
/// The longest program that the kernel takes.
const PROGRAM_MAX: usize = 4096;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const NOTIFY: u32 = 0x7fc0_0000;
const LOG: u32 = 0x7ffc_0000;
const TRACE: u32 = 0x7ff0_0000;
const TRAP: u32 = 0x0003_0000;
const ACTION: u32 = 0xffff_0000;
/// The kernel answers no higher error than this.
const ERRNO_MAX: u32 = 4095;

/// `restart_syscall`.
const RESTART: u32 = 219;

/// [`crate::AWAIT_NUMBER`], as a filter has it.
const AWAIT: u32 = 0x5748_494d;
const _: () = assert!(AWAIT as u64 == crate::AWAIT_NUMBER);

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const RETURN_ACCUMULATOR: u16 = 0x16;
const JUMP: u16 = 0x05;
const LOAD_NUMBER: u16 = 0x00;
const LOAD_INDEX_NUMBER: u16 = 0x01;
const STORE_INDEX: u16 = 0x03;
const TAKE_INDEX: u16 = 0x87;
const SCRATCH: usize = 16;
const DATA_LENGTH: u32 = 64;
const POINTER: std::ops::Range<u32> = 8..16;

/// What filters say to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow,
    /// The call is not made, and has this error.
    Errno(u16),
    /// The call ends the program, or the thread that makes it.
    Kill,
    /// It depends on an argument that is not known.
    Depends,
}

/// Why a filter does not travel; the end of a sentence that begins with "Its seccomp filter".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    Listener,
    Tracer,
    Log,
    Trap,
    /// It looks at where a call is made.
    Place,
    TooLong,
    /// What no kernel takes, or takes for an answer.
    Unknown,
}

impl Unfit {
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Listener => "has calls decided by a listener",
            Self::Tracer => "has calls decided by a tracer",
            Self::Log => "has calls logged",
            Self::Trap => "answers calls by a signal (SIGSYS)",
            Self::Place => "looks at where in the program a call is made",
            Self::TooLong => "is longer than those that travel",
            Self::Unknown => "does what is not known here",
        }
    }
}

/// A call as filters see it; `None` is an argument that is not known.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    pub number: u32,
    pub architecture: u32,
    pub args: [Option<u64>; 6],
}

impl Judged {
    /// A native call.
    #[must_use]
    pub fn native(number: u32, args: [Option<u64>; 6]) -> Self {
        Self {
            number,
            architecture: NATIVE,
            args,
        }
    }

    fn word(&self, offset: u32) -> Option<u32> {
        match offset {
            0 => Some(self.number),
            4 => Some(self.architecture),
            _ => {
                let index = usize::try_from(offset.checked_sub(DATA_LENGTH - 48)? / 8).ok()?;
                let value = (*self.args.get(index)?)?;
                let shift = if offset.is_multiple_of(8) { 0 } else { 32 };
                Some(crate::types::low(value >> shift))
            }
        }
    }
}

/// All filters of a thread, each checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters(Vec<Vec<Instruction>>);

impl Filters {
    /// Reads and checks filters; an instruction is 8 bytes as the kernel has it, in one little-endian number.
    ///
    /// # Errors
    /// [`Unfit`]: one of them does not travel.
    pub fn of(raw: &[Vec<u64>]) -> Result<Self, Unfit> {
        let lengths = raw.iter().map(Vec::len);
        let total = lengths.fold(0, usize::saturating_add);
        if raw.len() > FILTERS_MAX || total > INSTRUCTIONS_MAX {
            return Err(Unfit::TooLong);
        }
        let program = |raw: &Vec<u64>| raw.iter().map(|one| decode(*one)).collect::<Vec<_>>();
        let filters: Vec<Vec<Instruction>> = raw.iter().map(program).collect();
        filters.iter().try_for_each(|program| check(program))?;
        let filters = Self(filters);
        // A filter with both errors and ends takes its length twice.
        if filters.sections().len() > INSTRUCTIONS_MAX {
            return Err(Unfit::TooLong);
        }
        Ok(filters)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they say together: the strictest answer, and of equal ones that of the newest filter.
    #[must_use]
    pub fn answer(&self, call: &Judged) -> Answer {
        if call.number == AWAIT {
            // That is our call, not the program's.
            return Answer::Allow;
        }
        let mut found = Answer::Allow;
        for program in self.0.iter().rev() {
            found = match (run(program, call), found) {
                (Answer::Depends, _) | (_, Answer::Depends) => return Answer::Depends,
                (Answer::Kill, _) | (_, Answer::Kill) => Answer::Kill,
                (Answer::Errno(_), Answer::Errno(newer)) => Answer::Errno(newer),
                (Answer::Errno(errno), _) | (_, Answer::Errno(errno)) => Answer::Errno(errno),
                (Answer::Allow, Answer::Allow) => Answer::Allow,
            };
        }
        found
    }

    /// One program that has their errors answered by the guest's own kernel, has calls reported that would end
    /// the program, and leaves all others to `ours`. `None`: it would be longer than the kernel takes.
    #[must_use]
    pub fn before(&self, ours: &[Instruction]) -> Option<Vec<Instruction>> {
        let mut program = self.sections();
        if !program.is_empty() {
            // A filter that lists what it allows refuses the call by which a guest awaits a result of home's.
            let of_ours = [(LOAD, 0, 0), (0x15, 1, AWAIT), (RETURN, 0, NOTIFY)];
            let of_ours = of_ours.map(|(code, jf, k)| Instruction { code, jt: 0, jf, k });
            // Trap: a-filter-refuses-a-call-of-ours
            program.splice(0..0, of_ours);
        }
        program.extend_from_slice(ours);
        (program.len() <= PROGRAM_MAX).then_some(program)
    }

    fn sections(&self) -> Vec<Instruction> {
        let mut program = Vec::new();
        // What kills outranks an error of whichever filter.
        for filter in &self.0 {
            section(&mut program, filter, |action| {
                is_kill(action).then_some(NOTIFY)
            });
        }
        for filter in self.0.iter().rev() {
            section(&mut program, filter, |action| {
                (action & ACTION == ERRNO).then_some(action)
            });
        }
        program
    }
}

/// Appends a filter in which all answers but those that `answers` gives lead to what follows.
fn section(
    program: &mut Vec<Instruction>,
    filter: &[Instruction],
    answers: impl Fn(u32) -> Option<u32>,
) {
    let given = |one: &Instruction| one.code == RETURN && answers(one.k).is_some();
    if !filter.iter().any(given) {
        return;
    }
    // In the kernel each filter begins with zeros. One that loads first, and leaves the index alone, has no use for
    // them; then the kernel can remember which calls are always allowed.
    let indexed = |one: &Instruction| {
        matches!(one.code & 0x0f, 0x0c | 0x0d) || matches!(one.code, STORE_INDEX | TAKE_INDEX)
    };
    let clean = filter.first().is_some_and(|one| one.code == LOAD) && !filter.iter().any(indexed);
    if !clean {
        program.extend([LOAD_NUMBER, LOAD_INDEX_NUMBER].map(|code| Instruction {
            code,
            jt: 0,
            jf: 0,
            k: 0,
        }));
    }
    for (index, one) in filter.iter().enumerate() {
        let behind = u32::try_from(filter.len() - index - 1).unwrap_or(u32::MAX);
        program.push(match (one.code, answers(one.k)) {
            (RETURN, Some(action)) => Instruction { k: action, ..*one },
            (RETURN, None) => Instruction {
                code: JUMP,
                jt: 0,
                jf: 0,
                k: behind,
            },
            _ => *one,
        });
    }
}

/// Whether filters, also such as do not travel, let the kernel go on with a call that it has interrupted.
#[must_use]
pub fn allow_restart(raw: &[Vec<u64>]) -> bool {
    let restart = Judged::native(RESTART, [None; 6]);
    raw.iter().all(|program| {
        let program: Vec<Instruction> = program.iter().map(|one| decode(*one)).collect();
        run(&program, &restart) == Answer::Allow
    })
}

fn is_kill(action: u32) -> bool {
    matches!(action & ACTION, KILL_PROCESS | KILL_THREAD)
}

fn decode(raw: u64) -> Instruction {
    let [code_low, code_high, jt, jf, k @ ..] = raw.to_le_bytes();
    Instruction {
        code: u16::from_le_bytes([code_low, code_high]),
        jt,
        jf,
        k: u32::from_le_bytes(k),
    }
}

fn check(program: &[Instruction]) -> Result<(), Unfit> {
    for (index, one) in program.iter().enumerate() {
        let behind = u32::try_from(program.len() - index - 1).unwrap_or(0);
        let within = |by: u32| by < behind;
        let sound = match one.code {
            LOAD if POINTER.contains(&one.k) => return Err(Unfit::Place),
            LOAD => one.k < DATA_LENGTH && one.k.is_multiple_of(4),
            RETURN => return_is_known(one.k).map(|()| true)?,
            LOAD_NUMBER | LOAD_INDEX_NUMBER | 0x80 | 0x81 | 0x07 | TAKE_INDEX => true,
            0x60 | 0x61 | 0x02 | STORE_INDEX => usize::try_from(one.k).is_ok_and(|at| at < SCRATCH),
            JUMP => within(one.k),
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                within(u32::from(one.jt)) && within(u32::from(one.jf))
            }
            // Division is refused by the kernel if it is by a constant 0.
            0x34 => one.k != 0,
            0x64 | 0x74 => one.k < 32,
            code => calculate(code, 0, 1).is_some(),
        };
        if !sound {
            return Err(Unfit::Unknown);
        }
    }
    match program.last() {
        Some(last) if last.code == RETURN => Ok(()),
        _ => Err(Unfit::Unknown),
    }
}

fn return_is_known(action: u32) -> Result<(), Unfit> {
    match action & ACTION {
        ALLOW | ERRNO | KILL_PROCESS | KILL_THREAD => Ok(()),
        NOTIFY => Err(Unfit::Listener),
        TRACE => Err(Unfit::Tracer),
        LOG => Err(Unfit::Log),
        TRAP => Err(Unfit::Trap),
        _ => Err(Unfit::Unknown),
    }
}

/// The state of a filter that runs; `None` is a number that is not known.
#[derive(Default)]
struct Machine {
    accumulator: Option<u32>,
    index: Option<u32>,
    scratch: [Option<u32>; SCRATCH],
}

/// Runs a checked filter.
fn run(program: &[Instruction], call: &Judged) -> Answer {
    let mut machine = Machine {
        accumulator: Some(0),
        index: Some(0),
        ..Machine::default()
    };
    let mut at = 0;
    while let Some(one) = program.get(at) {
        at += 1;
        match one.code {
            RETURN => return answer_of(one.k),
            RETURN_ACCUMULATOR => return machine.accumulator.map_or(Answer::Depends, answer_of),
            JUMP => at = at.saturating_add(one.k as usize),
            code if code & 7 == 5 => match machine.holds(one) {
                None => return Answer::Depends,
                Some(true) => at += usize::from(one.jt),
                Some(false) => at += usize::from(one.jf),
            },
            _ => machine.step(one, call),
        }
    }
    // A filter that the kernel has taken does not end without an answer.
    Answer::Kill
}

fn answer_of(action: u32) -> Answer {
    match action & ACTION {
        ALLOW | LOG => Answer::Allow,
        ERRNO => {
            let errno = (action & !ACTION).min(ERRNO_MAX);
            Answer::Errno(u16::try_from(errno).unwrap_or(0))
        }
        _ => Answer::Kill,
    }
}

impl Machine {
    fn operand(&self, one: &Instruction) -> Option<u32> {
        if one.code & 8 == 0 {
            Some(one.k)
        } else {
            self.index
        }
    }

    /// Whether the condition of a jump holds.
    fn holds(&self, one: &Instruction) -> Option<bool> {
        let (value, operand) = (self.accumulator?, self.operand(one)?);
        Some(match one.code & 0xf0 {
            0x10 => value == operand,
            0x20 => value > operand,
            0x30 => value >= operand,
            _ => value & operand != 0,
        })
    }

    fn step(&mut self, one: &Instruction, call: &Judged) {
        let place = one.k as usize % SCRATCH;
        match one.code {
            LOAD => self.accumulator = call.word(one.k),
            LOAD_NUMBER => self.accumulator = Some(one.k),
            LOAD_INDEX_NUMBER => self.index = Some(one.k),
            0x80 => self.accumulator = Some(DATA_LENGTH),
            0x81 => self.index = Some(DATA_LENGTH),
            0x60 => self.accumulator = self.scratch[place],
            0x61 => self.index = self.scratch[place],
            0x02 => self.scratch[place] = self.accumulator,
            STORE_INDEX => self.scratch[place] = self.index,
            0x07 => self.index = self.accumulator,
            TAKE_INDEX => self.accumulator = self.index,
            code => {
                let operand = self.operand(one);
                let both = self.accumulator.zip(operand);
                self.accumulator =
                    both.and_then(|(value, operand)| calculate(code, value, operand));
            }
        }
    }
}

/// The result of an instruction of arithmetic; `None` for one that is none.
fn calculate(code: u16, value: u32, operand: u32) -> Option<u32> {
    if code & 7 != 4 || code > 0xff {
        return None;
    }
    Some(match code & 0xf0 {
        0x00 => value.wrapping_add(operand),
        0x10 => value.wrapping_sub(operand),
        0x20 => value.wrapping_mul(operand),
        // The kernel has a division by 0 end the filter with 0, which kills: no filter does it.
        0x30 => value.checked_div(operand).unwrap_or(0),
        0x40 => value | operand,
        0x50 => value & operand,
        0x60 => value.wrapping_shl(operand),
        0x70 => value.wrapping_shr(operand),
        0x80 if code & 8 == 0 => value.wrapping_neg(),
        0xa0 => value ^ operand,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(code: u16, jt: u8, jf: u8, k: u32) -> u64 {
        let [low, high] = code.to_le_bytes();
        let [a, b, c, d] = k.to_le_bytes();
        u64::from_le_bytes([low, high, jt, jf, a, b, c, d])
    }

    /// `number` gets `action`, others are allowed.
    fn one_call(number: u32, action: u32) -> Vec<u64> {
        vec![
            raw(LOAD, 0, 0, 0),
            raw(0x15, 0, 1, number),
            raw(RETURN, 0, 0, action),
            raw(RETURN, 0, 0, ALLOW),
        ]
    }

    fn call(number: u32, first: Option<u64>) -> Judged {
        Judged::native(number, [first, None, None, None, None, None])
    }

    #[test]
    fn the_strictest_answer_counts_and_the_newest_of_equal_ones() {
        let filters = Filters::of(&[
            one_call(1, ERRNO | 5),
            one_call(1, ERRNO | 7),
            one_call(2, KILL_PROCESS),
            one_call(2, ERRNO | 9),
        ])
        .expect("sound");
        assert_eq!(filters.answer(&call(1, None)), Answer::Errno(7));
        assert_eq!(filters.answer(&call(2, None)), Answer::Kill);
        assert_eq!(filters.answer(&call(3, None)), Answer::Allow);
    }

    #[test]
    fn an_argument_is_looked_at_by_halves_and_may_be_unknown() {
        let filters = Filters::of(&[vec![
            raw(LOAD, 0, 0, 20),
            raw(0x15, 0, 3, 1),
            raw(LOAD, 0, 0, 16),
            raw(0x54, 0, 0, 0xf0),
            raw(0x15, 1, 0, 0x20),
            raw(RETURN, 0, 0, ALLOW),
            raw(RETURN, 0, 0, ERRNO | 1),
        ]])
        .expect("sound");
        let answer = |first| filters.answer(&call(0, first));
        assert_eq!(answer(Some(0x1_0000_0025)), Answer::Errno(1));
        assert_eq!(answer(Some(0x1_0000_0035)), Answer::Allow);
        assert_eq!(answer(Some(0x25)), Answer::Allow);
        assert_eq!(answer(None), Answer::Depends);
    }

    #[test]
    fn what_cannot_be_kept_elsewhere_is_refused() {
        for (action, unfit) in [
            (NOTIFY, Unfit::Listener),
            (TRACE, Unfit::Tracer),
            (LOG, Unfit::Log),
            (TRAP, Unfit::Trap),
            (0x1234_0000, Unfit::Unknown),
        ] {
            assert_eq!(Filters::of(&[one_call(1, action)]), Err(unfit));
        }
        let at_place = vec![raw(LOAD, 0, 0, 8), raw(RETURN, 0, 0, ALLOW)];
        assert_eq!(Filters::of(&[at_place]), Err(Unfit::Place));
        for broken in [
            vec![],
            vec![raw(LOAD, 0, 0, 0)],
            vec![raw(LOAD, 0, 0, 2), raw(RETURN, 0, 0, ALLOW)],
            vec![raw(JUMP, 0, 0, 1), raw(RETURN, 0, 0, ALLOW)],
            vec![raw(0x15, 0, 1, 0), raw(RETURN, 0, 0, ALLOW)],
            vec![raw(0x60, 0, 0, 16), raw(RETURN, 0, 0, ALLOW)],
            vec![raw(0xffff, 0, 0, 0), raw(RETURN, 0, 0, ALLOW)],
            vec![raw(RETURN_ACCUMULATOR, 0, 0, 0)],
        ] {
            assert_eq!(Filters::of(&[broken]), Err(Unfit::Unknown));
        }
        let allow = raw(RETURN, 0, 0, ALLOW);
        let long = vec![allow; INSTRUCTIONS_MAX + 1];
        assert_eq!(Filters::of(&[long]), Err(Unfit::TooLong));
        let many = vec![vec![allow]; FILTERS_MAX + 1];
        assert_eq!(Filters::of(&many), Err(Unfit::TooLong));
    }

    #[test]
    fn a_guest_gets_the_same_answers_by_one_program() {
        let filters = Filters::of(&[
            one_call(1, ERRNO | 5),
            one_call(2, KILL_THREAD),
            one_call(1, ERRNO | 7),
            one_call(2, ERRNO | 9),
            one_call(AWAIT, ERRNO | 38),
        ])
        .expect("sound");
        let ours = [Instruction {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: ALLOW,
        }];
        let program = filters.before(&ours).expect("short");
        let result = |number| {
            let mut at = 0;
            let mut machine = Machine::default();
            loop {
                let one = &program[at];
                at += 1;
                match one.code {
                    RETURN => return one.k,
                    JUMP => at += one.k as usize,
                    0x15 => {
                        let holds = machine.holds(one).expect("known");
                        at += usize::from(if holds { one.jt } else { one.jf });
                    }
                    _ => machine.step(one, &call(number, None)),
                }
            }
        };
        assert_eq!(result(1), ERRNO | 7);
        assert_eq!(result(2), NOTIFY);
        assert_eq!(result(3), ALLOW);
        // A number that no kernel knows is ours, even where all such are refused.
        assert_eq!(result(AWAIT), NOTIFY);
    }

    #[test]
    fn the_longest_filters_leave_room_for_the_longest_program_of_ours() {
        let others = (0..20).map(|n| (n << 40, (n << 40) + 4096)).collect();
        let places = crate::Places {
            reserved: (1 << 45, 1 << 46),
            others,
            locks_future: true,
            reads_signals: true,
        };
        let ours = crate::cautious_filter(&places);
        let ends = |length: usize, action| {
            let mut filter = vec![raw(0x54, 0, 0, 1); length];
            filter[0] = raw(LOAD, 0, 0, 0);
            filter[length - 1] = raw(RETURN, 0, 0, action);
            filter
        };
        let longest = [ends(INSTRUCTIONS_MAX, KILL_PROCESS)];
        let filters = Filters::of(&longest).expect("not too long");
        assert!(filters.before(&ours).is_some(), "{}", ours.len());
        // Both kinds of answers take its length twice.
        let mut both = ends(INSTRUCTIONS_MAX / 2 + 1, KILL_PROCESS);
        both[1] = raw(RETURN, 0, 0, ERRNO | 1);
        assert_eq!(Filters::of(&[both]), Err(Unfit::TooLong));
    }
}
