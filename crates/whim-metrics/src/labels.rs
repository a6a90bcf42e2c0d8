//! The values that labels may have.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use std::fmt;

macro_rules! label {
    ($(#[$about:meta])* $name:ident { $($(#[$of_one:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$of_one])* $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as the label shows it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
                EncodeLabelValue::encode(&self.name(), encoder)
            }
        }
    };
}

label! {
    /// Why a move was not begun.
    Refusal {
        /// A stay reason of the process.
        Stay = "stay",
        /// The node is unknown, down, drained or blocked, or no node is suitable.
        Node = "node",
        /// The node is of another kind.
        Kind = "kind",
        /// The limits that `whim run` was given for the program.
        Bounds = "bounds",
        /// The process is there already.
        There = "there",
        /// The process is being moved.
        Busy = "busy",
        /// There is no such process, or it is not the caller's.
        Process = "process",
    }
}

label! {
    /// Why this node did not admit a guest.
    Unadmitted {
        Draining = "draining",
        Blocked = "blocked",
        /// There are as many guests as the configuration allows.
        Guests = "guests",
        /// There are as many guests of this user as the configuration allows.
        User = "user",
        Kind = "kind",
        Memory = "memory",
        Threads = "threads",
        /// Something went wrong here, or the request makes no sense.
        Other = "other",
    }
}

label! {
    /// What the balancer decided about a program at a look.
    Verdict {
        Move = "move",
        Moving = "moving",
        Told = "told",
        Interactive = "interactive",
        Placed = "placed",
        Young = "young",
        Light = "light",
        Terminal = "terminal",
        Spent = "spent",
        Paced = "paced",
        Failed = "failed",
        NoCandidate = "no-candidate",
        NoNode = "no-node",
        JustCame = "just-came",
        NoRoom = "no-room",
        NotCheaper = "not-cheaper",
        NotWorth = "not-worth",
    }
}

label! {
    /// How far a guest of this node has come.
    GuestState {
        /// Admitted; its supervisor is being started.
        Starting = "starting",
        /// Its supervisor runs.
        Started = "started",
    }
}

label! {
    /// State of a process of this node, as `whim ps` shows it.
    State {
        Home = "home",
        Away = "away",
        Moving = "moving",
        Stopped = "stopped",
        InDoubt = "in-doubt",
    }
}

label! {
    /// Where the computation of a process is.
    Place {
        Here = "here",
        Elsewhere = "elsewhere",
    }
}

label! {
    /// State of a member, as `whim nodes` shows it.
    Reach {
        Up = "up",
        Suspect = "suspect",
        Down = "down",
        Draining = "draining",
    }
}

label! {
    /// What a node was ordered to do.
    Order {
        /// Admit no guests.
        Block = "block",
        /// Keep its own processes.
        Stay = "stay",
        Drain = "drain",
    }
}
