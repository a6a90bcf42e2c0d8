// The page: the feed, the orders, keys and the pointer.
const meta = (name) => document.querySelector('meta[name="' + name + '"]').content;
const viewer = { node: meta("node"), uid: Number(meta("uid")), admin: meta("admin") === "true" };
const model = new Model();
const map = new NodeMap(document.getElementById("map"), viewer);
const programs = new Programs(map);
const say = document.getElementById("say");
const refusal = document.getElementById("refusal");
const past = document.getElementById("past");
let ago = 0;
// What is being dragged.
let drag = null;
let sayEnds = 0;
// Milliseconds from a batch's arrival to the frame that shows it, the last thousand; tests read it.
window.whimPainted = [];

// What goes on, and what has been done: "Done: ..." in another colour.
function tell(text, isDone) {
  say.className = isDone ? "toast done" : "toast";
  say.textContent = (isDone ? "Done: " : "") + text;
  clearTimeout(sayEnds);
  sayEnds = setTimeout(() => { say.textContent = ""; }, 8000);
}

// What has not been done. It stays until it is closed: nobody has to be quick to read it.
function refuse(word, text) {
  say.textContent = "";
  document.getElementById("alert").textContent = word + ": " + text;
  refusal.classList.add("open");
}
document.getElementById("alert-close").addEventListener("click", () => {
  document.getElementById("alert").textContent = "";
  refusal.classList.remove("open");
});

async function order(what) {
  if (what.order === "migrate") tell(viewer.node + ":" + what.pid + " is going to " + what.to);
  let answer;
  try {
    answer = await fetch("/orders", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Whim-Token": meta("token") },
      body: JSON.stringify(what),
    });
  } catch {
    refuse("Failed", "The daemon does not answer");
    return { sentences: [] };
  }
  if (!answer.ok) {
    refuse("Refused", await answer.text());
    return { sentences: [] };
  }
  const told = await answer.json();
  // A move is told by the feed, as everybody's are.
  const isTold = ["why", "migrate", "past"].includes(what.order);
  if (!isTold && told.sentences.length) tell(told.sentences.join(" "), true);
  return told;
}

const processDialog = new ProcessDialog(model, map, order);
const nodeDialog = new NodeDialog(model, viewer, order);

function drawTotals(picture) {
  let cpus = 0, load = 0, free = 0, up = 0, away = 0;
  const over = [];
  for (const node of picture.nodes.values()) {
    if (node.state === "down") continue;
    up += 1;
    cpus += node.cpus || 0;
    load += node.load || 0;
    free += node.memory_available_bytes || 0;
    if (overload(node) !== null) over.push(node);
  }
  for (const row of picture.processes.values()) if (row.home !== row.where) away += 1;
  over.sort((a, b) => overload(b) - overload(a));
  const named = over.slice(0, 3).map((node) => node.name + " " + times(overload(node)));
  setText(document.getElementById("overloaded"), over.length ? over.length + " overloaded: " + named.join(", ") : "");
  setText(document.getElementById("totals"), up + " of " + count(picture.nodes.size, "node", "nodes") + " up; load " + load.toFixed(1) +
    " on " + number(cpus) + " CPUs; " + bytes(free) + " free; " + count(picture.processes.size, "process", "processes") + ", " + away + " away");
}

// Words of the log after which somebody should look.
const BAD_NEWS = ["refused", "ended", "refused-join", "removed", "damaged"];
const GOOD_NEWS = ["moved", "joined", "initialized"];

function drawLog() {
  const items = model.log.slice(-50).reverse().map((line) => {
    const item = element("li");
    const kind = BAD_NEWS.includes(line.what) ? " bad" : GOOD_NEWS.includes(line.what) ? " good" : "";
    item.append(element("time", "", new Date(line.time_ms).toLocaleTimeString()), " ", element("span", "what" + kind, line.what));
    if (line.pid !== null) {
      const known = model.processes.get(viewer.node + ":" + line.pid);
      const name = line.program || (known ? nameOf(known) + " " : "");
      item.append(" ", element("b", "", (name ? name.trim() + " " : "") + line.pid));
    }
    item.append(" " + logText(line.text));
    return item;
  });
  document.getElementById("log").replaceChildren(...items);
}

function drawTime() {
  const when = document.getElementById("when");
  setText(when, ago === 0 ? "now" : new Date(model.picture(ago).time).toLocaleTimeString() + ", " + ago + " s ago");
  past.min = String(-Math.max(model.frames.length - 1, 1));
  document.getElementById("now").hidden = ago === 0;
  document.body.classList.toggle("past", ago > 0);
}

let arrived = null;
let logLength = -1;
function paint() {
  const since = arrived;
  arrived = null;
  const same = model.changedCards.size === 0;
  if (ago === 0) {
    map.draw(model.picture(0), model.changedNodes, model.changedProcesses, model.changedCards);
    map.fly(model.flights);
    programs.draw(model.picture(0), drag !== null, same);
    drawTotals(model.picture(0));
  }
  for (const flight of model.flights.slice(-3)) {
    tell(flight.name + " " + flight.key + " has moved from " + flight.from + " to " + flight.to, true);
  }
  model.changedNodes = new Set();
  model.changedProcesses = new Set();
  model.changedCards = new Set();
  model.flights = [];
  const last = model.log.length ? model.log[model.log.length - 1].time_ms + model.log.length : 0;
  if (last !== logLength) drawLog();
  logLength = last;
  drawTime();
  nodeDialog.follow();
  if (since === null) return;
  // The next task runs when this frame was handed over.
  setTimeout(() => {
    window.whimPainted.push(performance.now() - since);
    if (window.whimPainted.length > 1000) window.whimPainted.shift();
  }, 0);
}

