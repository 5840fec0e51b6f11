#!/usr/bin/env python3
"""Puts what a release consists of into one folder.

    tools/make_release.py --check VERSION...     says what speaks against a release, with status 1
    tools/make_release.py FOLDER BUILD           FOLDER gets the wheel of BUILD/wheel, the packages of BUILD/package,
                                                 an SPDX list for the wheel and one for the packages, and SHA256SUMS

A release is made of a commit, so the tree has no changes. docs/versions.md says of every VERSION that the library builds
with it, at a commit after which the library did not change.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import make_spdx
import versions_page


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=versions_page.ROOT, capture_output=True, text=True, check=True).stdout


def against(versions):
    """One sentence for each thing that speaks against a release."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        yield f"{len(changed)} files are changed or new, and not committed: {changed[0][3:]}"
    rows = versions_page.rows()
    for version in versions:
        said, commit = rows.get(version, {}).get("library", ("nothing", ""))
        if not said.startswith("yes"):
            yield f"docs/versions.md says of LibTorch {version}: {said}. Run make check-headers and commit the page."
        elif versions_page.is_older(commit):
            yield (f"docs/versions.md is older than the library: LibTorch {version} was tried at {commit or 'no commit'}. "
                   "Run make check-headers and commit the page.")


def spdx_of_wheel(wheel, build):
    """The list for a wheel, as JSON."""
    facts = json.loads((build / "spdx_facts.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        libraries = (path.parent.name for path in Path(place).rglob("liboverdrive.so"))
        minors = sorted((name[len("torch"):] for name in libraries), key=lambda minor: int(minor.split(".")[1]))
        facts["torch"] = ", ".join(minors)
        make_spdx.main(Path(place), facts)
        return (Path(place) / make_spdx.PLACE).read_bytes()


def spdx_of_package(package):
    with tarfile.open(package) as archive:
        (member,) = (m for m in archive.getmembers() if m.name.endswith(make_spdx.PLACE))
        return archive.extractfile(member).read()


def gather(folder, build):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = [*(build / "wheel").glob("*.whl"), *(build / "package").glob("*.deb"), *(build / "package").glob("*.tar.gz")]
    for path in made:
        shutil.copy(path, folder)
        if path.suffix == ".whl":
            (folder / f"{path.name}.spdx.json").write_bytes(spdx_of_wheel(path, build))
        elif path.suffix == ".gz":
            (folder / f"{path.name}.spdx.json").write_bytes(spdx_of_package(path))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(sums))
    for path in sorted(folder.iterdir()):
        print(f"make_release: {path} ({path.stat().st_size / 1e6:.1f} MB)")


def main(arguments):
    if arguments[:1] == ["--check"]:
        reasons = list(against(arguments[1:]))
        for reason in reasons:
            print(f"make_release: {reason}", file=sys.stderr)
        return 1 if reasons else 0
    # The lists have the time of the commit, as the packages do (cmake/package/settings.cmake).
    os.environ.setdefault("SOURCE_DATE_EPOCH", git("log", "-1", "--format=%ct").strip())
    gather(Path(arguments[0]).resolve(), Path(arguments[1]).resolve())
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
