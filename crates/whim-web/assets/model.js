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
