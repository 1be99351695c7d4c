// Draws the charts of a report. The data stands in the page as JSON; all text is set as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const laneChoice = byId("lane");
const moment = byId("moment");
const SVG = "http://www.w3.org/2000/svg";
const charts = [];
const HATCHES = 4;
const THINNEST = 3;

function make(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

function shape(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

// Colour and hatch together tell the series of a chart apart.
function filled(name, attributes, index, parent) {
  shape(name, { ...attributes, class: `s${index % 10}` }, parent);
  if (index % HATCHES) shape(name, { ...attributes, fill: `url(#hatch${index % HATCHES})` }, parent);
}

function swatch(index) {
  const svg = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
  filled("rect", { width: 16, height: 16 }, index, svg);
  return svg;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

function timeText(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// ---- states: one row a state, so that the place tells which it is; a bar is as high as the share of its time.

function drawLane(lane) {
  const names = Object.keys(lane.states);
  const list = make("ul");
  const svg = shape("svg", {
    viewBox: `0 0 ${data.count} ${names.length * 10}`, preserveAspectRatio: "none", role: "img", "aria-label": lane.told,
  });
  names.forEach((name, row) => {
    const item = make("li", { title: name });
    const index = data.states.indexOf(name);
    item.append(swatch(index), name);
    list.append(item);
    const shares = lane.states[name];
    for (let at = 0; at < shares.length;) {
      let end = at + 1;
      while (end < shares.length && shares[end] === shares[at]) end += 1;
      const height = Number(shares[at]);
      if (height) {
        shape("rect", { x: lane.first + at, width: end - at, y: row * 10 + 9.5 - height, height, class: `s${index % 10}` }, svg);
      }
      at = end;
    }
    shape("line", { x1: 0, x2: data.count, y1: row * 10 + 9.75, y2: row * 10 + 9.75, class: "grid" }, svg);
  });
  const plot = make("div", { class: "plot" });
  plot.append(svg);
  const box = make("div", { class: "lane" });
  box.append(make("h3", {}, lane.name), list, plot);
  byId("lanes").append(box);
  followPointer(svg);
  charts.push({ moved: (at) => moveCursor(svg, at + 0.5, names.length * 10) });
}

// ---- amounts: series on top of each other, as steps.

// Values of all series in a bucket: the last point at it or before it (what is held stays), or at it alone.
function pointAt(series, at, stays) {
  let low = 0;
  let high = series.points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (series.points[middle][0] <= at) low = middle + 1; else high = middle;
  }
  const found = series.points[low - 1];
  return found && (stays || found[0] === at) ? found : null;
}

function sum(point) {
  let total = 0;
  for (let index = 1; index < point.length; index += 1) total += point[index];
  return total;
}

function drawStack(id, key, stays) {
  const box = byId(id);
  const svg = shape("svg", { role: "img" });
  const top = make("span", { class: "top", "aria-hidden": "true" });
  const legend = make("ul", { class: "legend" });
  const plot = make("div", { class: "plot" });
  plot.append(svg, top);
  box.append(plot, timeLine(), legend);
  followPointer(svg);
  let series = null;
  let values = [];

  function draw() {
    series = data.lanes[laneChoice.selectedIndex].amounts[key];
    box.classList.toggle("empty", series.names.length === 0);
    const width = Math.max(1, plot.clientWidth);
    const height = svg.clientHeight || 200;
    const most = Math.max(1, ...series.points.map(sum));
    const x = (at) => (at * width) / data.count;
    const y = (size) => height - (size / most) * (height - 24);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", series.told);
    top.textContent = series.names.length ? `${bytesText(most)} at the most` : "nothing, on this rank";
    for (const part of [0.25, 0.5, 0.75, 1]) {
      shape("line", { x1: 0, x2: width, y1: y(most * part), y2: y(most * part), class: "grid" }, svg);
    }
    const below = series.points.map(() => 0);
    series.names.forEach((_, index) => {
      const over = series.points.map((point, at) => below[at] + point[index + 1]);
      filled("path", { d: steps(series.points, below, over, x, y) }, index, svg);
      over.forEach((size, at) => { below[at] = size; });
    });
    values = series.names.map((name, index) => {
      const item = make("li");
      const value = make("b");
      item.append(swatch(index), `${name} `, value);
      return { item, value };
    });
    legend.replaceChildren(...values.map((one) => one.item));
    moved(Number(moment.value));
  }

  function steps(points, below, over, x, y) {
    const parts = [];
    points.forEach((point, index) => {
      if (over[index] === below[index]) return;
      const next = points[index + 1];
      const end = stays ? (next ? next[0] : series.end) : point[0] + 1;
      const thinnest = stays ? 0 : Math.min(THINNEST, x(next ? next[0] : data.count) - x(point[0]));
      const right = Math.max(x(end), x(point[0]) + thinnest);
      parts.push(`M${x(point[0]).toFixed(1)} ${y(below[index]).toFixed(1)}V${y(over[index]).toFixed(1)}`
        + `H${right.toFixed(1)}V${y(below[index]).toFixed(1)}Z`);
    });
    return parts.join("");
  }

  function moved(at) {
    const point = at < series.end ? pointAt(series, at, stays) : null;
    values.forEach((one, index) => { one.value.textContent = bytesText(point ? point[index + 1] : 0); });
    moveCursor(svg, ((at + 0.5) * plot.clientWidth) / data.count, svg.clientHeight);
  }

  const total = (at) => {
    const point = at < series.end ? pointAt(series, at, stays) : null;
    return point ? sum(point) : 0;
  };
  charts.push({ key, draw, moved, total });
}

// ---- what all charts share: the moment that is looked at.

function timeLine() {
  const line = make("div", { class: "times", "aria-hidden": "true" });
  for (const part of [0, 0.5, 1]) line.append(make("span", {}, timeText(part * data.count * data.width)));
  return line;
}

function moveCursor(svg, x, height) {
  const line = svg.querySelector(".cursor") || shape("line", { class: "cursor", y1: 0 }, svg);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  line.setAttribute("y2", height);
}

function followPointer(svg) {
  const follow = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = svg.getBoundingClientRect();
    moment.value = Math.floor(((event.clientX - box.left) / box.width) * data.count);
    show();
  };
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointermove", follow);
}

function show() {
  const at = Number(moment.value);
  const lane = data.lanes[laneChoice.selectedIndex];
  for (const chart of charts) chart.moved(at);
  const states = Object.keys(lane.states).filter((name) => Number(lane.states[name][at - lane.first]) > 0);
  const amounts = charts.filter((chart) => chart.total).map((chart) => `${chart.key} ${bytesText(chart.total(at))}`);
  const when = timeText((at + 0.5) * data.width);
  moment.setAttribute("aria-valuetext", when);
  byId("now").textContent = `${lane.name}, after ${when}: ${states.join(", ") || "state unknown"}; ${amounts.join("; ")}`;
}

function redraw() {
  for (const chart of charts) if (chart.draw) chart.draw();
  show();
}

for (const lane of data.lanes) drawLane(lane);
byId("lanes-times").append(timeLine());
drawStack("device", "device", true);
drawStack("host", "host", true);
drawStack("files", "files and buffers", true);
drawStack("moved", "moved", false);
moment.addEventListener("input", show);
laneChoice.addEventListener("change", redraw);
let width = 0;
new ResizeObserver(() => {
  if (width === document.body.clientWidth) return;
  width = document.body.clientWidth;
  redraw();
}).observe(document.body);
redraw();
document.documentElement.dataset.drawn = "yes";
