"""web: the bodies of jobs on the package for browsers and Node: built, type-checked, run in Node and in
headless Chromium; native suites as WebAssembly; the demo page."""
import re

from testing.native import CLANG, DATA
from testing.runner import BUILD, ROOT, check, missing, run, tally

WEB = ROOT / "web"
DRIVER = "/usr/lib/chromium/vk_swiftshader_icd.json"
VULKAN = {"VK_DRIVER_FILES": DRIVER, "VK_ICD_FILENAMES": DRIVER}
WASM = {"TENSORGRAD_WASM": str(ROOT / "build/wasm/core.wasm")}
NATIVE = BUILD / "gcc/tensorgrad"


def counted(name, command, **options):
    """A program that ends with "N passed, N failed", or node's own runner."""
    status, output = run(command, f"web-{name}", cwd=WEB, **options)
    found = re.search(r"^(\d+) passed, (\d+) failed$", output, re.M)
    counts = found.groups() if found else [re.search(rf"^\W*{word} (\d+)$", output, re.M) for word in ("pass", "fail")]
    if not all(counts):
        return tally.bad(f"web {name}: no result (exit {status}; log: build/test/logs/web-{name}.log)")
    passed, failed = (int(each if found else each.group(1)) for each in counts)
    tally.ok(passed)
    for line in re.findall(r"^(?:FAILED|not ok) .*$", output, re.M):
        tally.say(f"      {line}")
    if failed or status != 0 or not passed:
        tally.bad(f"web {name} (exit {status}; log: build/test/logs/web-{name}.log)", max(1, failed))
    return None


def package():
    """The package and its demo page, built and type-checked."""
    lacking = missing("node", "npm", CLANG, "wasm-ld-19", "chromium")
    if lacking:
        return tally.bad(f"web: not installed: {', '.join(map(str, lacking))} (scripts/setup.sh web)")
    good = check("web: npm ci", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "web-build", cwd=WEB)
    good = good and check("web: core", ["bash", "scripts/build-wasm", "build/wasm"], "web-build")
    good = good and check("web: package", ["node", "build.mjs"], "web-build", cwd=WEB)
    good = good and check("web: demo page", ["node", "demo/build.mjs"], "web-build", cwd=WEB)
    if good:
        check("web: types", ["node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.json"], "web-build", cwd=WEB)
    return None


def build_suites():
    listed = run(["node", "test/suites.mjs", "--list"], "web-suites-build", cwd=WEB)[1].split()
    check("web: native suites", ["bash", "scripts/build-wasm-tests", "build/wasm", *listed], "web-suites-build")


def suites(home):
    """Native suites as WebAssembly: on the CPU in Node, on WebGPU in Chromium."""
    return lambda: counted(f"suites-{home}", ["node", "test/suites.mjs", "../build/wasm", f"--{home}"])


def core():
    counted("package", ["node", "test/pack.mjs"])
    counted("core", ["node", "--test", "test/core.test.mjs"], env=WASM)


def api():
    counted("api", ["node", "test/run.mjs"], env=WASM)


def demo():
    counted("demo", ["node", "test/browser-demo.mjs"])


def node():
    counted("node", ["node", "test/node.mjs", "--webgpu", "--native", NATIVE, "--data", DATA], env=VULKAN)


def browser():
    counted("browser", ["node", "test/browser.mjs", "--native", NATIVE, "--data", DATA])
