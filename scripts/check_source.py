#!/usr/bin/env python3
"""Source rules that no compiler checks: which headers a folder of src/ may reach (source_layers.py),
how long files and functions are (source_sizes.py), calls that the library must not make, opening
comments, public functions that no page names.

Prints one line for each offence and exits 1 if there was one. --list-c prints the C files of the repository instead.
"""
import pathlib
import re
import sys

import public_header
import source_layers
import source_sizes

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "cli", "examples", "bench", "tests", "fuzz")

FORBIDDEN = re.compile(
    r"\b(abort|exit|_exit|_Exit|quick_exit|assert|printf|vprintf|puts|putchar|perror)\s*\("
    r"|\bv?fprintf\s*\(\s*(stderr|stdout)\b|\bfput[sc]\s*\([^;]*\b(stderr|stdout)\b|\babort\b\s*;|__builtin_(trap|abort)")


def c_files():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".c", ".h", ".inc", ".cpp"):
                yield path


def without_comments(text, keep_strings):
    """Blanks comments (and the inside of string literals) but keeps every line break."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] + token[0]
        return re.sub(r"[^\n]", " ", token)

    return pattern.sub(blank, text)


def check_layers(errors):
    errors += ["src/" + offence for offence in source_layers.check(ROOT / "src")]


def check_sizes(errors):
    errors += source_sizes.check(ROOT)


def check_calls(path, errors):
    relative = path.relative_to(ROOT).as_posix()
    if not relative.startswith("src/"):
        return
    for number, line in enumerate(without_comments(path.read_text(), False).split("\n"), 1):
        match = FORBIDDEN.search(line)
        if match:
            errors.append(f"{relative}:{number}: the library must not call {match.group(0).rstrip('( ')}")


def check_opening(path, errors):
    relative = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    if not text.startswith(("/*", "//")):
        errors.append(f"{relative}:1: open the file with a comment: what it owns, what it must not know")


def check_documented(errors):
    """Every function of the public header is in docs/api.md or docs/ops.md."""
    header = without_comments(public_header.text(), True)
    functions = re.findall(r"TG_API[^;{(]*?\b(tg_\w+)\s*\(", header) + re.findall(r"#define (tg_\w+)\(", header)
    pages = " ".join((ROOT / "docs" / page).read_text() for page in ("api.md", "ops.md"))
    known = set(re.findall(r"\btg_\w+", pages))
    for name in sorted({name.removesuffix("_at") for name in functions if not name.endswith("_")}):
        if name not in known:
            errors.append(f"include/tensorgrad: {name} is neither in docs/api.md nor in docs/ops.md")


def main():
    files = list(c_files())
    if "--list-c" in sys.argv:
        print("\n".join(str(path.relative_to(ROOT)) for path in files if path.suffix in (".c", ".h")))
        return 0
    checks = {"calls": check_calls, "opening": check_opening}
    whole = {"layers": check_layers, "sizes": check_sizes, "documented": check_documented}
    chosen = [name for name in sys.argv[1:] if name in checks or name in whole] or [*checks, *whole]
    errors = []
    for name in chosen:
        if name in whole:
            whole[name](errors)
    for path in files:
        for name in chosen:
            if name in checks:
                checks[name](path, errors)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
