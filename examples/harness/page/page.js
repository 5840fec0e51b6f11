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
// An interval that contains 1 does not tell who is faster.
const isOpen = (r) => r !== null && r.lo <= 1 && r.hi >= 1;
const verdictOf = (r) => interval(r) + (isOpen(r) ? ", not settled" : "");
const quotient = (stock, ours) => (stock > 0 && ours !== null ? (ours / stock).toFixed(3) : "");

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

// A line at the pointer's place, and what `say` tells of it in the corner. `places`: x values in the chart.
function hover(made, { svg, x }, places, say) {
  const cursor = shape("path", { class: "cursor" }), said = element("div", { class: "said", role: "status" });
  svg.append(cursor);
  made.append(said);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const nearest = places.reduce((best, place, i) => (Math.abs(x(place) - at) < Math.abs(x(places[best]) - at) ? i : best), 0);
    cursor.setAttribute("d", `M${x(places[nearest])} 18V${svg.viewBox.baseVal.height - 34}`);
    cursor.style.visibility = "visible";
    said.textContent = say(nearest);
  });
  svg.addEventListener("pointerleave", () => { cursor.style.visibility = "hidden"; said.textContent = ""; });
  return made;
}

function line({ svg, x, y }, points, kind) {
  const path = points.filter((p) => Number.isFinite(p[1])).map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
  if (path.length) svg.append(shape("path", { class: kind, d: `M${path.join("L")}` }));
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
  const made = chart(`Loss of ${result.name} under both engines`, [0, result.steps],
    extent(stock.map((p) => p[1]), ours.map((p) => p[1])), "step", "loss");
  line(made, stock, "stock-band");
  line(made, ours, "ours-line");
  return hover(figure("Loss: two curves, one on the other when the bits are equal", made.svg), made, stock.map((p) => p[0]),
    (i) => `step ${Math.round(stock[i][0])}: stock ${three(stock[i][1])}, overdrive ${three(ours[i][1])}`);
}

function stepTimes(result) {
  const both = [result.stock.seconds_of_every_step, result.overdrive.seconds_of_every_step].map((list) => list.map((s) => s * 1e3));
  const sorted = both.flat().sort((a, b) => a - b);
  if (!sorted.length) return figure("Step time: nothing was timed", shape("svg", { viewBox: "0 0 420 230" }));
  // The slowest few are other programs' doing and would squeeze the rest.
  const quantile = (share) => sorted[Math.floor((sorted.length - 1) * share)];
  const lo = sorted[0] * 0.98, hi = Math.min(quantile(0.97), 3 * quantile(0.5)) * 1.02, bins = 36;
  const at = (i) => lo + ((hi - lo) * i) / bins;
  const [stock, ours] = both.map((list) => {
    const bars = new Array(bins).fill(0);
    for (const value of list) if (value <= hi) ++bars[Math.min(bins - 1, Math.floor(((value - lo) / (hi - lo)) * bins))];
    return bars.map((n) => (100 * n) / (list.length || 1));
  });
  const made = chart(`Step times of ${result.name}`, [lo, hi], [0, Math.max(...stock, ...ours)], "ms a step", "% of steps");
  // Ours filled and stock as an outline: where both are, no third colour appears.
  const outline = (bars) => [[lo, 0], ...bars.flatMap((share, i) => [[at(i), share], [at(i + 1), share]]), [hi, 0]];
  line(made, outline(ours), "ours-fill");
  line(made, outline(stock), "stock-line");
  return hover(figure("Step time: how often each was seen; overdrive filled, stock outlined", made.svg), made,
    stock.map((_, i) => (at(i) + at(i + 1)) / 2),
    (i) => `${three(at(i))} to ${three(at(i + 1))} ms: stock ${stock[i].toFixed(1)} %, overdrive ${ours[i].toFixed(1)} %`);
}

// The tensors that a training holds, model, gradients and optimizer included, over the step that holds most.
function memoryOverStep(result) {
  const curves = [result.stock, result.overdrive].map(({ memory_over_a_step: { seconds, tensor_bytes: bytes } }) => {
    const whole = seconds.at(-1) || 1;
    return bytes.map((b, i) => [(100 * seconds[i]) / whole, b / 1024]);
  });
  const [stock, ours] = curves;
  const made = chart(`Memory over a step of ${result.name}`, [0, 100], [0, extent(stock.map((p) => p[1]), ours.map((p) => p[1]))[1]],
    "% of the step's time", "KiB of tensors");
  line(made, stock, "stock-band");
  line(made, ours, "ours-line");
  const alive = (curve, at) => Math.round((curve.findLast((p) => p[0] <= at) ?? curve[0] ?? [0, 0])[1]).toLocaleString("en");
  const places = Array.from({ length: 101 }, (_, i) => i);
  return hover(figure("Memory over the step that holds most: all tensors of the training", made.svg), made, places,
    (at) => `${at} % of the step: stock ${alive(stock, at)} KiB, overdrive ${alive(ours, at)} KiB`);
}

