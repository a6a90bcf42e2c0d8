"use strict";
// The picture of the cluster that the feed gives, and its last ten minutes. Nothing here draws.
const FRAMES_MAX = 600;
const LOG_MAX = 200;

function keyOf(row) {
  return row.home + ":" + row.pid;
}

class Model {
  constructor() {
    this.nodes = new Map();
    this.processes = new Map();
    this.log = [];
    this.time = 0;
    // What has changed since it was drawn.
    this.changedNodes = new Set();
    this.changedProcesses = new Set();
    // Nodes to which a process has come, or which one has left.
    this.changedCards = new Set();
    this.flights = [];
    // Each second: the nodes' numbers, and where processes were. A map of places is shared by frames between
    // which nothing moved.
    this.frames = [];
    this.places = null;
  }

  apply(update) {
    switch (update.update) {
      case "node":
        this.nodes.set(update.name, update);
        this.changedNodes.add(update.name);
        break;
      case "node-gone":
        this.nodes.delete(update.name);
        this.changedNodes.add(update.name);
        break;
      case "process":
        this.putProcess(update);
        break;
      case "process-gone": {
        const key = keyOf(update);
        const known = this.processes.get(key);
        if (known) this.changedCards.add(known.where);
        this.processes.delete(key);
        this.changedProcesses.add(key);
        this.places = null;
        break;
      }
      case "log":
        this.log.push(update);
        if (this.log.length > LOG_MAX) this.log.shift();
        break;
      case "tick":
        this.tick(update.time_ms);
        break;
    }
  }

  putProcess(row) {
    const key = keyOf(row);
    const known = this.processes.get(key);
    if (known && known.where !== row.where) {
      this.flights.push({ key: key, from: known.where, to: row.where, name: nameOf(row) });
    }
    if (!known || known.where !== row.where) {
      this.places = null;
      if (known) this.changedCards.add(known.where);
      this.changedCards.add(row.where);
    }
    this.processes.set(key, row);
    this.changedProcesses.add(key);
  }

  tick(time) {
    const isNewSecond = Math.floor(time / 1000) !== Math.floor(this.time / 1000);
    this.time = time;
    if (!isNewSecond) return;
    if (!this.places) {
      this.places = new Map();
      for (const [key, row] of this.processes) this.places.set(key, row);
    }
    this.frames.push({ time: time, nodes: new Map(this.nodes), places: this.places });
    if (this.frames.length > FRAMES_MAX) this.frames.shift();
  }

  // What the next feed says first is all there is: what it does not name has gone.
  forget() {
    for (const name of this.nodes.keys()) {
      this.changedNodes.add(name);
      this.changedCards.add(name);
    }
    for (const key of this.processes.keys()) this.changedProcesses.add(key);
    this.nodes.clear();
    this.processes.clear();
    this.places = null;
  }

  // The nodes and processes of so many seconds ago; 0: now.
  picture(ago) {
    const frame = ago > 0 ? this.frames[this.frames.length - 1 - ago] : null;
    if (!frame) return { nodes: this.nodes, processes: this.processes, time: this.time };
    return { nodes: frame.nodes, processes: frame.places, time: frame.time };
  }
}

// Which processes are on each node.
function byNode(processes) {
  const groups = new Map();
  for (const [key, row] of processes) {
    const group = groups.get(row.where);
    if (group) group.push(key);
    else groups.set(row.where, [key]);
  }
  return groups;
}

// n2 before n10. One for all: to make one takes longer than to compare.
const inOrder = new Intl.Collator("en", { numeric: true }).compare;

function nameOf(row) {
  const first = row.command.split(" ")[0];
  return first.slice(first.lastIndexOf("/") + 1) || "?";
}

function loadPart(node) {
  return node.load === null || !node.cpus ? null : node.load / node.cpus;
}

function memoryPart(node) {
  if (!node.memory_total_bytes || node.memory_available_bytes === null) return null;
  return 1 - node.memory_available_bytes / node.memory_total_bytes;
}

// Of a program, which has some: none means that nobody has counted it yet.
function resident(count) {
  return count ? bytes(count) : "-";
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return (unit === 0 ? count : count.toFixed(1)) + " " + units[unit];
}

// Without a fraction where there is none to be seen.
function number(value) {
  return String(Math.round(value * 10) / 10);
}

function count(number, one, more) {
  return number + " " + (number === 1 ? one : more);
}

// From here on a node counts as overloaded, as in a terminal (OVERLOAD_FROM of whim-monitor).
const OVERLOAD_FROM = 1.25;

// How many times as much wants to run as the CPUs can carry; null: they can.
function overload(node) {
  const part = node.state === "down" ? null : loadPart(node);
  return part !== null && part >= OVERLOAD_FROM ? part : null;
}

function times(multiple) {
  return multiple.toFixed(multiple < 10 ? 1 : 0) + "x";
}

// What is to be known of a node beside that it is up; nothing, if that is all.
function nodeWord(node) {
  if (node.refuses) return "refuses us";
  if (node.state === "draining") {
    return node.guests ? "draining, " + count(node.guests, "guest", "guests") + " left" : "drained";
  }
  if (node.state === "up") return node.blocked ? "takes no guests" : "";
  return node.state;
}

// The state in a word: of a program at home, whether it could leave is what matters.
function stateOf(row) {
  return row.state === "home" && row.stay ? "stays" : row.state;
}

// The command without the directory of its program.
function commandOf(row) {
  const words = row.command.split(" ");
  return [nameOf(row), ...words.slice(1)].join(" ");
}

// As whim top shows it: 0:07.25, and from an hour on 2h05:09.
function cpuTime(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes >= 60) return Math.floor(minutes / 60) + "h" + two(minutes % 60) + ":" + two(seconds % 60);
  return minutes + ":" + two(seconds % 60) + "." + two((seconds * 100) % 100);
}

// What follows "because", for each cause that a line of the log ends with.
const BECAUSE = {
  user: "somebody who may move it asked for that",
  load: "there is less to wait for there",
  calls: "most of what it does is asking home",
  terminal: "it waits for its user at a terminal",
  memory: "memory runs out where it is",
  turn: "it is another program's turn to have a CPU of its own",
  host: "its host wanted to be rid of it",
  order: "its home was told to bring it back",
  itself: "it made a call that runs at home alone",
};

// A line of the log as people read it: sizes in their units, and the cause as a reason.
function logText(text) {
  const sized = text.replace(/\b(\d+) bytes\b/g, (all, digits) => bytes(Number(digits)));
  const cause = /(; cause: | \(cause: )([a-z]+)\)?$/.exec(sized);
  if (!cause || !BECAUSE[cause[2]]) return sized;
  const said = sized.slice(0, cause.index);
  // Of what was refused it is the reason why it was tried.
  return cause[1].includes("(") ? said + " It was to go because " + BECAUSE[cause[2]] + "." : said + ", because " + BECAUSE[cause[2]];
}
