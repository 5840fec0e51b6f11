"""tools/bare_machine.sh where it cannot make a bare machine: it says why, and leaves nothing."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class BareMachine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "tools").mkdir()
        shutil.copy(ROOT / "tools/bare_machine.sh", self.folder / "tools")

    def run_with(self, arguments, **programs):
        """Runs it with no programs but these and the few that it needs itself."""
        path = self.folder / "bin"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for needed in {"bash", "dirname", "realpath", "mkdir", "df", "tail"} - programs.keys():
            (path / needed).symlink_to(shutil.which(needed))
        for name, line in programs.items():
            (path / name).write_text(f"#!/bin/sh\n{line}\n")
            (path / name).chmod(0o755)
        return subprocess.run([shutil.which("bash"), self.folder / "tools/bare_machine.sh", *arguments], env={"PATH": str(path)},
                              capture_output=True, text=True)

    def ends(self, result, status, *words):
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertFalse((self.folder / ".deps").exists())

    def test_arguments_without_sense_are_refused(self):
        self.ends(self.run_with(["--shrot"]), 2, "unknown option --shrot")
        self.ends(self.run_with(["--torch"]), 2, "--torch needs")
        self.ends(self.run_with(["--torch", "none.whl"]), 2, "there is no wheel none.whl")

    def test_not_root_skips(self):
        self.ends(self.run_with([], id="echo 1000"), 77, "skipped", "only root")

    def test_without_debootstrap_skips(self):
        self.ends(self.run_with([], id="echo 0"), 77, "skipped", "debootstrap is missing")

    def test_without_namespaces_skips(self):
        self.ends(self.run_with([], id="echo 0", debootstrap="exit 1", unshare="exit 1"), 77, "skipped", "no mount namespace")

    def test_without_space_skips(self):
        self.ends(self.run_with([], id="echo 0", debootstrap="exit 1", unshare="exit 0", df="echo 3G"), 77, "3G free")


if __name__ == "__main__":
    unittest.main()
