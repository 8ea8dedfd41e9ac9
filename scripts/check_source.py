#!/usr/bin/env python3
"""Source rules no compiler checks: include direction between the folders of src/, and calls the library must not make.

Prints one line per offence and exits 1 if there was one. --list-c prints the C files of the repository instead.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "cli", "examples", "bench", "tests", "fuzz")

# folder -> folders it may include from; a folder may always include from itself and from include/
ALLOWED = {
    "base": (),
    "ir": ("base",),
    "grad": ("base", "ir"),
    "trace": ("base", "ir", "grad"),
    "optim": ("base", "ir", "trace", "grad"),
    "pass": ("base", "ir"),
    "kernel": ("base", "ir"),
    "plan": ("base", "ir", "kernel"),
    "emit": ("base", "ir", "kernel", "plan"),
    "io": ("base", "ir"),
    "run": ("base", "ir", "kernel", "plan"),
}
# the model session binds the layers together; the devices under src/run/ do not
FREE = re.compile(r"src/run/[a-z_]+\.[ch]$")

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


def check_includes(path, errors):
    relative = path.relative_to(ROOT).as_posix()
    parts = relative.split("/")
    if parts[0] != "src" or FREE.search(relative):
        return
    folder = parts[1]
    for number, line in enumerate(without_comments(path.read_text(), True).split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if target == "tensorgrad" or target == folder:
            continue
        if "/" not in match.group(1):
            errors.append(f'{relative}:{number}: include "{match.group(1)}" by its path from src/')
        elif folder not in ALLOWED:
            errors.append(f"{relative}:{number}: folder src/{folder} is not in the table of scripts/check_source.py")
        elif target not in ALLOWED[folder]:
            errors.append(f"{relative}:{number}: src/{folder} must not include from src/{target}")


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


def main():
    files = list(c_files())
    if "--list-c" in sys.argv:
        print("\n".join(str(path.relative_to(ROOT)) for path in files if path.suffix in (".c", ".h")))
        return 0
    checks = {"includes": check_includes, "calls": check_calls, "opening": check_opening}
    chosen = [name for name in sys.argv[1:] if name in checks] or list(checks)
    errors = []
    for path in files:
        for name in chosen:
            checks[name](path, errors)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
