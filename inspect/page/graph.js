"use strict";
// Draws the graph of a backward from the JSON in #data: layers from the roots down, repeated blocks folded.
// Nothing is fetched. Everything that the pointer can do, the keyboard can.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const size = (bytes) => {
  for (const [unit, worth] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= worth) return `${(bytes / worth).toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
};
const time = (seconds) => (seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`);
const shapeOf = (look) => `[${look.shape.map((n) => n ?? "?").join(", ")}] ${look.dtype}`;
const nameOf = (node) => node.leaf_name ?? node.name;
const numberOf = (node) => (node.leaf ? "leaf" : `#${node.sequence_nr}`);

const MEASURES = {
  bytes: { name: "bytes held", of: (node) => node.held_bytes ?? 0, say: size },
  time: { name: "time", of: (node) => node.seconds ?? 0, say: time },
};
const BOX = { width: 190, height: 46, across: 24, down: 40 };

// Groups of nodes: a block holds its repetitions. `node.inside` lists the groups around a node, outermost first.
function makeGroups(graph) {
  const groups = [];
  graph.nodes.forEach((node, id) => Object.assign(node, { id, inside: [], next: [], before: [] }));
  for (const [from, to] of graph.edges) {
    graph.nodes[from].next.push(graph.nodes[to]);
    graph.nodes[to].before.push(graph.nodes[from]);
  }
  for (const { first, period, count } of graph.blocks) {
    const block = { name: `${count} × ${period} nodes`, nodes: [], folded: true };
    groups.push(block);
    for (let turn = 0; turn < count; ++turn) {
      const repetition = { name: `${turn + 1} of ${count}`, nodes: [], folded: true };
      groups.push(repetition);
      for (let i = 0; i < period; ++i) {
        const node = graph.nodes[graph.run_order[first + turn * period + i]];
        node.inside = [block, repetition];
      }
    }
  }
  // A leaf lies in the groups that all nodes before it share.
  for (const node of graph.nodes.filter((n) => n.leaf && n.before.length > 0)) {
    const [first, ...rest] = node.before;
    node.inside = first.inside.filter((group) => rest.every((other) => other.inside.includes(group)));
  }
  for (const node of graph.nodes) for (const group of node.inside) group.nodes.push(node);
  return groups;
}

// The boxes that are visible now, and the edges between them.
function visibleBoxes(graph) {
  const boxes = new Map(), edges = new Map();
  const boxOf = (node) => {
    const thing = node.inside.find((group) => group.folded) ?? node;
    if (!boxes.has(thing)) {
      const nodes = thing.nodes ?? [thing];
      boxes.set(thing, { thing, nodes, order: Math.min(...nodes.filter((n) => !n.leaf || nodes.length === 1).map((n) => n.order)), out: [], into: [] });
    }
    return boxes.get(thing);
  };
  for (const node of graph.nodes) boxOf(node);
  for (const [from, to] of graph.edges) {
    const a = boxOf(graph.nodes[from]), b = boxOf(graph.nodes[to]);
    if (a === b || a.out.includes(b)) continue;
    a.out.push(b);
    b.into.push(a);
  }
  return [...boxes.values()].sort((a, b) => a.order - b.order);
}

// Layers by the longest way from a root, then places in a layer near the neighbours.
function place(boxes) {
  const layers = [];
  for (const box of boxes) box.layer = 0;
  for (const box of boxes) for (const next of box.out) next.layer = Math.max(next.layer, box.layer + 1);
  for (const box of boxes) (layers[box.layer] ??= []).push(box);
  const step = BOX.width + BOX.across, mean = (list) => list.reduce((sum, b) => sum + b.x, 0) / list.length;
  layers.forEach((layer, i) => layer.forEach((box, j) => {
    box.y = i * (BOX.height + BOX.down);
    box.x = (j - (layer.length - 1) / 2) * step;
  }));
  for (let round = 0; round < 6; ++round) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wish = new Map(layer.map((box) => {
        const near = down ? box.into : box.out;
        return [box, near.length ? mean(near) : box.x];
      }));
      layer.sort((a, b) => wish.get(a) - wish.get(b));
      let left = -Infinity;
      for (const box of layer) left = box.x = Math.max(wish.get(box), left + step);
      const shift = layer.reduce((sum, box) => sum + wish.get(box) - box.x, 0) / layer.length;
      for (const box of layer) box.x += shift;
    }
  }
}

