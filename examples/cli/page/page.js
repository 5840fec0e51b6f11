"use strict";
// Draws the page from the JSON in #data. Everything is text and SVG; nothing is fetched.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const three = (value) => Number(value).toPrecision(3);
const milliseconds = (seconds) => (seconds === null ? "-" : three(seconds * 1e3));
const kibibytes = (bytes) => (bytes === null ? "-" : Math.round(bytes / 1024).toLocaleString("en"));
const interval = (r) => (r === null ? "-" : `${r.median.toFixed(3)} [${r.lo.toFixed(3)}, ${r.hi.toFixed(3)}]`);

// Round values that cover lo to hi, about `count` of them.
function ticks(lo, hi, count) {
  const raw = (hi - lo) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw);
  const found = [];
  for (let at = Math.ceil(lo / step) * step; at <= hi + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

// An empty chart with both axes. Gives the SVG and the functions from values to places.
function chart(label, [x0, x1], [y0, y1], xName, yName) {
  const width = 420, height = 230, left = 52, right = 10, top = 18, bottom = 34;
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const at of ticks(y0, y1, 4)) {
    svg.append(shape("path", { class: "axis", d: `M${left} ${y(at)}H${width - right}` }));
    svg.append(shape("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, at.toLocaleString("en")));
  }
  for (const at of ticks(x0, x1, 5)) {
    svg.append(shape("text", { x: x(at), y: height - bottom + 15, "text-anchor": "middle" }, at.toLocaleString("en")));
  }
  svg.append(shape("text", { x: width - right, y: height - 4, "text-anchor": "end" }, xName));
  svg.append(shape("text", { x: 4, y: 11 }, yName));
  return { svg, x, y };
}

const extent = (...lists) => {
  const all = lists.flat().filter(Number.isFinite);
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
};

function figure(title, svg) {
  return element("figure", {}, element("h3", {}, title), svg);
}

// At most `most` points, each the mean of its stretch, so that a long curve stays readable.
function thinned(values, most) {
  if (values.length <= most) return values.map((value, i) => [i + 1, value]);
  const points = [];
  for (let i = 0; i < most; ++i) {
    const from = Math.floor((i * values.length) / most), to = Math.floor(((i + 1) * values.length) / most);
    const part = values.slice(from, to);
    points.push([(from + to + 1) / 2, part.reduce((a, b) => a + b, 0) / part.length]);
  }
  return points;
}

function lossCurves(result) {
  const stock = thinned(result.stock.losses, 200), ours = thinned(result.overdrive.losses, 200);
  const { svg, x, y } = chart(`Loss of ${result.name} under both engines`, [0, result.steps],
    extent(stock.map((p) => p[1]), ours.map((p) => p[1])), "step", "loss");
  for (const [points, kind] of [[stock, "stock-line"], [ours, "ours-line"]]) {
    const path = points.filter((p) => Number.isFinite(p[1])).map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    if (path.length) svg.append(shape("path", { class: kind, d: `M${path.join("L")}` }));
  }
  return figure("Loss: two curves, one on the other when the bits are equal", svg);
}

function stepTimes(result) {
  const both = [result.stock.seconds_of_every_step, result.overdrive.seconds_of_every_step].map((list) => list.map((s) => s * 1e3));
  const sorted = both.flat().sort((a, b) => a - b);
  if (!sorted.length) return figure("Step time: nothing was timed", shape("svg", { viewBox: "0 0 420 230" }));
  // The slowest few are other programs' doing and would squeeze the rest.
  const quantile = (share) => sorted[Math.floor((sorted.length - 1) * share)];
  const lo = sorted[0] * 0.98, hi = Math.min(quantile(0.97), 3 * quantile(0.5)) * 1.02, bins = 36;
  const counts = both.map((list) => {
    const bars = new Array(bins).fill(0);
    for (const value of list) if (value <= hi) ++bars[Math.min(bins - 1, Math.floor(((value - lo) / (hi - lo)) * bins))];
    return bars.map((n) => (100 * n) / (list.length || 1));
  });
  const { svg, x, y } = chart(`Step times of ${result.name}`, [lo, hi], [0, Math.max(...counts.flat())], "ms a step", "% of steps");
  for (const [bars, kind] of [[counts[0], "stock-fill"], [counts[1], "ours-fill"]]) {
    bars.forEach((share, i) => {
      if (share > 0) svg.append(shape("rect", { class: kind, x: x(lo + ((hi - lo) * i) / bins), y: y(share),
        width: Math.max(1, x(lo + (hi - lo) / bins) - x(lo) - 1), height: y(0) - y(share) }));
    });
  }
  return figure("Step time: how often each was seen", svg);
}

function memoryOverStep(result) {
  const curves = [result.stock.memory_over_a_step, result.overdrive.memory_over_a_step];
  // By how many allocations came before, not by time: a pause of the machine would pull the curves apart.
  const places = curves.map((curve) => curve.seconds.map((_, i, all) => (100 * i) / (all.length - 1 || 1)));
  const [low, high] = extent(curves[0].tensor_bytes, curves[1].tensor_bytes);
  const { svg, x, y } = chart(`Memory over a step of ${result.name}`, [0, 100], [Math.min(0, low) / 1024, high / 1024], "% of its allocations", "KiB of tensors");
  [["stock-line", 0], ["ours-line", 1]].forEach(([kind, i]) => {
    const path = places[i].map((at, n) => `${x(at).toFixed(1)} ${y(curves[i].tensor_bytes[n] / 1024).toFixed(1)}`);
    if (path.length) svg.append(shape("path", { class: kind, d: `M${path.join("L")}` }));
  });
  return figure("Memory over one step: tensors alive beyond those before it", svg);
}

function bars(results, key, title) {
  const timed = results.filter((result) => result[key] !== null);
  const row = 26, width = 640, left = 130, right = 150, height = timed.length * row + 34;
  const most = Math.max(1.1, ...timed.map((result) => Math.min(result[key].hi, 1.6)));
  const x = (value) => left + (Math.min(value, most) / most) * (width - left - right);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  timed.forEach((result, i) => {
    const r = result[key], top = i * row + 6, middle = top + row / 2 - 3;
    svg.append(shape("text", { class: "name", x: left - 8, y: middle + 4, "text-anchor": "end" }, result.name));
    svg.append(shape("rect", { class: "ours-fill", x: left, y: top + 2, width: x(r.median) - left, height: row - 10 }));
    svg.append(shape("path", { class: "whisker", d: `M${x(r.lo)} ${middle}H${x(r.hi)}M${x(r.lo)} ${middle - 4}v8M${x(r.hi)} ${middle - 4}v8` }));
    svg.append(shape("text", { x: width - right + 10, y: middle + 4 }, interval(r)));
  });
  const floor = timed.length * row + 6;
  svg.append(shape("path", { class: "one", d: `M${x(1)} 0V${floor}` }));
  svg.append(shape("text", { x: x(1), y: floor + 14, "text-anchor": "middle" }, "1 = stock"));
  return figure(title, svg);
}

function table(rows) {
  const [head, ...body] = rows;
  const line = (cells, kind) => element("tr", {}, ...cells.map((cell) => element(kind, {}, String(cell))));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, line(head, "th")),
    element("tbody", {}, ...body.map((cells) => line(cells, "td")))));
}

