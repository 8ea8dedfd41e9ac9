"""The public header as one text: include/tensorgrad/tensorgrad.h, with each part instead of the line
that includes it."""
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "include/tensorgrad"
INCLUDE = re.compile(r'#include "(\w+\.h)"')


def text():
    done = set()

    def lines_of(name):
        for line in (FOLDER / name).read_text().split("\n"):
            include = INCLUDE.fullmatch(line)
            if not include:
                yield line
            elif include.group(1) not in done:
                done.add(include.group(1))
                yield from lines_of(include.group(1))

    return "\n".join(lines_of("tensorgrad.h"))
