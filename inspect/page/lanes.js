// Draws on which lane each operator of a captured step ran, from the JSON in #data: where lanes wait, the critical path, and
// schedules for more lanes. Nothing is fetched. The arrow keys go from operator to operator as the pointer does.

const KINDS = { seen: "as it ran", foretold: "as planned", simulated: "simulated" };
const ROW = 30, SPACE = 16;
const us = (microseconds) => time(microseconds * 1e-6);
const nameOf = (plan) => `${plan.lanes.length} lanes, ${KINDS[plan.kind]}`;

// A turn is written as an array of numbers; see replay/lanes/drawing.cpp.
function read(lanes) {
  for (const plan of lanes.plans) {
    plan.lanes = plan.lanes.map((turns, lane) => turns.map(([step, share, shares, begin, end, marks, otherLane, otherTurn], i) =>
      ({ lane, i, begin, end, name: lanes.names[lanes.steps[step]] + (shares > 1 ? `, share ${share + 1} of ${shares}` : ""), operator: lanes.names[lanes.steps[step]],
        critical: (marks & 1) > 0, longest: (marks & 2) > 0, awaits: otherLane < 0 ? null : [otherLane, otherTurn] })));
    for (const turns of plan.lanes) turns.forEach((turn, i) => { turn.wait = Math.max(0, turn.begin - (i ? turns[i - 1].end : 0)); });
    for (const turn of plan.lanes.flat()) if (turn.awaits) turn.awaits = plan.lanes[turn.awaits[0]][turn.awaits[1]];
    plan.turns = plan.lanes.flat();
  }
}

const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
const busy = (turns) => sum(turns, (turn) => turn.end - turn.begin);
const waits = (turns) => sum(turns, (turn) => turn.wait);

function textOf(turn) {
  const awaited = turn.awaits ? `, after a wait of ${us(turn.wait)} for ${turn.awaits.name} on lane ${turn.awaits.lane}` : "";
  const marks = [turn.critical && "on the critical path", turn.longest && "on the longest way"].filter(Boolean).join(" and ");
  return `Lane ${turn.lane}, ${us(turn.begin)} to ${us(turn.end)} (${us(turn.end - turn.begin)}): ${turn.name}${awaited}${marks ? `; ${marks}` : ""}`;
}

// A row for each lane, a box for each turn, a line for each wait. One unit across is a microsecond.
function drawPlan(plan, zoom) {
  const told = element("p", { class: "soft", role: "status" }, "Point at a box, or use the arrow keys.");
  const top = (lane) => lane * (ROW + SPACE) + SPACE / 2;
  const boxes = new Map(), shapes = [];
  for (const turn of plan.turns) {
    if (turn.wait > 0) shapes.push(shape("rect", { x: turn.begin - turn.wait, y: top(turn.lane) + ROW / 2 - 2, width: turn.wait, height: 4, class: "k0 wait" }));
    const box = shape("rect", { x: turn.begin, y: top(turn.lane), width: Math.max(turn.end - turn.begin, plan.whole_us / 20000), height: ROW,
      class: `turn ${turn.critical ? "k3" : "k1"}${turn.longest ? " longest" : ""}` }, shape("title", {}, textOf(turn)));
    boxes.set(turn, box);
    shapes.push(box);
  }
  for (const turn of plan.turns.filter((one) => one.awaits)) {
    const from = turn.awaits, down = turn.lane > from.lane;
    shapes.push(shape("line", { x1: from.end, y1: top(from.lane) + (down ? ROW : 0), x2: turn.begin, y2: top(turn.lane) + (down ? 0 : ROW),
      class: turn.critical ? "hand critical" : "hand" }));
  }
  const height = plan.lanes.length * (ROW + SPACE);
  const svg = shape("svg", { class: "plan", tabindex: "0", role: "img", viewBox: `0 0 ${plan.whole_us || 1} ${height}`, preserveAspectRatio: "none",
    style: `width: ${100 * zoom}%; height: ${height}px`, "aria-label": `${nameOf(plan)}: ${us(plan.whole_us)}. The arrow keys go from operator to operator.` }, ...shapes);
  let at = null;
  const show = (turn) => {
    if (!turn) return;
    boxes.get(at)?.classList.remove("here");
    at = turn;
    boxes.get(at).classList.add("here");
    boxes.get(at).scrollIntoView?.({ block: "nearest", inline: "nearest" });
    told.textContent = textOf(at);
  };
  for (const [turn, box] of boxes) box.addEventListener("click", () => show(turn));
  const beside = (lane) => plan.lanes[lane]?.find((turn) => turn.end >= at.begin) ?? plan.lanes[lane]?.at(-1);
  svg.addEventListener("keydown", (event) => {
    const next = { ArrowLeft: () => plan.lanes[at.lane][at.i - 1], ArrowRight: () => plan.lanes[at.lane][at.i + 1],
      ArrowUp: () => beside(at.lane - 1), ArrowDown: () => beside(at.lane + 1) }[event.key];
    if (!next) return;
    event.preventDefault();
    show(at ? next() : plan.turns[0]);
  });
  return element("figure", {}, element("div", { class: "lanes" },
    element("div", {}, ...plan.lanes.map((turns, lane) => element("div", { class: "lane", style: `height: ${ROW + SPACE}px` }, `${lane}`))),
    element("div", { class: "scroll" }, svg)), told,
  legendOf([[3, "on the critical path: without it the last lane would have ended earlier"], [1, "other operators, outlined on the longest way"], [0, "a lane waits"]]));
}