function figures(result) {
  const { stock, overdrive: ours } = result;
  const median = (cost, key) => milliseconds(cost[key] && cost[key].median);
  return table([
    ["", "stock", "overdrive", "ratio [95 %]"],
    [result.quality, stock.quality.toFixed(4), ours.quality.toFixed(4), ""],
    ...["step", "forward", "backward"].map((what) => [`${what}, ms`, median(stock, `${what}_seconds`), median(ours, `${what}_seconds`), interval(result[`${what}_ratio`])]),
    ["peak of tensors, KiB", kibibytes(stock.peak_tensor_bytes), kibibytes(ours.peak_tensor_bytes), ""],
    ["peak of the rest, KiB", kibibytes(stock.peak_heap_bytes), kibibytes(ours.peak_heap_bytes), ""],
    ["tensors allocated a step", stock.tensor_allocations_per_step.toFixed(1), ours.tensor_allocations_per_step.toFixed(1), ""],
    ["other allocations a step", stock.heap_allocations_per_step?.toFixed(1) ?? "-", ours.heap_allocations_per_step?.toFixed(1) ?? "-", ""],
    ["waits a step", stock.waits_per_step.toFixed(1), ours.waits_per_step.toFixed(1), ""],
    ["threads started", stock.threads_started, ours.threads_started, ""],
  ]);
}

