// Make a page of reports interactive: plots become uPlot charts, animations play. Without scripts the page shows a table
// of each plot. Nothing is fetched here, and text from data is only ever set as text.
(() => {
"use strict";

const charts = [];
const root = document.documentElement;
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const make = (tag, attributes = {}, ...inner) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inner);
  return element;
};
const button = (text, label, act) => {
  const element = make("button", { type: "button", "aria-label": label, title: label }, text);
  element.addEventListener("click", act);
  return element;
};

// Numbers, as hmx.render.quantities writes them.
const digits = (value, count) => {
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9))
    return value.toExponential(count - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return Number(value.toPrecision(count)).toLocaleString("en", { maximumFractionDigits: 12 });
};
const short = value => {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= limit) return Number((value / limit).toPrecision(4)) + unit;
  return digits(value, 4);
};
const duration = seconds => seconds < 60 ? digits(seconds, 3) + " s" : seconds < 3600
  ? Number((seconds / 60).toFixed(1)) + " min" : Number((seconds / 3600).toFixed(1)) + " h";
const FORMATS = {
  number: value => digits(value, 4), count: short, duration, percent: value => digits(100 * value, 3) + "%",
};
const show = (value, axis) => (FORMATS[axis.format] || FORMATS.number)(value);

const MARKS = ["bars", "dots"]; // drawn here, since uPlot draws lines
const variable = line => line.colour < 0 ? "--faint" : "--c" + line.colour % 8;
const row = line => Math.floor(Math.max(line.colour, 0) / 8) % 3; // of the palette: its lines differ by their dashes
// Six digits, so that two of opacity can follow.
const long = colour => colour.length === 4 ? "#" + [...colour.slice(1)].map(digit => digit + digit).join("") : colour;
const ink = line => long(css(variable(line)));

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.spec = JSON.parse(figure.querySelector("script").textContent);
    this.hidden = new Set();
    this.second = false;
    const { x, y, series } = this.spec, head = figure.querySelector("figcaption");
    const names = [...new Set(series.map(line => line.name).filter(Boolean))];
    const label = `${head.querySelector("h3").textContent}: ${y.label} over ${x.label}; ${names.join(", ")}`;
    this.box = make("div", { class: "chart", tabindex: "0", role: "img", "aria-label": label });
    this.values = make("output", { class: "values" });
    this.reset = button("reset zoom", "Reset the zoom (0)", () => this.zoomOut());
    this.reset.hidden = true;
    figure.querySelector(".scroll").replaceWith(this.box, make("div", { class: "below" }, this.values, this.reset));
    if (names.length > 1) head.append(make("ul", { class: "legend" }, ...names.map(name => this.entry(name))));
    this.box.addEventListener("keydown", event => this.key(event));
    this.draw();
    new ResizeObserver(() => this.size()).observe(this.box);
  }

  // Show the data of a newer figure, with the same zoom; return whether it has the same lines.
  take(newer) {
    const spec = JSON.parse(newer.querySelector("script").textContent);
    const lines = ({ series, x2 }) => JSON.stringify([series.map(({ name, colour }) => [name, colour]), !x2]);
    if (lines(spec) !== lines(this.spec)) return false;
    const caption = figure => figure.querySelector("figcaption > p");
    if (caption(this.figure) && caption(newer)) caption(this.figure).textContent = caption(newer).textContent;
    if (JSON.stringify(spec) === JSON.stringify(this.spec)) return true;
    this.spec = spec;
    this.draw(true);
    return true;
  }

  // An entry of the legend: a switch for the series of a name.
  entry(name) {
    const line = this.spec.series.find(other => other.name === name);
    const style = { bars: "bars", area: "bars", dots: "dots" }[line.kind] || "line";
    const swatch = make("span", { class: `swatch ${style}` });
    swatch.style.setProperty("--mark", `var(${variable(line)})`);
    swatch.style.borderStyle = line.dashed ? "dashed" : ["solid", "dashed", "dotted"][row(line)];
    if (line.kind === "dots" && line.dashed) swatch.classList.add("hollow");
    const toggle = make("button", { type: "button", "aria-pressed": "true" }, swatch, name);
    toggle.addEventListener("click", () => {
      const hide = !this.hidden.delete(name);
      if (hide) this.hidden.add(name);
      toggle.setAttribute("aria-pressed", String(!hide));
      this.draw(true);
    });
    return make("li", {}, toggle);
  }

  get height() { return parseFloat(getComputedStyle(this.box).minHeight); }

  get axis() { return this.second ? this.spec.x2 : this.spec.x; }

  // One column of values per line, and one for each end of its band or error bars and for the base of areas and bars.
  columns() {
    const { spec } = this, tables = spec.grids.map(grid => [this.second ? grid.x2 : grid.x]);
    const bands = [], slots = [], sums = new Map();
    const log = spec.y.scale === "log", thin = spec.series.some(line => line.thin);
    const usable = value => value !== null && !(log && value <= 0) ? value : null;
    spec.series.forEach(line => {
      if (this.hidden.has(line.name)) return;
      const add = values => tables[line.grid].push(values.map(usable)) - 1, slot = { line };
      if (line.kind === "area" || (line.kind === "bars" && !spec.grouped)) {
        const ends = line.y.map((value, i) => {
          if (value === null && line.kind === "bars") return [null, null];
          const key = line.kind + (value < 0 ? "-" : "+") + spec.grids[line.grid].x[i], start = sums.get(key) || 0;
          sums.set(key, start + value);
          return [start, start + value];
        });
        slot.at = add(ends.map(pair => pair[1]));
        slot.base = add(ends.map(pair => pair[0]));
      } else {
        slot.at = add(line.y);
        if (line.kind === "bars") slot.base = add(line.y.map(value => value === null ? null : 0));
      }
      if (line.low) Object.assign(slot, { low: add(line.low), high: add(line.high) });
      slots.push(slot);
    });
    // uPlot joins the tables: the columns of the first come first.
    const offsets = [];
    let total = 0;
    tables.forEach(table => { offsets.push(total); total += table.length - 1; });
    const series = Array(total + 1).fill({});
    slots.forEach(slot => {
      const { line } = slot, area = line.kind === "area", marks = MARKS.includes(line.kind), colour = ink(line);
      for (const name of ["at", "base", "low", "high"]) if (name in slot) slot[name] += offsets[line.grid];
      const edge = () => ({ stroke: "transparent", width: 0, points: { show: false }, auto: area || marks || !thin });
      for (const name of ["base", "low", "high"]) if (name in slot) series[slot[name]] = edge();
      series[slot.at] = marks ? { ...edge(), paths: () => null } : {
        stroke: colour + (line.thin ? "70" : ""), width: line.thin || area || line.colour < 0 ? 1 : 2,
        dash: line.dashed ? [6, 4] : [[], [8, 3, 2, 3], [2, 2]][row(line)],
        paths: line.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: line.y.filter(value => value !== null).length === 1, size: 6, fill: colour },
      };
      // A band is filled from its first line down to its second; a layer below 0 has them the other way round.
      const ends = area ? [slot.at, slot.base] : [slot.high, slot.low], fill = colour + (area ? "b0" : "26");
      if (area || ("low" in slot && !marks)) bands.push({ series: ends, fill });
      if (area) bands.push({ series: [...ends].reverse(), fill });
    });
    this.slots = slots;
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    return { data, series, bands };
  }

  // Both ends of the horizontal axis: a name stands in the middle of its place, and marks stand clear of the ends.
  ends(places) {
    const { categories, series, x } = this.spec, low = places[0], high = places[places.length - 1];
    if (categories) return [-0.5, categories.length - 0.5];
    if (!series.some(line => MARKS.includes(line.kind))) return [low, high];
    if (this.axis.scale === "log") {
      const room = high > low ? (high / low) ** 0.04 : 1.5;
      return [low / room, high * room];
    }
    const room = high > low ? 0.04 * (high - low) : Math.abs(high) / 2 || 0.5;
    return [x.low ?? low - room, x.high ?? high + room];
  }

  // The names of categories as an axis, slanted where they have no room side by side.
  names() {
    const { categories } = this.spec, room = (this.box.clientWidth - 64) / categories.length;
    const texts = categories.map(name => name.length > 18 ? name.slice(0, 17) + "…" : name);
    const longest = Math.max(...texts.map(text => text.length)), slanted = 6.6 * longest > room - 4;
    const every = Math.max(Math.ceil((slanted ? 20 : 1) / room), 1);
    return {
      splits: () => texts.map((_, i) => i), values: () => texts.map((text, i) => i % every ? "" : text),
      rotate: slanted ? 40 : 0, size: slanted ? 20 + 4.5 * longest : 32, grid: { show: false },
    };
  }

  draw(keep = false) {
    const zoom = keep && this.zoomed ? [this.plot.scales.x.min, this.plot.scales.x.max] : null;
    if (this.plot) this.plot.destroy();
    const { data, series, bands } = this.columns(), { spec } = this, log = spec.y.scale === "log";
    const line = { stroke: css("--ink"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false } };
    const ticks = axis => (_, values) => values.map(value => value === null ? "" : show(value, axis));
    const range = (_, low, high) => {
      if (low === null || low === undefined) [low, high] = [spec.y.low ?? 0, spec.y.high ?? 1];
      const [bottom, top] = log ? uPlot.rangeLog(low, high, 10, false) : uPlot.rangeNum(low, high, 0.1, true);
      return [spec.y.low ?? bottom, spec.y.high ?? top];
    };
    this.full = this.ends(data[0]);
    this.plot = new uPlot({
      width: Math.max(this.box.clientWidth, 100), height: this.height, series, bands, legend: { show: false },
      padding: [null, 28, null, null], // the last tick text ends inside the drawing
      scales: {
        x: { time: false, distr: this.axis.scale === "log" ? 3 : 1 },
        y: { distr: log ? 3 : 1, range },
      },
      axes: [
        { ...line, label: this.axis.label, values: ticks(this.axis), size: 32, labelSize: 22, space: 60,
          font: "12px system-ui", labelFont: "12px system-ui", ...(spec.categories ? this.names() : {}) },
        { ...line, label: spec.y.label, values: ticks(spec.y), labelSize: 20, font: "12px system-ui",
          labelFont: "12px system-ui",
          size: (_, values) => 14 + 7 * Math.max(2, ...(values || []).map(text => text.length)) },
      ],
      cursor: {
        y: false, points: { show: false }, drag: { x: true, y: false },
        sync: { key: this.axis.label, scales: ["x", null], setSeries: false },
      },
      hooks: {
        setCursor: [plot => this.read(plot)],
        setScale: [(plot, key) => { if (key === "x") this.scaled(plot); }],
        drawAxes: [plot => this.marks(plot, "bars")],
        draw: [plot => this.marks(plot, "dots"), plot => this.references(plot)],
      },
    }, data, this.box);
    const [min, max] = zoom || this.full;
    if (min < max) this.plot.setScale("x", { min, max });
  }

  get zoomed() { return this.plot && !this.reset.hidden; }

  scaled(plot) {
    const { min, max } = plot.scales.x;
    this.reset.hidden = !(min > this.full[0] || max < this.full[1]);
  }

  zoomOut() { this.plot.setScale("x", { min: this.full[0], max: this.full[1] }); }

  size() {
    const width = this.box.clientWidth;
    if (width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
  }

  read(plot) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined || plot.cursor.left < 0) { this.values.textContent = ""; return; }
    const { categories, y } = this.spec;
    const parts = [categories ? categories[at] ?? "" : `${this.axis.label} ${show(plot.data[0][at], this.axis)}`];
    for (const slot of this.slots) {
      const { line } = slot, missing = i => plot.data[slot.at][i] === undefined || plot.data[slot.at][i] === null;
      if (line.thin) continue;
      // The nearest value to the left: lines of other runs have values at other places.
      let i = at;
      while (i > 0 && missing(i) && !MARKS.includes(line.kind)) i -= 1;
      if (missing(i)) continue;
      const [value, base, low, high] = ["at", "base", "low", "high"].map(name => plot.data[slot[name]]?.[i]);
      const ends = typeof low === "number" ? ` [${show(low, y)}, ${show(high, y)}]` : "";
      const label = line.labels?.[this.spec.grids[line.grid].x.indexOf(plot.data[0][i])];
      parts.push(label || `${line.name || y.label} ${show(value - (base || 0), y)}${ends}`);
    }
    this.values.textContent = parts.join(" \u00b7 ");
  }

  // Draw the bars or the dots, with their error bars and tags.
  marks(plot, kind) {
    const slots = this.slots.filter(slot => slot.line.kind === kind);
    if (!slots.length) return;
    const { ctx, bbox, data } = plot, { categories, grouped, grids } = this.spec, scale = devicePixelRatio;
    const x = value => plot.valToPos(value, "x", true), y = value => plot.valToPos(value, "y", true);
    const groups = grouped ? [...new Set(slots.map(slot => slot.line.name))] : [""];
    const centres = [...new Set(slots.flatMap(slot => grids[slot.line.grid].x))].sort((a, b) => a - b).map(x);
    const gaps = centres.slice(1).map((centre, i) => centre - centres[i]);
    if (categories) gaps.push(bbox.width / categories.length);
    const width = Math.min(0.8 * Math.min(...gaps, 70 * scale) / groups.length, 56 * scale);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left - 5 * scale, bbox.top - 5 * scale, bbox.width + 10 * scale, bbox.height + 10 * scale);
    ctx.clip();
    for (const slot of slots) {
      const { line } = slot, place = grouped ? groups.indexOf(line.name) - (groups.length - 1) / 2 : 0;
      data[0].forEach((at, i) => {
        const [value, base, low, high] = ["at", "base", "low", "high"].map(name => data[slot[name]]?.[i]);
        if (typeof value !== "number") return;
        const middle = x(at) + place * width;
        ctx.fillStyle = ink(line);
        if (kind === "bars") {
          const from = typeof base === "number" ? y(base) : bbox.top + bbox.height, inset = width > 4 ? scale / 2 : 0;
          const top = Math.min(y(value), from), height = Math.max(Math.abs(y(value) - from), scale / 2);
          ctx.fillRect(middle - width / 2 + inset, top, width - 2 * inset, height);
        } else this.dot(ctx, middle, y(value), line);
        ctx.strokeStyle = ctx.fillStyle = css("--ink");
        if (typeof low === "number" && typeof high === "number") this.whisker(ctx, middle, y(low), y(high));
        const tag = line.tags?.[grids[line.grid].x.indexOf(at)];
        if (tag) this.halo(ctx, tag, middle + 6 * scale, y(value) - 6 * scale);
      });
    }
    ctx.restore();
  }

  dot(ctx, x, y, line) {
    ctx.beginPath();
    ctx.arc(x, y, 3.2 * devicePixelRatio, 0, 2 * Math.PI);
    if (line.dashed) {
      ctx.fillStyle = css("--page"); ctx.strokeStyle = ink(line); ctx.lineWidth = 1.8 * devicePixelRatio;
      ctx.fill(); ctx.stroke();
    } else ctx.fill();
  }

  whisker(ctx, x, low, high) {
    const half = 3 * devicePixelRatio;
    ctx.lineWidth = 1.2 * devicePixelRatio;
    ctx.beginPath();
    for (const [x1, y1, x2, y2] of [[x, low, x, high], [x - half, low, x + half, low], [x - half, high, x + half, high]]) {
      ctx.moveTo(x1, y1); ctx.lineTo(x2, y2);
    }
    ctx.stroke();
  }

  // Text that can be read across lines.
  halo(ctx, text, x, y) {
    ctx.font = `${11 * devicePixelRatio}px system-ui`; ctx.textAlign = "left";
    ctx.lineWidth = 3 * devicePixelRatio; ctx.strokeStyle = css("--page");
    ctx.strokeText(text, x, y); ctx.fillText(text, x, y);
  }

  // Where a place on the first axis lies on the axis that is shown.
  place(at) {
    if (!this.second) return at;
    const { x, x2 } = this.spec.grids.reduce((a, b) => a.x[a.x.length - 1] > b.x[b.x.length - 1] ? a : b);
    const i = x.findIndex(value => value >= at);
    if (i <= 0) return i < 0 ? x2[x2.length - 1] : x2[0];
    return x2[i - 1] + (x2[i] - x2[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1]);
  }

  references(plot) {
    const { ctx, bbox } = plot, { left, top, width, height } = bbox, scale = devicePixelRatio;
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = css("--faint");
    ctx.lineWidth = scale; ctx.font = `${11 * scale}px system-ui`;
    ctx.textAlign = "left";
    const labels = [];
    for (const reference of [...this.spec.references].sort((a, b) => b.at - a.at)) {
      let from, to;
      if (reference.axis === "diagonal") [from, to] = [[left, top + height], [left + width, top]];
      else if (reference.axis === "x") {
        const x = plot.valToPos(this.place(reference.at), "x", true);
        [from, to] = [[x, top], [x, top + height]];
      } else {
        const y = plot.valToPos(reference.at, "y", true);
        [from, to] = [[left, y], [left + width, y]];
      }
      ctx.setLineDash([5 * scale, 4 * scale]);
      ctx.beginPath(); ctx.moveTo(...from); ctx.lineTo(...to); ctx.stroke();
      // A threshold is labelled below its right end, where curves that passed it are above.
      const level = reference.axis === "y", start = level ? to : from;
      const right = level || from[0] > left + width / 2;
      const text = reference.label, wide = ctx.measureText(text).width;
      const x = start[0] + (right ? -5 * scale - wide : 5 * scale);
      const label = { text, x, end: x + wide,
        y: Math.min((reference.axis === "x" ? top : start[1]) + 12 * scale, top + height - 4 * scale) };
      const hits = other => x < other.end && other.x < label.end && Math.abs(label.y - other.y) < 12 * scale;
      while (labels.some(hits)) label.y += scale;
      labels.push(label);
    }
    ctx.setLineDash([]);
    for (const { text, x, y } of labels) this.halo(ctx, text, x, y);
    ctx.restore();
  }

  key(event) {
    const { plot } = this, step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      const last = plot.data[0].length - 1;
      const now = plot.cursor.idx ?? (step > 0 ? -1 : last + 1);
      const next = Math.min(Math.max(now + step * (event.shiftKey ? 10 : 1), 0), last);
      plot.setCursor({ left: plot.valToPos(plot.data[0][next], "x"), top: 10 });
    } else if (event.key === "+" || event.key === "-") {
      const { min, max } = plot.scales.x, middle = plot.data[0][plot.cursor.idx ?? -1] ?? (min + max) / 2;
      const half = (max - min) * (event.key === "+" ? 0.25 : 1);
      plot.setScale("x", { min: Math.max(middle - half, this.full[0]), max: Math.min(middle + half, this.full[1]) });
    } else if (event.key === "0" || event.key === "Escape") this.zoomOut();
    else return;
    event.preventDefault();
  }
}

