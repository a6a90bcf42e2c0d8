// The page: the feed, the orders, keys and the pointer.
const meta = (name) => document.querySelector('meta[name="' + name + '"]').content;
const viewer = { node: meta("node"), uid: Number(meta("uid")), admin: meta("admin") === "true" };
const model = new Model();
const map = new NodeMap(document.getElementById("map"), viewer);
const say = document.getElementById("say");
const past = document.getElementById("past");
let ago = 0;
let sayEnds = 0;
// Milliseconds from a batch's arrival to the frame that shows it, the last thousand; tests read it.
window.whimPainted = [];

function tell(text) {
  say.textContent = text;
  clearTimeout(sayEnds);
  sayEnds = setTimeout(() => { say.textContent = ""; }, 8000);
}

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
    tell("The daemon does not answer");
    return { sentences: [] };
  }
  if (!answer.ok) {
    tell(await answer.text());
    return { sentences: [] };
  }
  const told = await answer.json();
  // A move is told by the feed, as everybody's are.
  const isTold = ["why", "migrate", "past"].includes(what.order);
  if (!isTold && told.sentences.length) tell(told.sentences.join(" "));
  return told;
}

const processDialog = new ProcessDialog(model, map, order);
const nodeDialog = new NodeDialog(model, viewer, order);

function drawTotals(picture) {
  let cpus = 0, load = 0, free = 0, up = 0, away = 0;
  for (const node of picture.nodes.values()) {
    if (node.state === "down") continue;
    up += 1;
    cpus += node.cpus || 0;
    load += node.load || 0;
    free += node.memory_available_bytes || 0;
  }
  for (const row of picture.processes.values()) if (row.home !== row.where) away += 1;
  setText(document.getElementById("totals"), up + " of " + count(picture.nodes.size, "node", "nodes") + " up; load " + load.toFixed(1) +
    " on " + cpus.toFixed(0) + " CPUs; " + bytes(free) + " free; " + count(picture.processes.size, "process", "processes") + ", " + away + " away");
}

function drawLog() {
  const items = model.log.slice(-50).reverse().map((line) => {
    const item = element("li");
    const time = element("time", "", new Date(line.time_ms).toLocaleTimeString());
    item.append(time, " " + (line.pid === null ? "" : line.pid + " ") + line.what + ": " + line.text);
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
  if (ago === 0) {
    map.draw(model.picture(0), model.changedNodes, model.changedProcesses, model.changedCards);
    map.fly(model.flights);
    drawTotals(model.picture(0));
  }
  for (const flight of model.flights.slice(-3)) {
    tell(flight.name + " " + flight.key + " has moved from " + flight.from + " to " + flight.to);
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
  for (const update of JSON.parse(event.data)) model.apply(update);
  if (arrived !== null) return;
  arrived = now;
  requestAnimationFrame(paint);
}

function follow() {
  const feed = new EventSource("/feed");
  feed.onmessage = heard;
  feed.onerror = () => {
    tell("The feed is interrupted: the page asks again");
    model.forget();
  };
}

// The history slider.
past.addEventListener("input", () => {
  ago = -Number(past.value);
  map.drawAll(model.picture(ago));
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
const DRAG_FROM = 6;
let drag = null;
const cardOf = (target) => (target && target.closest ? target.closest(".node") : null);
mapRoot.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button || (drag && drag.done)) return;
  if (button.dataset.key) processDialog.open(button.dataset.key);
  else nodeDialog.open(button.dataset.node);
});
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
mapRoot.addEventListener("pointerdown", (event) => {
  const chip = event.target.closest(".process.mine");
  if (!chip || event.button !== 0 || ago > 0) return;
  drag = { key: chip.dataset.key, text: chip.textContent, x: event.clientX, y: event.clientY, ghost: null };
});
addEventListener("pointermove", (event) => {
  if (!drag || drag.done) return;
  if (!drag.ghost) {
    if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < DRAG_FROM) return;
    drag.ghost = element("span", "flying", drag.text);
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

// Keys: each card's processes are one stop; arrows go on from there.
mapRoot.addEventListener("keydown", (event) => {
  const chip = event.target.closest(".process");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!chip || !step) return;
  const chips = [...cardOf(chip).querySelectorAll(".process")];
  const next = chips[chips.indexOf(chip) + step];
  if (!next) return;
  event.preventDefault();
  chip.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// The themes.
const themeButton = document.getElementById("theme");
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", "Theme: to " + (isDark() ? "light" : "dark"));
}
themeButton.addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", theme);
  showTheme(theme);
});
document.getElementById("leave").addEventListener("click", async () => {
  await fetch("/leave", { method: "POST", headers: { "X-Whim-Token": meta("token") } });
  location.reload();
});
showTheme(localStorage.getItem("theme"));
follow();
