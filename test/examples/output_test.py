"""Where results are printed: a terminal of 60 columns, and a full disk.

    output_test.py OVERDRIVE WORK_FOLDER CASE

CASE: narrow or full.
"""
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios

program, work, case = sys.argv[1:]
LIMIT = 240
COMMANDS = [["--version"], ["help", "compare"], ["list"], ["env"], ["compare", "digits", "--steps", "4"],
            ["bench", "engine", "--quick", "--graph", "scale_chain", "--pairs", "1"],
            ["bench", "memory", "--quick", "--graph", "scale_chain"]]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def on_a_terminal(columns, arguments):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([program, *arguments], cwd=work, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    check(process.wait(timeout=LIMIT) == 0, f"{arguments}: ended with {process.returncode}")
    return shown.decode().replace("\r\n", "\n")


def narrow():
    """No line is wider than the terminal, unless a single word is; and every figure of the wide table is there."""
    for arguments in COMMANDS[2:]:
        shown = on_a_terminal(60, arguments)
        print(shown)
        for line in shown.splitlines():
            check(len(line) <= 60 or " " not in line.strip(), f"{arguments}: {len(line)} columns: {line}")
    wide = on_a_terminal(200, COMMANDS[-1])
    check(re.search(r"^graph +size +stock tens", wide, re.M), "a wide terminal has no table")
    words = on_a_terminal(60, COMMANDS[-1])
    for figure in wide.splitlines()[1].split():
        check(figure in words, f"{figure} is missing on the narrow terminal")


def full():
    """What cannot be printed is an error: one clear line, status 2."""
    for arguments in COMMANDS:
        with open("/dev/full", "w", encoding="ascii") as disk:
            result = subprocess.run([program, *arguments], cwd=work, text=True, stdout=disk, stderr=subprocess.PIPE,
                                    timeout=LIMIT, check=False)
        print(arguments, result.returncode, result.stderr)
        check(result.returncode == 2, f"{arguments}: ended with {result.returncode}")
        check(result.stderr.endswith("overdrive: cannot write to the standard output: is the disk full?\n"),
              f"{arguments}: did not say why")


{"narrow": narrow, "full": full}[case]()
