"""The page of `overdrive graph`: one file without network, and in a browser it draws, searches, folds and follows keys.

    graph_page_test.py OVERDRIVE WORK_FOLDER

Without a headless Chromium only the file is looked at.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from chromium import LIMIT, check, run_chromium

program, work = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
page_path, json_path = os.path.join(work, "graph.html"), os.path.join(work, "graph.json")

# Runs after the page has drawn itself, and leaves its findings in the page's title.
STORY = """<script>
addEventListener("DOMContentLoaded", () => {
  const told = [], tell = (name, value) => told.push(`${name}=${value}`);
  const search = document.querySelector("input[type=search]"), canvas = document.querySelector("canvas");
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const heading = () => document.querySelector(".details h2").textContent;
  tell("boxes", view.boxes.length);
  search.value = "layernorm";
  search.dispatchEvent(new Event("input"));
  const found = document.querySelectorAll(".found button");
  tell("found", document.querySelector("[role=status]").textContent);
  found[0].click();
  tell("searched", heading());
  tell("unfolded", view.boxes.length);
  const root = view.graph.nodes[view.graph.roots[0]];
  view.show(root);
  const box = view.boxAround.get(root), place = canvas.getBoundingClientRect();
  view.select(null);
  for (const kind of ["pointerdown", "pointerup"])
    canvas.dispatchEvent(new PointerEvent(kind, { pointerId: 1, clientX: place.left + view.x + box.x * view.scale,
      clientY: place.top + view.y + box.y * view.scale, bubbles: true }));
  tell("clicked", heading() === (root.leaf_name ?? root.name));
  press("ArrowDown");
  tell("next", view.boxAround.get(root).out.includes(view.boxAround.get(view.selected)));
  const scale = view.scale;
  press("+");
  tell("zoomed", view.scale > scale);
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
  tell("focus", document.activeElement === search);
  view.foldAll(true);
  tell("folded", view.boxes.length);
  document.title = told.join(";");
});
</script>"""


def draw(name, path, *more):
    subprocess.run([program, "graph", name, "-o", path, "--quiet", *more], check=True, timeout=LIMIT)
    with open(path, encoding="utf-8") as file:
        return file.read()


def chromium(*arguments):
    return run_chromium(work, *arguments)


def look_with_browser():
    address = "file://" + os.path.abspath(page_path)
    for width in (500, 1200):  # Chromium opens no narrower window than 500
        dom = chromium("--dump-dom", f"--window-size={width},1400", address)
        check('data-drawn="yes"' in dom, "the page's script did not reach its end")
        check('data-fits="yes"' in dom, f"the page is wider than a screen of {width}")
    narrow = os.path.join(work, "narrow.html")
    with open(narrow, "w", encoding="utf-8") as file:
        file.write('<iframe src="graph.html" style="width: 360px; height: 1400px; border: 0"></iframe>')
    check("iframe" in chromium("--dump-dom", "--window-size=500,1500", "file://" + os.path.abspath(narrow)), "no narrow page")
    story = os.path.join(work, "story.html")
    with open(story, "w", encoding="utf-8") as file:
        file.write(page.replace("</body>", STORY + "</body>"))
    dom = chromium("--dump-dom", "--window-size=1200,1400", "file://" + os.path.abspath(story))
    told = dict(fact.split("=", 1) for fact in re.search(r"<title>(.*?)</title>", dom)[1].split(";"))
    print(told)
    check(int(told["boxes"]) < len(graph["nodes"]), "nothing is folded at first")
    check(re.fullmatch(r"[1-9]\d* found.*", told["found"]), "the search finds nothing")
    check("LayerNorm" in told["searched"], "the first result is not shown")
    check(int(told["unfolded"]) > int(told["boxes"]), "the block around a result stays folded")
    check(told["clicked"] == "true", "a click selects nothing")
    check(told["next"] == "true", "an arrow key does not follow an edge")
    check(told["zoomed"] == "true" and told["focus"] == "true", "a key does nothing")
    check(told["folded"] == told["boxes"], "folding again gives another picture")
    for scheme in (0, 1):
        picture = os.path.join(work, f"graph-{scheme}.png")
        chromium(f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", "--window-size=1200,1000", address)
        check(os.path.getsize(picture) > 10_000, f"{picture} shows nothing")


page, graph = draw("transformer", page_path), json.loads(draw("transformer", json_path))
data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
check(data["graph"] == graph, "the page's data is not what --out graph.json wrote")
check(not re.search(r"""(src|href|action)\s*=\s*["']|https?://""", page), "the page points outside")
check(any(node.get("leaf_name") for node in graph["nodes"]), "no leaf has a name")
check(graph["blocks"], "the layers are not folded")
trace_path = os.path.join(work, "trace.json")
timed = json.loads(draw("transformer", os.path.join(work, "timed.json"), "--trace", trace_path))
check(all(node["seconds"] > 0 for node in timed["nodes"] if not node.get("leaf")), "a node has no time")
check(all(node["seconds"] is None for node in graph["nodes"]), "a node has a time without a trace")
with open(trace_path, encoding="utf-8") as file:
    check(json.load(file)["traceEvents"], "the trace is empty")
if chromium("--version"):
    look_with_browser()
else:
    print("no Chromium: the page was not opened")
