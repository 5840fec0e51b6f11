"""Makes the packages of a build twice, compares their bytes, and uses what is in them from clean folders.

    packages_test.py FACTS.json

FACTS.json has the paths of the build (CMakeLists.txt of this folder writes it).
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers
import make_man

FACTS = json.loads(Path(sys.argv.pop()).read_text())
BUILD, WORK, TORCH = (Path(FACTS[name]) for name in ("build", "work", "torch"))


def run(*command, **variables):
    done = subprocess.run([str(part) for part in command], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def make_packages(folder, *options):
    run("cpack", "-Wno-dev", "--config", BUILD / "CPackConfig.cmake", "-B", folder, *options)
    return {path.suffix: path for path in folder.iterdir() if path.suffix in (".deb", ".gz")}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_below(root):
    return {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*")) if path.is_file()}


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        os.umask(0o022)  # as `make package` does
        cls.packages = make_packages(WORK / "first")
        with tarfile.open(cls.packages[".gz"]) as archive:
            cls.members = archive.getmembers()
            archive.extractall(WORK / "tar")
        (top,) = (WORK / "tar").iterdir()
        cls.roots = {".tar.gz": top}
        if ".deb" in cls.packages and shutil.which("dpkg-deb"):
            run("dpkg-deb", "-x", cls.packages[".deb"], WORK / "deb")
            cls.roots[".deb"] = WORK / "deb/usr"

    def deb(self):
        if ".deb" not in self.roots:
            self.skipTest("dpkg-deb or dpkg-shlibdeps is missing, so there is no .deb")
        return self.packages[".deb"]

    def test_two_runs_give_equal_bytes(self):
        # What the files depend on is known from the first run, which takes dpkg-shlibdeps ten seconds.
        known = []
        if ".deb" in self.roots:
            depends = run("dpkg-deb", "-f", self.packages[".deb"], "Depends").strip()
            known = ["-D", "CPACK_DEBIAN_PACKAGE_SHLIBDEPS=OFF", "-D", f"CPACK_DEBIAN_PACKAGE_DEPENDS={depends}"]
        second = make_packages(WORK / "second/folder", *known)
        self.assertEqual({kind: digest(path) for kind, path in self.packages.items()},
                         {kind: digest(path) for kind, path in second.items()})

    def test_both_hold_the_same_files(self):
        self.deb()
        names = [{name: digest(path) for name, path in files_below(root).items()} for root in self.roots.values()]
        self.assertEqual(*names)

    def test_the_headers_are_the_public_ones(self):
        listed = {name.rsplit("/", 1)[1] for name in check_layers.public_headers(ROOT)}
        # Two headers that have moved forward to their new places.
        listed |= {"keep.h", "schedulable.h"}
        for kind, root in self.roots.items():
            with self.subTest(kind):
                self.assertEqual({Path(name).name for name in files_below(root / "include")}, listed)

    def test_everything_else_is_there_and_nothing_more(self):
        wanted = {"bin/overdrive", "lib/liboverdrive.so", "lib/liboverdrive_autoload.so", "lib/liboverdrive_step.so",
                  "lib/liboverdrive_held_off.so", "share/man/man1/overdrive.1", "share/overdrive/overdrive.spdx.json"}
        parts = ("Config", "ConfigVersion", "LibTorch", "Targets", "Targets-release")
        wanted |= {f"lib/cmake/Overdrive/Overdrive{part}.cmake" for part in parts}
        wanted |= {"share/overdrive/" + path.relative_to(ROOT).as_posix() for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "docs/abi.txt"]}
        wanted |= {"share/overdrive/data/" + name for name in
                   ("README.md", "alice.txt", "burgers.csv", "digits-images.idx3-ubyte", "digits-labels.idx1-ubyte")}
        for kind, root in self.roots.items():
            with self.subTest(kind):
                self.assertEqual({name for name in files_below(root) if not name.startswith("include/")}, wanted)

    def test_no_file_names_a_folder_of_the_build(self):
        folders = [str(folder).encode() for folder in (ROOT, BUILD)]
        for name, path in files_below(self.roots[".tar.gz"]).items():
            # Binaries have the folder of LibTorch's headers in messages of these headers' own checks.
            content = path.read_bytes()
            for folder in folders + [str(TORCH).encode()] * (not content.startswith(b"\x7fELF")):
                self.assertFalse(folder + b"/" in content, f"{name} names {folder.decode()}")

    def test_no_name_in_a_binary_depends_on_the_folder_of_the_build(self):
        # As nvcc names what lies in a namespace without a name.
        for name, path in files_below(self.roots[".tar.gz"]).items():
            self.assertEqual(re.findall(rb"_GLOBAL__N__[0-9a-f]{8}_\w*", path.read_bytes())[:1], [], name)

    def test_owners_and_permissions_are_plain(self):
        for member in self.members:
            self.assertEqual((member.uid, member.gid), (0, 0), member.name)
            self.assertIn(member.mode, (0o755, 0o644) if not member.issym() else (0o777,), member.name)
        self.assertEqual([m.name for m in self.members], sorted(m.name for m in self.members))

    def test_the_deb_says_what_it_is(self):
        deb = self.deb()
        fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", deb).splitlines() if re.match(r"[\w-]+: ", line))
        self.assertEqual(fields["Version"], f"{FACTS['version']}+torch{FACTS['torch_minor']}")
        for package in ("libc6", "libstdc++6", "libgcc-s1"):
            self.assertIn(package, fields["Depends"])
        self.assertNotIn("torch", fields["Depends"])
        self.assertRegex(run("dpkg-deb", "-c", deb).splitlines()[0], r"^drwxr-xr-x root/root ")
        self.assertIn("ldconfig", run("dpkg-deb", "-I", deb, "postinst"))

    def test_the_program_runs(self):
        for kind, root in self.roots.items():
            with self.subTest(kind):
                said = run(root / "bin/overdrive", "--version", LD_LIBRARY_PATH=f"{TORCH}/lib")
                self.assertRegex(said, rf"^overdrive {FACTS['version']}, built for LibTorch {FACTS['torch_minor']}\.")

    def test_an_outside_program_finds_it(self):
        for kind, root in self.roots.items():
            with self.subTest(kind):
                build = WORK / "outside" / kind
                run("cmake", "-S", ROOT / "test/package/outside", "-B", build, "-G", FACTS["generator"], f"-DCMAKE_PREFIX_PATH={root}",
                    f"-DCMAKE_CXX_COMPILER={FACTS['compiler']}", f"-DTorch_DIR={FACTS['torch_dir']}",
                    f"-DQUICKSTART={ROOT}/examples/quickstart.cpp")
                if kind != ".tar.gz":  # the files are the same, and LibTorch's headers take ten seconds
                    continue
                run("cmake", "--build", build, "--target", "smallest")
                run(build / "smallest")
                needed = run(FACTS["readelf"], "-d", build / "smallest")
                self.assertIn("[liboverdrive.so]", needed)

    def test_the_man_page_has_every_command_and_option(self):
        page = (self.roots[".tar.gz"] / "share/man/man1/overdrive.1").read_text().replace("\\-", "-")
        for command, text in make_man.commands(str(BUILD / "bin/overdrive")).items():
            if command:
                self.assertIn(f".SS overdrive {' '.join(command)}\n", page)
            for option in re.findall(r"^  (--?\w[\w-]*)", text, re.M):
                self.assertRegex(page, rf"(?m)^\.B {re.escape(option)}\b", command)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")


class Spdx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.root,) = (WORK / "tar").iterdir()
        cls.document = json.loads((cls.root / "share/overdrive/overdrive.spdx.json").read_text())

    def test_the_fields_of_the_specification_are_there(self):
        document = self.document
        self.assertEqual((document["spdxVersion"], document["dataLicense"], document["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        self.assertRegex(document["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertTrue(document["creationInfo"]["creators"] and document["name"])
        self.assertRegex(document["documentNamespace"], r"^https://[^#]+$")
        for package in document["packages"]:
            self.assertLessEqual({"SPDXID", "name", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"}, set(package))

    def test_identifiers_are_unique_and_known(self):
        ids = [part["SPDXID"] for part in self.document["packages"] + self.document["files"]] + ["SPDXRef-DOCUMENT"]
        self.assertEqual(len(ids), len(set(ids)))
        for name in ids:
            self.assertRegex(name, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for relation in self.document["relationships"]:
            self.assertLessEqual({relation["spdxElementId"], relation["relatedSpdxElement"]}, set(ids))
        own = {licence for part in self.document["packages"] for licence in
               [part["licenseConcluded"], *part.get("licenseInfoFromFiles", [])] if licence.startswith("LicenseRef-")}
        self.assertEqual(own, {info["licenseId"] for info in self.document["hasExtractedLicensingInfos"]})

    def test_the_checksums_are_those_of_the_files(self):
        listed = {file["fileName"]: {c["algorithm"]: c["checksumValue"] for c in file["checksums"]} for file in self.document["files"]}
        found = {"./" + name: path for name, path in files_below(self.root).items()
                 if not path.is_symlink() and not name.endswith(".spdx.json")}
        self.assertEqual(set(listed), set(found))
        for name, path in found.items():
            content = path.read_bytes()
            self.assertEqual(listed[name], {"SHA1": hashlib.sha1(content).hexdigest(), "SHA256": hashlib.sha256(content).hexdigest()})
        code = hashlib.sha1("".join(sorted(sums["SHA1"] for sums in listed.values())).encode()).hexdigest()
        self.assertEqual(self.document["packages"][0]["packageVerificationCode"]["packageVerificationCodeValue"], code)

    def test_the_project_has_no_licence_that_its_owners_did_not_choose(self):
        package = self.document["packages"][0]
        self.assertEqual({package["licenseConcluded"], package["licenseDeclared"]}, {"NOASSERTION"})

    def test_the_parts_are_those_of_the_page(self):
        page = (ROOT / "docs/licences.md").read_text()
        for part in self.document["packages"][1:]:
            self.assertIn(f"| {part['name']} |", page)
            self.assertIn(part["licenseConcluded"], page)


if __name__ == "__main__":
    unittest.main()
