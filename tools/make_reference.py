#!/usr/bin/env python3
"""Makes the API reference from the public headers, by doxygen.

    tools/make_reference.py BUILD FOLDER

BUILD is a configured build folder: its include/overdrive has the headers as users include them. FOLDER gets html/. A
warning of doxygen is an error, and so is a public function or class without a comment.

The headers keep their plain comments. `make_reference.py --filter HEADER` shows doxygen a header with marks instead:
the opening comment becomes that of the file, others belong to the declaration below or, at the end of a line, to the one
before. Lines keep their numbers. A comment stands for all declarations down to the next blank line or comment.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = """
PROJECT_NAME           = Overdrive
PROJECT_NUMBER         = {version}
PROJECT_BRIEF          = "A replacement autograd engine for LibTorch programs"
INPUT                  = {headers} {mainpage} {namespaces}
USE_MDFILE_AS_MAINPAGE = {mainpage}
OUTPUT_DIRECTORY       = {folder}
RECURSIVE              = YES
EXCLUDE_PATTERNS       = */overdrive/detail/*
EXCLUDE_SYMBOLS        = overdrive::*::detail overdrive::*::detail::* detail
FILTER_PATTERNS        = *.h="{python} -B {tool} --filter"
STRIP_FROM_PATH        = {include}
STRIP_FROM_INC_PATH    = {include}
FULL_PATH_NAMES        = YES
MULTILINE_CPP_IS_BRIEF = NO
JAVADOC_AUTOBRIEF      = YES
QUIET                  = YES
WARN_IF_UNDOCUMENTED   = YES
WARN_IF_INCOMPLETE_DOC = NO
WARN_NO_PARAMDOC       = NO
MACRO_EXPANSION        = YES
EXPAND_ONLY_PREDEF     = YES
PREDEFINED             = OVERDRIVE_API= __cplusplus=202002L OVERDRIVE_GUARDED_BY(x)= OVERDRIVE_EXCLUDES(x)= OVERDRIVE_REQUIRES(x)=
ENABLE_PREPROCESSING   = YES
SEARCH_INCLUDES        = NO
GENERATE_LATEX         = NO
HTML_TIMESTAMP         = NO
BUILTIN_STL_SUPPORT    = YES
AUTOLINK_SUPPORT       = YES
SORT_MEMBER_DOCS       = NO
SHOW_USED_FILES        = NO
HAVE_DOT               = NO
CLASS_GRAPH            = NO
TYPEDEF_HIDES_STRUCT   = YES
WARN_FORMAT            = "$file:$line: $text"
WARN_LOGFILE           = {log}
"""
MAINPAGE = """# Overdrive {#mainpage}

Include an entry: `overdrive/engine/engine.h`, `overdrive/hooks/hooks.h`, `overdrive/forward_ad/forward_ad.h`,
`overdrive/checkpoint/checkpoint.h`, `overdrive/inspect/inspect.h`, `overdrive/replay/capture.h`; in C and other languages
`overdrive/engine/c_api.h`. The guides tell what to type first.

Where a comment says nothing else, a function may be called on any thread, throws `c10::Error` for a wrong argument and nothing
else, and costs nothing to speak of.
"""
NAMESPACES = """
/** \\namespace overdrive
 * The entries, and the names that programs use most: those of the namespaces below that need no prefix. */
/** \\namespace overdrive::engine
 * The engine: switching, options, counters. */
/** \\namespace overdrive::hooks
 * Hooks for saved tensors: scopes, packers, a hook of your own. */
/** \\namespace overdrive::forward_ad
 * Forward mode: levels, dual numbers, derivatives of functions. */
/** \\namespace overdrive::checkpoint
 * Regions, chains and pipelines that compute again instead of keeping. */
/** \\namespace overdrive::inspect
 * The inside of a backward: traces, graph, order, costs, memory. */
/** \\namespace overdrive::replay
 * Captured steps: recorded once, replayed from then on. */
