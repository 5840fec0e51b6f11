#!/usr/bin/env python3
"""Writes share/overdrive/overdrive.spdx.json into a tree of installed files: an SPDX 2.3 document.

    tools/make_spdx.py ROOT FACTS.json

The document lists the files with their checksums, the parts of other projects that are in them or that they need,
and the licences of these parts. FACTS.json has the versions that the build found (cmake/package/spdx_facts.json.in).
docs/licences.md has the same parts in prose. The time is that of SOURCE_DATE_EPOCH.
"""
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

PLACE = "share/overdrive/overdrive.spdx.json"
NONE = "NOASSERTION"
# Identifier, name, the fact with the version, licence, where it comes from, relation to the package.
PARTS = [
    ("LibTorch", "torch", "BSD-3-Clause", "https://pytorch.org", "DEPENDS_ON"),
    ("libstdc++", "compiler", "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org", "DEPENDS_ON"),
    ("glibc", None, "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/", "DEPENDS_ON"),
    ("CLI11", "cli11", "BSD-3-Clause", "https://github.com/CLIUtils/CLI11", "CONTAINS"),
    ("nlohmann-json", "nlohmann_json", "MIT", "https://github.com/nlohmann/json", "CONTAINS"),
    ("CUDA-runtime", "cudart", "LicenseRef-NVIDIA-CUDA-EULA", "https://developer.nvidia.com/cuda-toolkit", "CONTAINS"),
]
# Parts that a build may lack.
OPTIONAL = {"CLI11", "nlohmann-json", "CUDA-runtime"}
# The program is the only file with these two; without it they are not in the package.
OF_THE_PROGRAM = {"CLI11", "nlohmann-json"}
DATA_LICENCES = {
    "alice.txt": "LicenseRef-public-domain",
    "digits-images.idx3-ubyte": "CC-BY-4.0",
    "digits-labels.idx1-ubyte": "CC-BY-4.0",
}
EXTRACTED = {
    "LicenseRef-public-domain": "The text is in the public domain: its author, Lewis Carroll, died in 1898.",
    "LicenseRef-NVIDIA-CUDA-EULA": "https://docs.nvidia.com/cuda/eula/: the static CUDA runtime may be distributed as part of "
                                   "an application.",
}


def spdx_id(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def files_of(root):
    """One entry a file, sorted by name. Links are left out: they lead to files of this list."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink() or not path.is_file() or name == PLACE:
            continue
        content = path.read_bytes()
        licence = DATA_LICENCES.get(path.name, NONE)
        yield {
            "fileName": "./" + name,
            # Two names may differ in a character that an identifier cannot have.
            "SPDXID": spdx_id(f"File-{hashlib.sha1(name.encode()).hexdigest()[:8]}-{name}"),
            "checksums": [{"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, content).hexdigest()}
                          for kind in ("sha1", "sha256")],
            "licenseConcluded": licence,
            "licenseInfoInFiles": [licence],
            "copyrightText": NONE,
        }


def parts_of(facts, has_program):
    for name, fact, licence, place, relation in PARTS:
        version = facts.get(fact, "") if fact else ""
        if name in OPTIONAL and not version or name in OF_THE_PROGRAM and not has_program:
            continue
        part = {"SPDXID": spdx_id(f"Part-{name}"), "name": name, "downloadLocation": NONE, "homepage": place,
                "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": NONE}
        if version:
            part["versionInfo"] = version
        yield relation, part


def document(root, facts, seconds):
    files = list(files_of(root))
    parts = list(parts_of(facts, (root / "bin/overdrive").exists()))
    # As the specification defines it: over the sorted checksums of the files.
    digests = "".join(sorted(file["checksums"][0]["checksumValue"] for file in files))
    verification = hashlib.sha1(digests.encode()).hexdigest()
    package = {
        "SPDXID": "SPDXRef-Package", "name": "overdrive", "versionInfo": facts["version"], "downloadLocation": NONE,
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification,
                                    "packageVerificationCodeExcludedFiles": ["./" + PLACE]},
        # The owners of the project have not chosen a licence.
        "licenseConcluded": NONE, "licenseDeclared": NONE, "copyrightText": NONE,
        "licenseInfoFromFiles": sorted({licence for file in files for licence in file["licenseInfoInFiles"]}),
    }
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package")]
    relations += [("SPDXRef-Package", "CONTAINS", file["SPDXID"]) for file in files]
    relations += [("SPDXRef-Package", relation, part["SPDXID"]) for relation, part in parts]
    used = {part["licenseConcluded"] for _, part in parts} | set(package["licenseInfoFromFiles"])
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"overdrive-{facts['version']}",
        "documentNamespace": f"https://overdrive.invalid/spdx/overdrive-{facts['version']}-{verification}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
                         "creators": [f"Tool: overdrive-make_spdx-{facts['version']}"]},
        "hasExtractedLicensingInfos": [{"licenseId": name, "extractedText": text}
                                       for name, text in EXTRACTED.items() if name in used],
        "packages": [package, *(part for _, part in parts)],
        "files": files,
        "relationships": [dict(zip(("spdxElementId", "relationshipType", "relatedSpdxElement"), relation))
                          for relation in relations],
    }


def main(root, facts):
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    place = root / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(document(root, facts, seconds), indent=1) + "\n")
    place.chmod(0o644)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