function mix(a, b, share) {
  const part = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const [from, to] = [part(a), part(b)];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join()})`;
}

class View {
  constructor(graph) {
    this.graph = graph;
    this.groups = makeGroups(graph);
    this.measure = MEASURES[graph.nodes.some((node) => node.seconds !== null) ? "time" : "bytes"];
    this.selected = null;
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "The graph. Arrow keys go along the edges, "
      + "Enter folds and unfolds a block, plus and minus zoom, 0 shows everything." });
    this.details = element("section", { class: "details", "aria-live": "polite", "aria-label": "Details of the selection" });
    this.found = element("ol", { class: "links found" });
    this.count = element("span", { class: "soft", role: "status" });
    this.scale = 1;
    this.x = this.y = 0;
    this.listen();
  }

  layout() {
    this.boxes = visibleBoxes(this.graph);
    place(this.boxes);
    this.boxAround = new Map(this.boxes.flatMap((box) => box.nodes.map((node) => [node, box])));
    this.most = Math.max(...this.boxes.map((box) => this.valueOf(box)), 0);
  }
  valueOf(box) {
    return box.nodes.reduce((sum, node) => sum + this.measure.of(node), 0);
  }

  draw() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.drawNow();
    });
  }
  drawNow() {
    const { canvas, scale } = this, ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const [ink, soft, panel, paper, pale, strong, focus] = ["--ink", "--soft", "--panel", "--paper", "--ours-light", "--ours", "--focus"].map(color);
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paper;
    pen.fillRect(0, 0, width, height);
    pen.translate(this.x, this.y);
    pen.scale(scale, scale);
    const left = -this.x / scale - BOX.width, right = (width - this.x) / scale + BOX.width;
    const top = -this.y / scale - BOX.height, bottom = (height - this.y) / scale + BOX.height;
    const selected = this.selected && this.boxAround.get(this.selected);
    for (const strength of [false, true]) {
      pen.strokeStyle = strength ? focus : soft;
      pen.lineWidth = strength ? 2.5 : 1;
      pen.globalAlpha = strength ? 1 : 0.6;
      pen.beginPath();
      for (const a of this.boxes) {
        for (const b of a.out) {
          if ((a === selected || b === selected) !== strength) continue;
          if (b.y < top || a.y > bottom || Math.max(a.x, b.x) < left || Math.min(a.x, b.x) > right) continue;
          const y0 = a.y + BOX.height / 2, y1 = b.y - BOX.height / 2, bend = Math.min((y1 - y0) / 2, 60);
          pen.moveTo(a.x, y0);
          pen.bezierCurveTo(a.x, y0 + bend, b.x, y1 - bend, b.x, y1);
        }
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.textAlign = "center";
    for (const box of this.boxes) {
      if (box.x < left || box.x > right || box.y < top || box.y > bottom) continue;
      const group = box.thing.nodes !== undefined, value = this.valueOf(box), share = this.most ? Math.sqrt(value / this.most) : 0;
      const x = box.x - BOX.width / 2, y = box.y - BOX.height / 2;
      const outline = (shift) => {
        pen.beginPath();
        pen.roundRect(x + shift, y - shift, BOX.width, BOX.height, box.thing.leaf ? BOX.height / 2 : 5);
      };
      pen.lineWidth = box === selected ? 3 : 1;
      pen.strokeStyle = box === selected ? focus : soft;
      for (const shift of group ? [8, 4, 0] : [0]) {
        outline(shift);
        pen.fillStyle = mix(panel, pale, share);
        pen.fill();
        pen.stroke();
      }
      if (value > 0) {
        pen.fillStyle = strong;
        pen.fillRect(x + 5, y + BOX.height - 5, (BOX.width - 10) * (value / this.most), 3);
      }
      if (scale < 0.3) continue;
      pen.fillStyle = ink;
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(group ? `▸ ${box.thing.name}` : nameOf(box.thing), box.x, box.y - 5, BOX.width - 12);
      pen.font = "11px system-ui, sans-serif";
      const first = box.thing.gradients?.[0];
      const facts = group ? [] : [numberOf(box.thing), first ? shapeOf(first) : ""];
      if (value > 0) facts.push(this.measure.say(value));
      pen.fillText(facts.filter(Boolean).join(" · "), box.x, box.y + 10, BOX.width - 12);
    }
  }

  // All boxes, or the first of a graph too long to be read at once.
  fit() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    const xs = this.boxes.map((box) => box.x), ys = this.boxes.map((box) => box.y);
    const least = (list) => list.reduce((a, b) => Math.min(a, b)), most = (list) => list.reduce((a, b) => Math.max(a, b));
    const [x0, x1, y0, y1] = [least(xs), most(xs), least(ys), most(ys)];
    const whole = Math.min(width / (x1 - x0 + BOX.width + 40), height / (y1 - y0 + BOX.height + 40), 1.1);
    this.scale = Math.max(whole, 0.02);
    this.x = width / 2 - ((x0 + x1) / 2) * this.scale;
    this.y = height / 2 - ((y0 + y1) / 2) * this.scale;
    this.draw();
  }
  // The roots, large enough to be read.
  begin() {
    this.fit();
    if (this.scale >= 0.45) return;
    const root = this.boxAround.get(this.graph.nodes[this.graph.roots[0]]);
    this.scale = 0.8;
    this.x = this.canvas.clientWidth / 2 - root.x * this.scale;
    this.y = BOX.height - root.y * this.scale;
    this.draw();
  }
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(Math.max(this.scale * factor, 0.01), 4);
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }
  pan(x, y) {
    this.x += x;
    this.y += y;
    this.draw();
  }
  foldAll(folded) {
    for (const group of this.groups) group.folded = folded;
    this.layout();
    this.begin();
    if (this.selected) this.showDetails();
  }

  // Keeps the box of `node` where it is on the screen.
  refold(node, change) {
    const before = this.boxAround.get(node), [x, y] = [before.x, before.y];
    change();
    this.layout();
    const after = this.boxAround.get(node);
    this.pan((x - after.x) * this.scale, (y - after.y) * this.scale);
  }
  toggle() {
    if (!this.selected) return;
    const node = this.selected, folded = node.inside.find((group) => group.folded), around = folded ?? node.inside.at(-1);
    if (!around) return;
    this.refold(node, () => { around.folded = !around.folded; });
    this.showDetails();
  }
  // Opens the blocks around the node and moves it to the middle.
  show(node) {
    if (node.inside.some((group) => group.folded)) {
      for (const group of node.inside) group.folded = false;
      this.layout();
    }
    const box = this.boxAround.get(node);
    this.scale = Math.max(this.scale, 0.6);
    this.x = this.canvas.clientWidth / 2 - box.x * this.scale;
    this.y = this.canvas.clientHeight / 2 - box.y * this.scale;
    this.select(node);
  }
  select(node) {
    this.selected = node;
    this.keepInSight();
    this.draw();
    this.showDetails();
  }
  keepInSight() {
    const box = this.selected && this.boxAround.get(this.selected);
    if (!box) return;
    const x = box.x * this.scale + this.x, y = box.y * this.scale + this.y, edge = 60;
    const inside = (value, most) => Math.min(Math.max(value, edge), most - edge) - value;
    this.x += inside(x, this.canvas.clientWidth);
    this.y += inside(y, this.canvas.clientHeight);
  }

  link(node) {
    return element("li", {}, element("button", { type: "button", "data-node": node.id, click: () => this.show(node) },
      `${nameOf(node)} ${numberOf(node)}`));
  }
  links(title, nodes) {
    if (!nodes.length) return [];
    const more = nodes.length > 24 ? [element("li", { class: "soft" }, `and ${nodes.length - 24} more`)] : [];
    return [element("h3", {}, title), element("ul", { class: "links" }, ...nodes.slice(0, 24).map((node) => this.link(node)), ...more)];
  }
  showDetails() {
    const node = this.selected, box = node && this.boxAround.get(node);
    if (!node) {
      this.details.replaceChildren(element("h2", {}, "Nothing selected"),
        element("p", { class: "soft" }, "Click a box, or press Tab to reach the drawing and use the arrow keys."));
      return;
    }
    if (box.thing.nodes) return this.showGroup(box);
    const facts = [["order", `${node.order + 1} of ${this.graph.nodes.length} in a run on one thread`]];
    if (!node.leaf) facts.unshift(["sequence", `#${node.sequence_nr}${node.own ? ", of a type that Overdrive can run itself" : ""}`]);
    node.gradients.forEach((look, i) => facts.push([`gradient ${i}`, `${shapeOf(look)}, ${size(look.bytes)} on ${look.device}`]));
    if (!node.leaf) facts.push(["holds", `${size(node.held_bytes)} that no leaf owns and no node before it holds`], ["saved", node.saved_state]);
    if (node.seconds !== null) facts.push(["time", time(node.seconds)]);
    const owner = (saved) => (saved.owner_node !== null ? this.graph.nodes[saved.owner_node] : null);
    const rows = (node.saved ?? []).map((saved) => element("tr", {}, element("td", {}, shapeOf(saved)), element("td", {}, size(saved.bytes)),
      element("td", {}, owner(saved) ? element("button", { type: "button", click: () => this.show(owner(saved)) },
        owner(saved) === node ? "its output" : nameOf(owner(saved))) : saved.owner === "no graph" ? "data" : saved.owner)));
    const table = rows.length ? [element("h3", {}, "Saved tensors and their owners"),
      element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows)))] : [];
    const inside = node.inside.length ? [element("p", {}, element("button", { type: "button", click: () => this.toggle() }, "Fold its block"))] : [];
    this.details.replaceChildren(element("h2", {}, nameOf(node)), this.facts(facts), ...inside, ...table,
      ...this.links("Gradients come from", node.before), ...this.links("Gradients go to", node.next));
  }
  facts(rows) {
    return element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  }
  showGroup(box) {
    const counts = new Map();
    for (const node of box.nodes) counts.set(node.name, (counts.get(node.name) ?? 0) + 1);
    const kinds = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
    this.details.replaceChildren(element("h2", {}, `Block: ${box.thing.name}`),
      this.facts([["nodes", box.nodes.length], [this.measure.name, this.measure.say(this.valueOf(box))], ...kinds.map(([name, n]) => [name, n])]),
      element("p", {}, element("button", { type: "button", click: () => this.toggle() }, "Unfold")));
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    const all = wanted ? this.graph.nodes.filter((node) =>
      `${nameOf(node)} ${node.name} ${numberOf(node)} ${node.gradients.map(shapeOf).join(" ")}`.toLowerCase().includes(wanted)) : [];
    this.found.replaceChildren(...all.slice(0, 100).map((node) => this.link(node)));
    this.count.textContent = wanted ? `${all.length} found${all.length > 100 ? ", the first 100 shown" : ""}` : "";
    return all;
  }
  setMeasure(name) {
    this.measure = MEASURES[name];
    this.layout();
    this.draw();
    this.showDetails();
    this.dearest.replaceChildren(...this.dearestRows());
  }
  dearestRows() {
    const worth = this.measure.of, dear = this.graph.nodes.filter((node) => worth(node) > 0).sort((a, b) => worth(b) - worth(a)).slice(0, 10);
    const whole = this.graph.nodes.reduce((sum, node) => sum + worth(node), 0);
    return dear.map((node) => element("tr", {},
      element("td", {}, element("button", { type: "button", click: () => { this.show(node); this.canvas.focus(); } }, `${nameOf(node)} ${numberOf(node)}`)),
      element("td", {}, this.measure.say(worth(node))), element("td", {}, `${((100 * worth(node)) / whole).toFixed(1)} %`)));
  }

  boxAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - this.x) / this.scale, y = (event.clientY - box.top - this.y) / this.scale;
    return this.boxes.find((b) => Math.abs(b.x - x) <= BOX.width / 2 && Math.abs(b.y - y) <= BOX.height / 2);
  }
  listen() {
    const { canvas } = this, down = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      down.set(event.pointerId, event);
      moved = 0;
      try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that a test made up */ }
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = down.get(event.pointerId);
      if (!last) return;
      const other = [...down.values()].find((pointer) => pointer.pointerId !== event.pointerId);
      const box = canvas.getBoundingClientRect(), apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
      if (other) this.zoom(apart(event) / (apart(last) || 1), (event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top);
      else this.pan(event.clientX - last.clientX, event.clientY - last.clientY);
      moved += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY);
      down.set(event.pointerId, event);
    });
    canvas.addEventListener("pointerup", (event) => {
      down.delete(event.pointerId);
      const box = moved < 5 ? this.boxAt(event) : null;
      if (box) this.select(box.nodes[0]);
    });
    canvas.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
    canvas.addEventListener("dblclick", () => this.toggle());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.boxes && this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
  key(event) {
    const box = this.selected && this.boxAround.get(this.selected);
    const go = (list) => (box ? list[0] && this.select(list[0].nodes[0]) : this.select(this.graph.nodes[this.graph.roots[0]]));
    const beside = (by) => {
      const layer = this.boxes.filter((b) => b.layer === box?.layer).sort((a, b) => a.x - b.x);
      return [layer[layer.indexOf(box) + by]].filter(Boolean);
    };
    const actions = {
      ArrowDown: () => (event.shiftKey ? this.pan(0, -60) : go(box?.out ?? [])),
      ArrowUp: () => (event.shiftKey ? this.pan(0, 60) : go(box?.into ?? [])),
      ArrowLeft: () => (event.shiftKey ? this.pan(60, 0) : go(beside(-1))),
      ArrowRight: () => (event.shiftKey ? this.pan(-60, 0) : go(beside(1))),
      Enter: () => this.toggle(), " ": () => this.toggle(),
      "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit(),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

function draw({ title, graph }) {
  const view = new View(graph), timed = graph.nodes.some((node) => node.seconds !== null);
  const button = (name, click, label) => element("button", { type: "button", click, ...(label ? { "aria-label": label, title: label } : {}) }, name);
  const search = element("input", { type: "search", placeholder: "Search: name, #number, shape", "aria-label": "Search nodes",
    input: () => view.search(search.value),
    keydown: (event) => {
      const all = event.key === "Enter" ? view.search(search.value) : [];
      if (all.length) { view.show(all[0]); view.canvas.focus(); }
    } });
  const measure = element("select", { change: () => view.setMeasure(measure.value) },
    ...Object.entries(MEASURES).filter(([key]) => key !== "time" || timed).map(([key, { name }]) => element("option", { value: key }, name)));
  measure.value = timed ? "time" : "bytes";
  view.dearest = element("tbody", {});
  const unread = graph.nodes.filter((node) => !node.leaf && node.saved_state !== "known").length;
  const leaves = graph.nodes.filter((node) => node.leaf).length;
  document.getElementById("page").append(
    element("h1", {}, `The backward of ${title}`),
    element("p", { class: "soft" }, `${graph.nodes.length} nodes, ${leaves} of them leaves; ${graph.edges.length} edges; the graph holds ${size(graph.held_bytes)} `
      + `that no leaf owns. ${graph.blocks.length ? `Repeated blocks are folded: ${graph.blocks.length}.` : ""} `
      + `${unread ? `The saved tensors of ${unread} nodes cannot be read, were released or are packed by a hook.` : ""}`),
    element("div", { class: "tools" }, search, view.count,
      button("+", () => view.zoom(1.25), "Zoom in"), button("−", () => view.zoom(0.8), "Zoom out"), button("Everything", () => view.fit()),
      ...(view.groups.length ? [button("Fold", () => view.foldAll(true)), button("Unfold", () => view.foldAll(false))] : []),
      element("label", {}, "Colour", measure), element("span", { class: "soft" }, "less ", element("span", { class: "scale", role: "img", "aria-label": "from pale to strong" }), " more")),
    view.found,
    element("div", { class: "view" }, element("div", { class: "drawing" }, view.canvas), view.details),
    element("p", { class: "soft" }, "Keys in the drawing: ", element("kbd", {}, "arrows"), " go along the edges, with ", element("kbd", {}, "Shift"), " they move the drawing; ",
      element("kbd", {}, "Enter"), " folds and unfolds; ", element("kbd", {}, "+"), " ", element("kbd", {}, "−"), " ", element("kbd", {}, "0"), " zoom; ",
      element("kbd", {}, "/"), " searches."),
    element("h2", {}, "The ten dearest nodes"),
    element("div", { class: "scroll" }, element("table", {}, view.dearest)));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === search) return;
    event.preventDefault();
    search.focus();
  });
  view.layout();
  view.dearest.replaceChildren(...view.dearestRows());
  view.showDetails();
  view.begin();
  window.view = view;  // for the tests
}
