#!/usr/bin/env python3
"""Writes docs/ops.md: the primitives of src/ir/ops.def, and the public operations with the comments
of the header.

usage: make_ops_page.py [--check] FILE        --check compares instead of writing
"""
import pathlib
import re
import sys

import public_header

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTIONS = ["elementwise", "reductions", "views and joins", "contractions, indexing", "softmax family", "random numbers",
            "convolutions, pooling", "captures",
            "layers and losses", "gradients"]


def section(text, title):
    match = re.search(r"/\* -+ " + re.escape(title) + r" \*/\n(.*?)(?=/\* -{10,} )", text, re.S)
    if not match:
        raise SystemExit(f"the public header has no section '{title}'")
    return match.group(1)


def macro_arguments(text):
    """name -> its macro's arguments, as a user writes them"""
    prototypes = {"TG_UNARY_": "x", "TG_BINARY_": "a, b", "TG_REDUCE_": "x, axes, options"}
    names = {f"tg_{name}": prototypes[kind] for kind, name in re.findall(r"^(TG_(?:UNARY|BINARY|REDUCE)_)\((\w+)\)", text, re.M)}
    for name, parameters in re.findall(r"^TG_API [\w ]+?\*?\b(tg_\w+)_at\(tg_site site, ([^;]*)\);", text, re.M):
        names[name] = ", ".join(re.search(r"(\w+|\.\.\.)$", each.strip()).group(1) for each in parameters.split(","))
    out = {}
    for name, arguments, body in re.findall(r"^#\s*define (tg_\w+)\(([^)]*)\) *(?:\\\n)? *(.*)", text, re.M):
        if arguments == "...":
            said = names.get(name, "x")
            arguments = re.sub(r"\w+$", "...", said) if "reserved_" in body else said
        out.setdefault(name, arguments)
    return out


def comment_of(lines, number):
    """The comment after a declaration on its line, else the one right above it."""
    beside = re.search(r"/\*\s*(.*?)\s*\*/\s*$", lines[number])
    if beside:
        return beside.group(1)
    opened = re.search(r"/\*\s*((?:(?!\*/).)*)$", lines[number])
    if opened:  # continues below
        end = number + 1
        while "*/" not in lines[end]:
            end += 1
        text = " ".join([opened.group(1)] + [line.strip(" *") for line in lines[number + 1:end + 1]])
        return re.sub(r"\s+", " ", text.replace("*/", "")).strip(" *")
    end = number - 1
    if end < 0 or not lines[end].rstrip().endswith("*/"):
        return ""
    begin = end
    while begin > 0 and "/*" not in lines[begin]:
        begin -= 1
    if not lines[begin].startswith("/*"):
        return ""
    text = " ".join(line.strip() for line in lines[begin:end + 1])
    return re.sub(r"\s+", " ", re.sub(r"^/\*\s*|\s*\*/$|(?<= )\* ", "", text)).strip()


def operations(text, arguments):
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = re.match(r"(?:TG_API [\w ]+?\*?\b(tg_\w+)_at\(|TG_(UNARY|BINARY|REDUCE)_\((\w+)\);)", line)
        if not match:
            continue
        name = match.group(1) or f"tg_{match.group(3)}"
        if name not in arguments:
            continue
        comment = comment_of(lines, number)
        if match.group(2) and not re.search(r"/\*", line):
            comment = ""
        yield f"{name}({arguments[name]})", comment


def escape(text):
    return text.replace("|", "\\|")


def page():
    header = public_header.text()
    arguments = macro_arguments(header)
    out = ["# Operations", "", "Made by `make docs` from the public header and `src/ir/ops.def`; do not edit.", "",
           "Binary operations take a tensor or a number on either side and broadcast as NumPy does. Axes may be negative.", ""]
    for title in SECTIONS:
        out += [f"## {title[0].upper()}{title[1:]}", "", "| call | what it is |", "|---|---|"]
        for call, comment in operations(section(header, title), arguments):
            out.append(f"| `{escape(call)}` | {escape(comment)} |")
        out.append("")
    out += ["## Primitives", "", "What the graph is made of; everything above is composed of these, so each needs one gradient rule, "
            "one oracle and one row in the tests.", "", "| primitive | inputs | class | what it is |", "|---|---|---|---|"]
    rows = re.findall(r'^TG_OP\(\w+, "(\w+)", (-?\d+), (\w+), (?:\w+, ){4}"([^"]*)",', (ROOT / "src/ir/ops.def").read_text(), re.M)
    for name, arity, class_, description in rows:
        out.append(f"| `{name}` | {'any' if arity == '-1' else arity} | {class_.lower()} | {escape(description)} |")
    return "\n".join(out) + "\n"


def main():
    target = pathlib.Path(sys.argv[-1])
    if "--check" in sys.argv:
        if not target.is_file() or target.read_text() != page():
            print(f"{target} is out of date: make docs")
            return 1
        return 0
    target.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
