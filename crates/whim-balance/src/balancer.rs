//! The balancer of one node: judges its programs each second, says which of them go where, and records why.
//!
//! A node decides for the programs whose home it is, wherever they compute now. It starts from what it knows of
//! the nodes, corrects that by the moves that it has begun itself and that no sensor shows yet, and asks four
//! questions in this order: Does a program wait for its user at a terminal while it is away? Does memory run
//! out where one of the programs is? Would one lose less at home? Would one have to wait less elsewhere? The
//! last two are answered together: see [`decide`]. How often anything is moved is limited by [`pace`].

mod surroundings;
#[cfg(test)]
mod tests;
mod turns;

use crate::decide::{self, Decision, Node, Numbers, Rules, Scene, Stay, Task};
use crate::pace::{self, Pace};
use crate::{Millis, NodeId, usher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use surroundings::Surroundings;
use whim_journey::cause::Cause;

/// One of this node's own programs, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The numbers that decisions use. `process` is the caller's name for it; `home` is this node.
    pub task: Task,
    /// Where it computes.
    pub at: NodeId,
    /// Bytes a second by which its memory grows.
    pub growth: f64,
    /// Its user sits at it: it leads a terminal, and waits for input.
    pub terminal: bool,
    /// Why it does not move at all, whatever the loads are.
    pub fixed: Option<Fixed>,
    /// Nodes to which it may not go.
    pub forbidden: Vec<NodeId>,
    /// Earlier runs of this program say that it lasts, so there is no need to wait and see.
    pub lasts: bool,
}

/// Why the balancer does not move a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fixed {
    /// Its user or an administrator has said so, or it is no candidate, or it has a stay reason. The caller
    /// knows the sentence.
    Told,
    /// `--class interactive`.
    Interactive,
    /// Its user has put it where it is a moment ago.
    Placed,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    pub node: Node,
    /// When the node was in this state, by our clock.
    pub at: Millis,
    /// It is up and takes guests.
    pub takes: bool,
    /// Bytes a second by which the use of its memory grows.
    pub growth: f64,
}

/// A move that is to begin now. In a move for memory the numbers mean something else: `relieves` is the bytes
/// that leave its node, and `adds` the bytes that this node would lack otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relocation {
    pub process: u64,
    pub from: NodeId,
    pub to: NodeId,
    pub cause: Cause,
    pub numbers: Numbers,
}

/// What was decided about one program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Move(Relocation),
    /// It is being moved.
    Moving,
    Fixed(Fixed),
    /// It has not lived for this long, in seconds.
    Young {
        least: f64,
    },
    /// It uses less of a core than this.
    Light {
        cpus: f64,
        least: f64,
    },
    /// Its user sits before it.
    Terminal,
    /// It has been moved as often as is allowed in an hour.
    Spent {
        cause: Cause,
        most: u32,
    },
    /// This node may move nothing more for now. The numbers are those of the move that it would have made.
    Paced(Numbers),
    /// The last try failed; there is no other one for so many milliseconds.
    Failed {
        wait_ms: u64,
    },
    Stay(Stay),
}

/// The newest verdict on a program, and since when its kind has been the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub verdict: Verdict,
    pub at: Millis,
    pub since: Millis,
}

/// Limits that are not part of the decision itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Habits {
    /// Age in seconds below which a program is ignored: most end before.
    pub young: f64,
    /// Cores that a program has to keep busy to be moved.
    pub light: f64,
    /// How many seconds the growth of memory is extrapolated, in addition to the time that a move takes.
    pub horizon: f64,
    /// A program that came less than so many seconds ago is not sent on because of a lack of memory that is
    /// only foreseen.
    pub settled: f64,
    /// If there are more programs than CPUs, so that some share one, programs take turns at that.
    pub fair: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            young: 1.0,
            light: 0.3,
            horizon: 5.0,
            settled: 10.0,
            fair: false,
        }
    }
}

/// A move that sensors do not show yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    relocation: Relocation,
    task: Task,
    growth: f64,
    begun: Millis,
    /// When the program arrived.
    ended: Option<Millis>,
}

