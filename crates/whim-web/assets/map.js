// The map: a card for each node, a button for each process, and those that fly.
const SHOWN_MAX = 60;
const FLIGHT_MS = 900;
// In the air at a time: the eye follows few, and each costs a browser without a graphics processor a redraw of all
// that lies on its way, sixty times a second.
const FLIGHTS_MAX = 8;

function element(name, classes, text) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function makeMeter(kind) {
  const root = element("div", "meter " + kind);
  const bar = element("span", "bar");
  const track = element("span", "track");
  const beyond = element("span", "beyond");
  const number = element("span", "number");
  track.append(bar, beyond);
  root.append(element("span", "", kind), track, number);
  return { root: root, bar: bar, beyond: beyond, number: number };
}

// One node.
class Card {
  constructor(name) {
    this.name = name;
    this.root = element("section", "node");
    this.root.dataset.node = name;
    this.head = element("button", "", name);
    this.head.type = "button";
    this.head.dataset.node = name;
    this.state = element("span", "state");
    this.over = element("span", "over");
    const head = element("div", "head");
    head.append(this.head, this.over, this.state);
    this.load = makeMeter("load");
    this.memory = makeMeter("memory");
    this.list = element("ul", "processes");
    this.more = element("p", "more");
    this.root.append(head, this.load.root, this.memory.root, this.list, this.more);
    this.count = 0;
  }

  draw(node) {
    const load = loadPart(node);
    const memory = memoryPart(node);
    const over = overload(node);
    const classes = "node " + node.state + (over === null ? "" : " overloaded");
    if (!this.root.classList.contains("drop")) this.root.className = classes;
    setText(this.state, nodeWord(node));
    setText(this.over, over === null ? "" : "overloaded " + times(over));
    const loadText = load === null ? "unknown" : node.load.toFixed(2) + " / " + number(node.cpus);
    const memoryText = memory === null ? "unknown" : Math.round(memory * 100) + " %";
    // What the CPUs can carry, and behind it what waits, as large as it is in comparison.
    const carried = over === null ? Math.min(load || 0, 1) : 1 / over;
    this.load.bar.style.transform = "scaleX(" + carried.toFixed(3) + ")";
    this.load.beyond.style.transform = "scaleX(" + (over === null ? 0 : 1 - carried).toFixed(3) + ")";
    this.memory.bar.style.transform = "scaleX(" + Math.min(memory || 0, 1).toFixed(3) + ")";
    setText(this.load.number, loadText);
    setText(this.memory.number, memoryText);
    const said = [node.state, nodeWord(node), this.over.textContent].filter((word, at, all) => word && all.indexOf(word) === at);
    const label = this.name + ", " + said.join(", ") + ", load " + loadText.replace("/", "of") +
      " CPUs, memory " + memoryText + ", " + count(this.count, "process", "processes");
    if (this.head.getAttribute("aria-label") !== label) this.head.setAttribute("aria-label", label);
  }
}

// Makes these the children of a list, and touches no other than those that come or go.
function arrange(list, wanted) {
  const stay = new Set(wanted);
  for (const item of [...list.children]) if (!stay.has(item)) item.remove();
  wanted.forEach((item, at) => {
    const there = list.children[at] || null;
    if (there !== item) list.insertBefore(item, there);
  });
}

// All of them. `viewer` says whose session it is, and which node is home.
class NodeMap {
  constructor(root, viewer) {
    this.root = root;
    this.viewer = viewer;
    this.cards = new Map();
    this.chips = new Map();
  }

  mayMove(row) {
    return row.home === this.viewer.node && (this.viewer.admin || row.uid === this.viewer.uid) && row.state !== "ended";
  }

  // Why a program cannot be moved from here, or is in its state, or is left alone: whatever weighs most.
  why(row) {
    if (row.stay) return row.stay;
    if (row.reason) return row.reason;
    if (row.home !== this.viewer.node) return "Its home is " + row.home + ": ask for the page there";
    if (!this.mayMove(row)) return "It is another user's";
    return row.not_candidate || "";
  }

  // Draws what has changed: numbers of nodes, processes, and which processes are on which cards.
  draw(picture, nodes, processes, cards) {
    for (const name of nodes) if (!picture.nodes.has(name)) this.dropCard(name);
    let added = false;
    for (const name of picture.nodes.keys()) {
      if (this.cards.has(name)) continue;
      this.cards.set(name, new Card(name));
      cards.add(name);
      added = true;
    }
    if (added) this.order();
    for (const key of processes) this.place(key, picture.processes.get(key));
    if (cards.size) {
      const groups = byNode(picture.processes);
      for (const name of cards) {
        const card = this.cards.get(name);
        if (card) this.settle(card, groups.get(name) || []);
      }
    }
    for (const name of new Set([...nodes, ...cards])) {
      const card = this.cards.get(name);
      if (card) card.draw(picture.nodes.get(name));
    }
  }

