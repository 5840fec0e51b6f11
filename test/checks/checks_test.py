"""Do the checks in tools/ find what they look for? Each case is a small source tree with one fault."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_docs
import check_layers
import check_notes

GOOD_TREE = {
    "engine/CMakeLists.txt": "overdrive_public_headers(base/export.h engine.h)",
    "engine/base/export.h": "#pragma once\n",
    "engine/engine.h": '#include "engine/base/export.h"\n#include <vector>\n',
    "engine/run/run.h": '#include "engine/base/export.h"\n',
    "engine/run/run.cpp": '#include "engine/run/run.h"\n// Note [Order]: ...\n',
    "engine/mutex.h": "// Note [Locks]\n// ~~~~~\n",
    "hooks/CMakeLists.txt": "overdrive_public_headers(../engine/mutex.h)",
    "hooks/hooks.h": '#include "engine/run/run.h"  // Note [Locks]\n',
    "checkpoint/early/segment.cpp": '#include "hooks/hooks.h"\n#include "engine/engine.h"\n// See Note [Order].\n',
}

GOOD_DOCUMENTS = {
    "README.md": "[the engine](engine/README.md) `OVERDRIVE_SPEED`\n",
    "engine/README.md": "`run.cpp`, `engine/run/run`, `engine/run/*.cpp`\n",
    "engine/run/run.cpp": 'read("OVERDRIVE_SPEED");\n',
    "docs/README.md": "Pages.\n",
    "docs/contracts.md": "| promise | test |\n|---|---|\n| A run ends. | `Run.Ends`, `cli_run` |\n",
    "docs/differences.md": "| where | why | test |\n|---|---|---|\n| an end | speed | `Run.EndsEarlier` |\n",
    "docs/host_contract.md": "| a field | `run.cpp` | `Run.*`, `engine_run_test` |\n",
    "docs/guide/running.md": "`Options.name` is a name.\n",
    "test/README.md": "Tests.\n",
    "test/CMakeLists.txt": "foreach(part run)\n  overdrive_add_cli_test(${part} CALL run)\nendforeach()\n"
                           "overdrive_add_test(engine_run_test SOURCES run_test.cpp)\n",
}
GOOD_TESTS = {"Run.Ends", "Run.EndsEarlier"}


def write_tree(folder, files):
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def outcome(check, changes):
    """The check's exit status and text on the good tree with some files replaced."""
    with tempfile.TemporaryDirectory() as folder:
        write_tree(folder, {**GOOD_TREE, **changes})
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


class CheckDocs(unittest.TestCase):
    def errors(self, changes, tests=GOOD_TESTS):
        with tempfile.TemporaryDirectory() as folder:
            write_tree(folder, {**GOOD_DOCUMENTS, **changes})
            root = Path(folder)
            return "\n".join(check_docs.errors_in(root, tests | check_docs.declared_tests(root)))

    def refuses(self, name, text, because):
        self.assertIn(because, self.errors({name: text}))

    def test_accepts_the_good_documents(self):
        self.assertEqual(self.errors({}), "")

    def test_refuses_a_promise_whose_test_is_gone(self):
        self.assertEqual(self.errors({}, GOOD_TESTS - {"Run.Ends"}), "docs/contracts.md:3: there is no test Run.Ends")

    def test_refuses_a_difference_whose_test_is_gone(self):
        self.assertEqual(self.errors({}, GOOD_TESTS - {"Run.EndsEarlier"}),
                         "docs/differences.md:3: there is no test Run.EndsEarlier")

    def test_refuses_a_test_that_cmake_does_not_declare(self):
        self.refuses("test/CMakeLists.txt", "overdrive_add_test(engine_run_test)\n", "there is no test cli_run")

    def test_knows_the_cases_that_a_filter_lets_through(self):
        listing = "Running main()\nRun/Stock.  # TypeParam = int\n  Ends\nMany/Walk.\n  Goes/0  # GetParam() = 1\n"
        cases = dict(check_docs.gtest_cases(listing))
        self.assertEqual(cases, {"Run/Stock.Ends": ["Run.Ends", "Stock.Ends"],
                                 "Many/Walk.Goes/0": ["Many.Goes", "Walk.Goes"]})
        chosen = [case for case in cases if check_docs.passes(case, "Run.*:Run/*:*/Walk.*-*/Stock.*")]
        self.assertEqual(chosen, ["Many/Walk.Goes/0"])

    def test_refuses_a_row_without_a_test(self):
        self.refuses("docs/contracts.md", "| promise | test |\n|---|---|\n| A run ends. | |\n",
                     "no test is named for A run ends.")

    def test_refuses_a_page_without_rows(self):
        self.refuses("docs/differences.md", "None.\n", "docs/differences.md has no row")

    def test_refuses_an_unknown_test_in_the_host_contract(self):
        self.refuses("docs/host_contract.md", "`Walk.*`\n", "docs/host_contract.md:1: there is no test Walk.*")

    def test_refuses_a_test_in_a_guide(self):
        self.refuses("docs/guide/running.md", "It ends (`Run.Ends`).\n", "the test Run.Ends belongs into docs/contracts.md")

    def test_refuses_a_dead_link(self):
        self.refuses("docs/README.md", "[a page](gone.md)\n", "docs/README.md:1: the link to gone.md leads nowhere")

    def test_refuses_a_path_or_a_source_that_does_not_exist(self):
        self.refuses("docs/README.md", "`engine/run/walk`\n", "there is no file engine/run/walk")
        self.refuses("docs/README.md", "`walk.h`\n", "there is no file walk.h")

    def test_refuses_a_variable_that_the_readme_leaves_out(self):
        self.refuses("engine/run/run.cpp", 'read("OVERDRIVE_SLOWNESS");\n', "README.md does not")

    def test_refuses_a_folder_without_a_readme(self):
        self.refuses("tools/check.py", "pass\n", "tools/ has no README.md")


if __name__ == "__main__":
    unittest.main()
