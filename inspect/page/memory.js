// Draws the memory of a step from the JSON in #data: its course by kind and the owners of the peak.
// Nothing is fetched. The arrow keys move over the course as the pointer does.

const ORDER = [1, 2, 3, 0]; // from the bottom: activations, saved copies, gradients, other

const allOf = (point) => point.slice(1).reduce((sum, bytes) => sum + bytes, 0);

// Steps from point to point, each kind on those below.
function course(memory, width, height, left) {
  const x = (seconds) => left + ((width - left) * seconds) / (memory.seconds || 1);
  const y = (bytes) => height - (height * bytes) / (memory.peak_bytes || 1);
  const areas = [];
  const below = memory.points.map(() => 0);
  for (const kind of ORDER) {
    const above = memory.points.map((point, i) => below[i] + point[kind + 1]);
    const edge = (tops) => tops.flatMap((top, i) => {
      const until = i + 1 < tops.length ? memory.points[i + 1][0] : memory.seconds;
      return [[x(memory.points[i][0]), y(top)], [x(until), y(top)]];
    });
    const path = [...edge(above), ...edge(below).reverse()].map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`);
    areas.push(shape("polygon", { points: path.join(" "), class: `k${kind}` }));
    above.forEach((top, i) => (below[i] = top));
  }
  return { areas, x, y };
}

function drawCourse(memory) {
  const left = 62, bottom = 22, height = 300;
  const told = element("p", { class: "soft", role: "status" });
  const svg = shape("svg", { tabindex: "0", role: "img", "aria-label": "Bytes alive over the step, by kind. The arrow keys move over it." });
  let at = 0;
  const show = (index, cursor) => {
    at = Math.min(Math.max(index, 0), memory.points.length - 1);
    const point = memory.points[at];
    const kinds = ORDER.filter((kind) => point[kind + 1] > 0).map((kind) => `${memory.kinds[kind]} ${size(point[kind + 1])}`);
    told.textContent = `${time(point[0])}: ${size(allOf(point))} alive${kinds.length ? ` (${kinds.join(", ")})` : ""}`;
    cursor(point[0]);
  };
  const paint = () => {
    const width = Math.max(svg.clientWidth, 200);
    svg.setAttribute("viewBox", `0 0 ${width} ${height + bottom}`);
    svg.setAttribute("preserveAspectRatio", "none");
    const { areas, x, y } = course(memory, width, height, left);
    const lines = [];
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const level = y(part * memory.peak_bytes);
      lines.push(shape("line", { x1: left, x2: width, y1: level, y2: level, class: "grid" }),
        shape("text", { x: left - 6, y: level + 4, "text-anchor": "end" }, size(Math.round(part * memory.peak_bytes))));
    }
    const peak = x(memory.peak_seconds);
    const here = shape("line", { y1: 0, y2: height, class: "here", visibility: "hidden" });
    svg.replaceChildren(...lines, ...areas, shape("line", { x1: peak, x2: peak, y1: 0, y2: height, class: "peak" }),
      shape("text", { x: left, y: height + 16 }, "0"), shape("text", { x: width, y: height + 16, "text-anchor": "end" }, time(memory.seconds)), here);
    const cursor = (seconds) => { here.setAttribute("x1", x(seconds)); here.setAttribute("x2", x(seconds)); here.setAttribute("visibility", "visible"); };
    svg.onpointermove = (event) => {
      const box = svg.getBoundingClientRect();
      const seconds = (((event.clientX - box.left) / box.width) * width - left) / (width - left) * memory.seconds;
      const next = memory.points.findIndex((point) => point[0] > seconds);
      show((next < 0 ? memory.points.length : next) - 1, cursor);
    };
    svg.onkeydown = (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 }[event.key];
      if (steps === undefined) return;
      event.preventDefault();
      show(at + steps, cursor);
    };
  };
  const highest = memory.points.reduce((best, point, i) => (allOf(point) > allOf(memory.points[best]) ? i : best), 0);
  if (memory.points.length > 0) show(highest, () => {});
  addEventListener("resize", paint);
  queueMicrotask(paint);
  return element("figure", {}, svg, told, legendOf(ORDER.map((kind) => [kind, memory.kinds[kind]])));
}

function draw({ title, memory }) {
  const page = document.getElementById("page");
  const peak = memory.peak_bytes;
  page.replaceChildren(element("h1", {}, `Memory of ${title}`),
    element("p", {}, `Peak ${size(peak)} after ${time(memory.peak_seconds)} of ${time(memory.seconds)}, in ${memory.peak_at || "no operator"}. CPU tensors, beyond those that were alive before the step.`));
  page.append(drawCourse(memory));
  page.append(element("h2", {}, "Alive at the peak"), table("owners", ["made by", "kind", "tensors", "bytes", "share"],
    memory.owners.map((owner) => [[owner.name, bar(owner.bytes, peak)], owner.kind, `${owner.tensors}`, size(owner.bytes), share(owner.bytes, peak)])));
}
