"""The length of files and functions: no file over 700 lines, no function over 60, except those named
here with a reason, and files that a script writes (NAME.gen.SUFFIX)."""
import pathlib
import re

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 700, 60
FOLDERS = ("src", "cli", "include", "web/src", "web/core")
SUFFIXES = (".c", ".h", ".inc", ".ts", ".mjs")

LONG_FILES = {}
LONG_FUNCTIONS = {
    "src/run/cpu/contract_kernels.inc contract_tile": "macros of its loops are defined in it, next to the variables they use",
    "web/src/unpack.ts model": "one state machine: its functions share the variables that they close over",
}

# comments and literals; in TypeScript also templates and regular expressions, which begin where a
# value may
C_TOKENS = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
TS_TOKENS = C_TOKENS + r"|`(?:\\.|[^`\\])*`|(?<=[(,=:\[!&|?{};\s])/(?![*/\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"
NO_FUNCTION = re.compile(r"\b(class|interface|enum|struct|union|namespace)\b[^()]*$|[=(:,\[?&|]$|^extern\b|\breturn$|^$")
NAME = re.compile(r"(?:TG_NAME\()?([#\w]+)\)?\s*(?:<[^()]*>)?\s*(?:=\s*(?:async\s*)?(?:<[^()]*>)?\s*)?\(")


def without_text(text, tokens):
    """The text with blanks for comments and literals, so that braces and lines keep their positions."""
    return re.sub(tokens, lambda token: re.sub(r"[^\n]", " ", token.group()), text, flags=re.S)


def blocks(text):
    """(begin, end) of every pair of braces. ValueError where they do not match."""
    opened = []
    for match in re.finditer(r"[{}]", text):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            yield opened.pop(), match.start()
        else:
            raise ValueError
    if opened:
        raise ValueError


def head_begin(text, brace):
    """Where the statement or declaration begins that opens a block at `brace`: the line on which all its brackets are closed."""
    depth, at = 0, brace - 1
    while at >= 0:
        if text[at] in ")]}":
            depth += 1
        elif text[at] in "([{":
            depth -= 1
            if depth < 0:
                return at + 1
        elif text[at] == ";" and depth == 0:
            return at + 1
        elif text[at] == "\n" and depth == 0 and text[at + 1:brace].strip():
            return at + 1
        at -= 1
    return 0


def long_functions(text, tokens):
    """(name, first line, lines) of each function that is too long, without the blocks within it."""
    text, last_end = without_text(text, tokens), -1
    for begin, end in sorted(blocks(text)):
        first = head_begin(text, begin)
        head = text[first:begin].strip()
        first += len(text[first:begin]) - len(text[first:begin].lstrip())
        lines = text.count("\n", first, end) + 1
        if lines <= MOST_LINES_OF_A_FUNCTION or begin < last_end or NO_FUNCTION.search(head):
            continue
        last_end = end
        name = NAME.search(head)
        yield (name.group(1) if name else "a function"), text.count("\n", 0, first) + 1, lines


def check(root, folders=FOLDERS, long_files=None, long_function_names=None):
    """All offences, including entries of the lists that no longer hold."""
    root, offences, unused = pathlib.Path(root), [], {*(LONG_FILES if long_files is None else long_files)}
    functions = {*(LONG_FUNCTIONS if long_function_names is None else long_function_names)}
    unused_functions = set(functions)
    allowed = set(unused)
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and ".gen." not in path.name):
        relative, text = path.relative_to(root).as_posix(), path.read_text()
        lines = text.count("\n")
        if lines > MOST_LINES:
            unused.discard(relative)
            if relative not in allowed:
                offences.append(f"{relative}: {lines} lines; split what is over {MOST_LINES}")
        try:
            for name, line, count in long_functions(text, TS_TOKENS if path.suffix in (".ts", ".mjs") else C_TOKENS):
                unused_functions.discard(f"{relative} {name}")
                if f"{relative} {name}" not in functions:
                    offences.append(f"{relative}:{line}: {name} has {count} lines; split what is over {MOST_LINES_OF_A_FUNCTION}")
        except ValueError:
            offences.append(f"{relative}: its braces do not match, so that functions cannot be told")
    offences += [f"scripts/source_sizes.py: {name} is short now: take it out of the list" for name in sorted(unused | unused_functions)]
    return offences
