// Make a page of reports interactive: plots become uPlot charts, animations play. Without scripts the page shows static
// drawings. Nothing is fetched here, and text from data is only ever set as text.
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

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.spec = JSON.parse(figure.querySelector("script").textContent);
    this.hidden = new Set();
    this.second = false;
    const drawing = figure.querySelector("svg.drawing");
    this.box = make("div", {
      class: "chart", tabindex: "0", role: "img", "aria-label": drawing.getAttribute("aria-label"),
    });
    this.values = make("output", { class: "values" });
    this.reset = button("reset zoom", "Reset the zoom (0)", () => this.zoomOut());
    this.reset.hidden = true;
    drawing.replaceWith(this.box, make("div", { class: "below" }, this.values, this.reset));
    for (const item of figure.querySelectorAll(".legend li")) this.legend(item);
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

  legend(item) {
    const name = item.textContent, toggle = make("button", { type: "button", "aria-pressed": "true" });
    toggle.append(...item.childNodes);
    toggle.addEventListener("click", () => {
      const hide = !this.hidden.delete(name);
      if (hide) this.hidden.add(name);
      toggle.setAttribute("aria-pressed", String(!hide));
      this.draw(true);
    });
    item.append(toggle);
  }

  get height() { return parseFloat(getComputedStyle(this.box).minHeight); }

  get axis() { return this.second ? this.spec.x2 : this.spec.x; }

  // One column of values per line: of a band also its ends, of an area also where it starts.
  columns() {
    const { spec } = this, tables = spec.grids.map(grid => [this.second ? grid.x2 : grid.x]);
    const series = [{}], bands = [], slots = [], sums = new Map();
    const log = spec.y.scale === "log", thin = spec.series.some(line => line.thin);
    const usable = value => value !== null && !(log && value <= 0) ? value : null;
    spec.series.forEach(line => {
      if (this.hidden.has(line.name)) return;
      const add = values => tables[line.grid].push(values.map(usable)) - 1;
      if (line.kind === "area") {
        const height = line.y.map(value => value === null ? 0 : value);
        const sum = height.map((value, i) => {
          const key = line.grid + (value < 0 ? "-" : "+") + i, start = sums.get(key) || 0;
          sums.set(key, start + value);
          return [start, start + value];
        });
        slots.push({ line, grid: line.grid, at: add(sum.map(ends => ends[1])), low: add(sum.map(ends => ends[0])) });
      } else {
        const slot = { line, grid: line.grid, at: add(line.y) };
        if (line.low) Object.assign(slot, { low: add(line.low), high: add(line.high) });
        slots.push(slot);
      }
    });
    // uPlot joins the tables: the columns of the first come first.
    const offsets = [];
    let total = 0;
    tables.forEach(table => { offsets.push(total); total += table.length - 1; });
    const order = Array(total);
    // Six digits, so that two of opacity can follow.
    const long = colour => colour.length === 4 ? "#" + [...colour.slice(1)].map(digit => digit + digit).join("") : colour;
    const ink = line => long(css(line.colour < 0 ? "--faint" : "--c" + line.colour % 8));
    slots.forEach(slot => {
      const { line } = slot, place = at => offsets[slot.grid] + at, area = line.kind === "area", colour = ink(line);
      const dash = line.dashed ? [6, 4] : [[], [8, 3, 2, 3], [2, 2]][Math.floor(Math.max(line.colour, 0) / 8) % 3];
      order[place(slot.at) - 1] = {
        slot, stroke: colour + (line.thin ? "70" : ""), width: line.thin ? 1 : area ? 1 : line.colour < 0 ? 1 : 2, dash,
        paths: line.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: line.y.filter(value => value !== null).length === 1, size: 6, fill: colour },
      };
      const edge = () => ({ stroke: "transparent", width: 0, points: { show: false }, auto: area || !thin });
      if (slot.low !== undefined) order[place(slot.low) - 1] = edge();
      if (slot.high !== undefined) order[place(slot.high) - 1] = edge();
      if (slot.low !== undefined) {
        // A band is filled from its first line down to its second; a layer below 0 has them the other way round.
        const ends = [place(area ? slot.at : slot.high), place(slot.low)], fill = colour + (area ? "b0" : "26");
        bands.push({ series: ends, fill });
        if (area) bands.push({ series: [...ends].reverse(), fill });
      }
    });
    slots.forEach(slot => { slot.place = offsets[slot.grid] + slot.at; });
    this.slots = slots;
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    return { data, series: series.concat(order), bands };
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
    this.full = [data[0][0], data[0][data[0].length - 1]];
    this.plot = new uPlot({
      width: Math.max(this.box.clientWidth, 100), height: this.height, series, bands, legend: { show: false },
      scales: {
        x: { time: false, distr: this.axis.scale === "log" ? 3 : 1 },
        y: { distr: log ? 3 : 1, range },
      },
      axes: [
        { ...line, label: this.axis.label, values: ticks(this.axis), size: 32, labelSize: 22, space: 60,
          font: "12px system-ui", labelFont: "12px system-ui" },
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
        draw: [plot => this.references(plot)],
      },
    }, data, this.box);
    if (zoom) this.plot.setScale("x", { min: zoom[0], max: zoom[1] });
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
    const parts = [`${this.axis.label} ${show(plot.data[0][at], this.axis)}`];
    for (const slot of this.slots) {
      if (slot.line.thin) continue;
      // The nearest value to the left: lines of other runs have values at other places.
      const column = plot.data[slot.place];
      let i = at;
      while (i > 0 && (column[i] === undefined || column[i] === null)) i -= 1;
      if (column[i] === undefined || column[i] === null) continue;
      const low = slot.low === undefined ? undefined : plot.data[slot.place + 1][i];
      let value = column[i], text = "";
      if (slot.line.kind === "area") value -= low;
      else if (typeof low === "number") {
        const high = plot.data[slot.place + 2][i];
        text = ` [${show(low, this.spec.y)}, ${show(high, this.spec.y)}]`;
      }
      parts.push(`${slot.line.name || this.spec.y.label} ${show(value, this.spec.y)}${text}`);
    }
    this.values.textContent = parts.join(" \u00b7 ");
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
    ctx.setLineDash([]); ctx.lineWidth = 3 * scale; ctx.strokeStyle = css("--page");
    for (const { text, x, y } of labels) {
      ctx.strokeText(text, x, y); ctx.fillText(text, x, y);
    }
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