// Text stays text, so that it keeps its size on a narrow screen.
function bars(results, key, title) {
  const timed = results.filter((result) => result[key] !== null);
  const most = Math.max(1.1, ...timed.map((result) => Math.min(result[key].hi, 1.6)));
  const place = (value) => `${((100 * Math.min(value, most)) / most).toFixed(2)}%`;
  const rows = element("div", { class: "bars", role: "img", "aria-label": title });
  for (const result of timed) {
    const r = result[key], tip = `${result.name}: ${verdictOf(r)}`;
    rows.append(element("span", { class: "name", title: tip }, result.name),
      element("span", { class: "ratio", title: tip }, verdictOf(r)),
      element("div", { class: `bar${isOpen(r) ? " open" : ""}`, title: tip, style: `--one: ${place(1)}` },
        element("i", { style: `width: ${place(r.median)}` }),
        element("b", { style: `left: ${place(r.lo)}; right: calc(100% - ${place(r.hi)})` })));
  }
  return element("figure", {}, element("h3", {}, title), rows,
    element("figcaption", {}, "The mark at 1 is stock; the thin line is the 95 % interval. A pale bar is not settled: its interval contains 1."));
}

function table(rows, kind = "") {
  const [head, ...body] = rows;
  const row = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, {}, String(cell))));
  return element("div", { class: "scroll" }, element("table", { class: kind }, element("thead", {}, row(head, "th")),
    element("tbody", {}, ...body.map((cells) => row(cells, "td")))));
}

function figures(result) {
  const { stock, overdrive: ours } = result;
  const median = (cost, key) => milliseconds(cost[key] && cost[key].median);
  return table([
    ["", "stock", "overdrive", "ratio [95 %]"],
    [result.quality, stock.quality.toFixed(4), ours.quality.toFixed(4), ""],
    ...["step", "forward", "backward"].map((what) => [`${what}, ms`, median(stock, `${what}_seconds`), median(ours, `${what}_seconds`), verdictOf(result[`${what}_ratio`])]),
    ...(result.captured?.step_seconds ? [["step, ms, captured", median(stock, "step_seconds"), median(result.captured, "step_seconds"),
      verdictOf(result.captured.step_ratio)]] : []),
    ...[["peak of tensors, KiB", "peak_tensor_bytes"], ["peak of other memory, KiB", "peak_heap_bytes"]].map(([what, key]) =>
      [what, kibibytes(stock[key]), kibibytes(ours[key]), quotient(stock[key], ours[key])]),
    ...[["tensors allocated a step", "tensor_allocations_per_step"], ["other allocations a step", "heap_allocations_per_step"],
      ["waits a step", "waits_per_step"]].map(([what, key]) =>
      [what, stock[key]?.toFixed(1) ?? "-", ours[key]?.toFixed(1) ?? "-", quotient(stock[key], ours[key])]),
    ["threads started", stock.threads_started, ours.threads_started, quotient(stock.threads_started, ours.threads_started)],
  ]);
}

function verdict(result) {
  const d = result.first_difference;
  const text = d === null ? `All parameters equal, bit for bit, after each of ${result.steps} steps.`
    : `Bits differ first at step ${d.step}, ${d.parameter}[${d.element}]: stock ${d.stock}, ${"captured" in d ? "captured" : "overdrive"} ${d.captured ?? d.overdrive}.`;
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
    element("div", { class: "result" },
      element("div", { class: "charts" }, lossCurves(result), stepTimes(result), memoryOverStep(result)), figures(result)),
    tuning(result));
}

function key() {
  return element("p", {}, ...[["stock", "--stock"], ["overdrive", "--ours"]].map(([name, color]) =>
    element("span", { class: "key" }, element("i", { style: `background: var(${color})` }), name)));
}

// Other programs at work when the comparison began make its times worth less.
function busy({ load_average: load, cores }) {
  if (load === null || load < cores / 2) return [];
  return [element("p", { class: "badge warn" }, `The machine was busy when this began: load ${load} on ${cores} processors. `
    + "Times vary more than they would, and ratios may be off by several percent; bits and memory are not touched.")];
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
    ...busy(data.environment), key(), ...charts, ...results.map(section),
    element("h2", {}, "Where this was measured"),
    table([["", ""], ...Object.entries(data.environment).map(([name, value]) => [name.replaceAll("_", " "), value ?? "unknown"])], "words"));
}

draw(JSON.parse(document.getElementById("data").textContent));
document.body.dataset.drawn = "yes";
// For the tests: nothing is wider than the screen.
document.body.dataset.fits = document.documentElement.scrollWidth <= window.innerWidth ? "yes" : "no";
