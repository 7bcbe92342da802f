// Charts: lines with gaps where nothing was logged, stacks, one step cursor for all of them, legends that show the values under it, and tables.

const HEIGHT = 210;
const MARGIN = { top: 10, right: 12, bottom: 34, left: 50 };
const allCharts = [];
const chartState = { cursor: null, smoothing: 1 };

function niceTicks(low, high, count, isWhole = false) {
  const span = high - low || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factors = isWhole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const unit = Math.max(factors.find((factor) => factor * power >= rough * 0.999) * power, isWhole ? 1 : 0);
  const ticks = [];
  for (let tick = Math.ceil(low / unit - 1e-9) * unit; tick <= high + unit * 1e-6; tick += unit) ticks.push(Math.abs(tick) < unit * 1e-9 ? 0 : tick);
  return ticks;
}

function smooth(values, width) {
  if (width <= 1) return values;
  const half = Math.floor(width / 2);
  return values.map((value, place) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, place - half), place + half + 1).filter((other) => other !== null);
    return near.reduce((sum, other) => sum + other, 0) / near.length;
  });
}

class Chart {
  constructor(spec, steps, starts) {
    Object.assign(this, { spec, steps, starts, hidden: new Set() });
    this.plot = svg("svg", { class: "plot", role: "slider", tabindex: "0", "aria-label": `${spec.title}: step cursor`, "aria-orientation": "horizontal" });
    this.stepLabel = el("span", { class: "at-step" });
    this.legend = el("ul", { class: "legend" });
    this.table = el("details", { class: "data-table" }, el("summary", {}, "Table"));
    this.table.addEventListener("toggle", () => this.table.open && this.fillTable(), { once: true });
    const badge = spec.fromEpisodes ? el("span", { class: "badge" }, "counted from trajectories") : null;
    this.node = el("figure", { class: "card chart", "data-chart": spec.name }, [
      el("figcaption", {}, el("h3", {}, spec.title, " ", spec.unit ? el("span", { class: "unit" }, spec.unit) : null, " ", badge), el("p", { class: "about" }, spec.about)),
      el("div", { class: "legend-row" }, this.legend, this.stepLabel),
      this.plot,
      this.table,
    ]);
    this.fillLegend();
    this.listen();
    allCharts.push(this);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  fillLegend() {
    this.values = this.spec.series.map(() => el("span", { class: "value" }));
    this.legend.replaceChildren(
      ...this.spec.series.map((series, place) =>
        el("li", {}, el("button", { type: "button", "aria-pressed": "true", title: "Show or hide this curve", onclick: (event) => this.toggle(place, event.currentTarget) }, swatch(place, this.spec.kind), el("span", {}, series.label), this.values[place])),
      ),
    );
  }

  toggle(place, button) {
    if (this.hidden.has(place)) this.hidden.delete(place);
    else this.hidden.add(place);
    button.setAttribute("aria-pressed", String(!this.hidden.has(place)));
    this.draw();
  }

  listen() {
    const follow = (event) => {
      const box = this.plot.getBoundingClientRect();
      const wanted = this.stepAt(event.clientX - box.left);
      let best = 0;
      this.steps.forEach((step, place) => { if (Math.abs(step - wanted) < Math.abs(this.steps[best] - wanted)) best = place; });
      setCursor(best);
    };
    this.plot.addEventListener("pointermove", follow);
    this.plot.addEventListener("pointerdown", follow);
    this.plot.addEventListener("pointerleave", () => { if (document.activeElement !== this.plot) setCursor(null); });
    this.plot.addEventListener("focus", () => setCursor(chartState.cursor ?? this.steps.length - 1));
    this.plot.addEventListener("blur", () => setCursor(null));
    this.plot.addEventListener("keydown", (event) => {
      const last = this.steps.length - 1;
      const now = chartState.cursor ?? last;
      const moves = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: last, PageUp: now + 10, PageDown: now - 10 };
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      setCursor(Math.min(last, Math.max(0, moves[event.key])));
    });
  }

  visible() {
    return this.spec.series.map((series, place) => ({ place, values: series.values })).filter(({ place }) => !this.hidden.has(place));
  }

