"""What the tests of pages share: checks that end the test, and a headless Chromium."""
import os
import shutil
import subprocess
import sys

LIMIT = 180


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def chromium_command(work):
    """With a profile of its own in the folder; None where there is no Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    return found and [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
                      f"--user-data-dir={os.path.join(work, 'profile')}"]


def run_chromium(work, *arguments):
    """What it prints; None where there is no Chromium."""
    command = chromium_command(work)
    return command and subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=LIMIT).stdout
