// Puts the page together.

const bank = JSON.parse(document.getElementById("bank-data").textContent);
const store = new Store(bank);
const section = (id) => document.getElementById(id);

function buildOverview() {
  const { counts, period } = bank;
  const numStatements = bank.profile.text.split("\n").filter((line) => line.search(LINK) >= 0).length;
  const steps = [["profile", "Profile", numStatements, numStatements === 1 ? "statement" : "statements"], ["topics", "Topics", counts.tracks, "across sessions"], ["records", "Records", counts.records, "facts, events, preferences"], ["conversations", "Messages", counts.messages, `in ${plural(counts.sessions, "conversation")}`]];
  section("overview").append(
    el("ol", { class: "levels" }, steps.map(([id, name, number, note]) => el("li", { class: `level-${id}` }, el("a", { href: `#${id}` }, el("span", { class: "level-name" }, name), el("strong", {}, number.toLocaleString("en")), el("span", { class: "muted small" }, note))))),
    el("dl", { class: "run-facts" }, [...(period.length ? [["from", formatTime(period[0])], ["to", formatTime(period[1])]] : []), ...bank.facts].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ...bank.notices.map((notice) => el("p", { class: "notice", role: "note" }, notice)),
  );
}

function buildPyramid() {
  const { profile, records } = bank;
  section("profile").append(profile.text.trim() ? el("div", { class: "card level-profile" }, el("p", { class: "muted small" }, "as of ", formatTime(profile.time), ". Each line unfolds to what it rests on."), statements(store, profile.text, [])) : empty("No profile has been written yet."));
  const byTime = (times) => [...times.keys()].sort((a, b) => (times[a] < times[b] ? 1 : times[a] > times[b] ? -1 : b - a));
  fill(section("topics"), bank.tracks.length ? pagedList(byTime(bank.tracks.map((track) => track.time)), (place) => trackNode(store, store.track(bank.tracks[place]), [], false), "topics") : [empty("No topic runs across sessions yet.")]);
  fill(section("records"), records.id.length ? pagedList(byTime(records.time), (place) => recordNode(store, store.record(place), [], false), "records") : [empty("No records.")]);
  fill(section("conversations"), bank.messages.id.length ? pagedList(store.conversations(), (one) => conversationNode(store, one), "conversations") : [empty("No messages.")]);
}

function empty(text) { return el("p", { class: "muted empty" }, text); }

function showResults() {
  const isActive = finder.isActive();
  section("results").hidden = !isActive;
  section("pyramid").hidden = isActive;
  finder.count.textContent = "";
  section("results").querySelectorAll(".found, .empty").forEach((node) => node.remove());
  if (!isActive) return;
  const found = finder.find();
  const names = { track: "topic", record: "record", message: "message" };
  const told = Object.entries(found).map(([level, places]) => plural(places.length, names[level]));
  finder.count.textContent = `Found ${told.join(", ")}${bank.notices.length ? ", of those in this page" : ""}.`;
  const nodes = resultNodes(store, found, finder.words());
  fill(section("results"), nodes.length ? nodes : [empty("Nothing fits. Fewer words, or a longer time, may find it.")]);
}

const KEYS = [["/", "search"], ["↓ ↑", "next, previous line that unfolds"], ["→ ←", "unfold it, fold it (or go to the one around it)"], ["Enter", "unfold or fold; in the search, as ↓: go to what was found"], ["Esc", "clear the search and filters; close a conversation"], ["1 2 3 4", "profile, topics, records, conversations"], ["?", "this help"]];

function openHelp() {
  const dialog = section("help");
  if (!dialog.firstChild) dialog.append(el("h2", { id: "help-title" }, "Keys"), el("dl", { class: "keys" }, KEYS.map(([keys, what]) => el("div", {}, el("dt", {}, keys.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what)))), el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

// Lines that unfold and can be seen now, in order.
function visibleLines() {
  return [...document.querySelectorAll("main summary")].filter((line) => line.checkVisibility());
}

function moveLine(by) {
  const lines = visibleLines();
  const at = lines.indexOf(document.activeElement);
  const next = lines[at < 0 ? (by > 0 ? 0 : lines.length - 1) : Math.min(lines.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// From the search field to the first thing that it found; without a search to the first line.
function enterResults() {
  finder.read();
  [...document.querySelectorAll("#results summary, #results button, main summary")].find((one) => one.checkVisibility())?.focus();
}

function foldLine(line) {
  const box = line.parentElement;
  if (box.open) box.open = false;
  else box.parentElement.closest("details")?.querySelector("summary")?.focus();
}

function goTo(id) {
  if (finder.isActive()) finder.clear();
  section(id).scrollIntoView();
  section(id).querySelector("summary")?.focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const line = document.activeElement?.matches("summary") ? document.activeElement : null;
  if (event.key === "Escape" && (finder.isActive() || document.activeElement === finder.search)) {
    if (finder.isActive()) finder.clear();
    else finder.search.blur();
  } else if (document.activeElement === finder.search && event.key === "ArrowDown") enterResults();
  else if (isTyping(event.target)) return;
  else if (event.key === "/") { finder.search.focus(); finder.search.select(); }
  else if (event.key === "?") openHelp();
  else if (event.key === "ArrowDown") moveLine(1);
  else if (event.key === "ArrowUp") moveLine(-1);
  else if (event.key === "ArrowRight" && line) line.parentElement.open = true;
  else if (event.key === "ArrowLeft" && line) foldLine(line);
  else if ("1234".includes(event.key)) goTo(["profile", "topics", "records", "conversations"][Number(event.key) - 1]);
  else return;
  event.preventDefault();
}

buildOverview();
const finder = new Finder(store, showResults);
section("find").append(finder.node);
finder.clearButton.disabled = true;
buildPyramid();
document.addEventListener("keydown", onKey);
section("help-button").addEventListener("click", openHelp);
for (const link of document.querySelectorAll("nav a, .levels a")) link.addEventListener("click", (event) => { event.preventDefault(); goTo(link.hash.slice(1)); });
if (location.hash.startsWith("#q=")) {
  try { finder.search.value = decodeURIComponent(location.hash.slice(3)); finder.read(); } catch { /* not an address of ours */ }
}
document.documentElement.dataset.ready = "true";