  drawAll(picture) {
    const nodes = new Set([...this.cards.keys(), ...picture.nodes.keys()]);
    const processes = new Set([...this.chips.keys(), ...picture.processes.keys()]);
    this.draw(picture, nodes, processes, new Set(nodes));
  }

  dropCard(name) {
    const card = this.cards.get(name);
    if (!card) return;
    card.root.remove();
    this.cards.delete(name);
  }

  order() {
    const names = [...this.cards.keys()].sort(inOrder);
    for (const name of names) this.root.append(this.cards.get(name).root);
  }

  // A process is on its node's card, or on none.
  place(key, row) {
    let chip = this.chips.get(key);
    if (!row) {
      if (chip) chip.item.remove();
      this.chips.delete(key);
      return;
    }
    if (!chip) {
      const item = element("li");
      const button = element("button", "process");
      button.type = "button";
      button.dataset.key = key;
      button.tabIndex = -1;
      const text = document.createTextNode("");
      const mark = element("span", "mark");
      const cpu = element("span", "cpu");
      button.append(text, mark, cpu);
      item.append(button);
      chip = { item: item, button: button, text: text, mark: mark, cpu: cpu, share: 0, mine: false, classes: "", label: "" };
      this.chips.set(key, chip);
    }
    const mine = this.mayMove(row);
    const state = stateOf(row);
    const classes = "process" + (row.home === row.where ? "" : " away") +
      (["moving", "stays"].includes(state) ? " " + state : "") + (mine ? " mine" : "");
    chip.mine = mine;
    if (chip.classes !== classes) chip.button.className = classes;
    chip.classes = classes;
    // Drawn as a bar, in steps: a number for each of a thousand processes would be laid out anew each second.
    const share = Math.min(Math.round(row.cpu_percent / 5) / 20, 1);
    if (chip.share !== share) chip.cpu.style.transform = "scaleX(" + share + ")";
    chip.share = share;
    const text = nameOf(row) + " " + row.pid;
    const why = this.why(row);
    // What is at home and free to go needs no word, and the colour says who is away. A label begins with what is seen.
    const mark = ["home", "away"].includes(state) ? "" : " " + state;
    const label = text + mark + ", home " + row.home + ", on " + row.where + (mark ? "" : ", " + state) + (why ? ": " + why : "");
    if (chip.label === label) return;
    chip.label = label;
    chip.text.data = text;
    setText(chip.mark, mark);
    chip.button.title = why;
    chip.button.setAttribute("aria-label", label);
  }

  // Puts the processes of a node on its card: those that may be moved first, no more than can be read.
  settle(card, here) {
    card.count = here.length;
    const rank = (key) => (this.chips.get(key).mine ? 0 : 1);
    here.sort((a, b) => rank(a) - rank(b) || inOrder(a, b));
    const shown = here.slice(0, SHOWN_MAX).map((key) => this.chips.get(key).item);
    arrange(card.list, shown);
    if (!card.list.querySelector('[tabindex="0"]') && shown[0]) shown[0].firstChild.tabIndex = 0;
    const left = here.length - shown.length;
    setText(card.more, left > 0 ? "and " + left + " more" : "");
  }

  // Those that have just moved.
  fly(flights) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) return;
    // All places are asked for before anything is put into the sky: each of them alone would lay the page out.
    const ways = [];
    const sky = document.getElementById("sky");
    const free = Math.max(FLIGHTS_MAX - sky.childElementCount, 0);
    for (const flight of flights.slice(0, free)) {
      const from = this.cards.get(flight.from);
      const to = this.cards.get(flight.to);
      if (!from || !to) continue;
      const chip = this.chips.get(flight.key);
      const end = chip && chip.item.isConnected ? chip.item : to.list;
      ways.push({ name: flight.name, start: from.list.getBoundingClientRect(), end: end.getBoundingClientRect() });
    }
    const at = (box) => "translate(" + box.left + "px," + box.top + "px)";
    for (const { name, start, end } of ways) {
      const bird = element("span", "flying", name);
      sky.append(bird);
      const middle = "translate(" + (start.left + end.left) / 2 + "px," + (Math.min(start.top, end.top) - 40) + "px)";
      const motion = bird.animate([{ transform: at(start) }, { transform: middle }, { transform: at(end) }],
        { duration: FLIGHT_MS, easing: "ease-in-out" });
      motion.onfinish = () => bird.remove();
    }
  }
}
