//! Machines whose processes share the CPU evenly, in continuous time: exact between events, and nothing
//! happens in between.

/// By how much those are slower who want so many cores together, and share so many.
#[must_use]
pub(crate) fn crowding(cores: f64, wanted: f64) -> f64 {
    (wanted / cores).max(1.0)
}

/// What a machine has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// Of one process that has it alone, in units of work per second.
    pub speed: f64,
    /// In the unit of the processes' memory.
    pub memory: f64,
}

/// Unique within a run, and larger for younger processes.
pub(crate) type ProcessId = u64;

/// What a process still has to do, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    pub id: ProcessId,
    /// The job that it is part of.
    pub job: usize,
    /// Units of work that are left.
    pub left: f64,
    pub memory: f64,
    /// When it came to this machine, in seconds.
    pub came: f64,
    /// How often it was moved.
    pub moves: u32,
    /// For so many seconds it does not run yet, because it is being moved.
    pub frozen: f64,
}

/// A machine at work.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub machine: Machine,
    /// In the order of their coming.
    pub processes: Vec<Process>,
    used: f64,
}

impl Busy {
    #[must_use]
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            machine,
            processes: Vec::new(),
            used: 0.0,
        }
    }

    /// Processes that it has; those that are on their way to it count.
    #[must_use]
    pub(crate) fn load(&self) -> f64 {
        self.processes.len() as f64
    }

    /// Memory that its processes hold; that of those on their way is promised, and counts.
    #[must_use]
    pub(crate) fn used(&self) -> f64 {
        self.used
    }

    #[must_use]
    pub(crate) fn free(&self) -> f64 {
        self.machine.memory - self.used
    }

    pub(crate) fn add(&mut self, process: Process) {
        self.used += process.memory;
        self.processes.push(process);
    }

    pub(crate) fn remove(&mut self, id: ProcessId) -> Option<Process> {
        let place = self.processes.iter().position(|p| p.id == id)?;
        let process = self.processes.remove(place);
        self.used -= process.memory;
        if self.processes.is_empty() {
            // No sum of roundings is left over.
            self.used = 0.0;
        }
        Some(process)
    }

    /// What each of its processes gets done in a second. A machine whose memory is overcommitted is
    /// slower by `thrashing`.
    fn rate(&self, thrashing: f64) -> f64 {
        let running = self.processes.iter().filter(|p| p.frozen <= 0.0).count();
        let shared = self.machine.speed / crowding(1.0, running as f64);
        if self.used > self.machine.memory {
            shared / thrashing
        } else {
            shared
        }
    }

    /// How long until a process ends or begins to run, if nothing else changes.
    #[must_use]
    pub(crate) fn until_change(&self, thrashing: f64) -> f64 {
        let rate = self.rate(thrashing);
        let change = |process: &Process| match process.frozen > 0.0 {
            true => process.frozen,
            false => process.left / rate,
        };
        self.processes
            .iter()
            .map(change)
            .fold(f64::INFINITY, f64::min)
    }

    /// Lets time pass, no more than until the next change; gives the processes that have ended.
    pub(crate) fn pass(&mut self, seconds: f64, thrashing: f64) -> Vec<Process> {
        /// Of a unit of work, or of a second: what is less is nothing.
        const NOTHING: f64 = 1e-9;
        let done = seconds * self.rate(thrashing);
        let mut ended = Vec::new();
        for process in &mut self.processes {
            if process.frozen > 0.0 {
                process.frozen -= seconds;
                if process.frozen <= NOTHING {
                    process.frozen = 0.0;
                }
                continue;
            }
            process.left -= done;
            if process.left <= NOTHING {
                ended.push(process.id);
            }
        }
        let mut take = |id| self.remove(id);
        ended.into_iter().filter_map(&mut take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: ProcessId, left: f64, memory: f64) -> Process {
        Process {
            id,
            job: 0,
            left,
            memory,
            came: 0.0,
            moves: 0,
            frozen: 0.0,
        }
    }

    fn machine(speed: f64) -> Busy {
        Busy::new(Machine {
            speed,
            memory: 10.0,
        })
    }

    #[test]
    fn processes_share_a_machine() {
        let mut busy = machine(2.0);
        busy.add(process(1, 4.0, 6.0));
        assert!((busy.until_change(10.0) - 2.0).abs() < 1e-12);
        busy.add(process(2, 1.0, 1.0));
        assert!((busy.until_change(10.0) - 1.0).abs() < 1e-12);
        assert_eq!(busy.pass(1.0, 10.0).len(), 1);
        assert!((busy.processes[0].left - 3.0).abs() < 1e-12);
    }

    #[test]
    fn too_much_memory_makes_it_slow() {
        let mut busy = machine(1.0);
        busy.add(process(1, 1.0, 11.0));
        assert!((busy.until_change(10.0) - 10.0).abs() < 1e-12);
        busy.remove(1);
        assert!(busy.processes.is_empty() && busy.used() == 0.0);
    }

    #[test]
    fn one_that_is_being_moved_takes_room_and_no_time() {
        let mut busy = machine(1.0);
        busy.add(process(1, 4.0, 4.0));
        busy.add(Process {
            frozen: 2.0,
            ..process(2, 4.0, 5.0)
        });
        assert!((busy.free() - 1.0).abs() < 1e-12 && (busy.load() - 2.0).abs() < 1e-12);
        assert!((busy.until_change(10.0) - 2.0).abs() < 1e-12);
        assert!(busy.pass(2.0, 10.0).is_empty());
        assert!((busy.processes[0].left - 2.0).abs() < 1e-12);
        assert!((busy.processes[1].left - 4.0).abs() < 1e-12);
        assert!((busy.until_change(10.0) - 4.0).abs() < 1e-12);
    }
}
