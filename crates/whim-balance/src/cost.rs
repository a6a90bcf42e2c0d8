//! Opportunity cost: what a node's use of its resources costs, on one scale for all of them.
//!
//! Each resource costs `n^(used / most)`, where `n` is the number of nodes: little while there is enough of it,
//! and more and more as it runs out. What a program adds to the sum of a node is what the program costs there,
//! so it belongs where it adds least. In this way CPU and memory, which have no common unit, are weighed
//! against each other without a constant that somebody has to choose.
//!
//! Source: Amir, Awerbuch, Barak, Borgstrom, Keren, "An Opportunity Cost Approach for Job Assignment in a
//! Scalable Computing Cluster" (IEEE TPDS 11(7), 2000), section 4. Its figures 1 and 2 have two slips:
//! the assignment `cost = marginal_cost` is missing, and a job may move several times in one scan.

use serde::{Deserialize, Serialize};

/// How much of a node is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Processes that could run, per unit of the node's speed (all its cores together).
    pub load: f64,
    /// Bytes that are in use or promised.
    pub memory: f64,
}

/// How much a node has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Speed of all cores together, in the unit of the loads.
    pub speed: f64,
    /// Bytes.
    pub memory: f64,
}

/// What one program uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Need {
    /// CPUs that it keeps busy.
    pub cpus: f64,
    /// Bytes.
    pub memory: f64,
}

/// Weighs the nodes of one cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The natural logarithm of the number of nodes, but at least that of 2: with one node nothing would cost
    /// more than anything else.
    logarithm: f64,
    /// The smallest power of two that is greater than the largest load ever seen.
    load_max: f64,
}

impl Scale {
    /// The scale for a cluster of so many nodes.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        Self {
            logarithm: logarithm(nodes),
            load_max: 1.0,
        }
    }

    /// The cluster has another number of nodes now.
    pub fn resize(&mut self, nodes: u32) {
        self.logarithm = logarithm(nodes);
    }

    /// Notes a load of some node.
    pub fn see(&mut self, load: f64) {
        while load.is_finite() && load >= self.load_max {
            self.load_max *= 2.0;
        }
    }

    /// What a node's use costs.
    #[must_use]
    pub fn cost(&self, used: Use, size: Size) -> f64 {
        let memory = used.memory / size.memory.max(1.0);
        // A power of e takes half the time of a power of n, and large simulations do little else.
        let power = |part: f64| (self.logarithm * part).exp();
        power(memory) + power(used.load / self.load_max)
    }

    /// What a program would add to a node.
    #[must_use]
    pub fn adds(&self, used: Use, size: Size, need: Need) -> f64 {
        self.cost(with(used, size, need, 1.0), size) - self.cost(used, size)
    }

    /// The cost that a node would be relieved of without a program that it has.
    #[must_use]
    pub fn relieves(&self, used: Use, size: Size, need: Need) -> f64 {
        self.cost(used, size) - self.cost(with(used, size, need, -1.0), size)
    }
}

fn logarithm(nodes: u32) -> f64 {
    f64::from(nodes.max(2)).ln()
}

fn with(used: Use, size: Size, need: Need, sign: f64) -> Use {
    Use {
        load: (used.load + sign * need.cpus / size.speed.max(1e-9)).max(0.0),
        memory: (used.memory + sign * need.memory).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: f64 = (1u64 << 30) as f64;
    const SIZE: Size = Size {
        speed: 1.0,
        memory: 4.0 * GIB,
    };

    fn used(load: f64, memory: f64) -> Use {
        Use {
            load,
            memory: memory * GIB,
        }
    }

    const JOB: Need = Need {
        cpus: 1.0,
        memory: GIB,
    };

    #[test]
    fn the_scale_is_the_next_power_of_two() {
        let mut scale = Scale::new(6);
        for (seen, most) in [(0.5, 1.0), (1.0, 2.0), (3.9, 4.0), (4.0, 8.0), (2.0, 8.0)] {
            scale.see(seen);
            assert!((scale.load_max - most).abs() < 1e-12, "{seen}");
        }
    }

    #[test]
    fn a_program_belongs_where_it_adds_least() {
        let mut scale = Scale::new(4);
        scale.see(3.0);
        let idle = scale.adds(used(0.0, 1.0), SIZE, JOB);
        let busy = scale.adds(used(2.0, 1.0), SIZE, JOB);
        let full = scale.adds(used(0.0, 3.0), SIZE, JOB);
        assert!(idle < busy && idle < full);
        let fast = Size { speed: 2.0, ..SIZE };
        assert!(scale.adds(used(1.0, 1.0), fast, JOB) < scale.adds(used(1.0, 1.0), SIZE, JOB));
    }

    proptest! {
        #[test]
        fn what_a_program_adds_is_what_its_end_relieves(
            load in 0.0..50.0f64, memory in 0.0..4.0f64, cpus in 0.0..8.0f64, need in 0.0..4.0f64, nodes in 1u32..2000,
        ) {
            let mut scale = Scale::new(nodes);
            scale.see(load + cpus);
            let job = Need { cpus, memory: need * GIB };
            let before = used(load, memory);
            let after = with(before, SIZE, job, 1.0);
            let (adds, relieves) = (scale.adds(before, SIZE, job), scale.relieves(after, SIZE, job));
            prop_assert!(adds >= 0.0);
            prop_assert!((adds - relieves).abs() <= 1e-6 * (1.0 + adds.abs()));
        }
    }
}
