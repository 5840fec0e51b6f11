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


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if shutil.which(name):
            return [shutil.which(name), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    "--disable-dev-shm-usage", f"--user-data-dir={os.path.join(work, 'profile')}"]
    return None


def look_with(browser):
    address = "file://" + os.path.abspath(page_path)
    drawn = subprocess.run(browser + ["--dump-dom", address], capture_output=True, text=True, timeout=180).stdout
    check('data-drawn="yes"' in drawn, "the page's script did not reach its end")
    for name in names:
        check(f'<section data-name="{name}">' in drawn, f"no section for {name}")
    body = drawn[:drawn.index('id="data"')]
    check(body.count("<figure>") == 2 + 3 * len(names), "a chart is missing")
    check(not re.search(r"NaN|undefined|Infinity", body), "a chart has a place that is no number")
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
check(not page.outside, f"the page points outside: {page.outside}")
addresses = [a for a in re.findall(r"https?://[^\s\"']+", page.code) if not a.startswith("http://www.w3.org/")]
check(not addresses, f"the page names an address: {addresses}")
check(not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page.code), "the page fetches something")
print("the page's data equals the JSON:", len(page.data), "bytes")
browser = chromium()
if browser:
    look_with(browser)
else:
    print("no Chromium here: not looked at in a browser")
