"use strict";
// What the pages of numbers share: elements, units, tables with bars. Comes before the page's own script.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const shape = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const size = (bytes) => {
  for (const [unit, worth] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= worth) return `${(bytes / worth).toPrecision(3)} ${unit}`;
  }
  return `${bytes} B`;
};
const time = (seconds) => (seconds >= 1 ? `${seconds.toPrecision(3)} s` : seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`);
const share = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`;
const legendOf = (names) => element("ul", { class: "legend" }, ...names.map(([kind, name]) => element("li", {},
  shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, class: `k${kind}` })), name)));

function table(kind, heads, rows) {
  const name = (i) => (i === 0 ? { class: "name" } : {});
  return element("div", { class: "scroll" }, element("table", { class: `wide ${kind}` },
    element("thead", {}, element("tr", {}, ...heads.map((head, i) => element("th", { scope: "col", ...name(i) }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", name(i), ...[cell].flat())))))));
}

const bar = (part, whole) => element("span", { class: "bar", style: `width: ${whole > 0 ? (100 * part) / whole : 0}%` });
