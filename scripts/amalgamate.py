#!/usr/bin/env python3
"""Writes FOLDER/tensorgrad.c and FOLDER/tensorgrad.h: the whole library in one translation unit.

Headers are inlined once. Files without an include guard (.inc, .def, the pair that opens and closes
an instruction set) are inlined each time they are included. Feature-test macros of any file move to
the top. The parts of the public header are joined to one file.
"""
import pathlib
import re
import sys

import public_header

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = ("base", "ir", "trace", "grad", "optim", "pass", "kernel", "plan", "tile", "emit", "io", "run")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
FEATURE = re.compile(r"^\s*#\s*define\s+(_[A-Z0-9_]*SOURCE)\b\s*(.*)$")
OPEN = re.compile(r"^\s*#\s*if")
CLOSE = re.compile(r"^\s*#\s*endif")


class Amalgamation:
    def __init__(self):
        self.lines = []
        self.done = set()
        self.features = {}

    def find(self, name, includer):
        for folder in (ROOT / "src", ROOT / "include", includer.parent):
            if (folder / name).is_file():
                return (folder / name).resolve()
        raise SystemExit(f'{includer}: cannot find "{name}"')

    def add(self, path, depth=0):
        """depth: how many #if are open around the include. Inside an #if the compiler may skip a
        header, so it does not count as inlined; its own guard makes a second copy harmless."""
        text = path.read_text()
        first = re.search(r"^\s*#.*\n.*$", text, re.M)  # a guard is the file's first directive
        guard = first and re.match(r"\s*#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b", first.group(0))
        if guard:
            if path in self.done:
                return
            if depth == 0:
                self.done.add(path)
        level = -1 if guard else 0  # the guard itself is always taken the first time
        self.lines.append(f"/* ---- {path.relative_to(ROOT).as_posix()} */")
        for line in text.split("\n"):
            if OPEN.match(line):
                level += 1
            elif CLOSE.match(line):
                level -= 1
            include = INCLUDE.match(line)
            feature = FEATURE.match(line)
            if include and include.group(1).startswith("tensorgrad/"):
                if "public" not in self.done:
                    self.done.add("public")
                    self.lines.append('#include "tensorgrad.h"')
            elif include:
                self.add(self.find(include.group(1), path), depth + max(level, 0))
            elif feature:
                name, value = feature.group(1), feature.group(2).strip()
                if self.features.setdefault(name, value) != value:
                    raise SystemExit(f"{path}: {name} has another value elsewhere")
            else:
                self.lines.append(line)

    def text(self, version):
        head = [f"/* tensorgrad {version} in one file. Made by scripts/amalgamate.py: edit the files under src/ instead.",
                " * Compile with: cc -std=c11 -O2 -c tensorgrad.c   Link with: -lm -pthread (and -ldl before glibc 2.34)",
                " * MIT licence, see the end of tensorgrad.h. */"]
        for name, value in sorted(self.features.items()):
            head += [f"#ifndef {name}", f"#  define {name} {value}".rstrip(), "#endif"]
        return "\n".join(head + self.lines) + "\n"


def sources():
    files = sorted((ROOT / "src").rglob("*.c"))
    rank = {folder: i for i, folder in enumerate(ORDER)}
    return sorted(files, key=lambda f: (rank.get(f.relative_to(ROOT / "src").parts[0], 99), f.as_posix()))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")
    folder.mkdir(parents=True, exist_ok=True)
    header = public_header.text()
    version = re.search(r'define TG_VERSION "([^"]+)"', header).group(1)
    licence = (ROOT / "LICENSE").read_text()
    out = Amalgamation()
    for path in sources():
        out.add(path)
    (folder / "tensorgrad.c").write_text(out.text(version))
    (folder / "tensorgrad.h").write_text(header + "\n/*\n" + licence + "*/\n")
    print(f"{folder}/tensorgrad.c: {len(out.lines)} lines")


if __name__ == "__main__":
    main()
