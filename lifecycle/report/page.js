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
const GREY = 8;
const COLOURS = 20;
const LANES_IN_FULL = 8;
const MARK_THINNEST = 4;

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

function swatch(fill) {
  const svg = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
  fill(svg, { width: 16, height: 16 });
  return svg;
}

const stateSwatch = (name) => swatch((svg, box) => shape("rect", { ...box, class: stateClass(name) }, svg));
const stateClass = (name) => (name in { refused: 1, failed: 1 } ? name : `s${data.states.indexOf(name) % 10}`);

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
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// ---- states: one row a state, so that the place tells which it is; a bar is as high as the share of its time.

function laneBox(lane, rows, draw) {
  const svg = shape("svg", {
    viewBox: `0 0 ${data.count} ${rows.length * 10}`, preserveAspectRatio: "none", role: "img", "aria-label": lane.told,
  });
  rows.forEach((_, row) => draw(svg, row));
  const list = make("ul");
  for (const name of rows) {
    const item = make("li", { title: name });
    item.append(stateSwatch(name), name);
    list.append(item);
  }
  const plot = make("div", { class: "plot" });
  plot.append(svg);
  followPointer(svg, lane);
  return { svg, list, plot, height: rows.length * 10 };
}

// Buckets of the same share are one bar.
function eachRun(shares, see) {
  for (let at = 0; at < shares.length;) {
    let end = at + 1;
    while (end < shares.length && shares[end] === shares[at]) end += 1;
    if (shares[at] !== "0") see(at, end, Number(shares[at]));
    at = end;
  }
}

function drawLane(lane) {
  const states = Object.keys(lane.states);
  const marks = Object.keys(lane.marks);
  const { svg, list, plot, height } = laneBox(lane, [...states, ...marks], (into, row) => {
    const bottom = row * 10 + 9.5;
    if (row < states.length) {
      eachRun(lane.states[states[row]], (at, end, share) => shape("rect", {
        x: lane.first + at, width: end - at, y: bottom - share, height: share, class: stateClass(states[row]),
      }, into));
    } else {
      const wide = Math.max(1, (MARK_THINNEST * data.count) / 1200);
      for (const [at] of lane.marks[marks[row - states.length]]) {
        shape("rect", { x: at + 0.5 - wide / 2, width: wide, y: bottom - 9, height: 9, class: marks[row - states.length] }, into);
      }
    }
    shape("line", { x1: 0, x2: data.count, y1: bottom + 0.25, y2: bottom + 0.25, class: "grid" }, into);
  });
  const box = make("div", { class: "lane" });
  box.append(make("h3", {}, lane.name), list, plot);
  return { box, moved: (at) => moveCursor(svg, at + 0.5, height) };
}

// Of many ranks each is one row, of shares on top of each other; that of the chosen one is drawn in full below.
function drawLaneInOneRow(lane) {
  const states = Object.keys(lane.states).filter((name) => name !== "in transition");
  const svg = shape("svg", {
    viewBox: `0 0 ${data.count} 10`, preserveAspectRatio: "none", role: "img", "aria-label": lane.told,
  });
  const parts = states.map((name) => [...lane.states[name]].map(Number));
  const all = (parts[0] || []).map((_, at) => parts.reduce((total, part) => total + part[at], 0));
  const below = all.map(() => 0);
  states.forEach((name, row) => {
    const ends = parts[row].map((share, at) => (all[at] ? below[at] + (share * 9) / all[at] : 0));
    for (let at = 0; at < ends.length;) {
      let end = at + 1;
      while (end < ends.length && ends[end] === ends[at] && below[end] === below[at]) end += 1;
      const height = ends[at] - below[at];
      if (height > 0) {
        shape("rect", { x: lane.first + at, width: end - at, y: 9.5 - ends[at], height, class: stateClass(name) }, svg);
      }
      at = end;
    }
    ends.forEach((size, at) => { below[at] = size; });
  });
  for (const name of Object.keys(lane.marks)) {
    const wide = Math.max(1, (MARK_THINNEST * data.count) / 1200);
    for (const [at] of lane.marks[name]) {
      shape("rect", { x: at + 0.5 - wide / 2, width: wide, y: 0, height: name === "failed" ? 10 : 3, class: name }, svg);
    }
  }
  const plot = make("div", { class: "plot" });
  plot.append(svg);
  followPointer(svg, lane);
  const box = make("div", { class: "lane row" });
  box.append(make("p", { title: lane.name }, lane.name), plot);
  return { box, moved: (at) => moveCursor(svg, at + 0.5, 10) };
}

function drawLanes() {
  const lanes = byId("lanes");
  if (data.lanes.length <= LANES_IN_FULL) {
    for (const lane of data.lanes) {
      const { box, moved } = drawLane(lane);
      lanes.append(box);
      charts.push({ moved });
    }
    return;
  }
  const legend = make("ul", { class: "legend" });
  for (const name of [...data.states.slice(0, -1), "refused", "failed"]) {
    if (!data.lanes.some((lane) => name in lane.states || name in lane.marks)) continue;
    const item = make("li");
    item.append(stateSwatch(name), name);
    legend.append(item);
  }
  lanes.append(legend);
  for (const lane of data.lanes) {
    const { box, moved } = drawLaneInOneRow(lane);
    lanes.append(box);
    charts.push({ moved });
  }
  const chosen = make("div");
  lanes.append(chosen);
  let inFull = null;
  charts.push({
    draw: () => {
      inFull = drawLane(data.lanes[laneChoice.selectedIndex]);
      chosen.replaceChildren(inFull.box);
    },
    moved: (at) => inFull && inFull.moved(at),
  });
}