  // Values as they are drawn: for a stack, tops and bottoms.
  layers() {
    const shown = this.visible();
    if (this.spec.kind !== "stack") return shown.map((series) => ({ ...series, tops: smooth(series.values, chartState.smoothing), bottoms: null }));
    const floor = this.steps.map(() => 0);
    return shown.map((series) => {
      const bottoms = floor.slice();
      const tops = series.values.map((value, place) => (value === null ? null : (floor[place] += value)));
      return { ...series, tops, bottoms };
    });
  }

  setScales(width, layers) {
    const raw = this.spec.kind === "stack" ? layers.flatMap((layer) => layer.tops) : layers.flatMap((layer) => [...layer.values, ...layer.tops]);
    let known = [...raw, ...this.spec.lines.map((line) => line.value)].filter((value) => value !== null);
    const isLog = this.spec.log;
    if (isLog) known = known.filter((value) => value > 0);
    let low = Math.min(...(known.length ? known : [0]), ...(this.spec.low !== null && !isLog ? [this.spec.low] : []));
    let high = Math.max(...(known.length ? known : [1]), ...(this.spec.high !== null && !isLog ? [this.spec.high] : []));
    const y0 = HEIGHT - MARGIN.bottom, y1 = MARGIN.top;
    if (isLog) {
      const bottom = Math.floor(Math.log10(low || 1e-9)), top = Math.max(Math.ceil(Math.log10(high || 1)), bottom + 1);
      const stride = Math.ceil((top - bottom) / 6);
      this.yTicks = Array.from({ length: top - bottom + 1 }, (_, k) => bottom + k).filter((power) => (power - bottom) % stride === 0).map((power) => 10 ** power);
      this.y = (value) => (value > 0 ? y0 - ((Math.log10(value) - bottom) / (top - bottom)) * (y0 - y1) : y0);
    } else {
      if (low === high) { low -= this.spec.low === null ? Math.abs(low) * 0.1 || 0.5 : 0; high += Math.abs(high) * 0.1 || 1; }
      if (this.spec.low === null || low < this.spec.low) low -= (high - low) * 0.04;
      if (this.spec.high === null) high += (high - low) * 0.04;
      this.yTicks = niceTicks(low, high, 5);
      this.y = (value) => y0 - ((value - low) / (high - low)) * (y0 - y1);
    }
    const first = this.steps[0], last = this.steps.at(-1);
    const x0 = MARGIN.left, x1 = Math.max(width - MARGIN.right, x0 + 10);
    const pad = this.spec.kind === "stack" || first === last ? 0.6 : 0;
    this.x = (step) => x0 + ((step - first + pad) / (last - first + 2 * pad || 1)) * (x1 - x0);
    this.stepAt = (px) => first - pad + ((px - x0) / (x1 - x0)) * (last - first + 2 * pad);
    this.xTicks = niceTicks(first, last, Math.max(2, Math.min(8, Math.floor(width / 80))), true);
    if (!this.xTicks.length) this.xTicks = [first];
    this.barWidth = Math.max(1, ((x1 - x0) / (last - first + 2 * pad || 1)) * 0.86);
  }

