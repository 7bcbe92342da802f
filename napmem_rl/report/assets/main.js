// Puts the page together.

const run = JSON.parse(document.getElementById("run-data").textContent);

function buildOverview() {
  const host = document.getElementById("overview");
  host.append(el("dl", { class: "run-facts" }, run.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
  host.append(el("div", { class: "tiles" }, run.tiles.map((tile) => el("div", { class: "card tile" }, el("p", { class: "tile-name" }, tile.name), el("p", { class: "tile-value" }, tile.value), el("p", { class: "tile-note" }, tile.note)))));
  for (const notice of run.notices) host.append(el("p", { class: "notice" }, notice));
  if (run.problems.count) {
    const rows = run.problems.shown.map((problem) => el("li", {}, el("code", {}, problem.line === null ? problem.file : `${problem.file}, line ${problem.line}`), ` ${problem.text}`));
    const rest = run.problems.count - rows.length;
    host.append(el("details", { class: "notice problems" }, el("summary", {}, `${plural(run.problems.count, "part")} of this run could not be read`), el("ul", {}, rows, rest ? el("li", {}, `… and ${rest} more`) : null)));
  }
  if (run.table) host.append(buildSummary(run.table));
}

// The quickstart's table: before and after, by question type.
function buildSummary(table) {
  const cell = (value, first) => (value.length > 1 ? el("td", { class: first ? "main" : "" }, el("span", { class: "muted" }, value[0]), " → ", el("strong", {}, value[1])) : el("td", {}, value[0]));
  const row = (entry) => el("tr", { class: entry.strong ? "strong" : "" }, el("th", { scope: "row" }, entry.name), el("td", {}, entry.mode), entry.cells.map(cell));
  const head = ["question type", "decoding", ...table.columns].map((name) => el("th", { scope: "col" }, name));
  return el("div", { class: "card" }, el("h3", {}, "Before → after, on users nobody trained on"), table.about.map((line) => el("p", { class: "about" }, line)),
    el("div", { class: "scroll whole", tabindex: "0", role: "region", "aria-label": "Before and after, table" }, el("table", { class: "summary" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, table.rows.map(row)))));
}

const KEYS = [["/", "search"], ["j  k", "next, previous episode (also ↓ ↑ in the list)"], ["Enter", "open the episode; on a turn: unfold its memories"], ["n  p", "next, previous turn"], ["u", "unfold or fold all memories of the episode"], ["c", "compare the siblings, and back"], ["]  [", "next, previous sibling"], ["← →", "in a chart: move the step cursor (Home, End, Page Up, Page Down)"], ["Esc", "out of the search; on a phone: back to the list"], ["?", "this help"]];

function openHelp() {
  const dialog = document.getElementById("help");
  if (!dialog.firstChild) {
    const box = el("input", { type: "checkbox", id: "shortcuts", checked: true, onchange: (event) => { viewer.shortcuts = event.target.checked; } });
    dialog.append(el("h2", { id: "help-title" }, "Keys"), el("dl", { class: "keys" }, KEYS.map(([keys, what]) => el("div", {}, el("dt", {}, keys.split("  ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what)))), el("p", {}, box, " ", el("label", { for: "shortcuts" }, "Single-letter keys are on")), el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  }
  dialog.showModal();
}

buildOverview();
buildCharts(run);
const viewer = new Viewer(run);
document.addEventListener("keydown", (event) => viewer.onKey(event));
document.getElementById("help-button").addEventListener("click", openHelp);
document.documentElement.dataset.ready = "true";
