"""Trainings on a terminal, trainings that are interrupted, and trainings in several processes.

    training_test.py OVERDRIVE WORK_FOLDER CASE

CASE: terminal, interrupt, ddp_equal, ddp_interrupt or ddp_killed. Nothing here depends on how fast the machine is: every wait
is for an event, and has a limit only so that a hang is a failure.
"""
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

program, work, case = sys.argv[1:]
LIMIT = 240
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def wait_for(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        check(time.monotonic() < end, f"no {what} within {LIMIT} s")
        time.sleep(0.05)


def start(*arguments):
    return subprocess.Popen([program, "train", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            cwd=work)


def finish(process):
    out, err = process.communicate(timeout=LIMIT)
    print(out, err, sep="")
    return err


def children_of(process):
    """The ranks, which are direct children."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def left_behind():
    return [name for name in os.listdir(work) if name.endswith(".tmp")]


def train_and_read(*arguments):
    subprocess.run([program, "train", *arguments, "--quiet", "--json", "out.json"], cwd=work, check=True, timeout=LIMIT)
    with open(os.path.join(work, "out.json"), encoding="utf-8") as file:
        return json.load(file)["trainings"][0]


def terminal():
    """One line that is written over tells how far it is; at the end it is gone."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([program, "train", "digits_mlp", "--steps", "1000000"], cwd=work, stderr=theirs,
                               stdout=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while shown.count(b"\r") < 2:
        shown += os.read(ours, 1000)
    process.send_signal(signal.SIGINT)
    while True:
        try:
            shown += os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
    check(process.wait(timeout=LIMIT) == 0, "did not stop")
    print(shown)
    line = rb"digits_mlp: step \d+ of 1000000, loss [\d.]+, [\d.]+ steps/s, \d+ s left, \d+ MiB"
    before, after = shown.rsplit(b"\r\033[K", 1)
    check(re.search(line, before), "no line of progress")
    check(b"\n" not in before, "progress took more than one line")
    check(re.fullmatch(rb"overdrive: stopped after \d+ steps; nothing was kept, for want of --save.\r\n", after),
          "did not clear the line before the last words")


def interrupt():
    """Ctrl-C ends with 0, says how far it came, and the checkpoint goes on from just there."""
    process = start("digits_mlp", "--steps", "1000000", "--save", ".")
    wait_for("checkpoint", lambda: os.path.exists(os.path.join(work, "digits_mlp.pt")))
    process.send_signal(signal.SIGINT)
    err = finish(process)
    check(process.returncode == 0, f"ended with {process.returncode}")
    said = re.search(r"stopped after (\d+) steps; the checkpoint \S*digits_mlp.pt has them", err)
    check(said, "did not say what it kept")
    done = int(said.group(1))
    resumed = train_and_read("digits_mlp", "--resume", ".", "--steps", str(done + 5))
    unbroken = train_and_read("digits_mlp", "--steps", str(done + 5)) if done < 3000 else resumed
    check(len(resumed["losses"]) == 5, "the checkpoint holds another number of steps")
    check(resumed["parameters_digest"] == unbroken["parameters_digest"], "the resumed training has other bits")
    check(not left_behind(), f"left behind: {left_behind()}")


def ddp_equal():
    """Two processes have the same bits under both engines, and a resumed training has those of an unbroken one."""
    runs = {engine: train_and_read("ddp", "--world", "2", "--engine", engine, "--steps", "8", "--save", engine)
            for engine in ("stock", "overdrive")}
    for bits in ("parameters_digest", "gradients_digest"):
        check(runs["stock"][bits] == runs["overdrive"][bits], f"{bits} differ")
    check(runs["stock"]["losses"] == runs["overdrive"]["losses"], "losses differ")
    other = train_and_read("ddp", "--world", "2", "--steps", "8", "--seed", "2")
    check(other["gradients_digest"] != runs["stock"]["gradients_digest"], "another seed should have other bits")
    resumed = train_and_read("ddp", "--world", "2", "--steps", "10", "--resume", "overdrive")
    unbroken = train_and_read("ddp", "--world", "2", "--steps", "10")
    check(resumed["parameters_digest"] == unbroken["parameters_digest"], "the resumed training has other bits")


def ddp_interrupt():
    """Ctrl-C stops all processes after the same step."""
    process = start("ddp", "--world", "2", "--steps", "1000000", "--save", ".")
    wait_for("checkpoint", lambda: os.path.exists(os.path.join(work, "ddp.pt")))
    process.send_signal(signal.SIGINT)
    err = finish(process)
    check(process.returncode == 0, f"ended with {process.returncode}")
    check(re.search(r"stopped after \d+ steps; the checkpoint \S*ddp.pt has them", err), "did not say what it kept")


def ddp_killed():
    """A killed process ends the others with a clear error."""
    process = start("ddp", "--world", "2", "--steps", "1000000", "--save", ".")
    wait_for("checkpoint", lambda: os.path.exists(os.path.join(work, "ddp.pt")))
    ranks = children_of(process)
    check(len(ranks) == 2, f"{len(ranks)} children instead of 2")
    begin = time.monotonic()
    os.kill(ranks[1], signal.SIGKILL)
    err = finish(process)
    print(f"ended {time.monotonic() - begin:.1f} s after the kill")
    check(process.returncode == 2, f"ended with {process.returncode}")
    check(re.search(r"rank 1 \(process \d+\) was ended by signal 9", err), "did not say who was killed")
    check("rank 0 of 2 cannot go on without the others" in err, "the other rank did not say why it ended")
    check("did not end by themselves" not in err, "the other rank did not notice within 30 s")
    check(not left_behind(), f"left behind: {left_behind()}")
    for rank in ranks:
        check(not os.path.exists(f"/proc/{rank}"), f"process {rank} is still there")


{"terminal": terminal, "interrupt": interrupt, "ddp_equal": ddp_equal, "ddp_interrupt": ddp_interrupt,
 "ddp_killed": ddp_killed}[case]()