function player(figure) {
  const { shapes, frames } = JSON.parse(figure.querySelector("script").textContent);
  const drawing = figure.querySelector("svg"), now = make("output", { class: "values" }), facts = make("dl");
  const bars = make("div", { class: "bars" });
  const slider = make("input", { type: "range", min: "0", max: String(frames.length - 1), value: "0",
    "aria-label": "Step of the episode" });
  let at = 0, timer = 0;
  const draw = next => {
    at = Math.min(Math.max(next, 0), frames.length - 1);
    const frame = frames[at];
    drawing.innerHTML = frame.shapes.map(i => shapes[i]).join(""); // written by hmx, with its texts escaped
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", `step ${at} of ${frames.length - 1}`);
    now.textContent = `step ${at} of ${frames.length - 1}`;
    facts.replaceChildren(...frame.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    bars.replaceChildren(...frame.bars.map(([name, share]) => {
      const fill = make("span", { class: "bar" });
      fill.style.width = `${6 * share}em`;
      return make("div", {}, make("span", { class: "name" }, name), make("span", { class: "space" }, fill),
        ` ${Math.round(100 * share)}%`);
    }));
  };
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "play"; };
  const start = () => {
    if (at === frames.length - 1) draw(0);
    timer = setInterval(() => { draw(at + 1); if (at === frames.length - 1) stop(); }, 1000 / Number(speed.value));
    play.textContent = "pause";
  };
  const toggle = () => timer ? stop() : start();
  const play = button("play", "Play or pause (space)", toggle);
  const speed = make("select", { "aria-label": "Steps per second" });
  for (const rate of [2, 5, 15, 50]) speed.append(make("option", { value: String(rate) }, `${rate} steps/s`));
  speed.value = "5";
  speed.addEventListener("change", () => { if (timer) { stop(); start(); } });
  slider.addEventListener("input", () => { stop(); draw(Number(slider.value)); });
  const go = step => () => { stop(); draw(at + step); };
  figure.tabIndex = 0;
  figure.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -frames.length, End: frames.length }[event.key];
    if (event.target.tagName === "SELECT" || (event.target.tagName === "BUTTON" && event.key === " ")) return;
    if (step) go(step)();
    else if (event.key === " ") toggle();
    else return;
    event.preventDefault();
  });
  const controls = make("div", { class: "controls" }, play, button("\u2039", "One step back", go(-1)),
    button("\u203a", "One step forward", go(1)), slider, speed, now);
  figure.querySelector(".stage").after(controls);
  figure.querySelector(".beside").replaceChildren(facts, bars);
  draw(0);
}

