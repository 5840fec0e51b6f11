"""The page of `overdrive train NAME --memory`: one file without network, and in a browser it draws and follows keys.

    memory_page_test.py OVERDRIVE WORK_FOLDER

Without a headless Chromium only the file is looked at.
"""
import json
import os
import re
import shutil
import subprocess
import sys

program, work = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
page_path = os.path.join(work, "memory.html")
LIMIT = 180

# Runs after the page has drawn itself, and leaves its findings in the page's title.
STORY = """<script>
addEventListener("DOMContentLoaded", () => setTimeout(() => {
  const told = [], tell = (name, value) => told.push(`${name}=${value}`);
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
  tell("rows", document.querySelectorAll(".remedies tbody tr").length);
  document.title = told.join(";");
}, 50));
</script>"""


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def chromium(*arguments):
    found = next((name for name in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")) if name), None)
    if found is None:
        return None
    profile = f"--user-data-dir={os.path.join(work, 'profile')}"
    return subprocess.run([found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                           "--virtual-time-budget=2000", profile, *arguments],
                          capture_output=True, text=True, timeout=LIMIT).stdout


def look_with_browser():
    address = "file://" + os.path.abspath(page_path)
    for width in (500, 1280):  # Chromium opens no narrower window than 500
        dom = chromium("--dump-dom", f"--window-size={width},1400", address)
        check('data-drawn="yes"' in dom, "the page's script did not reach its end")
        check('data-fits="yes"' in dom, f"the page is wider than a screen of {width}")
    story = os.path.join(work, "story.html")
    with open(story, "w", encoding="utf-8") as file:
        file.write(page.replace("</body>", STORY + "</body>"))
    dom = chromium("--dump-dom", "--window-size=1280,1400", "file://" + os.path.abspath(story))
    told = dict(fact.split("=", 1) for fact in re.search(r"<title>(.*?)</title>", dom)[1].split(";"))
    print(told)
    check(told["areas"] == "4", "not every kind of memory is drawn")
    check(told["moved"] == "true" and told["ended"] == "true", "a key does not move over the course")
    check(told["tables"] == "2" and int(told["rows"]) == len(memory["remedies"]), "a table is missing")


subprocess.run([program, "train", "digits_mlp", "--steps", "2", "--memory", page_path, "--quiet"], check=True, timeout=LIMIT)
with open(page_path, encoding="utf-8") as file:
    page = file.read()
memory = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])["memory"]
check(sum(owner["bytes"] for owner in memory["owners"]) == memory["peak_bytes"] > 0, "the owners are not those of the peak")
check(max(sum(point[1:]) for point in memory["points"]) == memory["peak_bytes"], "the course does not reach the peak")
check({one["kind"] for one in memory["remedies"]} >= {"int8", "checkpoint"}, "a remedy is missing")
check(not re.search(r"""(src|href|action)\s*=\s*["']|https?://(?!www\.w3\.org/2000/svg)""", page), "the page points outside")
if chromium("--version"):
    look_with_browser()
else:
    print("no Chromium: the page was not opened")
