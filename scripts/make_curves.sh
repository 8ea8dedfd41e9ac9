#!/usr/bin/env bash
# Makes tests/curves/curves.h again: dumps initial values and batches, trains both examples on them in PyTorch.
set -eu
cd "$(dirname "$0")/.."
python=/usr/bin/python3 # Debian's, which has Debian's torch
if ! "$python" -c 'import torch' 2> /dev/null; then
  echo "python3-torch is missing: apt-get install python3-torch"
  exit 1
fi
mkdir -p build/curves
cmake -S . -B build/curves -DTENSORGRAD_BUILD_TESTS=ON > build/curves/configure.log
cmake --build build/curves --target curves_dump -j "$(nproc)" > build/curves/build.log
build/curves/curves_dump mlp-sin 0 50 build/curves/mlp.safetensors
build/curves/curves_dump transformer-add 0 50 build/curves/transformer.safetensors
"$python" scripts/make_curves.py build/curves/mlp.safetensors build/curves/transformer.safetensors tests/curves/curves.h "$@"
echo "wrote tests/curves/curves.h"
