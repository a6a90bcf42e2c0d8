//! How each thread of a captured process goes on at its host.

use crate::capture::InFlight;
use crate::freeze::FrozenThread;
use crate::freeze_calls::{CallState, InterruptedCall, RESTART_SYSCALL, TimeoutPlace};
use whim_model::{AWAIT_NUMBER, Activity, Registers, Syscall};

/// How the new half of a thread resumes its work.
pub(crate) struct Plan {
    pub registers: Registers,
    pub activity: Activity,
    pub call: Option<InFlight>,
    /// For a wait that begins anew: when its time is over.
    pub deadline_ns: Option<u64>,
}

pub(crate) fn plan(thread: &FrozenThread, begins_in_guest: &dyn Fn(u64) -> bool) -> Plan {
    let mut registers = *thread.registers();
    // Nothing is ever restarted by the kernel of the host: what has to be done again is rewound.
    registers.orig_rax = u64::MAX;
    let computing = |registers| Plan {
        registers,
        activity: Activity::Computing,
        call: None,
        deadline_ns: None,
    };
    let Some(call) = thread.call() else {
        return computing(registers);
    };
    if call.state == CallState::Complete {
        return computing(registers);
    }
    let Syscall { number, args } = call.syscall;
    let local = begins_in_guest(number) && number != RESTART_SYSCALL;
    let sleeps = matches!(call.state, CallState::RestartBlock { .. });
    let deadline_ns = match call.state {
        CallState::RestartBlock { deadline_ns } => deadline_ns,
        CallState::Cut { timeout } => timeout.map(|timeout| timeout.deadline_ns),
        _ => None,
    };
    let ends_for_nothing = whim_calls::ends_for_nothing(number);
    if local
        && sleeps
        && deadline_ns.is_none()
        && ends_for_nothing
        && whim_calls::relative_time(number, &args).is_some()
    {
        // It is unknown how much of its time is left.
        registers.rax = 0;
        return computing(registers);
    }
    registers.rip -= 2;
    let in_flight = in_flight(thread.tid(), call);
    let short = matches!(call.state, CallState::Short { .. });
    if local && !short && (!sleeps || ends_for_nothing) {
        registers.rax = number;
        if whim_calls::waits_for_signals(number) {
            // From this the host knows that it stands right before its call.
            registers.orig_rax = number;
        }
        let cut = matches!(call.state, CallState::Cut { timeout: Some(_) });
        let call = cut.then_some(in_flight);
        return Plan {
            registers,
            activity: Activity::Computing,
            call,
            deadline_ns,
        };
    }
    registers.rax = AWAIT_NUMBER;
    Plan {
        registers,
        activity: Activity::AwaitsHome,
        call: Some(in_flight),
        deadline_ns: None,
    }
}

fn in_flight(tid: i32, call: &InterruptedCall) -> InFlight {
    let (Syscall { number, args }, further) = call.remainder();
    let (already, rest_ns) = match &call.state {
        CallState::Short { done, .. } => (done.cast_signed(), None),
        CallState::Cut {
            timeout: Some(timeout),
        } => {
            let in_register = matches!(timeout.place, TimeoutPlace::Register(_));
            (0, (!in_register).then(|| timeout.rest_ns()))
        }
        _ => (0, None),
    };
    let deadline_ns = match &call.state {
        CallState::Cut { timeout } => timeout.map(|timeout| timeout.deadline_ns),
        _ => None,
    };
    InFlight {
        tid,
        number,
        args,
        original_number: call.syscall.number,
        original_args: call.syscall.args,
        // Trap: a-sleep-ends-with-eintr
        restart: matches!(call.state, CallState::RestartBlock { .. }),
        already,
        rest_ns,
        deadline_ns,
        further,
    }
}
