/* wgsl_subgroup: tiles of halves: rounding of fetched values, and products as subgroup matrices.
 * Owns the modules that test whether a device takes all this. tile/layout.h decides where operands
 * and sums lie in workgroup memory. Must not know the contraction beyond its tile: wgsl_tiles.c
 * decides what is fetched from where, and what becomes of a sum.
 *
 * Subgroup matrices are an experiment of Dawn's (docs/dawn/features/subgroup_matrix.md there;
 * SPV_KHR_cooperative_matrix below): a subgroup together holds a matrix of 16 x 16 values and
 * multiplies two of them. They are read from arrays of scalars only, so that a fetched vec4 takes
 * four stores. */
#include "emit/wgsl_contract.h"

#include <stdio.h>

const char tg_wgsl_f16_probe[] = "enable f16;\n"
                                 "var<workgroup> tile: array<array<vec4<f16>, 2>, 2>;\n"
                                 "@group(0) @binding(0) var<storage, read_write> a0: array<vec4<f32>, 2>;\n"
                                 "@compute @workgroup_size(2)\n"
                                 "fn main(@builtin(local_invocation_index) t: u32) {\n"
                                 "    tile[0][t] = vec4<f16>(a0[t]);\n"
                                 "    workgroupBarrier();\n"
                                 "    a0[t] = vec4<f32>(tile[0][1 - t]);\n"
                                 "}\n";

const char tg_wgsl_matrix_probe[] = "diagnostic(off, chromium.subgroup_matrix_uniformity);\n"
                                    "enable f16;\n"
                                    "enable chromium_experimental_subgroup_matrix;\n"
                                    "var<workgroup> halves: array<f16, 256>;\n"
                                    "var<workgroup> sums: array<f32, 1024>;\n"
                                    "@group(0) @binding(0) var<storage, read_write> a0: array<f32, 256>;\n"
                                    "@compute @workgroup_size(128)\n"
                                    "fn main(@builtin(local_invocation_index) t: u32, @builtin(subgroup_id) subgroup: u32) {\n"
                                    "    halves[t] = f16(a0[t]);\n"
                                    "    halves[t + 128] = f16(a0[t + 128]);\n"
                                    "    workgroupBarrier();\n"
                                    "    var c: subgroup_matrix_result<f32, 16, 16>;\n"
                                    "    let l = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>>(&halves, 0u, true, 16u);\n"
                                    "    let r = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>>(&halves, 0u, false, 16u);\n"
                                    "    c = subgroupMatrixMultiplyAccumulate(l, r, c);\n"
                                    "    subgroupMatrixStore(&sums, (subgroup & 3u) * 256u, c, false, 16u);\n"
                                    "    workgroupBarrier();\n"
                                    "    a0[t] = sums[t];\n"
                                    "}\n";

/* ---------------------------------------------------------------- rounding */

/* One comparison for all that an invocation fetched: a rare case must not cost time at each value.
 * NaN is not larger. */
void tg_wgsl_halve(tg_wgsl *w, int left, int right) {
    tg_wgsl_line(w, "{");
    tg_wgsl_line(w, "var most = abs(next_left0);");
    for (int i = 1; i < left; i++) tg_wgsl_line(w, "most = max(most, abs(next_left%d));", i);
    for (int i = 0; i < right; i++) tg_wgsl_line(w, "most = max(most, abs(next_right%d));", i);
    const char *within = tg_wgsl_helper(w, "tg_within_half");
    tg_wgsl_line(w, "if (max(max(most.x, most.y), max(most.z, most.w)) > 65504f) {");
    for (int i = 0; i < left; i++) tg_wgsl_line(w, "next_left%d = %s(next_left%d);", i, within, i);
    for (int i = 0; i < right; i++) tg_wgsl_line(w, "next_right%d = %s(next_right%d);", i, within, i);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
}

/* ---------------------------------------------------------------- operands */

static const char *subgroup_name(const tg_tile_layout *m, const tg_tile_side *o) { return o == &m->left ? "left" : "right"; }

tg_wgsl_matrices tg_wgsl_matrix_declare(tg_wgsl *w, const tg_tile_layout *m) {
    tg_wgsl_matrices arrays = {.layout = m};
    w->f16 = w->matrices = true;
    arrays.left = tg_wgsl_declare_array(w, "half_left", (tg_wgsl_array){.scalar = "f16", .count = tg_tile_halves(m, &m->left)});
    arrays.right = tg_wgsl_declare_array(w, "half_right", (tg_wgsl_array){.scalar = "f16", .count = tg_tile_halves(m, &m->right)});
    arrays.sums = tg_wgsl_declare_array(w, "block_sums", (tg_wgsl_array){.scalar = "f32", .count = tg_tile_sums(m)});
    tg_wgsl_line(w, "let left_block = subgroup / %du * %du;", (unsigned)m->right.subgroups, (unsigned)tg_tile_block(&m->left));
    tg_wgsl_line(w, "let right_block = subgroup %% %du * %du;", (unsigned)m->right.subgroups, (unsigned)tg_tile_block(&m->right));
    for (int i = 0; i < tg_tile_matrices(&m->left); i++)
        for (int j = 0; j < tg_tile_matrices(&m->right); j++)
            tg_wgsl_line(w, "var c%d_%d: subgroup_matrix_result<f32, %d, %d>;", i, j, TG_TILE_MATRIX, TG_TILE_MATRIX);
    return arrays;
}

