"""The pages of `overdrive train NAME --memory` and `--profile`: one file without network, and in a browser they draw, follow
keys and sort.

    cost_pages_test.py OVERDRIVE WORK_FOLDER

Without a headless Chromium only the files are looked at.
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

# Each runs after the page has drawn itself, and leaves its findings in the page's title.
STORY = """<script>
addEventListener("DOMContentLoaded", () => setTimeout(() => {
  const told = [], tell = (name, value) => told.push(`${name}=${value}`);
  %s
  document.title = told.join(";");
}, 50));
</script>"""
MEMORY_STORY = """
  const course = document.querySelector("figure > svg"), status = () => document.querySelector("[role=status]").textContent;
  const press = (key) => course.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  tell("areas", course.querySelectorAll("polygon").length);
  const peak = status();
  press("Home");
  const first = status();
  tell("moved", first !== peak);
  press("End");
  tell("ended", status() !== first);
  tell("tables", document.querySelectorAll("table").length);
  tell("rows", document.querySelectorAll(".owners tbody tr").length);
"""
PROFILE_STORY = """
  const names = () => [...document.querySelectorAll(".types tbody td:first-child")].map((cell) => cell.textContent).join(",");
  tell("parts", document.querySelectorAll(".strip rect").length);
  tell("by_own_time", names());
  const heads = [...document.querySelectorAll(".types th button")], head = heads.find((one) => one.textContent === "gradients");
  head.click();
  tell("by_gradients", names());
  tell("pressed", document.activeElement.textContent + document.activeElement.getAttribute("aria-pressed"));
  tell("dearest", document.querySelectorAll(".dearest tbody tr").length);
"""


def chromium(*arguments):
    return run_chromium(work, "--virtual-time-budget=2000", *arguments)


def page_of(name):
    """The page of the last of two steps, and its data."""
    path = os.path.join(work, name + ".html")
    subprocess.run([program, "train", "digits_mlp", "--steps", "2", "--" + name, path, "--quiet"], check=True, timeout=LIMIT)
    with open(path, encoding="utf-8") as file:
        page = file.read()
    check(not re.search(r"""(src|href|action)\s*=\s*["']|https?://(?!www\.w3\.org/2000/svg)""", page), "the page points outside")
    return page, json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])[name]


def told_by(name, page, story):
    """What the story finds in a browser; None where there is no browser."""
    if not chromium("--version"):
        print("no Chromium: the page was not opened")
        return None
    address = "file://" + os.path.abspath(os.path.join(work, name + ".html"))
    for width in (500, 1280):  # Chromium opens no narrower window than 500
        dom = chromium("--dump-dom", f"--window-size={width},1400", address)
        check('data-drawn="yes"' in dom, "the page's script did not reach its end")
        check('data-fits="yes"' in dom, f"the page is wider than a screen of {width}")
    path = os.path.join(work, name + "_story.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page.replace("</body>", STORY % story + "</body>"))
    dom = chromium("--dump-dom", "--window-size=1280,1400", "file://" + os.path.abspath(path))
    told = dict(fact.split("=", 1) for fact in re.search(r"<title>(.*?)</title>", dom)[1].split(";"))
    print(told)
    return told


def look_at_memory():
    page, memory = page_of("memory")
    check(sum(owner["bytes"] for owner in memory["owners"]) == memory["peak_bytes"] > 0, "the owners are not those of the peak")
    check(max(sum(point[1:]) for point in memory["points"]) == memory["peak_bytes"], "the course does not reach the peak")
    told = told_by("memory", page, MEMORY_STORY)
    if told is None:
        return
    check(told["areas"] == "4", "not every kind of memory is drawn")
    check(told["moved"] == "true" and told["ended"] == "true", "a key does not move over the course")
    check(told["tables"] == "1" and int(told["rows"]) == len(memory["owners"]), "the table is missing")


def look_at_profile():
    page, profile = page_of("profile")
    types = profile["types"]
    check(sum(one["count"] for one in types) == profile["nodes"] > 0, "the types are not those of the nodes")
    check(0 < profile["backward_seconds"] < profile["seconds"], "the backward is not a part of the step")
    told = told_by("profile", page, PROFILE_STORY)
    if told is None:
        return

    def order(key):
        named = [one["name"] + "*" * (one["own_nodes"] == one["count"]) for one in sorted(types, key=lambda one: -one[key])]
        return ",".join(named)

    check(told["parts"] == "3", "a part of the step is missing")
    check(told["by_own_time"] == order("own_seconds"), "the dearest type is not the first")
    check(told["by_gradients"] == order("bytes") != told["by_own_time"], "a click does not sort")
    check(told["pressed"] == "gradientstrue", "the focus is lost")
    check(int(told["dearest"]) == len(profile["dearest"]), "a node is missing")


look_at_memory()
look_at_profile()
