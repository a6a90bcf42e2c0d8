//! A guest's thread, as far as home knows of it. Used as [`end`](super::end) is.

/// What travels: the serial number of its next effect, and the call that it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadImage {
    pub next: u64,
    pub awaited: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Computing,
    /// It waits for the answer to this message; `awaited` is the call that it is about.
    Waiting {
        sequence: u64,
        awaited: u64,
    },
    /// It waits for the answer to something that is no call, and cannot be left to home.
    Settling {
        sequence: u64,
    },
    /// It left this call to home, and will ask.
    Left {
        awaited: u64,
    },
}

/// What a thread asks of home.
#[derive(Clone, Copy, Debug)]
pub enum Asking {
    Call {
        sequence: u64,
        serial: u64,
    },
    Await {
        sequence: u64,
        awaited: u64,
    },
    /// Anything else that has an effect: it is done and answered at once.
    Other {
        sequence: u64,
        serial: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Thread {
    next: u64,
    doing: Doing,
    sequence: u64,
}

impl Thread {
    /// As it arrives on the host of this epoch.
    #[must_use]
    pub fn new(image: ThreadImage, epoch: u32) -> Self {
        Self {
            next: image.next,
            doing: image
                .awaited
                .map_or(Doing::Computing, |awaited| Doing::Left { awaited }),
            sequence: u64::from(epoch) << 32,
        }
    }

    /// Whether it cannot leave now.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        matches!(self.doing, Doing::Settling { .. })
    }

    /// It leaves its call to home.
    pub fn leave(&mut self) -> ThreadImage {
        if let Doing::Waiting { awaited, .. } = self.doing {
            self.doing = Doing::Left { awaited };
        }
        let awaited = match self.doing {
            Doing::Left { awaited } => Some(awaited),
            _ => None,
        };
        let next = self.next;
        ThreadImage { next, awaited }
    }

    /// It goes on by a step, unless it waits.
    pub fn work(&mut self, is_call: bool) -> Option<Asking> {
        let (sequence, serial) = (self.sequence + 1, self.next);
        let asking = match self.doing {
            Doing::Waiting { .. } | Doing::Settling { .. } => return None,
            Doing::Computing if is_call => {
                let awaited = sequence;
                self.doing = Doing::Waiting { sequence, awaited };
                Asking::Call { sequence, serial }
            }
            Doing::Computing => {
                self.doing = Doing::Settling { sequence };
                Asking::Other { sequence, serial }
            }
            Doing::Left { awaited } => {
                self.doing = Doing::Waiting { sequence, awaited };
                Asking::Await { sequence, awaited }
            }
        };
        self.sequence = sequence;
        Some(asking)
    }

    /// Accepts an answer if the thread waits for it. `done` says whether what it asked for had its
    /// effect.
    pub fn answered(&mut self, answered: u64, done: bool) -> bool {
        let (Doing::Waiting { sequence, .. } | Doing::Settling { sequence }) = self.doing else {
            return false;
        };
        if sequence != answered {
            return false;
        }
        self.next += u64::from(done);
        self.doing = Doing::Computing;
        true
    }
}