void tg_wgsl_matrix_target(tg_wgsl *w, const tg_tile_layout *m, const tg_tile_side *o, int32_t i) {
    const char *name = subgroup_name(m, o), *line = o->along_rows ? "q" : "r", *in_line = o->along_rows ? "r" : "q";
    tg_wgsl_line(w, "let %s_to%d = %s_%s%d * %d + %s_%s%d * 4;", name, (int)i, name, line, (int)i, tg_tile_line(m, o), name, in_line,
                 (int)i);
}

static void subgroup_keep(tg_wgsl *w, const tg_tile_side *o, const char *name, const char *array) {
    for (int i = 0; i < o->fetches; i++) {
        tg_wgsl_line(w, "let %s_half%d = vec4<f16>(next_%s%d);", name, i, name, i);
        for (int c = 0; c < 4; c++) tg_wgsl_line(w, "%s[%s_to%d + %d] = %s_half%d.%c;", array, name, i, c, name, i, "xyzw"[c]);
    }
}

void tg_wgsl_matrix_keep(tg_wgsl *w, const tg_wgsl_matrices *m) {
    subgroup_keep(w, &m->layout->left, "left", m->left);
    subgroup_keep(w, &m->layout->right, "right", m->right);
}

/* ---------------------------------------------------------------- products */

/* let l<i> (r<i>): rows from 16 i of the subgroup's block on, k from `k` on. A right matrix has k
 * along its rows. */
static void subgroup_load(tg_wgsl *w, const tg_wgsl_matrices *m, const tg_tile_side *o, int i, int k) {
    const char *name = subgroup_name(m->layout, o);
    const bool left = o == &m->layout->left, columns_lie_together = left == o->along_rows;
    const int line = tg_tile_line(m->layout, o);
    const int at = o->along_rows ? k * line + i * TG_TILE_MATRIX : i * TG_TILE_MATRIX * line + k;
    char block[64];
    snprintf(block, sizeof block, o->along_rows ? "%s_block" : "%s_block * %du", name, line);
    tg_wgsl_line(w, "let %c%d = subgroupMatrixLoad<subgroup_matrix_%s<f16, %d, %d>>(&%s, %s + %du, %s, %du);", name[0], i, name,
                 TG_TILE_MATRIX, TG_TILE_MATRIX, left ? m->left : m->right, block, at, columns_lie_together ? "true" : "false", line);
}

void tg_wgsl_matrix_multiply(tg_wgsl *w, const tg_wgsl_matrices *m) {
    const tg_tile_side *left = &m->layout->left, *right = &m->layout->right;
    for (int k = 0; k < m->layout->k; k += TG_TILE_MATRIX) {
        tg_wgsl_line(w, "{");
        for (int i = 0; i < tg_tile_matrices(left); i++) subgroup_load(w, m, left, i, k);
        for (int j = 0; j < tg_tile_matrices(right); j++) {
            subgroup_load(w, m, right, j, k);
            for (int i = 0; i < tg_tile_matrices(left); i++)
                tg_wgsl_line(w, "c%d_%d = subgroupMatrixMultiplyAccumulate(l%d, r%d, c%d_%d);", i, j, i, j, i, j);
        }
        tg_wgsl_line(w, "}");
    }
}

/* ---------------------------------------------------------------- sums */

/* Stores one band: sixteen rows of each subgroup's block. Registers have no index, so each band is
 * a case. */
static void subgroup_store_band(tg_wgsl *w, const tg_wgsl_matrices *m, int band) {
    const tg_tile_side *right = &m->layout->right;
    for (int j = 0; j < tg_tile_matrices(right); j++)
        tg_wgsl_line(w, "subgroupMatrixStore(&%s, subgroup * %du + %du, c%d_%d, false, %du);", m->sums, tg_tile_band(m->layout),
                     j * TG_TILE_MATRIX, band, j, tg_tile_block(right));
}

void tg_wgsl_matrix_each_sum(tg_wgsl *w, const tg_wgsl_matrices *arrays) {
    const tg_tile_layout *m = arrays->layout;
    const int bands = tg_tile_matrices(&m->left), each = tg_tile_band(m), width = tg_tile_block(&m->right);
    tg_wgsl_line(w, "for (var band = 0; band < %d; band++) {", bands);
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "switch band {");
    for (int band = 0; band < bands; band++) {
        if (band + 1 < bands) tg_wgsl_line(w, "case %d: {", band);
        else tg_wgsl_line(w, "default: {");
        subgroup_store_band(w, arrays, band);
        tg_wgsl_line(w, "}");
    }
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "for (var e = t; e < %d; e += %d) {", tg_tile_sums(m), (int)m->size);
    tg_wgsl_line(w, "let in_row = e / %d * %d + band * %d + e / %d %% %d;", each * (int)m->right.subgroups, tg_tile_block(&m->left),
                 TG_TILE_MATRIX, width, TG_TILE_MATRIX);
    tg_wgsl_line(w, "let in_column = e / %d %% %d * %d + e %% %d;", each, (int)m->right.subgroups, width, width);
    tg_wgsl_line(w, "let sum = %s[e];", arrays->sums);
}