  draw() {
    const width = Math.floor(this.plot.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(this.node).paddingLeft));
    if (width <= 0) return;
    const layers = this.layers();
    this.setScales(width, layers);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.plot.setAttribute("height", HEIGHT);
    this.cursorLine = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.cursorDots = svg("g", {});
    this.plot.replaceChildren(this.drawAxes(width), ...this.drawMarks(width), ...layers.map((layer) => (this.spec.kind === "stack" ? this.drawStack(layer) : this.drawLine(layer))), this.cursorLine, this.cursorDots);
    this.showCursor();
  }

  drawAxes(width) {
    const bottom = HEIGHT - MARGIN.bottom;
    const group = svg("g", { class: "axes", "aria-hidden": "true" });
    for (const tick of this.yTicks) {
      const y = this.y(tick);
      if (y < MARGIN.top - 1 || y > bottom + 1) continue;
      group.append(svg("line", { class: tick === 0 ? "grid zero" : "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
      group.append(svg("text", { x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" }, this.spec.log ? formatPower(tick) : formatNumber(tick)));
    }
    for (const tick of this.xTicks) group.append(svg("text", { x: this.x(tick), y: bottom + 16, "text-anchor": "middle" }, tick));
    group.append(svg("text", { class: "axis-name", x: width - MARGIN.right, y: HEIGHT - 5, "text-anchor": "end" }, "step"));
    return group;
  }

  drawMarks(width) {
    const marks = this.starts.filter((step) => step > this.steps[0]).map((step) => {
      const x = this.x(step);
      return svg("g", { class: "restart" }, svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }), svg("text", { x: x + 3, y: MARGIN.top + 9 }, "resumed"));
    });
    const lines = this.spec.lines.map(({ label, value }) => {
      const y = this.y(value);
      return svg("g", { class: "level" }, svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }), svg("text", { x: width - MARGIN.right, y: y < MARGIN.top + 14 ? y + 13 : y - 4, "text-anchor": "end" }, label));
    });
    return [...marks, ...lines];
  }

  drawLine(layer) {
    const group = svg("g", { class: `series s${layer.place % 8}` });
    if (chartState.smoothing > 1) this.appendPath(group, layer.values, "raw");
    this.appendPath(group, layer.tops, "main");
    return group;
  }

  // One sub-path per unbroken stretch; a value between two gaps becomes a dot.
  appendPath(group, values, name) {
    let path = "", open = false;
    values.forEach((value, place) => {
      if (value === null) { open = false; return; }
      const x = this.x(this.steps[place]).toFixed(1), y = this.y(value).toFixed(1);
      path += `${open ? "L" : "M"}${x} ${y}`;
      const alone = !open && (place + 1 >= values.length || values[place + 1] === null);
      if (alone || (values.length <= 30 && name === "main")) group.append(svg("circle", { class: "dot", cx: x, cy: y, r: 2.6 }));
      open = true;
    });
    group.prepend(svg("path", { class: name, d: path }));
  }

  drawStack(layer) {
    const group = svg("g", { class: `stack s${layer.place % 8}` });
    let path = "";
    layer.tops.forEach((top, place) => {
      if (top === null || top === layer.bottoms[place]) return;
      const left = this.x(this.steps[place]) - this.barWidth / 2, y = this.y(top), base = this.y(layer.bottoms[place]);
      path += `M${left.toFixed(1)} ${base.toFixed(1)}V${y.toFixed(1)}h${this.barWidth.toFixed(1)}V${base.toFixed(1)}Z`;
    });
    group.append(svg("path", { d: path }));
    return group;
  }

  showCursor() {
    const place = chartState.cursor;
    const at = place ?? this.steps.length - 1;
    this.stepLabel.textContent = place === null ? `last step, ${this.steps[at]}` : `step ${this.steps[at]}`;
    this.spec.series.forEach((series, number) => { this.values[number].textContent = formatNumber(series.values[at]); });
    const told = this.spec.series.map((series) => `${series.label} ${series.values[at] === null ? "not logged" : formatNumber(series.values[at])}`);
    this.plot.setAttribute("aria-valuemin", this.steps[0]);
    this.plot.setAttribute("aria-valuemax", this.steps.at(-1));
    this.plot.setAttribute("aria-valuenow", this.steps[at]);
    this.plot.setAttribute("aria-valuetext", `step ${this.steps[at]}: ${told.join(", ")}`);
    if (!this.cursorLine) return;
    this.cursorLine.setAttribute("visibility", place === null ? "hidden" : "visible");
    this.cursorDots.replaceChildren();
    if (place === null) return;
    const x = this.x(this.steps[place]);
    this.cursorLine.setAttribute("x1", x);
    this.cursorLine.setAttribute("x2", x);
    if (this.spec.kind === "stack") return;
    for (const layer of this.visible()) {
      const value = layer.values[place];
      if (value !== null) this.cursorDots.append(svg("circle", { class: `dot series s${layer.place % 8}`, cx: x, cy: this.y(value), r: 4 }));
    }
  }

  fillTable() {
    const head = el("tr", {}, el("th", { scope: "col" }, "step"), this.spec.series.map((series) => el("th", { scope: "col" }, series.label)));
    const rows = this.steps.map((step, place) => el("tr", {}, el("th", { scope: "row" }, step), this.spec.series.map((series) => el("td", {}, formatNumber(series.values[place], 4)))));
    this.table.append(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${this.spec.title}, table` }, el("table", {}, el("caption", {}, this.spec.title), el("thead", {}, head), el("tbody", {}, rows))));
  }
}

function swatch(place, kind) {
  const shape = kind === "stack" ? svg("rect", { x: 1, y: 1, width: 12, height: 10, rx: 2 }) : svg("path", { class: "main", d: "M0 6H22" });
  return svg("svg", { class: `swatch ${kind === "stack" ? "stack" : "series"} s${place % 8}`, width: kind === "stack" ? 14 : 22, height: 12, "aria-hidden": "true" }, shape);
}

function formatPower(value) {
  const power = Math.round(Math.log10(value));
  return power >= -2 && power <= 3 ? formatNumber(value) : `1e${power}`.replace("-", "−");
}

function setCursor(place) {
  chartState.cursor = place;
  for (const chart of allCharts) chart.showCursor();
}

function buildCharts(run) {
  const losses = new Set(["ends", "cuts", "groups", "drops", "mismatch"]);
  const grids = { curves: el("div", { class: "charts" }), losses: el("div", { class: "charts" }) };
  for (const spec of run.charts) grids[losses.has(spec.name) ? "losses" : "curves"].append(new Chart(spec, run.steps, run.starts).node);
  const smoothing = el("select", { id: "smoothing", onchange: (event) => { chartState.smoothing = Number(event.target.value); allCharts.forEach((chart) => chart.draw()); } },
    [[1, "as logged"], [5, "mean of 5 steps"], [15, "mean of 15 steps"]].map(([value, label]) => el("option", { value }, label)));
  const curves = document.getElementById("curves");
  if (run.charts.length) curves.append(el("p", { class: "tools" }, el("label", { for: "smoothing" }, "Lines "), smoothing, el("span", { class: "hint" }, "Hover a chart, or focus it and use the arrow keys, to read one step in all of them. A gap means that nothing was logged.")));
  else curves.append(el("p", { class: "notice" }, "No metrics and no episodes: there is nothing to draw."));
  curves.append(grids.curves);
  if (Object.keys(run.metrics).length) curves.append(buildExplorer(run));
  document.getElementById("losses").append(grids.losses, buildCauses(run));
}

// Any other metric, chosen by name.
function buildExplorer(run) {
  const host = el("div", { class: "charts" });
  const byPrefix = new Map();
  for (const name of Object.keys(run.metrics)) {
    const prefix = name.includes("/") ? name.slice(0, name.indexOf("/")) : "other";
    byPrefix.set(prefix, [...(byPrefix.get(prefix) ?? []), name]);
  }
  const show = (name) => {
    const old = allCharts.findIndex((chart) => chart.spec.name === "explorer");
    if (old >= 0) allCharts.splice(old, 1);
    const spec = { name: "explorer", title: name, about: "As logged.", kind: "line", unit: "", log: false, low: null, high: null, lines: [], series: [{ label: name, values: run.metrics[name] }] };
    host.replaceChildren(new Chart(spec, run.steps, run.starts).node);
  };
  const select = el("select", { id: "any-metric", onchange: (event) => show(event.target.value) },
    [...byPrefix].map(([prefix, names]) => el("optgroup", { label: prefix }, names.map((name) => el("option", { value: name }, name)))));
  const box = el("details", { class: "explorer" }, el("summary", {}, `All ${Object.keys(run.metrics).length} metrics of this run`), el("p", { class: "tools" }, el("label", { for: "any-metric" }, "Metric "), select), host);
  box.addEventListener("toggle", () => { if (box.open && !host.firstChild) show(select.value); });
  return box;
}

function buildCauses(run) {
  const node = el("div", { class: "card" }, el("h3", {}, "Why episodes had no reward or did not end well"));
  if (!run.causes.length) return fill(node, [el("p", { class: "about" }, run.shown.all ? `All ${plural(run.shown.all, "episode")} completed with a reward.` : "No episodes to count.")]);
  const rows = run.causes.map((row) =>
    el("tr", {}, el("th", { scope: "row" }, row.cause), el("td", {}, row.count.toLocaleString("en")), el("td", {}, `${formatNumber(row.share * 100, 2)} %`), el("td", {}, row.first === row.last ? row.first : `${row.first} – ${row.last}`),
      el("td", {}, row.shown ? el("button", { type: "button", class: "link", onclick: () => viewer.showCause(row.cause) }, `show ${row.shown}`) : el("span", { class: "muted" }, "not embedded"))));
  const head = ["cause", "episodes", "of all", "steps", "below"].map((name) => el("th", { scope: "col" }, name));
  return fill(node, [el("p", { class: "about" }, `Counted over all ${plural(run.shown.all, "episode")}, training and validation.`), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Causes, table" }, el("table", { class: "causes" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)))]);
}
