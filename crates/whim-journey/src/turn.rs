//! Decides whose turn it is: which messages of a thread are executed, once, and which are answered
//! from the result that is kept.
//!
//! Sequence numbers rise over a whole stay away; their upper half is the epoch of the host that sent
//! them. One call of a thread is in flight at a time, and its result is kept until its next call.

/// What a thread of the guest asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A forwarded call.
    Call { sequence: u64 },
    /// What became of call `awaited`, which the thread made before it came to its present host?
    Await { sequence: u64, awaited: u64 },
    /// Anything else that has an effect and is answered at once.
    Other { sequence: u64 },
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is new: it is executed now.
    Execute,
    /// The call was executed: the answer is the result that is kept.
    Repeat,
    /// The call in flight answers the request when the call ends.
    Attend,
    /// The call was never executed.
    Unknown,
    /// Nothing is done, because the request was or is being executed, and has its answer or will
    /// get it.
    Stale,
    /// The request is new, but a call is in flight. No guest of ours sends that.
    Overlap,
}

/// What home remembers of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Sequence number of the last message that was accepted.
    last: u64,
}

impl Turn {
    /// Decides about a request. `active` is the call in flight, `finished` the call whose result is
    /// kept.
    pub fn handle(
        &mut self,
        request: Request,
        active: Option<u64>,
        finished: Option<u64>,
    ) -> Verdict {
        let (Request::Call { sequence }
        | Request::Await { sequence, .. }
        | Request::Other { sequence }) = request;
        // Trap: a-call-is-sent-twice
        if sequence <= self.last {
            let kept = matches!(request, Request::Call { .. }) && finished == Some(sequence);
            return if kept {
                Verdict::Repeat
            } else {
                Verdict::Stale
            };
        }
        if !matches!(request, Request::Await { .. }) && active.is_some() {
            return Verdict::Overlap;
        }
        self.last = sequence;
        match request {
            Request::Call { .. } | Request::Other { .. } => Verdict::Execute,
            Request::Await { awaited, .. } if active == Some(awaited) => Verdict::Attend,
            Request::Await { awaited, .. } if finished == Some(awaited) => Verdict::Repeat,
            Request::Await { .. } => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_executed_once() {
        let mut turn = Turn::default();
        let call = |sequence| Request::Call { sequence };
        assert_eq!(turn.handle(call(1), None, None), Verdict::Execute);
        assert_eq!(turn.handle(call(1), Some(1), None), Verdict::Stale);
        assert_eq!(turn.handle(call(2), Some(1), None), Verdict::Overlap);
        assert_eq!(turn.handle(call(1), None, Some(1)), Verdict::Repeat);
        assert_eq!(turn.handle(call(2), None, Some(1)), Verdict::Execute);
        assert_eq!(turn.handle(call(1), None, Some(2)), Verdict::Stale);
        let other = |sequence| Request::Other { sequence };
        assert_eq!(turn.handle(other(3), None, Some(2)), Verdict::Execute);
        assert_eq!(turn.handle(other(3), None, Some(2)), Verdict::Stale);
        assert_eq!(turn.handle(other(4), Some(2), None), Verdict::Overlap);
    }

    #[test]
    fn a_call_from_another_host_is_found_again() {
        let await_call = |awaited| Request::Await {
            sequence: (2 << 32) + 1,
            awaited,
        };
        let turn = Turn { last: 7 };
        assert_eq!(
            turn.clone().handle(await_call(7), Some(7), None),
            Verdict::Attend
        );
        assert_eq!(
            turn.clone().handle(await_call(7), None, Some(7)),
            Verdict::Repeat
        );
        assert_eq!(
            turn.clone().handle(await_call(8), None, Some(7)),
            Verdict::Unknown
        );
        // The call in which it left home.
        let home = Turn::default();
        assert_eq!(
            home.clone().handle(await_call(0), Some(0), None),
            Verdict::Attend
        );
    }
}
