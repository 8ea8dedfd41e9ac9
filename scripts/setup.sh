#!/usr/bin/env bash
# Installs with apt-get the tools that a target needs and this machine lacks, and fetches the WebGPU
# library into build/webgpu. Argument: core, webgpu, web, lint or nothing (all).
# If something cannot be installed, prints what is missing and goes on: the checks that need it then
# fail with their reason.
set -u
what=${1:-all}
packages=()

need() { # need PACKAGE COMMAND...: PACKAGE when any command is not on the path
  local package=$1 command
  shift
  for command in "$@"; do
    command -v "$command" > /dev/null 2>&1 || { packages+=("$package"); return; }
  done
}
need_file() { # need_file PACKAGE PATTERN...: PACKAGE when no file matches any pattern
  local package=$1 pattern
  shift
  for pattern in "$@"; do
    compgen -G "$pattern" > /dev/null && return
  done
  packages+=("$package")
}

# shellcheck disable=SC2317 # called by a trap
fetch_webgpu() {
  mkdir -p build
  python3 scripts/get-webgpu build/webgpu > build/get-webgpu.log 2>&1 || tail -n 3 build/get-webgpu.log
}

need python3 python3
if [ "$what" != lint ]; then
  need gcc gcc
  need libc6-dev gcc
  need make make
  need cmake cmake
  need_file libcmocka-dev '/usr/include/cmocka.h' '/usr/local/include/cmocka.h'
fi
if [ "$what" = all ]; then
  need g++ g++
  need clang-19 clang-19
  need_file libclang-rt-19-dev '/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-*.a'
  need pkg-config pkg-config
  need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
  need qemu-user qemu-aarch64
  need_file libc6-dev-arm64-cross '/usr/aarch64-linux-gnu/include/stdio.h'
fi
if [ "$what" = all ] || [ "$what" = webgpu ]; then
  if [ "$(uname -sm)" = "Linux x86_64" ]; then # a Vulkan driver that needs no GPU: SwiftShader, as Chromium ships it
    need_file libvulkan1 '/usr/lib/*/libvulkan.so.1' '/usr/lib/libvulkan.so.1' '/usr/lib64/libvulkan.so.1'
    need_file chromium-common '/usr/lib/chromium/vk_swiftshader_icd.json'
    trap fetch_webgpu EXIT # python may be among what is missing
  fi
fi
if [ "$what" = all ] || [ "$what" = web ]; then # the core as WebAssembly, Node, a browser
  need clang-19 clang-19
  need lld-19 wasm-ld-19
  need_file wasi-libc '/usr/lib/wasm32-wasi/libc.a' '/usr/lib/*/wasm32-wasi/libc.a'
  need_file libclang-rt-19-dev-wasm32 '/usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a'
  need nodejs node # 20 or newer; Debian 12 has 18: there it has to come from elsewhere
  need npm npm
  need chromium chromium
fi
if [ "$what" = all ] || [ "$what" = lint ]; then
  need clang-format clang-format
  need cppcheck cppcheck
  need shellcheck shellcheck
fi

[ ${#packages[@]} -eq 0 ] && exit 0
echo "missing: ${packages[*]}"
if ! command -v apt-get > /dev/null 2>&1; then
  echo "no apt-get here: install these by hand"
  exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo > /dev/null 2>&1; then as_root=(sudo); else echo "not root and no sudo: install these by hand"; exit 0; fi
fi
log=build/setup.log
mkdir -p build
{
  "${as_root[@]}" apt-get update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
} > "$log" 2>&1
status=$?
if [ $status -ne 0 ]; then # one unknown package must not keep the others away
  for package in "${packages[@]}"; do
    done=
    # the candidate, else any other version: an archive may have dropped the newest of a large package
    for choice in "$package" $(apt-cache madison "$package" 2> /dev/null | awk '{ print $1 "=" $3 }'); do
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$choice" >> "$log" 2>&1 &&
        { done=yes; break; }
    done
    [ -n "$done" ] || echo "could not install $package (log: $log)"
  done
fi
exit 0
