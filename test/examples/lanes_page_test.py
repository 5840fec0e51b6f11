"""The page of `overdrive replay NAME -o`: one file without network, every operator on each plan once, waits that are some, and
a critical path from end to begin. In a browser it draws, and follows keys.

    lanes_page_test.py OVERDRIVE WORK_FOLDER

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
path = os.path.join(work, "lanes.html")

STORY = """<script>
addEventListener("DOMContentLoaded", () => {
  const told = [], tell = (name, value) => told.push(`${name}=${value}`);
  const plan = () => document.querySelector("svg.plan"), status = () => document.querySelector("[role=status]").textContent;
  const press = (key) => plan().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  press("ArrowRight");
  const first = status();
  press("ArrowRight");
  tell("moved", status() !== first && status().startsWith("Lane 0"));
  press("ArrowDown");
  tell("down", status().startsWith("Lane 1"));
  document.querySelector("rect.turn").dispatchEvent(new MouseEvent("click", { bubbles: true }));
  tell("clicked", status() === first);
  const simulated = [...document.querySelectorAll("button.choice")].filter((one) => one.textContent.includes("simulated"));
  tell("simulated", simulated.length);
  simulated.at(-1).click();
  tell("marked", document.querySelector(".warn").textContent.startsWith("Simulated"));
  tell("rows", document.querySelectorAll(".of-lanes tbody tr").length);
  const narrow = plan().clientWidth;
  [...document.querySelectorAll("button.zoom")][1].click();
  tell("zoomed", plan().clientWidth > 2 * narrow);
  document.title = told.join(";");
});
</script>"""


def draw(name, out, *more):
    done = subprocess.run([program, "replay", name, "-o", out, *more], check=True, timeout=LIMIT, capture_output=True, text=True)
    with open(out, encoding="utf-8") as file:
        return file.read(), done.stdout


def check_plan(plan, steps):
    """Every operator in as many shares as it says, lanes in order, each wait for a turn that had ended, a path without a gap."""
    seen = {}
    for turns in plan["lanes"]:
        free = 0
        for step, share, shares, begin, end, _, lane, turn in turns:
            check(begin >= free - 0.011 and end >= begin, "turns of a lane overlap")
            check(lane < 0 or plan["lanes"][lane][turn][4] <= begin + 0.011, "a turn began before what it awaited had ended")
            seen.setdefault(step, []).append((share, shares))
            free = end
    check(sorted(seen) == list(range(steps)), "an operator is missing")
    check(all(sorted(places) == [(i, len(places)) for i in range(len(places))] for places in seen.values()), "a share is missing")
    ends = max(turns[-1][4] for turns in plan["lanes"] if turns)
    check(ends <= plan["whole_us"] + 0.011, "a lane ended after the end")
    critical = [turn for turns in plan["lanes"] for turn in turns if turn[5] & 1]
    check(max(turn[4] for turn in critical) == ends, "the critical path does not reach the end")
    check(any(turn[5] & 2 for turns in plan["lanes"] for turn in turns), "no operator is on the longest way")


def look(name, processors):
    page, printed = draw(name, path)
    check(printed.startswith(f"{name}: lanes: "), "the program does not say how the lanes are")
    check(not re.search(r"""(src|href|action)\s*=\s*["']|https?://(?!www\.w3\.org/2000/svg)""", page), "the page points outside")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    check(data["title"] == name and len(data["lanes"]) == 1, "the page is of something else")
    lanes = data["lanes"][0]["lanes"]
    plans = {(plan["kind"], len(plan["lanes"])): plan for plan in lanes["plans"]}
    wanted = [("seen", 2), ("foretold", 2), ("simulated", 4), ("simulated", 8)]
    if processors == 2 and ("seen", 2) in plans:
        check(list(plans) == wanted, f"other plans are drawn: {list(plans)}")
    check({("simulated", 8)} <= set(plans), f"nothing is simulated: {list(plans)}")
    for plan in plans.values():
        check_plan(plan, len(lanes["steps"]))
    return plans


plans = look("ensemble 8x64", len(os.sched_getaffinity(0)))
whole = {lanes: plan["whole_us"] for (kind, lanes), plan in plans.items() if kind == "simulated"}
check(whole[8] < whole[4] < plans["simulated", 4]["work_us"], f"more lanes bring nothing to eight nets: {whole}")
look("mlp 3x64", 0)
check(json.loads(draw("mlp 3x64", os.path.join(work, "lanes.json"))[0])[0]["lanes"]["names"], "no operator has a name")

if run_chromium(work, "--version"):
    draw("ensemble 8x64", path)
    address = "file://" + os.path.abspath(path)
    for width in (500, 1200):
        dom = run_chromium(work, "--dump-dom", f"--window-size={width},1400", address)
        check('data-drawn="yes"' in dom, "the page's script did not reach its end")
        check('data-fits="yes"' in dom, f"the page is wider than a screen of {width}")
    story = os.path.join(work, "story.html")
    with open(path, encoding="utf-8") as page, open(story, "w", encoding="utf-8") as file:
        file.write(page.read().replace("</body>", STORY + "</body>"))
    dom = run_chromium(work, "--dump-dom", "--window-size=1200,1400", "file://" + os.path.abspath(story))
    told = dict(fact.split("=", 1) for fact in re.search(r"<title>(.*?)</title>", dom)[1].split(";"))
    print(told)
    check(told.pop("simulated") in "23" and told.pop("rows") == "8", "the simulations are not there")
    check(set(told.values()) == {"true"}, f"the page does not follow: {told}")
else:
    print("no Chromium: the page was not opened")