/// A program that shares another node with programs of other homes waits for a random time, up to this, before
/// it is moved on for load. The other homes see and want the same, and their programs would otherwise go at the
/// same moment to the same place, and back.
const TURN: Millis = 16_000;
/// Among the targets that save at least this part of what the best one saves, one is chosen at random.
const AS_GOOD: f64 = 0.8;

impl Pending {
    /// Seconds that the move is still expected to take.
    fn remaining(&self, now: Millis) -> f64 {
        let passed = u32::try_from(now.saturating_sub(self.begun)).unwrap_or(u32::MAX);
        match self.ended {
            None => (self.relocation.numbers.cost - f64::from(passed) / 1000.0).max(0.0),
            Some(_) => 0.0,
        }
    }
}

/// After a failure, the program is not moved for this long, doubled with each further failure, in milliseconds.
const WAIT: Millis = 10_000;
const WAIT_MAX: Millis = 640_000;
/// Sensors are averages over a while ([`Recent`](crate::load::Recent)). So what a node reports within this time
/// after a move does not contain the move, or only in part.
const SETTLES: Millis = 3_500;

/// A node that reports nothing for this long after a move is no longer waited for. It may be down for days, and
/// the program is not judged until its nodes show the move.
const SILENT: Millis = 30_000;

/// Memory is not averaged, and it is promised before it comes. So a node's report shows it within this time: on
/// the target after the request for a move, at the source after its end.
const PROMISED: Millis = 1_000;
/// Without news, a program is moved for load only if that has been right at every look for this long. When
/// loads swing, there are moments when a move seems to pay, and a while later it would seem to pay to undo it.
pub const STEADY: Millis = 20_000;

/// Decides for the programs of one node.
#[derive(Clone, Debug)]
pub struct Balancer {
    own: NodeId,
    pub rules: Rules,
    pub habits: Habits,
    /// Only some nodes are reported to it, and other ones each time. So a node that is missing has not gone.
    pub sampled: bool,
    pace: Pace,
    pending: Vec<Pending>,
    /// Until when a program is left alone after a failed move, and how long that wait is.
    failed: HashMap<u64, (Millis, Millis)>,
    records: HashMap<u64, Record>,
    heavy: HashSet<u64>,
    up: HashSet<NodeId>,
    /// Since when each look has found that a program would be better off elsewhere.
    wishes: HashMap<u64, Millis>,
    /// Cores that a program wanted when its last move began.
    wanted: HashMap<u64, f64>,
}

impl Balancer {
    #[must_use]
    pub fn new(own: NodeId, rules: Rules, habits: Habits) -> Self {
        Self {
            own,
            rules,
            habits,
            sampled: false,
            pace: Pace::default(),
            pending: Vec::new(),
            failed: HashMap::new(),
            records: HashMap::new(),
            heavy: HashSet::new(),
            up: HashSet::new(),
            wishes: HashMap::new(),
            wanted: HashMap::new(),
        }
    }

    /// The newest verdict on a program.
    #[must_use]
    pub fn record(&self, process: u64) -> Option<&Record> {
        self.records.get(&process)
    }

