/* wgsl_resolve: how the statements of a stage name what is outside them: the kernel's arguments,
 * its scratch, its functions, its arrays in workgroup memory. A printer asks here at each access
 * and never spells such a name itself, so that it need not know which of two resolvers answers:
 *   wgsl_lone.c   a kernel has a module of its own; each argument is an array of its own type
 *   wgsl_join.c   kernels share a module; arguments are words of blocks, functions carry the
 *                 kernel's number, and the arrays in workgroup memory are shared
 * Must not know what is computed. */
#ifndef TG_EMIT_WGSL_RESOLVE_H
#define TG_EMIT_WGSL_RESOLVE_H

#include "base/base.h"

typedef struct tg_wgsl tg_wgsl;

/* Where an argument or the scratch of the stage lies, and how one element is read and written at
 * index e:
 *   lone       a3[e]                                      a3[e] = v;
 *   words      bitcast<f32>(workspace[1024 + (e)])        workspace[1024 + (e)] = bitcast<u32>(v);
 *   of vec4s   bitcast<f32>(at_workspace(1024 + (e)))     (not written; lone: at_a3(e))
 *   vec4s      bitcast<vec4<f32>>(workspace[256 + (e)])   (not written)
 *   in a loop  bitcast<f32>(workspace[1024 + turn * 64 + (e)])
 * Nothing is cast where the element is a u32; nothing is added where the first element is 0. */
typedef struct tg_wgsl_memory {
    char name[24];
    int64_t first;    /* where element 0 lies */
    int64_t step;     /* how much further on in each turn of a loop of kernels; 0: no further */
    const char *cast; /* type of an element that is bound as u32 (vec4<u32>); NULL: no cast */
    bool by_call;     /* read by at_NAME(index) */
} tg_wgsl_memory;

/* An array in workgroup memory: `count` times a scalar, a vec4 of scalars, or an array of `inner`
 * of those. */
typedef struct tg_wgsl_array {
    const char *scalar; /* "f32", "i32", "f16" */
    bool vectors;       /* of vec4s */
    int64_t inner;      /* 0: elements are no arrays */
    int64_t count;
} tg_wgsl_array;

/* What a resolver does. tg_wgsl_begin and tg_wgsl_end call begin and end around each stage; the
 * functions below call the others between. All record errors in w->status. */
typedef struct tg_wgsl_resolver {
    void (*begin)(tg_wgsl *w);
    tg_wgsl_memory (*argument)(tg_wgsl *w, int32_t argument, bool vectors);
    tg_wgsl_memory (*scratch)(tg_wgsl *w, const char *type);
    const char *(*array)(tg_wgsl *w, const char *name, const tg_wgsl_array *array);
    void (*end)(tg_wgsl *w, int64_t workgroups, int32_t size);
} tg_wgsl_resolver;

/* ---- arguments and scratch. Asking binds the memory; a stage binds what it asked for. */
tg_wgsl_memory tg_wgsl_argument(tg_wgsl *w, int32_t argument);
/* As vec4<f32>s, for a stage that never writes the argument. It may read single elements of it too,
 * afterwards. tg_wgsl_plan_vectors must have said so before, because other kernels of the module
 * read the same block. */
tg_wgsl_memory tg_wgsl_argument_vectors(tg_wgsl *w, int32_t argument);

/* An expression, in the order of the text: open, the index, close. */
void tg_wgsl_open_read(tg_text_buffer *text, const tg_wgsl_memory *memory);
void tg_wgsl_close_read(tg_text_buffer *text, const tg_wgsl_memory *memory);
/* A statement: open, the index, value, the value, close. */
void tg_wgsl_open_write(tg_text_buffer *text, const tg_wgsl_memory *memory);
void tg_wgsl_write_value(tg_text_buffer *text, const tg_wgsl_memory *memory);
void tg_wgsl_close_write(tg_text_buffer *text, const tg_wgsl_memory *memory);
/* The line that stores `value` at index `at`. */
void tg_wgsl_write(tg_wgsl *w, const tg_wgsl_memory *memory, const char *at, const char *value);

/* An element of the scratch, whose index is formatted: an expression, in the arena of the result.
 * `type` is "u32", "i32" or "f32", the same for all accesses of a stage. */
const char *tg_wgsl_read_scratch(tg_wgsl *w, const char *type, const char *index, ...) TG_PRINTF(3, 4);
/* The line that stores `value` there. */
void tg_wgsl_write_scratch(tg_wgsl *w, const char *type, const char *value, const char *index, ...) TG_PRINTF(4, 5);

/* ---- workgroup memory. Declares an array of this stage; returns its name, in the arena or `name`
 * itself. Each name is declared once in a stage. */
const char *tg_wgsl_declare_array(tg_wgsl *w, const char *name, tg_wgsl_array array);
int64_t tg_wgsl_array_bytes(const tg_wgsl_array *array);
/* The type of an element: "vec4<f32>", "array<vec4<f16>, 16>". */
void tg_wgsl_element_type(const tg_wgsl_array *array, char *text, size_t size);

#endif