"""
# What doxygen asks a comment for, though the class or the type has one that stands for these as well.
EXCUSED = re.compile(r"Member (~?(\w+)\(.* of \w+ [\w:]*\b\2 |operator)|\((variable|enumvalue|typedef|enumeration|friend|macro definition)\)")


def escaped(text):
    """Plain text for doxygen, but for what is in `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\@<>#%])", r"\\\1", part) for part in parts)


def shown(text):
    """The text of a comment's line: a line that is set in is an example."""
    return "    " + text if text.startswith("  ") else escaped(text)


class Marks:
    """The lines of a header, one after the other, with doxygen's marks."""

    def __init__(self):
        self.scopes = []  # of each open brace: "scope", "enum" or "body"
        self.statement = ""
        self.comment = []  # above the declarations that follow without a blank line
        self.in_c_comment = False

    def line(self, line):
        if self.in_c_comment:
            return self.c_comment(line)
        if self.scopes and self.scopes[-1] == "body":
            self.follow(line)
            return line
        if match := re.match(r"(\s*)/\*(?!\*)", line):
            self.comment = []
            return self.c_comment(f"{match[1]}/**{line[match.end():]}")
        if match := re.match(r"(\s*)// ?(.*)", line):
            if not self.is_comment_above:
                self.comment = []
            self.comment.append(match[2])
            self.is_comment_above = True
            return f"{match[1]}/// {shown(match[2])}".rstrip()
        return self.code(line)

    def c_comment(self, line):
        self.in_c_comment = "*/" not in line
        text = re.sub(r"^\s*/?\**|\*/.*", "", line).strip()
        self.comment.append(text)
        self.is_comment_above = True
        return re.sub(r"(?<!/)(?<!\*)([\\@<>#%])", r"\\\1", line)

    is_comment_above = False

    def code(self, line):
        was_above, self.is_comment_above = self.is_comment_above, False
        if not line.strip():
            self.comment = []
            return line
        begins = not self.statement
        prefix = ""
        is_declaration = not re.match(r"\s*(#|}|public:|private:|protected:|using |friend )", line)
        has_own = "  // " in line
        if begins and is_declaration and self.comment and not was_above and not has_own and self.innermost != "enum":
            prefix = "/** " + " ".join(escaped(text) for text in self.comment) + " */ "
        if match := re.match(r"\s*[^\s}#].*?(?=  // (.*))", line):
            # Behind the first line of a declaration that goes on; behind the whole of one.
            if begins and not re.search(r"[;,]$|\w$|}$", match[0]):
                prefix, line = f"/** {escaped(match[1])} */ ", match[0]
                self.comment = [match[1]]
            else:
                line = f"{match[0]}  ///< {escaped(match[1])}"
        self.follow(line)
        return prefix + line

    @property
    def innermost(self):
        return self.scopes[-1] if self.scopes else "scope"

    def follow(self, line):
        """Knows after each line which braces are open, and whether a declaration is at its end."""
        code = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
        if line.startswith("#"):
            return
        for character in code:
            if character == "{":
                kind = "body"
                # Arguments of a template may have brackets of their own, as in class Step<Result(Inputs...)>.
                outside = re.sub(r"<[^<>]*>", "", self.statement)
                if re.search(r"\b(namespace|class|struct|union)\b[^()=]*$|extern\s*$", outside):
                    kind = "scope"
                elif re.search(r"\benum\b", self.statement):
                    kind = "enum"
                self.scopes.append(kind)
                self.statement = ""
                if kind != "body":
                    self.comment = []
            elif character == "}":
                self.scopes and self.scopes.pop()
                self.statement = ""
            elif character == ";" or (character == "," and self.innermost == "enum"):
                self.statement = ""
            else:
                self.statement += character
        self.statement = re.sub(r"^\s*((public|private|protected):)?\s*", "", self.statement)


def filtered(text):
    lines = text.splitlines()
    count = 0  # of the lines of the opening comment
    while count < len(lines) and lines[count].startswith("//"):
        count += 1
    head = ["/// \\file"] + ["/// " + shown(line[3:]) for line in lines[:count]] if count else []
    if count and lines[count] == "#pragma once":
        count += 1  # the line that \file takes
    if not count and lines[0].startswith("/*"):
        lines[0] = lines[0].replace("/*", "/** \\file\n", 1)
        while "*/" not in lines[count]:
            head.append(lines[count])
            count += 1
        head.append(lines[count])
        count += 1
    marks = Marks()
    return "\n".join(head + [marks.line(line) for line in lines[count:]]) + "\n"


def without_excused(warnings):
    return [line for line in warnings if not ("is not documented" in line and EXCUSED.search(line))]


def main(build, folder):
    if shutil.which("doxygen") is None:
        print("make_reference: doxygen is not installed, so there is no reference (tools/setup.sh docs installs it)", file=sys.stderr)
        return 77  # CTest takes this for a skipped test
    folder.mkdir(parents=True, exist_ok=True)
    version = re.search(r"project\(Overdrive VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    include = build / "include"
    with tempfile.TemporaryDirectory() as name:
        log, settings, mainpage, namespaces = (Path(name) / part for part in ("log", "Doxyfile", "mainpage.md", "namespaces.dox"))
        mainpage.write_text(MAINPAGE)
        namespaces.write_text(NAMESPACES)
        settings.write_text(SETTINGS.format(version=version, headers=include / "overdrive", include=include, folder=folder,
                                            python=sys.executable, tool=Path(__file__).resolve(), log=log, mainpage=mainpage, namespaces=namespaces))
        shutil.rmtree(folder / "html", ignore_errors=True)
        subprocess.run(["doxygen", str(settings)], check=True)
        warnings = without_excused(dict.fromkeys(log.read_text().splitlines()))
    if warnings:
        print("\n".join(warnings), f"\nmake_reference: {len(warnings)} warnings", file=sys.stderr)
        return 1
    print(f"make_reference: {folder / 'html/index.html'}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--filter":
        sys.stdout.write(filtered(Path(sys.argv[2]).read_text()))
        sys.exit(0)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
