/* proof: what a device must compute before it is trusted. The words that come back cannot be left
 * over in memory: they depend on words that are new each time. Fakes answer it too. Must not know
 * devices. */
#ifndef TG_WEBGPU_PROOF_H
#define TG_WEBGPU_PROOF_H
#include <stdint.h>
#include <string.h>

enum { TG_PROOF_WORDS = 64, TG_PROOF_GROUPS = 2 };

#define TG_PROOF_SOURCE \
  "@group(0) @binding(0) var<storage, read_write> given: array<u32>;\n" \
  "@group(0) @binding(1) var<storage, read_write> found: array<u32>;\n" \
  "@compute @workgroup_size(32)\n" \
  "fn main(@builtin(global_invocation_id) id: vec3u) {\n" \
  "  let i = id.x;\n" \
  "  let mixed = given[i] * 2654435761u + given[(i * 7u + 3u) % 64u];\n" \
  "  found[i] = mixed ^ bitcast<u32>(f32(given[i] >> 12u) * 0.5 + 1.0);\n" \
  "}\n"

/* Word i of the answer. Exact in f32: no two devices may differ. */
static inline uint32_t tg_proof_answer(const uint32_t *given, uint32_t i) {
    const float number = (float)(given[i] >> 12) * 0.5f + 1.0f;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (given[i] * UINT32_C(2654435761) + given[(i * 7 + 3) % TG_PROOF_WORDS]) ^ bits;
}
#endif
