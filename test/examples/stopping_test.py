"""Commands that are stopped by Ctrl-C, and files that do not fit on the disk.

    stopping_test.py OVERDRIVE WORK_FOLDER CASE [TEST_PROGRAM | COMMAND]

CASE: one of the functions below; `app` needs a program to run, `full_disk` takes one more command with --json. Nothing here depends on how fast the machine is: every wait is for an event, and has a
limit only so that a hang is a failure.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

program, work, case = sys.argv[1:4]
LIMIT = 240
STOPPED = 130  # as a shell says that Ctrl-C ended a command
SAID = "overdrive: stopped; the results are those until then."
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def path_of(name):
    return os.path.join(work, name)


def read_json():
    with open(path_of("out.json"), encoding="utf-8") as file:
        return json.load(file)


def stop_after_output(*arguments, to_all=False):
    """Sends Ctrl-C when the first line is out: to the command, or as a terminal does, to its children too. Gives the
    JSON file of what was done until then."""
    process = subprocess.Popen([program, *arguments, "--json", "out.json"], cwd=work, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    check(process.stdout.readline(), "the command ended before its first line: " + process.stderr.read()
          if process.poll() is not None else "no line")
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    print(out, err, sep="")
    check(process.returncode == STOPPED, f"ended with {process.returncode}")
    check(err.strip().splitlines()[-1:] == [SAID], "did not say that it stopped, as its last line")
    check(not [name for name in os.listdir(work) if name.endswith(".tmp")], "left a draft behind")
    result = read_json()
    check(result["stopped"], "the JSON file does not know that it stopped")
    return result


def bench_engine():
    check("rows" in stop_after_output("bench", "engine"), "no rows")


def bench_forward_ad():
    rows = stop_after_output("bench", "forward_ad", "--pairs", "3")["rows"]
    check(0 < len(rows) < 12, f"{len(rows)} rows")


def bench_devices():
    check(len(stop_after_output("bench", "devices", to_all=True)["rows"]) < 5, "it ran to its end")


def fuzz():
    check(0 < stop_after_output("fuzz", "--minutes", "100")["programs"], "no programs")


def soak():
    check(stop_after_output("soak", "--minutes", "0.4")["failures"] == [], "failures")


def compare():
    process = subprocess.Popen([program, "compare", "digits_mlp", "--steps", "1000000", "--json", "out.json"], cwd=work,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stderr.readline()  # the first line of progress
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    print(out, err, sep="")
    check(process.returncode == STOPPED, f"ended with {process.returncode}")
    check(SAID in err and "equal after each of" in out, "did not say what it compared until then")
    check(read_json()["comparisons"][0]["steps"] < 1000000, "it ran to its end")


def app():
    """Also the program that is run gets the signal; what it did not finish is no difference."""
    process = subprocess.Popen([program, "compare", "--app", sys.argv[4], "--json", "out.json", "--", "sleeps"], cwd=work,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    end = time.monotonic() + LIMIT
    while not os.path.exists(path_of("asleep")):
        check(time.monotonic() < end and process.poll() is None, "the program does not run")
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    print(out, err, sep="")
    check(process.returncode == STOPPED, f"ended with {process.returncode}")
    check(err.strip() == SAID and "DIFFERS" not in out, "an unfinished run counted")
    check(read_json()["stock"] == [], "an unfinished run is in the JSON file")


def on_a_full_disk(limit, *arguments):
    """No file may grow beyond the limit, which to a program is as a full disk."""
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run([program, *arguments, "--quiet"], cwd=work, text=True, capture_output=True, timeout=LIMIT,
                          preexec_fn=small_files, restore_signals=False, check=False)


def full_disk():
    """One clear line, status 2, nothing half-written, and the checkpoint that was there stays."""
    train = ["train", "digits_mlp", "--steps", "3", "--save", "."]
    subprocess.run([program, *train, "--quiet"], cwd=work, check=True, timeout=LIMIT)
    with open(path_of("digits_mlp.pt"), "rb") as file:
        before = file.read()
    for name, arguments in {
            "digits_mlp.pt": train,
            "x.json": ["train", "digits_mlp", "--steps", "3", "--json", "x.json"],
            "x.html": ["compare", "digits_mlp", "--steps", "3", "--html", "x.html"],
            "bench.json": ["bench", "memory", "--quick", "--graph", "lstm", "--json", "bench.json"],
            "more.json": [*(sys.argv[4:] or ["env"]), "--json", "more.json"]}.items():
        result = on_a_full_disk(50, *arguments)
        print(result.stdout, result.stderr, sep="")
        check(result.returncode == 2, f"{name}: ended with {result.returncode}")
        check(f"{name}\": " in result.stderr and result.stderr.count("\n") == 1, f"{name}: not one clear line")
    check(sorted(os.listdir(work)) == ["digits_mlp.pt"], f"left behind: {os.listdir(work)}")
    with open(path_of("digits_mlp.pt"), "rb") as file:
        check(file.read() == before, "the old checkpoint was harmed")


{name: value for name, value in globals().items() if callable(value)}[case]()
