"""Do the checks in tools/ find what they look for? Each case is a small source tree with one fault."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_layers
import check_notes

GOOD_TREE = {
    "engine/CMakeLists.txt": "target_sources(o PUBLIC FILE_SET HEADERS BASE_DIRS x FILES base/export.h engine.h)",
    "engine/base/export.h": "#pragma once\n",
    "engine/engine.h": '#include "engine/base/export.h"\n#include <vector>\n',
    "engine/run/run.h": '#include "engine/base/export.h"\n',
    "engine/run/run.cpp": '#include "engine/run/run.h"\n// Note [Order]: ...\n',
    "engine/mutex.h": "// Note [Locks]\n// ~~~~~\n",
    "hooks/CMakeLists.txt": 'target_sources(o PUBLIC FILE_SET HEADERS FILES "${PROJECT_SOURCE_DIR}/engine/mutex.h")',
    "hooks/hooks.h": '#include "engine/run/run.h"  // Note [Locks]\n',
    "checkpoint/early/segment.cpp": '#include "hooks/hooks.h"\n#include "engine/engine.h"\n// See Note [Order].\n',
}


def outcome(check, changes):
    """The check's exit status and text on the good tree with some files replaced."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD_TREE, **changes}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = check.main(Path(folder))
        return status, printed.getvalue()


class CheckLayers(unittest.TestCase):
    def refuses(self, name, text, because):
        status, printed = outcome(check_layers, {name: text})
        self.assertEqual(status, 1, printed)
        self.assertIn(because, printed)

    def test_accepts_the_good_tree(self):
        status, printed = outcome(check_layers, {})
        self.assertEqual(status, 0, printed)

    def test_refuses_an_include_upward(self):
        self.refuses("engine/run/run.cpp", '#include "hooks/hooks.h"\n', "engine includes upward: hooks/hooks.h")
        self.refuses("engine/base/export.h", '#include <engine/run/run.h>\n', "engine/base includes upward")

    def test_refuses_what_is_not_a_door_in_checkpoint(self):
        self.refuses("checkpoint/early/segment.cpp", '#include "engine/run/run.h"\n', "which is not a door")

    def test_accepts_a_public_header_that_another_folder_lists(self):
        status, printed = outcome(check_layers, {"engine/engine.h": '#include "engine/mutex.h"\n'})
        self.assertEqual(status, 0, printed)

    def test_refuses_a_private_header_in_a_public_one(self):
        self.refuses("engine/engine.h", '#include "engine/run/run.h"\n', "which is private")

    def test_refuses_a_test_header_in_the_library(self):
        self.refuses("engine/run/run.cpp", '#include "test/support/pch.h"\n', "the library includes test/support/pch.h")

    def test_refuses_a_path_that_is_not_from_the_root(self):
        self.refuses("engine/run/run.cpp", '#include "run.h"\n', "not written from the root")


class CheckNotes(unittest.TestCase):
    def test_accepts_the_good_tree(self):
        status, printed = outcome(check_notes, {})
        self.assertEqual(status, 0, printed)

    def test_refuses_a_citation_without_a_definition(self):
        status, printed = outcome(check_notes, {"engine/run/run.cpp": "// nothing\n"})
        self.assertEqual(status, 1)
        self.assertIn("Note [Order] is cited, but defined nowhere", printed)

    def test_refuses_two_definitions(self):
        status, printed = outcome(check_notes, {"engine/run/run.h": "// Note [Order]: another\n"})
        self.assertEqual(status, 1)
        self.assertIn("defined 2 times", printed)


if __name__ == "__main__":
    unittest.main()
