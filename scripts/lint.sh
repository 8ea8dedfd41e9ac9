#!/usr/bin/env bash
# make lint: formatting, static analysis, source rules, shell scripts. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0
failed=0
mkdir -p build/lint

step() { # step NAME COMMAND...
  local name=$1
  shift
  if "$@" > "build/lint/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (build/lint/$name.log)"
    tail -n 20 "build/lint/$name.log"
  fi
}
have() { command -v "$1" > /dev/null 2>&1; }

mapfile -t files < <(python3 scripts/check_source.py --list-c)
if have clang-format; then step format clang-format --dry-run --Werror "${files[@]}"; else echo "skipped: clang-format is not installed"; fi
for rule in layers sizes calls opening documented; do step "rule-$rule" python3 scripts/check_source.py "$rule"; done
step boundary python3 scripts/make-boundary --check
if have cppcheck; then
  step cppcheck cppcheck --std=c11 --enable=warning,portability,performance --inline-suppr --quiet --error-exitcode=1 \
    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=internalAstError --suppress=unknownMacro:src/ir/ops.def \
    --suppress=invalidPointerCast:src/run/cpu/* --suppress=shiftTooManyBitsSigned:src/run/cpu/* --suppress=uselessAssignmentPtrArg:src/run/cpu/* -DTG_HAS_X86=1 \
    -Iinclude -Isrc -Iexamples src cli examples
else
  echo "skipped: cppcheck is not installed"
fi
if have shellcheck; then step shellcheck shellcheck scripts/*.sh .ci/run; else echo "skipped: shellcheck is not installed"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