for (const figure of document.querySelectorAll("figure.plot")) charts.push(new Chart(figure));
for (const figure of document.querySelectorAll("figure.player")) player(figure);
const both = () => charts.filter(chart => chart.spec.x2);
if (both().length) {
  const choice = make("p", { class: "choice" }, "Horizontal axis:");
  const names = [both()[0].spec.x.label, both()[0].spec.x2.label];
  names.forEach((name, i) => {
    const radio = make("input", { type: "radio", name: "axis", ...(i ? {} : { checked: "" }) });
    radio.addEventListener("change", () => both().forEach(chart => { chart.second = i === 1; chart.draw(); }));
    choice.append(make("label", {}, radio, name));
  });
  const first = document.querySelector("figure.plot");
  (first.closest(".plots") || first).before(choice);
}
// For pages that update themselves: show what a newer version of a figure shows.
globalThis.updateFigure = (figure, newer) => {
  const at = charts.findIndex(chart => chart.figure === figure), old = charts[at];
  if (old && newer.matches(".plot") && old.take(newer)) return;
  figure.replaceWith(newer);
  if (old) charts.splice(at, 1);
  if (!newer.matches(".plot")) return;
  const chart = new Chart(newer), other = charts.find(each => each.spec.x2);
  if (chart.spec.x2 && (old || other)?.second) { chart.second = true; chart.draw(); }
  charts.push(chart);
};
const redraw = () => charts.forEach(chart => chart.draw(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
matchMedia("print").addEventListener("change", redraw);
})();
