//! Blocked signals that wait as a process leaves home, and travel in its image.
//!
//! Whatever else waits is passed on by home once the process is away, and comes late: the program runs already. Of a
//! signal that it blocks it could see that: it unblocks it, or asks for it, and is told of nothing. So these are in the
//! image, but for those of timers. When the move is decided, and before the guest runs, they are taken out of the queues
//! at home, where they would be found and passed on once more. Before that nothing is taken: a move that fails leaves all
//! as it was.

use crate::freeze::{FreezeError, Frozen};
use std::collections::BTreeSet;
use whim_model::{ProcessImage, QueuedSignal, Syscall};
use whim_sys::ptrace::{RawSigInfo, Stopped, Tid, TraceError, info_word};

/// Most signals that travel; if there are more, all wait for home. Each is some microseconds of standstill.
const MOST: usize = 1024;
/// Signals that act when they are sent (job control), which cannot be received, or by which a deputy is worked with.
const ELSEWHERE: [i32; 8] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGTRAP,
    64,
];

/// Signals that wait for a thread, or for the process; and those that it, or each thread, blocks.
struct Queue {
    infos: Vec<RawSigInfo>,
    blocked: u64,
}

impl Queue {
    fn stays(&self, info: &RawSigInfo) -> bool {
        let number = info_word(info, 0);
        ELSEWHERE.contains(&number)
            // How often it has expired since, the kernel counts when it leaves the queue.
            || info_word(info, 8) == libc::SI_TIMER
            || !(1..64).contains(&number)
            || self.blocked >> (number - 1) & 1 == 0
    }
}

/// Of each queue the signals that travel. They are taken out by number, the oldest first: of one number all travel, or
/// none.
fn travelling(queues: &[Queue]) -> Vec<Vec<QueuedSignal>> {
    let staying: BTreeSet<i32> = queues
        .iter()
        .flat_map(|queue| queue.infos.iter().filter(|info| queue.stays(info)))
        .map(|info| info_word(info, 0))
        .collect();
    let travels = |info: &&RawSigInfo| !staying.contains(&info_word(*info, 0));
    queues
        .iter()
        .map(|queue| {
            queue
                .infos
                .iter()
                .filter(travels)
                .filter_map(queued)
                .collect()
        })
        .collect()
}

fn queued(info: &RawSigInfo) -> Option<QueuedSignal> {
    QueuedSignal::new(info_word(info, 0), info)
}

impl Frozen {
    /// Puts the signals that travel into an image that has none. Where home goes on with a call that waits for signals
    /// (under a mask of its own, or to receive them), all have to be left to it.
    ///
    /// # Errors
    /// The process has died.
    pub fn embark_signals(&self, image: &mut ProcessImage) -> Result<(), FreezeError> {
        // A filter might refuse the call that takes them out.
        if !image.filters.is_empty() {
            return Ok(());
        }
        let at_descriptors = image.descriptor_signals;
        let (mut queues, mut blocked_by_all) = (Vec::new(), !at_descriptors);
        for (thread, image) in self.threads().iter().zip(&image.threads) {
            blocked_by_all &= image.signal_mask;
            queues.push(Queue {
                infos: waiting(thread.stopped()?, false)?,
                blocked: image.signal_mask & !at_descriptors,
            });
        }
        let Some(leader) = self.threads().first() else {
            return Ok(());
        };
        queues.push(Queue {
            infos: waiting(leader.stopped()?, true)?,
            blocked: blocked_by_all,
        });
        if queues.iter().map(|queue| queue.infos.len()).sum::<usize>() > MOST {
            return Ok(());
        }
        let mut travelling = travelling(&queues);
        image.pending = travelling.pop().unwrap_or_default();
        for (thread, own) in image.threads.iter_mut().zip(travelling) {
            thread.pending = own;
        }
        Ok(())
    }

