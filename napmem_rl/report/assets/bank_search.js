// Search and filters: all words of the search must stand in an item; a filter by level, by type of record and by time.

const NO_FILTER = { text: "", level: "", type: "", from: "", to: "" };

class Finder {
  constructor(store, onChange) {
    Object.assign(this, { store, onChange, now: { ...NO_FILTER } });
    this.timeline = new Timeline(store, (from, to) => { this.from.value = from; this.to.value = to; this.read(); });
    this.search = el("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", placeholder: "words or an id", "aria-keyshortcuts": "/" });
    this.level = choice("filter-level", [["", "all levels"], ["track", "topics"], ["record", "records"], ["message", "messages"]]);
    const types = [...new Set(store.data.records.type)].sort();
    this.type = choice("filter-type", [["", "all types"], ...types.map((type) => [type, type])]);
    [this.from, this.to] = ["from", "to"].map((name) => el("input", { type: "date", id: `filter-${name}`, min: store.data.period[0], max: store.data.period[1] }));
    this.clearButton = el("button", { type: "button", class: "clear", onclick: () => this.clear() }, "Clear");
    this.count = el("p", { class: "count", role: "status", "aria-live": "polite" });
    this.node = el("div", { class: "finder" },
      el("form", { class: "filters", role: "search", "aria-label": "Search this memory" },
        el("div", { class: "field wide" }, el("label", { for: "search" }, "Search"), el("span", { class: "search-box" }, this.search, el("kbd", {}, "/"))),
        [["Level", this.level], ["Type of record", this.type], ["From", this.from], ["To", this.to]].map(([label, control]) => el("div", { class: "field" }, el("label", { for: control.id }, label), control)), this.clearButton),
      this.timeline.node, this.count);
    this.listen();
  }

  listen() {
    let waiting;
    this.search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => this.read(), 120); });
    for (const control of [this.level, this.type, this.from, this.to]) control.addEventListener("change", () => this.read());
    this.node.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); this.read(); document.querySelector("#results summary, #results button")?.focus(); });
  }

  read() {
    this.now = { text: this.search.value.trim(), level: this.level.value, type: this.type.value, from: this.from.value, to: this.to.value };
    this.timeline.show(this.now.from, this.now.to);
    this.clearButton.disabled = !this.isActive();
    this.onChange();
  }

  isActive() { return Object.values(this.now).some(Boolean); }

  clear() {
    this.search.value = this.level.value = this.type.value = this.from.value = this.to.value = "";
    this.read();
    this.search.focus();
  }

  // Words and phrases that an item must hold, folded.
  words() {
    return [...this.now.text.matchAll(/"([^"]+)"|(\S+)/g)].map((match) => fold(match[1] ?? match[2]).trim()).filter(Boolean);
  }

  // Places that fit, newest first, by level. A level that a filter leaves out is absent.
  find() {
    const words = this.words();
    const { messages, records, tracks } = this.store.data;
    const times = { track: tracks.map((track) => track.time), record: records.time, message: messages.time };
    const found = {};
    for (const level of ["track", "record", "message"]) {
      if ((this.now.level && this.now.level !== level) || (this.now.type && level !== "record")) continue;
      const texts = words.length ? this.store.searchable(level) : null;
      const fits = (place) => {
        const day = times[level][place].slice(0, 10);
        if ((this.now.from && day < this.now.from) || (this.now.to && day > this.now.to)) return false;
        if (level === "record" && this.now.type && records.type[place] !== this.now.type) return false;
        return !texts || words.every((word) => holdsWord(texts[place], word));
      };
      const places = [];
      for (let place = 0; place < times[level].length; place++) if (fits(place)) places.push(place);
      found[level] = places.sort((a, b) => (times[level][a] < times[level][b] ? 1 : times[level][a] > times[level][b] ? -1 : b - a));
    }
    return found;
  }
}

// An id is looked for as a whole: rec:1 is not in rec:12.
function holdsWord(text, word) {
  if (!/^(rec|msg|trk):\S+$/.test(word)) return text.includes(word);
  return text.startsWith(`${word} `);
}

function choice(id, options) {
  return el("select", { id }, options.map(([value, label]) => el("option", { value }, label)));
}

function resultNodes(store, found, words) {
  const builders = {
    track: (place) => trackNode(store, store.track(store.data.tracks[place]), words, false),
    record: (place) => recordNode(store, store.record(place), words, false),
    message: (place) => messageNode(store, store.message(place), words),
  };
  const names = { track: "topics", record: "records", message: "messages" };
  return Object.entries(found).filter(([, places]) => places.length).map(([level, places]) =>
    el("div", { class: `found found-${level}` }, el("h3", {}, `${names[level][0].toUpperCase()}${names[level].slice(1)} `, el("span", { class: "muted" }, places.length.toLocaleString("en"))), pagedList(places, builders[level], names[level])));
}
