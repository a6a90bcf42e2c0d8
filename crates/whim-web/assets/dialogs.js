// What is said of one process, and of one node; and what can be done with it there.
function fill(list, facts) {
  const parts = [];
  for (const [name, text] of facts) {
    if (text === null || text === undefined || text === "") continue;
    parts.push(element("dt", "", name), element("dd", "", text));
  }
  list.replaceChildren(...parts);
}

class ProcessDialog {
  constructor(model, map, order) {
    this.model = model;
    this.map = map;
    this.order = order;
    this.key = null;
    const get = (id) => document.getElementById(id);
    this.root = get("process");
    this.target = get("target");
    get("move-it").addEventListener("click", () => this.give({ order: "migrate", to: this.target.value }));
    get("bring").addEventListener("click", () => this.give({ order: "bring", hold: true }));
    get("go").addEventListener("click", () => this.give({ order: "go" }));
    this.target.addEventListener("change", () => this.sayCommand());
  }

  open(key) {
    const row = this.model.processes.get(key);
    if (!row) return;
    this.key = key;
    const get = (id) => document.getElementById(id);
    get("process-name").textContent = nameOf(row) + " " + key;
    const names = [...this.model.nodes.keys()].filter((name) => name !== row.where).sort();
    this.target.replaceChildren(...names.map((name) => {
      const option = element("option", "", name === row.home ? name + " (home)" : name);
      option.value = name;
      return option;
    }));
    const may = this.map.mayMove(row);
    for (const id of ["target", "move-it", "bring", "go"]) get(id).disabled = !may || names.length === 0;
    const own = row.home === this.map.viewer.node;
    fill(get("process-facts"), [
      ["Home", row.home], ["Is on", row.where], ["State", stateOf(row)],
      ["CPU", Math.round(row.cpu_percent) + " % of one"], ["CPU time", cpuTime(row.cpu_seconds)],
      ["Memory", resident(row.memory_bytes)],
      ["Moves", String(row.moves)], ["User", row.user], ["Command", row.command],
      ["Cannot move now", row.stay], ["Is not moved by itself", row.not_candidate],
      ["From here", may ? null : own ? "It is another user's" : "Its home is " + row.home + ": ask for the page there"],
    ]);
    this.sayCommand();
    get("why").replaceChildren();
    if (own) this.ask(row.pid);
    if (!this.root.open) this.root.showModal();
  }

  sayCommand() {
    const code = document.getElementById("process-command");
    code.textContent = "whim migrate " + this.key + " " + (this.target.value || "NODE");
  }

  async ask(pid) {
    const key = this.key;
    const told = await this.order({ order: "why", pid: pid });
    if (this.key !== key) return;
    const items = told.sentences.map((sentence) => element("li", "", sentence));
    document.getElementById("why").replaceChildren(...items);
  }

  give(order) {
    const row = this.model.processes.get(this.key);
    this.root.close();
    if (row) this.order({ ...order, pid: row.pid });
  }
}

class NodeDialog {
  constructor(model, viewer, order) {
    this.model = model;
    this.viewer = viewer;
    this.order = order;
    this.name = null;
    this.span = document.getElementById("span");
    this.span.addEventListener("change", () => this.drawHistory());
    this.root = document.getElementById("node");
    const give = (word) => () => {
      this.root.close();
      order({ order: word, node: this.name });
    };
    document.getElementById("drain").addEventListener("click", give("drain"));
    document.getElementById("undrain").addEventListener("click", give("undrain"));
  }

  open(name) {
    const node = this.model.nodes.get(name);
    if (!node) return;
    this.name = name;
    const get = (id) => document.getElementById(id);
    get("node-name").textContent = name;
    const drains = node.state === "draining";
    get("drain").disabled = !this.viewer.admin || drains;
    get("undrain").disabled = !this.viewer.admin || !drains;
    get("node-command").textContent = (drains ? "whim undrain " : "whim drain ") + name;
    const part = (value) => (value === null || value === undefined ? null : value.toFixed(1) + " % of the last ten seconds");
    fill(get("node-facts"), [
      ["State", nodeWord(node) || node.state], ["CPUs", node.cpus === null ? null : number(node.cpus)],
      ["Speed", node.speed === null ? null : node.speed.toFixed(2) + (node.speed_estimated ? " (estimated)" : "")],
      ["Load", node.load === null ? null : node.load.toFixed(2)],
      ["Overload", overload(node) === null ? null : times(overload(node)) + " of what its CPUs can carry wants to run"],
      ["Memory", node.memory_total_bytes ? bytes(node.memory_available_bytes) + " of " + bytes(node.memory_total_bytes) + " are free" : null],
      ["Waited for a CPU", part(node.cpu_pressure_percent)], ["Stood still for memory", part(node.memory_pressure_percent)],
      ["Guests", node.guests === null ? null : String(node.guests)], ["Labels", (node.labels || []).join(", ")],
      ["Migration class", node.class],
      ["Draining", this.viewer.admin ? null : "Only root or a member of whim-admin may drain a node"],
    ]);
    // Each node keeps its own past, and tells it to who looks at its page.
    const own = name === this.viewer.node;
    if (!own) this.span.value = "0";
    for (const option of this.span.options) option.disabled = !own && option.value !== "0";
    this.drawHistory();
    if (!this.root.open) this.root.showModal();
  }

  // While it is open the line of what the page sees grows.
  follow() {
    if (this.root.open && this.span.value === "0") this.drawHistory();
  }

  async drawHistory() {
    const hours = Number(this.span.value);
    const own = this.name === this.viewer.node;
    const note = document.getElementById("span-note");
    setText(note, own ? "" : "(further back: at " + this.name + "'s own page, or by whim history there)");
    if (hours === 0) {
      this.drawLines(this.seen(), FRAMES_MAX);
      return;
    }
    const end = Date.now();
    const told = await this.order({ order: "past", hours: hours });
    if (Number(this.span.value) !== hours) return;
    const length = hours * 3600e3;
    const points = (told.past || []).map((past) => [past.time_ms - (end - length), past.load, past.memory]);
    if (!points.length) setText(note, "(nothing was kept of it)");
    this.drawLines(points, length);
  }

  // What the page itself has seen of the node: a second for each frame.
  seen() {
    const first = FRAMES_MAX - this.model.frames.length;
    return this.model.frames.map((frame, at) => {
      const node = frame.nodes.get(this.name);
      return [first + at, node ? loadPart(node) : null, node ? memoryPart(node) : null];
    });
  }

  // Points are a time, from 0 to length, and two parts of all.
  drawLines(points, length) {
    const line = (kind, index) => {
      const known = points.filter((point) => point[index] !== null);
      const made = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      const x = (time) => (600 * time / length).toFixed(1);
      const y = (part) => (118 - 116 * Math.min(part, 1)).toFixed(1);
      made.setAttribute("class", kind);
      made.setAttribute("points", known.map((point) => x(point[0]) + "," + y(point[index])).join(" "));
      return made;
    };
    document.getElementById("node-history").replaceChildren(line("load", 1), line("memory", 2));
  }
}
