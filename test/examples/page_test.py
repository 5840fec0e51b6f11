"""The page of `overdrive compare --html`: its data is the JSON, it needs no network, and a browser draws it.

    page_test.py OVERDRIVE WORK_FOLDER

Where a headless Chromium is installed it opens the page in light and in dark, and takes pictures.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys

from chromium import check, chromium_command

program, work = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
page_path, json_path = os.path.join(work, "page.html"), os.path.join(work, "page.json")
names = ["digits_mlp", "digits_cnn"]


class Page(html.parser.HTMLParser):
    """Collects the data block, every script and style, and whatever points outside."""

    def __init__(self):
        super().__init__()
        self.data = ""
        self.code = ""
        self.outside = []
        self._into = None

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        for name in ("src", "href", "data", "action"):
            if name in found:
                self.outside.append(f"<{tag} {name}={found[name]}>")
        if tag in ("script", "style"):
            self._into = "data" if found.get("id") == "data" else "code"

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._into = None

    def handle_data(self, text):
        if self._into == "data":
            self.data += text
        elif self._into == "code":
            self.code += text


def look_with(browser):
    address = "file://" + os.path.abspath(page_path)
    drawn = subprocess.run(browser + ["--dump-dom", address], capture_output=True, text=True, timeout=180).stdout
    check('data-drawn="yes"' in drawn, "the page's script did not reach its end")
    for name in names:
        check(f'<section data-name="{name}">' in drawn, f"no section for {name}")
    body = drawn[:drawn.index('id="data"')]
    check(body.count("<figure>") == 2 + 3 * len(names), "a chart is missing")
    check(not re.search(r"NaN|undefined|Infinity", body), "a chart has a place that is no number")
    text = re.sub(r"<[^>]*>", " ", body)
    settled = [r["lo"] > 1 or r["hi"] < 1 for result in expected["comparisons"]
               for r in (result[f"{what}_ratio"] for what in ("step", "backward"))]
    check(body.count('class="bar"') == settled.count(True) and body.count('class="bar open"') == settled.count(False),
          "a bar does not say whether its ratio is settled")
    check(all(re.search(rf"{what}\s+[\d,.]+\s+[\d,.]+\s+\d\.\d{{3}}", text) for what in
              ("peak of tensors, KiB", "tensors allocated a step")), "a row has no ratio")
    busy = environment["load_average"] >= environment["cores"] / 2
    check(("The machine was busy" in text) == busy, "the load is not judged")
    for width in (390, 1200, 2400):
        picture = os.path.join(work, f"page-{width}.png")
        subprocess.run(browser + [f"--screenshot={picture}", f"--window-size={width},2600", address], capture_output=True,
                       timeout=180, check=True)
        narrow = subprocess.run(browser + [f"--window-size={width},2600", "--dump-dom", address], capture_output=True, text=True,
                                timeout=180).stdout
        check('data-fits="yes"' in narrow, f"the page is wider than a screen of {width}")
        print("picture:", picture)
    pointed = os.path.join(work, "pointed.html")
    with open(page_path, encoding="utf-8") as file, open(pointed, "w", encoding="utf-8") as copy:
        copy.write(file.read() + """<script>
for (const svg of document.querySelectorAll("svg"))
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: svg.getBoundingClientRect().left + 150 }));
</script>""")
    shown = subprocess.run(browser + ["--dump-dom", "file://" + os.path.abspath(pointed)], capture_output=True, text=True,
                           timeout=180).stdout
    said = re.findall(r'class="said"[^>]*>([^<]*)<', shown)
    check(len(said) == 3 * len(names) and all(re.search(r": stock [\d.,]+.*, overdrive [\d.,]+", text) for text in said),
          f"pointing at a chart does not show its values: {said}")
    for scheme, dark in (("light", "0"), ("dark", "1")):
        picture = os.path.join(work, f"page-{scheme}.png")
        subprocess.run(browser + [f"--blink-settings=preferredColorScheme={1 - int(dark)}", f"--screenshot={picture}",
                                  "--window-size=1200,2000", address], capture_output=True, timeout=180, check=True)
        check(os.path.getsize(picture) > 10_000, f"{picture} shows nothing")
        print("picture:", picture)


subprocess.run([program, "compare", "digits", "--steps", "30", "--block", "5", "--quiet", "--json", json_path, "--html",
                page_path], check=True)
page = Page()
with open(page_path, encoding="utf-8") as file:
    page.feed(file.read())
with open(json_path, encoding="utf-8") as file:
    expected = json.load(file)
check(json.loads(page.data) == expected, "the page's data is not what --json wrote")
check([result["name"] for result in expected["comparisons"]] == names, "the JSON has other models")
for result in expected["comparisons"]:
    for side in ("stock", "overdrive"):
        curve = result[side]["memory_over_a_step"]["tensor_bytes"]
        check(min(curve) >= 0, f"{result['name']} on {side} holds less than nothing")
        check(max(curve) == result[side]["peak_tensor_bytes"], f"{result['name']} on {side}: the chart's peak is not the table's")
environment = expected["environment"]
check(re.fullmatch(r"(GCC|Clang) \d+\.\d+", environment["compiler"]), f"the compiler is {environment['compiler']}")
check(re.fullmatch(r"\d+(\.\d\d?)?", str(environment["load_average"])), f"the load is {environment['load_average']}")
check(not page.outside, f"the page points outside: {page.outside}")
addresses = [a for a in re.findall(r"https?://[^\s\"']+", page.code) if not a.startswith("http://www.w3.org/")]
check(not addresses, f"the page names an address: {addresses}")
check(not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page.code), "the page fetches something")
print("the page's data equals the JSON:", len(page.data), "bytes")
browser = chromium_command(work)
if browser:
    look_with(browser)
else:
    print("no Chromium here: not looked at in a browser")
