"""Which headers the files of each folder of src/ may reach, directly or through other headers."""
import pathlib
import re

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
SUFFIXES = (".c", ".h", ".inc", ".def")

OPS = ("ir/op.h", "ir/ops.def", "ir/dtype.h", "ir/dtype.def", "ir/tables.h")  # operations and dtypes without the graph
PROGRAM = ("base", *OPS, "kernel/kernel.h", "kernel/same.h", "kernel/attention.h", "kernel/device_model.h", "plan/program.h")  # programs without the graph
PRINTERS = (*PROGRAM, "tile", "emit/emit.h")

# folder -> folders and headers that its files may reach, through any chain of includes. A folder may
# always reach its own files and those of include/. A file belongs to the folder with the longest
# name, unless it has an entry of its own, without its suffix.
REACH = {
    "base": (),
    "ir": ("base",),
    "grad": ("base", "ir"),
    "trace": ("base", "ir", "grad"),
    "optim": ("base", "ir", "grad", "trace"),
    "pass": ("base", "ir"),
    "kernel": ("base", "ir"),
    "plan": ("base", "ir", "kernel", "tile"),
    "tile": PROGRAM,
    "emit": (*PROGRAM, "tile"),
    "io": ("base", "ir/dtype.h", "ir/dtype.def"),
    # the session joins everything, and reaches a device through the interface of the device
    "run": ("base", "ir", "grad", "trace", "optim", "pass", "kernel", "plan", "tile", "emit/emit.h", "io", "run/executor.h",
            "run/replay.h", "run/webgpu/webgpu.h", "run/webgpu/api.h"),
    "run/executor": PROGRAM,
    "run/replay": (*PRINTERS, "run/executor.h"),
    "run/cpu": (*PROGRAM, "run/executor.h"),
    "run/web": (*PROGRAM, "run/executor.h", "run/replay.h"),
    # of emit, only the modules that ask a device what it takes
    "run/webgpu": (*PRINTERS, "run/executor.h", "run/replay.h", "run/tuning_table.h"),
}


def folder_of(relative, reach):
    """The entry of `reach` that the file belongs to, or None."""
    parts = relative.rsplit(".", 1)[0].split("/")
    while parts and "/".join(parts) not in reach:
        parts.pop()
    return "/".join(parts) or None


def may_reach(folder, header, reach):
    owner = folder_of(header, reach)
    return owner == folder or owner in reach[folder] or header in reach[folder]


def includes_of(source, relative, known):
    """What a file of `source` includes that is in `source`, in quotes or in angle brackets, with line numbers."""
    if relative not in known:
        path, found = source / relative, []
        if path.is_file():
            text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment.group().count("\n"), path.read_text(), flags=re.S)
            found = [(match.group(2), text.count("\n", 0, match.start(2)) + 1) for match in INCLUDE.finditer(text)
                     if match.group(1) == '"' or (source / match.group(2)).is_file()]
        known[relative] = [(name, line) for name, line in found if not name.startswith("tensorgrad/")]
    return known[relative]


def check_file(source, relative, reach, known):
    """Offences of one file: chains of includes, each up to the first header that is out of reach."""
    folder, chains, seen = folder_of(relative, reach), [((relative,), None)], {relative}
    if folder is None:
        yield f"{relative}:1: its folder is not in the table of scripts/source_layers.py"
        return
    for chain, first_line in chains:  # grows during the walk: breadth first, so that chains are the shortest ones
        for name, line in includes_of(source, chain[-1], known):
            if name in seen:
                continue
            seen.add(name)
            at = first_line or line
            if "/" not in name:
                yield f'{chain[-1]}:{line}: include "{name}" by its path from src/'
            elif folder_of(name, reach) is None or not may_reach(folder, name, reach):
                yield f"{relative}:{at}: {folder} must not reach {name}: {' > '.join((*chain, name))}"
            else:
                chains.append(((*chain, name), at))


def check(source, reach=None):
    """All offences under the folder `source`, which is laid out as src/."""
    source, known, offences = pathlib.Path(source), {}, []
    for path in sorted(source.rglob("*")):
        if path.suffix in SUFFIXES:
            offences += check_file(source, path.relative_to(source).as_posix(), reach or REACH, known)
    return list(dict.fromkeys(offences))