// ---- amounts: series on top of each other, as steps.

// The same tag has the same colour in every chart; a second one of that name in a chart takes the next that is free.
function coloursOf(names, tags) {
  const used = new Set(names.includes("others") ? [GREY] : []);
  return names.map((name, at) => {
    if (name === "others") return GREY;
    const known = data.colours[name] ?? data.colours[name.slice(name.indexOf(": ") + 2)];
    let index = tags && known !== undefined ? known : at;
    for (let tries = 0; used.has(index) && tries < COLOURS; tries += 1) index = (index + 1) % COLOURS;
    used.add(index);
    return index;
  });
}

// Values at which lines stand: steps of 1, 2 or 5 in the unit of the largest.
function ticks(most) {
  const unit = 1024 ** Math.min(5, Math.max(0, Math.floor(Math.log2(most) / 10)));
  const rough = most / unit / 4;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(unit === 1 ? 1 : 0, [1, 2, 5, 10].find((one) => one * ten >= rough) * ten) * unit;
  const found = [];
  for (let size = step; size <= most; size += step) found.push(size);
  return found;
}

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
  const svg = shape("svg", { role: "img", preserveAspectRatio: "none" });
  const axis = make("div", { class: "axis", "aria-hidden": "true" });
  const nothing = make("p", { class: "quiet" }, "Nothing, on this rank.");
  const legend = make("ul", { class: "legend" });
  const plot = make("div", { class: "plot" });
  plot.append(svg);
  box.append(axis, plot, timeLine(), legend, nothing);
  followPointer(svg);
  let series = null;
  let values = [];

  function draw() {
    series = data.lanes[laneChoice.selectedIndex].amounts[key];
    box.classList.toggle("empty", series.names.length === 0);
    const width = Math.max(1, plot.clientWidth);
    const height = svg.clientHeight || 200;
    const most = series.points.reduce((found, point) => Math.max(found, sum(point)), 1);
    const x = (at) => (at * width) / data.count;
    const y = (size) => height - (size / most) * (height - 24);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", series.told);
    const lines = ticks(most).map((size) => {
      shape("line", { x1: 0, x2: width, y1: y(size), y2: y(size), class: "grid" }, svg);
      const told = make("span", {}, bytesText(size).replace(".0 ", " "));
      told.style.top = `${y(size)}px`;
      return told;
    });
    axis.replaceChildren(...lines);
    const colours = coloursOf(series.names, stays);
    const below = series.points.map(() => 0);
    series.names.forEach((_, index) => {
      const over = series.points.map((point, at) => below[at] + point[index + 1]);
      filled("path", { d: steps(series.points, below, over, x, y) }, colours[index], svg);
      over.forEach((size, at) => { below[at] = size; });
    });
    values = series.names.map((name, index) => {
      const item = make("li");
      const value = make("b");
      item.append(swatch((into, square) => filled("rect", square, colours[index], into)), `${name} `, value);
      if (stays && series.most[index] !== undefined) item.append(` (most ${bytesText(series.most[index])})`);
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
  for (const part of [0, 0.25, 0.5, 0.75, 1]) line.append(make("span", {}, timeText(part * data.count * data.width)));
  return line;
}

function moveCursor(svg, x, height) {
  const line = svg.querySelector(".cursor") || shape("line", { class: "cursor", y1: 0 }, svg);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  line.setAttribute("y2", height);
}

function followPointer(svg, lane) {
  const follow = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    if (lane && event.type === "pointerdown") choose(data.lanes.indexOf(lane));
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
  const marks = Object.keys(lane.marks).flatMap((name) => lane.marks[name]
    .filter((one) => one[0] === at).map((one) => `${one[1]} ${name}`));
  const amounts = charts.filter((chart) => chart.total).map((chart) => `${chart.key} ${bytesText(chart.total(at))}`);
  const when = timeText((at + 0.5) * data.width);
  moment.setAttribute("aria-valuetext", when);
  byId("now").textContent = `${lane.name}, after ${when}: ${[...states, ...marks].join(", ") || "state unknown"}; `
    + amounts.join("; ");
}

function choose(index) {
  if (laneChoice.selectedIndex === index) return;
  laneChoice.selectedIndex = index;
  redraw();
}

// A time in a table is a link to its moment.
function follow(event) {
  const link = event.target.closest("a[data-at]");
  if (!link) return;
  choose(Number(link.dataset.lane));
  moment.value = link.dataset.at;
  show();
}

function redraw() {
  for (const chart of charts) if (chart.draw) chart.draw();
  show();
}

drawLanes();
byId("lanes-times").append(timeLine());
drawStack("device", "device", true);
drawStack("host", "host", true);
drawStack("files", "files and buffers", true);
drawStack("moved", "moved", false);
moment.addEventListener("input", show);
laneChoice.addEventListener("change", redraw);
document.addEventListener("click", follow);
let width = 0;
new ResizeObserver(() => {
  if (width === document.body.clientWidth) return;
  width = document.body.clientWidth;
  redraw();
}).observe(document.body);
redraw();
document.documentElement.dataset.drawn = "yes";