function laneTable(plan) {
  return table("of-lanes", ["lane", "busy", "waits", "operators"], plan.lanes.map((turns, lane) =>
    [[`${lane}${lane === 0 ? ", the caller" : ""}`, bar(busy(turns), plan.whole_us)], `${us(busy(turns))} (${share(busy(turns), plan.whole_us)})`, us(waits(turns)), `${turns.length}`]));
}

function waitTable(plan) {
  const longest = plan.turns.filter((turn) => turn.awaits).sort((a, b) => b.wait - a.wait).slice(0, 15);
  if (longest.length === 0) return element("p", { class: "soft" }, "No lane waits for another one.");
  return table("waits", ["operator that waits", "for", "lane", "wait", "critical"], longest.map((turn) =>
    [[turn.name, bar(turn.wait, longest[0].wait)], `${turn.awaits.name} on ${turn.awaits.lane}`, `${turn.lane}`, us(turn.wait), turn.critical ? "yes" : ""]));
}

function operatorTable(plan) {
  const all = new Map();
  for (const turn of plan.turns) {
    const one = all.get(turn.operator) ?? { name: turn.operator, runs: 0, time: 0, critical: 0 };
    const own = turn.end - turn.begin;
    all.set(turn.operator, { ...one, runs: one.runs + 1, time: one.time + own, critical: one.critical + (turn.critical ? own : 0) });
  }
  const dearest = [...all.values()].sort((a, b) => b.time - a.time).slice(0, 20);
  return table("dearest", ["operator", "runs", "time", "on the critical path"], dearest.map((one) =>
    [[one.name, bar(one.time, dearest[0].time)], `${one.runs}`, us(one.time), us(one.critical)]));
}

function planTable(plans) {
  return table("plans", ["lanes", "whole", "of one lane", "waits", "hand-overs"], [
    ["1, all operators in turn", us(plans[0].work_us), "1", "", ""],
    ...plans.map((plan) => [[nameOf(plan), bar(plan.whole_us, plans[0].work_us)], us(plan.whole_us), (plan.whole_us / plan.work_us).toPrecision(3), us(waits(plan.turns)), `${plan.hand_overs}`])]);
}

// The chosen plan, with its tables.
function drawChosen(plans) {
  const place = element("div");
  let plan = plans[0], zoom = 1;
  const choice = (what, chosen, name, choose) => element("button", { type: "button", class: what, "aria-pressed": `${chosen}`, click: () => { choose(); paint(name); } }, name);
  const paint = (focus) => {
    place.replaceChildren(
      element("p", { class: "tools" }, ...plans.map((one) => choice("choice", one === plan, nameOf(one), () => { plan = one; }))),
      element("p", { class: "tools" }, ...[1, 4, 16, 64].map((one) => choice("zoom", one === zoom, `${one} × as wide`, () => { zoom = one; }))),
      ...(plan.kind === "simulated" ? [element("p", { class: "warn" }, "Simulated: a schedule for so many lanes from the times that were measured on one. It did not run.")] : []),
      drawPlan(plan, zoom), element("h3", {}, "Lanes"), laneTable(plan), element("h3", {}, "Longest waits"), waitTable(plan), element("h3", {}, "Dearest operators"), operatorTable(plan));
    if (focus) [...place.querySelectorAll("button")].find((one) => one.textContent === focus).focus();
  };
  paint();
  return place;
}

function drawProgram({ inputs, lanes }, i, count) {
  const parts = count > 1 ? [element("h2", {}, `Program ${i}: ${inputs.join(", ")}`)] : [];
  if (!lanes) return [...parts, element("p", { class: "soft" }, "This program is not replayed on lanes: it was not asked for them, or is not replayed yet.")];
  parts.push(element("p", {}, lanes.told));
  if (lanes.plans.length === 0) return [...parts, element("p", { class: "soft" }, "Its operators are not timed, so there is nothing to draw.")];
  read(lanes);
  return [...parts, element("p", { class: "soft" }, `The longest way through the operators, whatever the number of lanes, takes ${us(lanes.plans[0].longest_way_us)}.`),
    planTable(lanes.plans), drawChosen(lanes.plans)];
}

function draw({ title, lanes }) {
  const page = document.getElementById("page");
  page.replaceChildren(element("h1", {}, `Lanes of ${title}`), ...lanes.flatMap((program, i) => drawProgram(program, i, lanes.length)));
  if (lanes.length === 0) page.append(element("p", { class: "soft" }, "Nothing is recorded yet."));
}