function heard(event) {
  const now = performance.now();
  // What was interrupted goes on: nobody has to close that.
  if (document.getElementById("alert").textContent.startsWith("Interrupted")) document.getElementById("alert-close").click();
  for (const update of JSON.parse(event.data)) model.apply(update);
  if (arrived !== null) return;
  arrived = now;
  requestAnimationFrame(paint);
}

function follow() {
  const feed = new EventSource("/feed");
  feed.onmessage = heard;
  feed.onerror = () => {
    if (!refusal.classList.contains("open")) refuse("Interrupted", "The daemon tells no more what changes: the page asks again");
    model.forget();
  };
}

// The history slider.
past.addEventListener("input", () => {
  ago = -Number(past.value);
  map.drawAll(model.picture(ago));
  programs.draw(model.picture(ago), false, false);
  drawTotals(model.picture(ago));
  drawTime();
});
document.getElementById("now").addEventListener("click", () => {
  past.value = "0";
  past.dispatchEvent(new Event("input"));
  past.focus();
});

// The pointer: a click opens, a drag moves. Not the browser's own dragging: that one knows no touch.
const mapRoot = document.getElementById("map");
const rowRoot = document.getElementById("program-rows");
const DRAG_FROM = 6;
const cardOf = (target) => (target && target.closest ? target.closest(".node") : null);
function opened(event) {
  const button = event.target.closest("button");
  if (!button || (drag && drag.done)) return;
  if (button.dataset.key) processDialog.open(button.dataset.key);
  else nodeDialog.open(button.dataset.node);
}
mapRoot.addEventListener("click", opened);
rowRoot.addEventListener("click", opened);
document.getElementById("program-order").addEventListener("change", () => programs.draw(model.picture(ago), false, false));
function markDrop(card) {
  for (const other of mapRoot.querySelectorAll(".drop")) if (other !== card) other.classList.remove("drop");
  if (card) card.classList.add("drop");
}
function endDrag() {
  if (!drag) return;
  markDrop(null);
  if (drag.ghost) drag.ghost.remove();
  // The click that follows belongs to the drag.
  drag = drag.ghost ? { done: true } : null;
  setTimeout(() => { if (drag && drag.done) drag = null; }, 0);
}
function taken(event) {
  const chip = event.target.closest(".mine");
  const row = chip ? model.processes.get(chip.dataset.key) : null;
  if (!row || event.button !== 0 || ago > 0) return;
  // What would be refused is told while it is in the hand.
  const text = nameOf(row) + " " + row.pid + (row.stay ? " stays: " + row.stay : "");
  drag = { key: chip.dataset.key, text: text, stays: Boolean(row.stay), x: event.clientX, y: event.clientY, ghost: null };
}
mapRoot.addEventListener("pointerdown", taken);
rowRoot.addEventListener("pointerdown", taken);
addEventListener("pointermove", (event) => {
  if (!drag || drag.done) return;
  if (!drag.ghost) {
    if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < DRAG_FROM) return;
    drag.ghost = element("span", drag.stays ? "flying stays" : "flying", drag.text);
    document.getElementById("sky").append(drag.ghost);
  }
  event.preventDefault();
  drag.ghost.style.transform = "translate(" + (event.clientX + 8) + "px," + (event.clientY + 8) + "px)";
  markDrop(cardOf(document.elementFromPoint(event.clientX, event.clientY)));
});
addEventListener("pointerup", (event) => {
  if (!drag || drag.done) return;
  const row = drag.ghost ? model.processes.get(drag.key) : null;
  const card = row ? cardOf(document.elementFromPoint(event.clientX, event.clientY)) : null;
  endDrag();
  if (card && row.where !== card.dataset.node) order({ order: "migrate", pid: row.pid, to: card.dataset.node });
});
addEventListener("pointercancel", endDrag);
addEventListener("keydown", (event) => { if (event.key === "Escape") endDrag(); });

// Keys: each card's processes are one stop, and all rows another one; arrows go on from there.
function stepped(event) {
  const at = event.target.closest(".process, .program");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!at || !step) return;
  const all = [...(cardOf(at) || rowRoot).querySelectorAll(".process, .program")];
  const next = all[all.indexOf(at) + step];
  if (!next) return;
  event.preventDefault();
  at.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
mapRoot.addEventListener("keydown", stepped);
rowRoot.addEventListener("keydown", stepped);

// The themes: the system's, which may change with the hour, or one that was chosen.
const THEMES = ["", "light", "dark"];
const themeButton = document.getElementById("theme");
function showTheme(theme) {
  if (THEMES.indexOf(theme) > 0) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  setText(themeButton, "Theme: " + (document.documentElement.dataset.theme || "system"));
}
themeButton.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || "";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next) localStorage.setItem("theme", next);
  else localStorage.removeItem("theme");
  showTheme(next);
});
document.getElementById("leave").addEventListener("click", async () => {
  await fetch("/leave", { method: "POST", headers: { "X-Whim-Token": meta("token") } });
  location.reload();
});
showTheme(localStorage.getItem("theme"));
follow();
