// The episodes: search, filters, list, one episode step by step, the siblings of its group.

const PAGE = 300;
const GOOD = "completed";

class Viewer {
  constructor(run) {
    this.run = run;
    this.episodes = run.episodes;
    this.haystacks = new Map();
    this.groups = new Map();
    this.episodes.forEach((episode, place) => this.groups.set(episode.group, [...(this.groups.get(episode.group) ?? []), place]));
    this.filters = { query: "", end: "", type: "", kind: "", low: null, high: null, order: "step" };
    this.found = [];
    this.limit = PAGE;
    this.selected = null;
    this.mode = "episode";
    this.turn = 0;
    this.shortcuts = true;
    this.build();
    this.apply();
    this.openFromAddress() || (this.found.length && !this.isNarrow() && this.select(this.found[0]));
  }

  isNarrow() { return window.matchMedia("(max-width: 820px)").matches; }

  words() { return this.filters.query.toLowerCase().split(/\s+/).filter(Boolean); }

  // ---- building

  build() {
    const shown = this.run.shown;
    const host = document.getElementById("episodes");
    const chosen = shown.num < shown.all ? `Showing ${shown.num.toLocaleString("en")} of ${plural(shown.all, "episode")}, chosen as ${shown.how}. All of them: ${shown.directory}` : `All ${plural(shown.all, "episode")} of the run.`;
    this.list = el("div", { class: "list", role: "listbox", "aria-label": "Episodes", tabindex: "-1" });
    this.count = el("p", { class: "count", role: "status" });
    this.more = el("button", { type: "button", class: "more", onclick: () => { this.limit += PAGE; this.renderList(); } });
    this.detail = el("article", { class: "detail", "aria-label": "Episode" });
    this.pane = el("div", { class: "viewer" }, el("div", { class: "side" }, this.count, this.list, this.more), this.detail);
    host.append(el("p", { class: "about" }, chosen), this.buildFilters(), this.pane);
    this.list.addEventListener("keydown", (event) => this.onListKey(event));
    if (!this.episodes.length) this.detail.append(el("p", { class: "muted" }, "This run left no trajectories (report.trajectories is off, or no episode has ended yet)."));
  }

