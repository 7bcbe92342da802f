// What a tool result shows: memories, and what each rests on, down to the messages.

const LEVEL_NAMES = { raw: "message", record: "record", track: "track", profile: "profile" };

// The unfoldable part of one tool result. Built when it is first opened.
function buildMemories(run, episode, call, words) {
  const ids = call.items.length ? call.items : call.messages;
  if (!ids.length) return el("p", { class: "muted small" }, call.ok ? "This result names no memories." : "No memories: the call gave nothing.");
  const box = el("details", { class: "memories" }, el("summary", {}, `${plural(ids.length, levelWord(ids))} shown${ids.every((id) => id.startsWith("msg:")) ? "" : `, and what ${ids.length === 1 ? "it rests" : "they rest"} on`}`));
  box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) box.append(...memoryList(run, episode.bank, ids, words)); });
  return box;
}

function levelWord(ids) {
  const kinds = new Set(ids.map((id) => (id.startsWith("msg:") ? "message" : id.startsWith("rec:") ? "record" : id.startsWith("trk:") ? "track" : id === "profile" ? "profile" : "memory")));
  return kinds.size === 1 && !kinds.has("memory") ? [...kinds][0] : "item";
}

function memoryList(run, bank, ids, words) {
  const items = run.memories.items[bank];
  const note = run.memories.notes[bank];
  const nodes = [];
  if (note) nodes.push(el("p", { class: "notice small" }, `Bank ${bank}: ${note}`));
  if (!items) return [...nodes, el("p", { class: "muted small" }, "Their ids: ", ids.join(", "))];
  const unfold = ids.length <= 8;
  return [...nodes, el("ul", { class: "items" }, ids.map((id) => el("li", {}, memoryItem(items, id, words, unfold))))];
}

function memoryItem(items, id, words, unfold) {
  const item = items[id];
  if (!item) return el("p", { class: "muted small" }, el("code", {}, id), " is not in this page: not in the bank, or left out for want of room.");
  const head = [el("span", { class: `tag level-${item.level}` }, LEVEL_NAMES[item.level] ?? item.level), el("code", {}, id), el("time", {}, item.time.replace("T", " ")), el("span", { class: "who" }, item.title)];
  if (item.level === "raw") return el("div", { class: "message" }, el("div", { class: "item-head" }, head, el("span", { class: "muted" }, `session ${item.session}`)), el("p", { class: "text" }, marked(item.text, words)));
  const body = el("p", { class: "text" }, marked(item.text, words));
  const sources = el("ul", { class: "items" });
  const box = el("details", { class: "item" }, el("summary", {}, el("span", { class: "item-head" }, head), item.level === "record" ? body : null), item.level === "record" ? null : body, el("p", { class: "rests muted small" }, `rests on ${plural(item.sources.length, "source")}`), sources);
  const build = () => { if (box.open && !sources.firstChild) sources.append(...item.sources.map((source) => el("li", {}, memoryItem(items, source, words, item.level === "record")))); };
  box.addEventListener("toggle", build);
  box.open = unfold && item.level === "record";
  build();
  return box;
}
