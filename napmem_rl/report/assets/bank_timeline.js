// The time line: how much was said, and how many records are drawn from it, by day, week, month or year. A stretch of it filters the page.

const BAR_HEIGHT = 84;
const MOST_BINS = 72;
const DAY_MS = 86400000;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function dayNumber(time) { return Math.floor(Date.UTC(Number(time.slice(0, 4)), Number(time.slice(5, 7)) - 1, Number(time.slice(8, 10))) / DAY_MS); }
function dayText(number) { return new Date(number * DAY_MS).toISOString().slice(0, 10); }

// How moments fall into bins: `of` gives a bin's number, `first` its first day, `label` its name.
const UNITS = [
  { name: "day", of: dayNumber, first: dayText, label: (bin) => formatTime(dayText(bin)), days: 1 },
  { name: "week", of: (time) => Math.floor((dayNumber(time) + 3) / 7), first: (bin) => dayText(bin * 7 - 3), label: (bin) => `week of ${formatTime(dayText(bin * 7 - 3))}`, days: 7 },
  { name: "month", of: (time) => Number(time.slice(0, 4)) * 12 + Number(time.slice(5, 7)) - 1, first: monthStart, label: (bin) => `${MONTHS[bin % 12]} ${Math.floor(bin / 12)}`, days: 30 },
  { name: "year", of: (time) => Number(time.slice(0, 4)), first: (bin) => `${String(bin).padStart(4, "0")}-01-01`, label: String, days: 365 },
];

function monthStart(bin) { return `${String(Math.floor(bin / 12)).padStart(4, "0")}-${String((bin % 12) + 1).padStart(2, "0")}-01`; }

class Timeline {
  constructor(store, onRange) {
    Object.assign(this, { store, onRange, cursor: null, anchor: null, range: null });
    const times = [...store.data.messages.time, ...store.data.records.time];
    this.node = el("figure", { class: "card timeline" });
    if (!times.length) return;
    const low = times.reduce((least, time) => (time < least ? time : least));
    const high = times.reduce((most, time) => (time > most ? time : most));
    this.unit = UNITS.find((unit) => unit.of(high) - unit.of(low) < MOST_BINS) ?? UNITS.at(-1);
    this.start = this.unit.of(low);
    this.count = this.unit.of(high) - this.start + 1;
    this.messages = this.countBins(store.data.messages.time);
    this.records = this.countBins(store.data.records.time);
    this.plot = svg("svg", { class: "bars", role: "slider", tabindex: "0", "aria-label": `Time line by ${this.unit.name}`, "aria-valuemin": 0, "aria-valuemax": this.count - 1, "aria-describedby": "timeline-hint" });
    this.status = el("span", { class: "at-step" });
    this.node.append(
      el("figcaption", {}, el("span", { class: "key messages" }, "messages"), el("span", { class: "key records" }, "records drawn from them"), el("span", { class: "muted" }, `by ${this.unit.name}`), this.status),
      this.plot,
      el("p", { class: "hint", id: "timeline-hint" }, "Choose a stretch of time by dragging, or with ← → and Enter; Shift extends it."),
    );
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  countBins(times) {
    const bins = new Array(this.count).fill(0);
    for (const time of times) bins[this.unit.of(time) - this.start] += 1;
    return bins;
  }

  listen() {
    const at = (event) => {
      const box = this.plot.getBoundingClientRect();
      return Math.min(this.count - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * this.count)));
    };
    this.plot.addEventListener("pointerdown", (event) => { this.plot.setPointerCapture(event.pointerId); this.anchor = at(event); this.mark(this.anchor, this.anchor); });
    this.plot.addEventListener("pointermove", (event) => {
      this.cursor = at(event);
      if (this.anchor !== null && event.buttons) this.mark(this.anchor, this.cursor);
      this.tell();
    });
    this.plot.addEventListener("pointerup", (event) => { if (this.anchor !== null) this.choose(this.anchor, at(event)); this.anchor = null; });
    this.plot.addEventListener("pointerleave", () => { if (document.activeElement !== this.plot) { this.cursor = null; this.tell(); } });
    this.plot.addEventListener("focus", () => { this.cursor ??= this.range?.[1] ?? this.count - 1; this.tell(); });
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.cursor ?? this.count - 1;
    const moves = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: this.count - 1, PageUp: now + 12, PageDown: now - 12 };
    if (event.key in moves) {
      this.cursor = Math.min(this.count - 1, Math.max(0, moves[event.key]));
      if (event.shiftKey) this.choose(this.range?.[0] ?? now, this.cursor);
      else this.tell();
    } else if (event.key === "Enter" || event.key === " ") this.choose(now, now);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Filter by the bins from one to another, in any order.
  choose(one, other) {
    this.mark(one, other);
    this.onRange(this.unit.first(this.start + Math.min(one, other)), dayText(dayNumber(this.unit.first(this.start + Math.max(one, other) + 1)) - 1));
  }

  mark(one, other) {
    this.range = [Math.min(one, other), Math.max(one, other)];
    this.draw();
  }

  // The stretch that the date fields say.
  show(from, to) {
    if (!this.unit) return;
    const place = (date, otherwise) => (date ? Math.min(this.count - 1, Math.max(0, this.unit.of(date) - this.start)) : otherwise);
    this.range = from || to ? [place(from, 0), place(to, this.count - 1)] : null;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const tallest = Math.max(...this.messages, 1);
    const step = width / this.count;
    const bar = (place, value, className) => {
      const height = value ? Math.max(2, (value / tallest) * (BAR_HEIGHT - 6)) : 0;
      return svg("rect", { class: className, x: (place * step + step * 0.09).toFixed(2), width: Math.max(1, step * 0.82).toFixed(2), y: (BAR_HEIGHT - height).toFixed(2), height: height.toFixed(2), rx: 1.5 });
    };
    const range = this.range ? [svg("rect", { class: "chosen", x: this.range[0] * step, width: (this.range[1] - this.range[0] + 1) * step, y: 0, height: BAR_HEIGHT })] : [];
    this.plot.setAttribute("viewBox", `0 0 ${width} ${BAR_HEIGHT + 18}`);
    this.plot.replaceChildren(...range, ...this.messages.map((value, place) => bar(place, value, "messages")), ...this.records.map((value, place) => bar(place, value, "records")), this.drawLabels(width, step));
    this.tell();
  }

  drawLabels(width, step) {
    const stride = Math.ceil(this.count / Math.max(2, Math.floor(width / 110)));
    const group = svg("g", { "aria-hidden": "true" });
    for (let place = 0; place < this.count; place += stride) {
      const x = Math.min(place * step, width - 4);
      group.append(svg("text", { x, y: BAR_HEIGHT + 14, "text-anchor": x > width - 60 ? "end" : "start" }, this.unit.label(this.start + place).replace("week of ", "")));
    }
    return group;
  }

  tell() {
    const place = this.cursor;
    this.status.textContent = place === null ? "" : this.describe(place);
    const told = place ?? this.count - 1;
    this.plot.setAttribute("aria-valuenow", told);
    this.plot.setAttribute("aria-valuetext", this.describe(told));
  }

  describe(place) {
    return `${this.unit.label(this.start + place)}: ${plural(this.messages[place], "message")}, ${plural(this.records[place], "record")}`;
  }
}
