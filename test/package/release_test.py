"""What `make release` refuses, in a small repository of its own, and what it puts into the folder of a release."""
import contextlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_release
import make_spdx
import versions_page

PAGE = "# Versions\n\n| LibTorch | library | suite |\n|---|---|---|\n| 2.13.0 | not tried | never run |\n\nMore.\n"


class Repository(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        real = versions_page.ROOT, versions_page.PAGE
        versions_page.ROOT, versions_page.PAGE = self.root, self.root / "docs/versions.md"
        self.addCleanup(lambda: setattr(versions_page, "ROOT", real[0]) or setattr(versions_page, "PAGE", real[1]))
        for folder in (*versions_page.LIBRARY, "docs"):
            (self.root / folder).mkdir(parents=True)
            (self.root / folder / "README.md").write_text("A folder.\n")
        (self.root / "engine/engine.cpp").write_text("int one;\n")
        versions_page.PAGE.write_text(PAGE)
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments):
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A change")

    def note(self, found):
        versions_page.note("2.13.0", "library", found)
        self.commit()

    def against(self, *versions):
        return list(make_release.against(versions or ["2.13.0"]))

    def test_a_page_of_this_library_is_accepted(self):
        self.note("yes")
        self.assertEqual(self.against(), [])
        self.assertRegex(versions_page.PAGE.read_text(), r"\n\| 2\.13\.0 \| yes \(20\d\d-\d\d-\d\d, [0-9a-f]{7,}\) \| never run \|\n\nMore\.\n$")

    def test_a_page_that_is_older_than_the_library_is_refused(self):
        self.note("yes")
        (self.root / "replay/plan.cpp").write_text("int two;\n")
        self.commit()
        (reason,) = self.against()
        self.assertRegex(reason, r"^docs/versions.md is older than the library: LibTorch 2\.13\.0 was tried at [0-9a-f]+\.")

    def test_a_change_of_documents_alone_is_no_change_of_the_library(self):
        self.note("yes")
        (self.root / "engine/README.md").write_text("A folder, told anew.\n")
        (self.root / "docs/more.md").write_text("More.\n")
        self.commit()
        self.assertEqual(self.against(), [])

    def test_a_change_that_is_not_committed_is_refused(self):
        self.note("yes")
        (self.root / "new.txt").write_text("new")
        self.assertEqual(self.against(), ["1 files are changed or new, and not committed: new.txt"])

    def test_a_version_that_was_tried_with_changes_is_refused(self):
        (self.root / "engine/engine.cpp").write_text("int three;\n")
        self.note("yes")
        (reason,) = self.against()
        self.assertIn("-dirty", reason)

    def test_a_version_that_does_not_build_or_was_not_tried_is_refused(self):
        self.note("NO")
        self.assertRegex(self.against()[0], r"^docs/versions.md says of LibTorch 2\.13\.0: NO \(")
        self.assertRegex(self.against("2.15.0")[0], r"^docs/versions.md says of LibTorch 2\.15\.0: nothing\.")

    def test_the_status_says_whether_something_speaks_against(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(make_release.main(["--check", "2.13.0"]), 1)
        self.assertIn("make_release: docs/versions.md says of LibTorch 2.13.0: not tried.", said.getvalue())
        self.note("yes")
        self.assertEqual(make_release.main(["--check", "2.13.0"]), 0)

    def test_the_folder_has_everything_with_lists_and_sums(self):
        build = self.root / "build"
        for folder in ("wheel", "package"):
            (build / folder).mkdir(parents=True)
        facts = {"version": "9.9", "torch": "2.13.0", "compiler": "GNU 12", "cli11": "2", "nlohmann_json": "3", "cudart": ""}
        (build / "spdx_facts.json").write_text(json.dumps(facts))
        with zipfile.ZipFile(build / "wheel/overdrive-9.9-py3-none-any.whl", "w") as wheel:
            for minor in ("2.11", "2.9"):
                wheel.writestr(f"overdrive/torch{minor}/liboverdrive.so", "a library")
        (build / "package/overdrive_9.9_amd64.deb").write_text("a package")
        with tarfile.open(build / "package/overdrive-9.9.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo(f"overdrive-9.9/{make_spdx.PLACE}")
            member.size = 2
            archive.addfile(member, io.BytesIO(b"{}"))
        with contextlib.redirect_stdout(io.StringIO()):
            make_release.main([str(self.root / "release"), str(build)])
        release = self.root / "release"
        names = {"overdrive-9.9-py3-none-any.whl", "overdrive-9.9-py3-none-any.whl.spdx.json", "overdrive_9.9_amd64.deb",
                 "overdrive-9.9.tar.gz", "overdrive-9.9.tar.gz.spdx.json", "SHA256SUMS"}
        self.assertEqual({path.name for path in release.iterdir()}, names)
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=True, capture_output=True)
        self.assertEqual(len((release / "SHA256SUMS").read_text().splitlines()), len(names) - 1)
        listed = json.loads((release / "overdrive-9.9-py3-none-any.whl.spdx.json").read_text())
        self.assertEqual([part["versionInfo"] for part in listed["packages"] if part["name"] == "LibTorch"], ["2.9, 2.11"])
        self.assertIn("./overdrive/torch2.11/liboverdrive.so", [file["fileName"] for file in listed["files"]])


if __name__ == "__main__":
    unittest.main()