  buildFilters() {
    const set = (name, convert = (value) => value) => (event) => { this.filters[name] = convert(event.target.value); this.limit = PAGE; this.apply(); };
    const number = (value) => (value.trim() === "" || Number.isNaN(Number(value)) ? null : Number(value));
    this.search = el("input", { type: "search", id: "search", placeholder: "words of a question, answer, call or memory text", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/", oninput: set("query") });
    this.search.addEventListener("keydown", (event) => { if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); this.focusList(); } });
    this.end = el("select", { id: "filter-status", onchange: set("end") }, this.endOptions());
    const type = el("select", { id: "filter-type", onchange: set("type") }, this.options("all types", (episode) => episode.type));
    const kind = el("select", { id: "filter-kind", onchange: set("kind") }, this.options("training and validation", (episode) => episode.kind));
    const order = el("select", { id: "order", onchange: set("order") }, [["step", "first step first"], ["-step", "last step first"], ["-reward", "highest reward first"], ["reward", "lowest reward first"], ["-calls", "most tool calls first"]].map(([value, label]) => el("option", { value }, label)));
    const bound = (id, label, name) => el("input", { type: "number", step: "any", id, inputmode: "decimal", "aria-label": label, placeholder: name === "low" ? "from" : "to", oninput: set(name, number) });
    const clear = el("button", { type: "button", class: "clear", onclick: () => this.clear() }, "Clear");
    return (this.form = el("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Search", "search", el("span", { class: "search-box" }, this.search, el("kbd", { "aria-hidden": "true" }, "/")), "wide"),
      field("How it ended", "filter-status", this.end), field("Question type", "filter-type", type), field("Set", "filter-kind", kind),
      el("fieldset", { class: "field range" }, el("legend", {}, "Reward"), bound("reward-from", "Reward from", "low"), bound("reward-to", "Reward to", "high")),
      field("Order", "order", order), el("div", { class: "field end" }, clear)));
  }

  options(all, read) {
    const counts = new Map();
    for (const episode of this.episodes) counts.set(read(episode), (counts.get(read(episode)) ?? 0) + 1);
    return [el("option", { value: "" }, all), ...[...counts].sort().map(([value, count]) => el("option", { value }, `${value || "(none)"} (${count})`))];
  }

  endOptions() {
    const statuses = this.options("all", (episode) => episode.status);
    const causes = new Map();
    for (const episode of this.episodes) if (episode.cause) causes.set(episode.cause, (causes.get(episode.cause) ?? 0) + 1);
    const missing = this.episodes.filter((episode) => episode.reward === null).length;
    for (const option of statuses.slice(1)) option.value = `status:${option.value}`;
    if (missing) statuses.push(el("option", { value: "none" }, `no reward (${missing})`));
    if (causes.size) statuses.push(el("optgroup", { label: "cause" }, [...causes].sort((a, b) => b[1] - a[1]).map(([cause, count]) => el("option", { value: `cause:${cause}` }, `${cause} (${count})`))));
    return statuses;
  }

  clear() {
    this.form.reset();
    this.filters = { query: "", end: "", type: "", kind: "", low: null, high: null, order: "step" };
    this.apply();
  }

  showCause(cause) {
    this.clear();
    this.end.value = `cause:${cause}`;
    this.filters.end = this.end.value;
    this.apply();
    document.getElementById("episodes").scrollIntoView();
    if (this.found.length) { this.select(this.found[0]); this.focusList(); }
  }

  // ---- finding

  haystack(place) {
    if (!this.haystacks.has(place)) {
      const episode = this.episodes[place];
      const parts = [episode.question, episode.answer, episode.task, episode.bank, episode.detail, episode.abstained, ...episode.options];
      for (const turn of episode.turns) {
        parts.push(turn.text, turn.error);
        for (const call of turn.calls) parts.push(call.name, call.text, call.failure, ...call.items, ...Object.values(call.arguments));
      }
      this.haystacks.set(place, parts.filter(Boolean).join("\n").toLowerCase());
    }
    return this.haystacks.get(place);
  }

  matches(episode, place, words) {
    const { end, type, kind, low, high } = this.filters;
    if (end.startsWith("status:") && episode.status !== end.slice(7)) return false;
    if (end.startsWith("cause:") && episode.cause !== end.slice(6)) return false;
    if (end === "none" && episode.reward !== null) return false;
    if (type && episode.type !== type) return false;
    if (kind && episode.kind !== kind) return false;
    if (low !== null && !(episode.reward !== null && episode.reward >= low)) return false;
    if (high !== null && !(episode.reward !== null && episode.reward <= high)) return false;
    return words.every((word) => this.haystack(place).includes(word));
  }

  apply() {
    const words = this.words();
    this.found = this.episodes.map((_, place) => place).filter((place) => this.matches(this.episodes[place], place, words));
    const order = this.filters.order;
    const key = { step: (e) => e.step, reward: (e) => e.reward ?? Infinity, "-reward": (e) => -(e.reward ?? -Infinity), "-step": (e) => -e.step, "-calls": (e) => -countCalls(e) }[order];
    this.found.sort((a, b) => key(this.episodes[a]) - key(this.episodes[b]) || a - b);
    this.renderList();
  }

  renderList() {
    const words = this.words();
    const visible = this.found.slice(0, this.limit);
    this.list.replaceChildren(...visible.map((place) => this.buildOption(place, words)));
    this.count.textContent = this.found.length === this.episodes.length ? plural(this.found.length, "episode") : `${this.found.length.toLocaleString("en")} of ${plural(this.episodes.length, "episode")}`;
    this.more.hidden = visible.length >= this.found.length;
    this.more.textContent = `Show ${Math.min(PAGE, this.found.length - visible.length)} more`;
    if (!this.found.length && this.episodes.length) this.list.append(el("p", { class: "muted empty" }, "No episode fits. ", el("button", { type: "button", class: "link", onclick: () => this.clear() }, "Clear the filters")));
    this.markSelected();
  }

  buildOption(place, words) {
    const episode = this.episodes[place];
    const path = episode.turns.flatMap((turn) => turn.calls.map((call) => call.name));
    return el("div", { class: "option", role: "option", id: `option-${place}`, tabindex: "-1", "aria-selected": "false", onclick: () => this.open(place) },
      el("div", { class: "option-head" }, rewardBadge(episode), el("span", { class: "muted" }, `step ${episode.step} · #${episode.sample}`), episode.kind === "validation" ? el("span", { class: "tag" }, "validation") : null, statusTag(episode)),
      el("div", { class: "option-question" }, marked(episode.question, words)),
      el("div", { class: "option-path muted" }, episode.type, " · ", path.length ? path.join(" → ") : episode.packet ? episode.packet.actions.map((action) => action.action).join(" → ") || "no action" : "no call"));
  }

  markSelected() {
    for (const option of this.list.querySelectorAll("[role=option]")) {
      const is = option.id === `option-${this.selected}`;
      option.setAttribute("aria-selected", String(is));
      option.tabIndex = is ? 0 : -1;
    }
    const first = this.list.querySelector("[role=option]");
    if (first && !this.list.querySelector("[aria-selected=true]")) first.tabIndex = 0;
  }

  // ---- moving

  select(place) {
    this.selected = place;
    this.turn = 0;
    const position = this.found.indexOf(place);
    if (position >= this.limit) { this.limit = position + PAGE; this.renderList(); }
    this.markSelected();
    this.renderDetail();
    const option = document.getElementById(`option-${place}`);
    if (option) this.list.scrollTop = Math.max(0, Math.min(this.list.scrollTop, option.offsetTop - 8), option.offsetTop + option.offsetHeight - this.list.clientHeight + 8);
    history.replaceState(null, "", `#e=${encodeURIComponent(this.episodes[place].key)}`);
  }

  open(place) {
    this.select(place);
    if (this.isNarrow()) this.setReading(true);
    this.detail.querySelector("h3")?.focus({ preventScroll: !this.isNarrow() });
    if (this.isNarrow()) this.pane.scrollIntoView();
  }

  // At phone width the list and the episode take turns.
  setReading(is) {
    this.pane.classList.toggle("reading", is);
    document.getElementById("episodes").classList.toggle("reading-one", is);
  }

  close() {
    this.setReading(false);
    this.focusList();
  }

  focusList() {
    const option = document.getElementById(`option-${this.selected}`) ?? this.list.querySelector("[role=option]");
    if (option && option.offsetParent === null) this.setReading(false);
    option?.focus();
  }

  move(by, keepFocus) {
    if (!this.found.length) return;
    const focused = document.activeElement?.id.startsWith("option-") ? Number(document.activeElement.id.slice("option-".length)) : this.selected;
    const position = this.found.indexOf(focused);
    const next = position < 0 ? 0 : Math.min(this.found.length - 1, Math.max(0, position + by));
    this.select(this.found[next]);
    if (keepFocus) this.focusList();
  }

  moveTurn(by) {
    if (this.mode !== "episode") this.setMode("episode");
    const turns = [...this.detail.querySelectorAll(".turn")];
    if (!turns.length) return;
    const inside = turns.findIndex((turn) => turn.contains(document.activeElement));
    this.goToTurn(Math.min(turns.length - 1, Math.max(0, inside < 0 ? (by > 0 ? 0 : turns.length - 1) : inside + by)));
  }

  goToTurn(number) {
    const turn = this.detail.querySelectorAll(".turn")[number];
    turn?.focus({ preventScroll: true });
    turn?.scrollIntoView({ block: "nearest" });
    this.detail.querySelectorAll(".steps button").forEach((button, place) => button.setAttribute("aria-current", place === number ? "step" : "false"));
  }

  moveSibling(by) {
    if (this.selected === null) return;
    const siblings = this.groups.get(this.episodes[this.selected].group);
    const next = siblings[(siblings.indexOf(this.selected) + by + siblings.length) % siblings.length];
    this.select(next);
  }

  setMode(mode) {
    this.mode = mode;
    this.renderDetail();
    this.detail.querySelector(`[data-mode=${mode}]`)?.focus();
  }

  onListKey(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(".link")) return;
    if (event.key in moves) { event.preventDefault(); this.move(Math.max(-1e9, Math.min(1e9, moves[event.key])), true); }
    if (event.key === "Enter" || event.key === " ") {
      const place = Number(event.target.id.slice("option-".length));
      if (event.target.getAttribute("role") === "option") { event.preventDefault(); this.open(place); }
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "?" ) { event.preventDefault(); openHelp(); return; }
    if (event.key === "Escape" && this.pane.classList.contains("reading")) { this.close(); return; }
    if (event.key === "Enter" && event.target.classList?.contains("turn")) { event.preventDefault(); toggleResults(event.target); return; }
    if (!this.shortcuts) return;
    const inList = this.list.contains(document.activeElement);
    const acts = { "/": () => { this.setReading(false); this.search.scrollIntoView({ block: "nearest" }); this.search.focus(); this.search.select(); }, j: () => this.move(1, inList), k: () => this.move(-1, inList), n: () => this.moveTurn(1), p: () => this.moveTurn(-1), c: () => this.selected !== null && this.setMode(this.mode === "group" ? "episode" : "group"), "]": () => this.moveSibling(1), "[": () => this.moveSibling(-1), u: () => toggleResults(this.detail) };
    if (event.key in acts) { event.preventDefault(); acts[event.key](); }
  }

  openFromAddress() {
    if (!location.hash.startsWith("#e=")) return false;
    let key;
    try { key = decodeURIComponent(location.hash.slice(3)); } catch { return false; }  // not an address of ours
    const place = this.episodes.findIndex((episode) => episode.key === key);
    if (place < 0) return false;
    this.open(place);
    document.getElementById("episodes").scrollIntoView();
    return true;
  }

  // ---- one episode

  renderDetail() {
    const episode = this.episodes[this.selected];
    const siblings = this.groups.get(episode.group);
    const position = this.found.indexOf(this.selected);
    const tab = (mode, label) => el("button", { type: "button", "data-mode": mode, "aria-pressed": String(this.mode === mode), onclick: () => this.setMode(mode) }, label);
    const bar = el("div", { class: "detail-bar" },
      el("button", { type: "button", class: "back", onclick: () => this.close() }, "← All episodes"),
      el("div", { class: "tabs", role: "group", "aria-label": "What to show" }, tab("episode", "Episode"), tab("group", `Siblings (${siblings.length})`)),
      el("div", { class: "arrows" }, el("button", { type: "button", title: "Previous episode (k)", "aria-label": "Previous episode", onclick: () => this.move(-1) }, "‹"), el("span", { class: "muted small" }, position < 0 ? "not in the list" : `${position + 1} of ${this.found.length}`), el("button", { type: "button", title: "Next episode (j)", "aria-label": "Next episode", onclick: () => this.move(1) }, "›")));
    const body = this.mode === "group" ? buildGroup(this, episode, siblings) : buildEpisode(this, episode, siblings);
    this.detail.replaceChildren(bar, ...body);
    this.detail.scrollTop = 0;
  }
}

function field(label, id, control, extra = "") {
  return el("div", { class: `field ${extra}` }, el("label", { for: id }, label), control);
}

function countCalls(episode) { return episode.turns.reduce((sum, turn) => sum + turn.calls.length, 0); }

function rewardBadge(episode) {
  if (episode.reward === null) return el("span", { class: "reward none", title: "no reward" }, "no reward");
  const kind = episode.reward > 0 ? "up" : episode.reward < 0 ? "down" : "zero";
  return el("span", { class: `reward ${kind}` }, signed(episode.reward) === "0" ? "0" : signed(episode.reward));
}

function statusTag(episode) {
  return episode.status === GOOD ? null : el("span", { class: "tag bad" }, episode.status);
}

function toggleResults(root) {
  const boxes = [...root.querySelectorAll("details.memories")];
  const open = boxes.some((box) => !box.open);
  for (const box of boxes) box.open = open;
}
