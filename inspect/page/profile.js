// Draws what a step's nodes cost from the JSON in #data: where the time of the step went, the types of node, and the
// dearest nodes. Nothing is fetched. The heads of the columns are buttons that sort.

const percent = (part) => `${Math.round(100 * part)} %`;
const COLUMNS = [
  { name: "runs", of: (type) => type.count, say: String, kind: "runs" },
  { name: "own time", of: (type) => type.own_seconds, say: time },
  { name: "total", of: (type) => type.total_seconds, say: time, kind: "total" },
  { name: "gradients", of: (type) => type.bytes, say: size, kind: "bytes" },
  { name: "of peak", of: (type) => type.peak_share, say: percent },
];

// A strip as wide as the step.
function drawStep(profile) {
  const outside = Math.max(profile.seconds - profile.backward_seconds, 0);
  const nodes = Math.max(profile.backward_seconds - profile.engine_seconds, 0);
  const parts = [[0, "outside of backwards", outside], [1, "nodes", nodes], [3, "the engine itself", profile.engine_seconds]];
  const whole = outside + nodes + profile.engine_seconds || 1;
  let from = 0;
  const boxes = parts.map(([kind, , seconds]) => {
    const box = shape("rect", { x: (1000 * from) / whole, y: 0, width: (1000 * seconds) / whole, height: 10, class: `k${kind}` });
    from += seconds;
    return box;
  });
  const told = parts.map(([kind, name, seconds]) => [kind, `${name} ${time(seconds)} (${share(seconds, whole)})`]);
  const words = told.map(([, text]) => text).join(", ");
  return element("figure", {}, shape("svg", { class: "strip", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": words }, ...boxes), legendOf(told));
}

function drawTypes(profile) {
  const place = element("div");
  const paint = (column, focus) => {
    const whole = profile.types.reduce((sum, type) => sum + column.of(type), 0);
    const sorted = [...profile.types].sort((a, b) => column.of(b) - column.of(a));
    const heads = COLUMNS.map((one) => element("button", { "aria-pressed": String(one === column), click: () => paint(one, true) }, one.name));
    place.replaceChildren(table("types", ["type of node", ...heads], sorted.map((type) =>
      [[type.name + (type.own_nodes === type.count ? "*" : ""), bar(column.of(type), whole)], ...COLUMNS.map((one) => one.say(one.of(type)))])));
    for (const row of place.querySelectorAll("tr")) COLUMNS.forEach((one, i) => one.kind && row.children[i + 1].classList.add(one.kind));
    if (focus) place.querySelector("[aria-pressed=true]").focus();
  };
  paint(COLUMNS[1], false);
  return place;
}

function draw({ title, profile }) {
  const page = document.getElementById("page");
  const several = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
  page.replaceChildren(element("h1", {}, `Time of ${title}`),
    element("p", {}, `${time(profile.seconds)}, with ${several(profile.nodes, "node")} in ${several(profile.backwards, "backward")}. Peak of CPU memory ${size(profile.peak_bytes)}.`),
    drawStep(profile), element("h2", {}, "Types of node"));
  if (profile.types.length === 0) return page.append(element("p", { class: "soft" }, "The step ran no backward."));
  page.append(element("p", { class: "soft" }, "Bars and order are those of the chosen column. Own time leaves out backwards that are nested in a node. The engine ran the nodes of types with a star itself."),
    drawTypes(profile), element("h2", {}, "Dearest nodes"),
    element("p", { class: "soft" }, "The number is the sequence number of the node, as in the graph and in a trace."),
    table("dearest", ["node", "number", "own time", "gradients"], profile.dearest.map((node) =>
      [[node.name, bar(node.own_seconds, profile.dearest[0].own_seconds)], node.sequence_nr === null ? "leaf" : `#${node.sequence_nr}`, time(node.own_seconds), size(node.bytes)])));
}
