// The programs as rows: with their arguments, what they use, where they are, and what keeps them there.
const ROWS_MAX = 60;

const ORDERS = {
  name: () => 0,
  cpu: (a, b) => b.cpu_percent - a.cpu_percent,
  memory: (a, b) => b.memory_bytes - a.memory_bytes,
  time: (a, b) => (b.cpu_seconds || 0) - (a.cpu_seconds || 0),
};
const COLUMNS = ["Program", "User", "CPU", "Memory", "Time", "Where", "State", "Why it stays"];

// One program. A phone has no room for columns: there each cell has its head beside it, which the style writes.
function makeRow(key) {
  const root = element("tr");
  root.setAttribute("role", "row");
  const cells = COLUMNS.map((name) => {
    const cell = element("td");
    cell.setAttribute("role", "cell");
    cell.dataset.head = name;
    return cell;
  });
  const button = element("button", "program");
  button.type = "button";
  button.dataset.key = key;
  button.tabIndex = -1;
  cells[0].append(button);
  root.append(...cells);
  return { root: root, button: button, cells: cells.slice(1) };
}

class Programs {
  constructor(map) {
    this.map = map;
    this.rows = new Map();
    // The last order by name, which stays for as long as nothing comes or goes.
    this.named = null;
    this.body = document.getElementById("program-rows");
    this.more = document.getElementById("program-more");
    this.order = document.getElementById("program-order");
  }

  // Whose rows come first, and in which order: those that may be moved from here, as on the cards.
  sorted(processes, same) {
    const isNamed = this.order.value === "name";
    if (same && isNamed && this.named && this.named.length === processes.size) {
      return this.named.map((one) => ({ ...one, row: processes.get(one.key) }));
    }
    const compare = ORDERS[this.order.value] || ORDERS.name;
    const rank = (row) => (this.map.mayMove(row) ? 0 : 1);
    const all = [...processes].map(([key, row]) => ({ key: key, row: row, rank: rank(row) }));
    all.sort((a, b) => a.rank - b.rank || compare(a.row, b.row) || inOrder(a.key, b.key));
    this.named = isNamed ? all : null;
    return all;
  }

  // `still`: nothing changes its place, as something is being dragged. `same`: nothing has come, gone or moved.
  draw(picture, still, same) {
    if (still) {
      this.named = null;
      return;
    }
    const all = this.sorted(picture.processes, same);
    const shown = all.slice(0, ROWS_MAX);
    const keys = new Set(shown.map((one) => one.key));
    for (const key of this.rows.keys()) if (!keys.has(key)) this.rows.delete(key);
    for (const { key, row } of shown) {
      if (!this.rows.has(key)) this.rows.set(key, makeRow(key));
      this.fill(this.rows.get(key), key, row);
    }
    arrange(this.body, shown.map((one) => this.rows.get(one.key).root));
    if (shown[0] && !this.body.querySelector('[tabindex="0"]')) this.rows.get(shown[0].key).button.tabIndex = 0;
    const left = all.length - shown.length;
    setText(this.more, !all.length ? "No program may move yet: start one by whim run" : left > 0 ? "and " + left + " more" : "");
  }

  fill(made, key, row) {
    const state = stateOf(row);
    const mine = this.map.mayMove(row);
    const classes = "program" + (mine ? " mine" : "");
    if (made.button.className !== classes) made.button.className = classes;
    setText(made.button, commandOf(row));
    const label = commandOf(row) + ", " + key;
    if (made.button.title !== label) made.button.title = label;
    if (made.root.className !== state) made.root.className = state;
    const where = row.where === row.home ? row.where : row.where + ", home " + row.home;
    const texts = [
      row.user || "", Math.round(row.cpu_percent) + " %", resident(row.memory_bytes), cpuTime(row.cpu_seconds),
      where, state, this.map.why(row),
    ];
    texts.forEach((text, at) => setText(made.cells[at], text));
  }
}