    /// The number of moves under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.iter().filter(|p| p.ended.is_none()).count()
    }

    /// A move has ended; `moved` says whether it succeeded.
    pub fn ended(&mut self, now: Millis, process: u64, moved: bool) {
        if moved {
            self.failed.remove(&process);
            for pending in &mut self.pending {
                if pending.relocation.process == process && pending.ended.is_none() {
                    pending.ended = Some(now);
                }
            }
            return;
        }
        self.pending
            .retain(|pending| pending.relocation.process != process);
        let (until, wait) = self.failed.entry(process).or_insert((0, WAIT / 2));
        *wait = (*wait * 2).min(WAIT_MAX);
        *until = now + *wait;
    }

    /// Judges everything; to be called once a second. `nodes` is how many the cluster has, and `known` are this
    /// node and those that it knows of. Returns the moves that are to begin.
    pub fn decide(
        &mut self,
        now: Millis,
        nodes: u32,
        known: &[Known],
        programs: &[Program],
    ) -> Vec<Relocation> {
        self.settle(now, known, programs);
        let mut scene = self.scene(now, nodes, known, programs);
        let mut relocations = Vec::new();
        let mut open: Vec<&Program> = Vec::new();
        for program in programs {
            match self.set_aside(now, program) {
                Some(Verdict::Move(relocation)) => {
                    self.begin(now, relocation, program, &mut scene, &mut relocations)
                }
                Some(verdict) => self.keep(now, program.task.process, verdict),
                None => open.push(program),
            }
        }
        self.usher(now, &mut open, &mut scene, &mut relocations);
        self.spread(now, open, &mut scene, &mut relocations);
        self.take_turns(now, programs, &mut scene, &mut relocations);
        relocations
    }

    /// Takes account of what has changed since the last look.
    fn settle(&mut self, now: Millis, known: &[Known], programs: &[Program]) {
        let lives: HashSet<u64> = programs.iter().map(|p| p.task.process).collect();
        self.records.retain(|process, _| lives.contains(process));
        self.failed.retain(|process, _| lives.contains(process));
        self.wishes.retain(|process, _| lives.contains(process));
        self.wanted.retain(|process, _| lives.contains(process));
        self.pace.retain(|process| lives.contains(&process));
        let newest = |node: NodeId| known.iter().find(|k| k.node.node == node).map(|k| k.at);
        self.pending.retain(|pending| {
            let Some(ended) = pending.ended else {
                return lives.contains(&pending.relocation.process);
            };
            let shown = |node| newest(node).is_none_or(|at| at > ended + SETTLES);
            let shows = shown(pending.relocation.from) && shown(pending.relocation.to);
            !shows && now <= ended + SILENT
        });
        // Programs that compute now, or once did: a program that rests for a while has neither come nor gone.
        let mut heavy: HashSet<u64> = self.heavy.intersection(&lives).copied().collect();
        let gone = self.heavy.len() - heavy.len();
        let busy = programs.iter().filter(|p| self.is_heavy(p));
        let before = heavy.len();
        heavy.extend(busy.map(|p| p.task.process));
        let came = heavy.len() - before;
        self.heavy = heavy;
        let up: HashSet<NodeId> = known
            .iter()
            .filter(|k| k.takes)
            .map(|k| k.node.node)
            .collect();
        let nodes = up.symmetric_difference(&self.up).count();
        // A node that has come may take several programs.
        let tells = !self.up.is_empty() && !self.sampled;
        let news = gone + came + if tells { 4 * nodes } else { 0 };
        self.up = up;
        (0..news).for_each(|_| self.pace.news(now));
    }

    fn is_heavy(&self, program: &Program) -> bool {
        let task = &program.task;
        let known = program.lasts || task.age >= self.habits.young;
        known && task.cpus >= self.habits.light && task.loses_away <= self.rules.bearable
    }

    /// The nodes as they will be when all moves that have begun have ended.
    fn scene(
        &self,
        now: Millis,
        nodes: u32,
        known: &[Known],
        programs: &[Program],
    ) -> Surroundings {
        let mut by_node = BTreeMap::new();
        for known in known {
            by_node.insert(known.node.node, *known);
        }
        let mut scene = Surroundings {
            now,
            nodes,
            by_node,
            leaving: BTreeMap::new(),
            rules: self.rules,
            own: self.own,
            held: BTreeMap::new(),
        };
        for pending in &self.pending {
            let (from, to) = (pending.relocation.from, pending.relocation.to);
            let shows = |scene: &Surroundings, node, since: Option<Millis>, lag| {
                let at = scene.by_node.get(&node).map_or(0, |known: &Known| known.at);
                since.is_some_and(|since| at > since + lag)
            };
            // Memory shows at once: as promised where it comes, and as free where it goes.
            let promised = shows(&scene, to, Some(pending.begun), PROMISED);
            let freed = shows(&scene, from, pending.ended, PROMISED);
            if !shows(&scene, from, pending.ended, SETTLES) {
                scene.change(from, pending, -1.0, !freed);
            }
            if !shows(&scene, to, pending.ended, SETTLES) {
                scene.change(to, pending, 1.0, !promised);
            }
        }
        for program in programs {
            let process = program.task.process;
            let under_way = self.pending.iter();
            let mut under_way =
                under_way.filter(|p| p.relocation.process == process && p.ended.is_none());
            let place = under_way.next().map_or(program.at, |p| p.relocation.to);
            scene.hold(place, &self.as_sent(program));
        }
        scene.raise();
        scene
    }

    /// The demand of a program. One that has just come to a host is assumed to want what it wanted when it was
    /// sent. The home that it left is still crowded and answers its calls late, and its host's load is an
    /// average of the time before. So the program would seem to want little, and the next one was sent to the
    /// same host while another was free.
    fn as_sent(&self, program: &Program) -> Task {
        let mut task = program.task;
        let is_new = program.at != self.own && task.here < self.habits.settled;
        if let Some(wanted) = self.wanted.get(&task.process).filter(|_| is_new) {
            task.cpus = task.cpus.max(*wanted);
        }
        task
    }

    fn keep(&mut self, now: Millis, process: u64, verdict: Verdict) {
        let same = |record: &&Record| {
            std::mem::discriminant(&record.verdict) == std::mem::discriminant(&verdict)
        };
        let since = self
            .records
            .get(&process)
            .filter(same)
            .map_or(now, |record| record.since);
        self.records.insert(
            process,
            Record {
                verdict,
                at: now,
                since,
            },
        );
    }

    fn begin(
        &mut self,
        now: Millis,
        relocation: Relocation,
        program: &Program,
        scene: &mut Surroundings,
        relocations: &mut Vec<Relocation>,
    ) {
        let pending = Pending {
            relocation,
            task: program.task,
            growth: program.growth,
            begun: now,
            ended: None,
        };
        scene.change(relocation.from, &pending, -1.0, true);
        scene.change(relocation.to, &pending, 1.0, true);
        self.pace.note(now, relocation.process, relocation.cause);
        self.wishes.remove(&relocation.process);
        self.wanted.insert(relocation.process, program.task.cpus);
        if relocation.cause == Cause::Calls {
            // When the program computes again, that is news.
            self.heavy.remove(&relocation.process);
        }
        self.pending
            .retain(|other| other.relocation.process != relocation.process);
        self.pending.push(pending);
        self.keep(now, relocation.process, Verdict::Move(relocation));
        relocations.push(relocation);
    }

    /// Whether a program may be moved at all now; `None`: it may, and the state of the nodes decides.
    fn set_aside(&self, now: Millis, program: &Program) -> Option<Verdict> {
        let process = program.task.process;
        let moving = |p: &Pending| p.relocation.process == process && p.ended.is_none();
        if self.pending.iter().any(moving) {
            return Some(Verdict::Moving);
        }
        let holds = |fixed: &Fixed| program.at == self.own || *fixed == Fixed::Placed;
        if let Some(fixed) = program.fixed.filter(holds) {
            return Some(Verdict::Fixed(fixed));
        }
        if let Some((until, _)) = self.failed.get(&process)
            && *until > now
        {
            return Some(Verdict::Failed {
                wait_ms: until - now,
            });
        }
        if program.terminal {
            return Some(self.to_terminal(now, program));
        }
        None
    }

    fn to_terminal(&self, now: Millis, program: &Program) -> Verdict {
        let cause = Cause::Terminal;
        let process = program.task.process;
        if program.at == self.own {
            return Verdict::Terminal;
        }
        if let Some(verdict) = self.spent(now, process, cause) {
            return verdict;
        }
        let numbers = Numbers {
            process,
            to: self.own,
            relieves: 0.0,
            adds: 0.0,
            gain: 0.0,
            cost: self.rules.move_takes(program.task.memory),
        };
        Verdict::Move(Relocation {
            process,
            from: program.at,
            to: self.own,
            cause,
            numbers,
        })
    }

    fn spent(&self, now: Millis, process: u64, cause: Cause) -> Option<Verdict> {
        let most = u32::try_from(pace::most(cause)?).unwrap_or(u32::MAX);
        self.pace
            .is_spent(now, process, cause)
            .then_some(Verdict::Spent { cause, most })
    }

    fn usher(
        &mut self,
        now: Millis,
        open: &mut Vec<&Program>,
        scene: &mut Surroundings,
        relocations: &mut Vec<Relocation>,
    ) {
        let places: Vec<NodeId> = scene.by_node.keys().copied().collect();
        for place in places {
            while self.under_way() < Pace::AT_ONCE {
                let Some(relocation) = self.ushered(place, open, scene) else {
                    break;
                };
                let Some(program) = take(open, relocation.process) else {
                    break;
                };
                self.begin(now, relocation, program, scene, relocations);
            }
        }
    }

    /// The move that a node's memory needs now.
    fn ushered(
        &self,
        place: NodeId,
        open: &[&Program],
        scene: &Surroundings,
    ) -> Option<Relocation> {
        let here = open.iter().copied().filter(|program| program.at == place);
        let mut here: Vec<&Program> = here.collect();
        let largest = here.iter().map(|program| program.task.memory);
        let move_takes = largest.fold(0.0, f64::max) / self.rules.rate;
        let short = scene.short(place, self.habits.horizon + move_takes)?;
        if scene.short(place, 0.0).is_none() {
            // Memory is not short yet, this is only foreseen. Programs that have just come would be sent on
            // because of what others do.
            let settled = self.habits.settled;
            here.retain(|program| {
                let task = &program.task;
                // A program that has never moved has been here for all its life.
                task.here >= settled.min(task.age)
            });
        }
        let others = scene.targets(place, self.habits.horizon + move_takes);
        usher::choose(short, &here, &others, &self.habits, &self.rules)
    }

    /// Moves the program that gains most, and repeats that as long as there is one and pace allows it.
    fn spread(
        &mut self,
        now: Millis,
        mut open: Vec<&Program>,
        scene: &mut Surroundings,
        relocations: &mut Vec<Relocation>,
    ) {
        self.wish(now, &open, scene);
        loop {
            let verdicts: Vec<Verdict> = open
                .iter()
                .map(|program| self.judge(now, program, scene))
                .collect();
            let saves = |verdict: &Verdict| match verdict {
                Verdict::Move(relocation) => {
                    Some(relocation.numbers.relieves - relocation.numbers.adds)
                }
                _ => None,
            };
            let best = verdicts
                .iter()
                .filter_map(|verdict| Some((saves(verdict)?, *verdict)))
                .max_by(|one, other| one.0.total_cmp(&other.0));
            // One of the moves that may go on at a time is kept for memory, which cannot wait.
            let chosen = match best {
                Some((_, Verdict::Move(relocation))) if self.under_way() + 1 < Pace::AT_ONCE => {
                    Some(relocation)
                }
                _ => None,
            };
            if let Some(relocation) = chosen
                && let Some(program) = take(&mut open, relocation.process)
            {
                self.begin(now, relocation, program, scene, relocations);
                continue;
            }
            for (program, verdict) in open.iter().zip(verdicts) {
                let verdict = match verdict {
                    Verdict::Move(relocation) => Verdict::Paced(relocation.numbers),
                    other => other,
                };
                self.keep(now, program.task.process, verdict);
            }
            return;
        }
    }

    /// Notes which programs would be better off elsewhere, and since when.
    fn wish(&mut self, now: Millis, open: &[&Program], scene: &Surroundings) {
        for program in open {
            let process = program.task.process;
            if matches!(
                self.judge(now, program, scene),
                Verdict::Move(_) | Verdict::Paced(_)
            ) {
                self.wishes.entry(process).or_insert(now);
            } else {
                self.wishes.remove(&process);
            }
        }
    }

    /// Whether a program may be moved for load now.
    fn allows(&self, now: Millis, program: &Program, scene: &Surroundings) -> bool {
        let process = program.task.process;
        let since = self.wishes.get(&process).copied().unwrap_or(now);
        if program.at != self.own && scene.is_shared(program.at) {
            let turn = mix(self.own.0 ^ process ^ since) % TURN;
            if since + turn > now {
                return false;
            }
        }
        let steady = since + STEADY <= now;
        self.pace.has_news(now) || steady && self.pace.allows(now)
    }

    /// Chooses at random one of the targets that are nearly as good as the best one. Nodes that decide at the
    /// same time know the same, and would all choose the same otherwise.
    fn choose(
        &self,
        now: Millis,
        best: Numbers,
        weighed: &Scene,
        task: &Task,
        others: &[NodeId],
    ) -> Numbers {
        let saves = |numbers: &Numbers| numbers.relieves - numbers.adds;
        let relocation = |node: &NodeId| mix(mix(self.own.0 ^ now) ^ mix(node.0));
        let mut others = others.to_vec();
        others.sort_unstable_by_key(relocation);
        let good = others.iter().find_map(|node| {
            let only = |other: NodeId| other == *node;
            match weighed.judge(task, only) {
                Decision::Move(numbers) if saves(&numbers) >= AS_GOOD * saves(&best) => {
                    Some(numbers)
                }
                _ => None,
            }
        });
        // Going home is not left to chance, because a program loses nothing there.
        match good {
            Some(numbers) if best.to != task.home => numbers,
            _ => best,
        }
    }

    fn judge(&self, now: Millis, program: &Program, scene: &Surroundings) -> Verdict {
        let task = &program.task;
        if self.settles(task.process) {
            return Verdict::Stay(Stay::JustCame);
        }
        let flees = program.at != self.own && task.loses_here > self.rules.bearable;
        if !flees && let Some(verdict) = self.insignificant(program) {
            return verdict;
        }
        let Some(own) = scene.by_node.get(&program.at) else {
            return Verdict::Stay(Stay::NoNode);
        };
        let takes = self.rules.move_takes(task.memory);
        let others = scene.targets(program.at, self.habits.horizon + takes);
        let weighed = Scene::new(scene.nodes, &own.node, &others, &self.rules);
        let grows = program.growth.max(0.0) * self.habits.horizon;
        let allowed = |node: &&Node| !program.forbidden.contains(&node.node);
        let roomy = |node: &&Node| decide::room(node, &self.rules) >= task.memory + grows;
        let open: Vec<&Node> = others.iter().filter(allowed).collect();
        let roomy: Vec<NodeId> = open.iter().copied().filter(roomy).map(|n| n.node).collect();
        if roomy.is_empty() && !open.is_empty() {
            return Verdict::Stay(Stay::NoRoom);
        }
        let may = |node: NodeId| roomy.contains(&node);
        let numbers = match weighed.judge(task, may) {
            Decision::Move(best) => self.choose(now, best, &weighed, task, &roomy),
            Decision::Stay(why) => return Verdict::Stay(why),
        };
        let cause = if flees && numbers.to == self.own {
            Cause::Calls
        } else {
            Cause::Load
        };
        if let Some(verdict) = self.spent(now, task.process, cause) {
            return verdict;
        }
        if program.at == self.own && self.pace.stays(now, task.process) {
            return Verdict::Stay(Stay::JustCame);
        }
        if cause == Cause::Load && !self.allows(now, program, scene) {
            return Verdict::Paced(numbers);
        }
        let (process, from, to) = (task.process, program.at, numbers.to);
        Verdict::Move(Relocation {
            process,
            from,
            to,
            cause,
            numbers,
        })
    }

    /// Whether a program's last move does not show yet, or only in part, in what its nodes report. Until it
    /// does, the program is counted twice where it is, and the scene has an empty place where it was, so it
    /// would seem to be better off back there.
    fn settles(&self, process: u64) -> bool {
        self.pending
            .iter()
            .any(|pending| pending.relocation.process == process)
    }

    fn insignificant(&self, program: &Program) -> Option<Verdict> {
        let task = &program.task;
        if !program.lasts && task.age < self.habits.young {
            return Some(Verdict::Young {
                least: self.habits.young,
            });
        }
        (task.cpus < self.habits.light).then_some(Verdict::Light {
            cpus: task.cpus,
            least: self.habits.light,
        })
    }
}

/// A number that looks random but is the same for everybody who asks with the same value: `splitmix64` (Steele,
/// Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn take<'a>(open: &mut Vec<&'a Program>, process: u64) -> Option<&'a Program> {
    let place = open
        .iter()
        .position(|program| program.task.process == process)?;
    Some(open.swap_remove(place))
}