    /// Takes the signals of the image out of the queues here; what has come since stays. To be called once it is decided
    /// that the guest runs, and before it does. The numbers of those that were not found.
    ///
    /// # Errors
    /// The process has died, or cannot be worked with.
    pub fn let_signals_go(&mut self, image: &ProcessImage) -> Result<Vec<u8>, FreezeError> {
        let own = image.threads.iter().map(|thread| thread.pending.as_slice());
        let mut lists: Vec<Vec<u8>> = own.map(numbers).collect();
        // The kernel looks into a thread's own queue first.
        if let Some(leader) = lists.first_mut() {
            leader.extend(numbers(&image.pending));
        }
        let tids: Vec<_> = self.threads().iter().map(|thread| thread.tid()).collect();
        let mut missing = Vec::new();
        for (tid, list) in tids.into_iter().zip(lists) {
            missing.extend(self.receive(tid, &list)?);
        }
        Ok(missing)
    }

    /// Has a thread receive signals of these numbers; those that it has not received.
    fn receive(&mut self, tid: Tid, numbers: &[u8]) -> Result<Vec<u8>, FreezeError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = self.scratch()?;
        // No time, and the 64 sets of one signal each.
        let mut data = vec![0; 16];
        data.extend((0..64).flat_map(|bit| (1u64 << bit).to_ne_bytes()));
        let written = self.memory().write_all(scratch.start, &data);
        written.map_err(FreezeError::Memory)?;
        let receive = |number: &u8| {
            let set = scratch.start + 16 + u64::from(number - 1) * 8;
            Syscall::new(libc::SYS_rt_sigtimedwait, &[set, 0, scratch.start, 8])
        };
        let list: Vec<Syscall> = numbers.iter().map(receive).collect();
        let results = self.run(tid, &list)?;
        let missing = numbers.iter().zip(results);
        let missing = missing.filter(|(number, result)| i64::from(**number) != *result);
        Ok(missing.map(|(number, _)| *number).collect())
    }
}

fn waiting(stopped: &Stopped, shared: bool) -> Result<Vec<RawSigInfo>, TraceError> {
    // Mostly there are none, and to ask for them takes room for many.
    if stopped.has_queued(shared)? {
        stopped.queued_signals(shared)
    } else {
        Ok(Vec::new())
    }
}

fn numbers(signals: &[QueuedSignal]) -> Vec<u8> {
    signals.iter().map(|signal| signal.signal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: i32, code: i32, value: u8) -> RawSigInfo {
        let mut info = [0; 128];
        info[0..4].copy_from_slice(&number.to_ne_bytes());
        info[8..12].copy_from_slice(&code.to_ne_bytes());
        info[24] = value;
        info
    }

    fn queue(blocked: &[i32], infos: &[RawSigInfo]) -> Queue {
        Queue {
            infos: infos.to_vec(),
            blocked: blocked
                .iter()
                .fold(0, |all, number| all | 1 << (number - 1)),
        }
    }

    fn values(travelling: &[Vec<QueuedSignal>]) -> Vec<Vec<u8>> {
        let of = |queue: &Vec<QueuedSignal>| queue.iter().map(|signal| signal.info[24]).collect();
        travelling.iter().map(of).collect()
    }

    #[test]
    fn what_is_blocked_travels_in_its_order() {
        const SENT: i32 = libc::SI_QUEUE;
        let own = queue(
            &[34, 17],
            &[info(34, SENT, 1), info(17, 1, 2), info(34, SENT, 3)],
        );
        let other = queue(&[34], &[info(35, SENT, 4)]);
        let shared = queue(&[34], &[info(34, SENT, 5)]);
        let found = travelling(&[own, other, shared]);
        assert_eq!(values(&found), [vec![1, 2, 3], vec![], vec![5]]);
        assert_eq!(found[0][1].signal, 17);
    }

    #[test]
    fn of_one_number_all_travel_or_none() {
        let all = [34, 35, 36, libc::SIGTSTP, 64];
        let own = queue(&all, &[info(34, libc::SI_TIMER, 1), info(35, 0, 2)]);
        let not_blocked = queue(&[34], &[info(36, 0, 3)]);
        let shared = [
            info(34, 0, 4),
            info(36, 0, 5),
            info(libc::SIGTSTP, 0, 6),
            info(64, 0, 7),
        ];
        let found = travelling(&[own, not_blocked, queue(&all, &shared)]);
        assert_eq!(values(&found), [vec![2], vec![], vec![]]);
    }
}