function verdict(result) {
  const d = result.first_difference;
  const text = d === null ? `All parameters equal, bit for bit, after each of ${result.steps} steps.`
    : `Bits differ first at step ${d.step}, ${d.parameter}[${d.element}]: stock ${d.stock}, overdrive ${d.overdrive}.`;
  return element("p", { class: `badge ${d === null ? "good" : "bad"}` }, text);
}

// What the memory settings, which both engines had, give to stock by themselves.
function tuning(result) {
  const alone = result.tuning_alone;
  const text = !alone ? "Both engines ran with the same memory settings."
    : `Both engines ran with the same memory settings. The settings alone take stock from ${alone.stock_faults.toFixed(0)} to `
      + `${alone.tuned_stock_faults.toFixed(0)} page faults a step and to ${(alone.tuned_stock_milliseconds / alone.stock_milliseconds).toFixed(3)} of its time: `
      + "this gain is not in the ratios above.";
  return element("p", { class: "soft tuning" }, text);
}

function section(result) {
  return element("section", { "data-name": result.name },
    element("h2", {}, result.name),
    element("p", { class: "soft" }, `${result.what}; shows ${result.shows}. ${Math.round(result.nodes_per_backward)} nodes a backward, `
      + `${result.backwards_per_step.toFixed(1)} backwards a step; seed ${result.seed}, ${result.dtype} on ${result.device}.`),
    verdict(result),
    element("div", { class: "charts" }, lossCurves(result), stepTimes(result), memoryOverStep(result)),
    figures(result), tuning(result));
}

function key() {
  return element("p", {}, ...[["stock", "--stock"], ["overdrive", "--ours"]].map(([name, color]) =>
    element("span", { class: "key" }, element("i", { style: `background: var(${color})` }), name)));
}

function draw(data) {
  const results = data.comparisons, equal = results.filter((result) => result.bits_equal).length;
  const charts = results.some((result) => result.step_ratio !== null)
    ? [element("div", { class: "charts" }, bars(results, "step_ratio", "Step time, ours to stock's: shorter is faster"),
        bars(results, "backward_ratio", "Backward alone, ours to stock's"))] : [];
  document.getElementById("page").append(
    element("h1", {}, "Overdrive and the stock engine, side by side"),
    element("p", { class: "soft" }, "Each model was trained twice from one seed, in turns of a few steps, in one process. "
      + "Times are medians over turns; a ratio is the median over pairs of turns with its 95 % interval."),
    element("p", { class: `badge ${data.bits_equal ? "good" : "bad"}` }, `Bits equal in ${equal} of ${results.length} models.`),
    key(), ...charts, ...results.map(section),
    element("h2", {}, "Where this was measured"),
    table([["", ""], ...Object.entries(data.environment).map(([name, value]) => [name.replaceAll("_", " "), value ?? "unknown"])]));
}

draw(JSON.parse(document.getElementById("data").textContent));
document.body.dataset.drawn = "yes";
