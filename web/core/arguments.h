/* arguments: the operands and numbers of a call, taken one after another, each sort in its order.
 * One that does not fit (of the other sort, or missing) is an internal fault, recorded once, and
 * gives poison or 0. Must not know an operation. */
#ifndef TG_WEB_ARGUMENTS_H
#define TG_WEB_ARGUMENTS_H

#include "exports.h"

typedef struct web_arguments {
    tg_site site;
    const web_operand *operand, *operand_end;
    const double *number, *number_end;
    tg_tensor *parts; /* taken; web_arguments_end frees them */
    int part_count;
    char *text; /* the same */
    size_t text_bytes;
    bool is_misfit;
} web_arguments;

tg_tensor web_take_tensor(web_arguments *a);
tg_tensor web_take_optional(web_arguments *a); /* {NULL, 0} if it is left out, or no operand is left */
tg_operand web_take_either(web_arguments *a);
const tg_tensor *web_take_parts(web_arguments *a); /* the remaining ones, `part_count`; NULL and 0 without memory */

double web_take_number(web_arguments *a);
bool web_take_flag(web_arguments *a);
int64_t web_take_whole(web_arguments *a);  /* INT64_MIN for a double that is no whole number: no size, axis or dim has it */
int32_t web_take_small(web_arguments *a);  /* the same: INT32_MIN */
uint64_t web_take_bits(web_arguments *a);  /* low and high 32 bits */
tg_shape web_take_shape(web_arguments *a); /* keeps a rank over TG_MAX_RANK, which the operation refuses */
tg_axes web_take_axes(web_arguments *a);
const char *web_take_text(web_arguments *a); /* "" without memory */

tg_tensor web_misfit(web_arguments *a); /* poison */
/* Frees what was taken. False if something did not fit or is left over. */
bool web_arguments_end(web_arguments *a);

/* A double as a whole number: see web_take_whole, web_take_small. */
int64_t web_whole(double x);
int32_t web_small(double x);
/* The shape of dims that an export got. */
tg_shape web_shape_of(const double *dims, int32_t rank);
tg_tensor web_tensor(const web_operand *operand);
tg_operand web_either(const web_operand *operand);
/* The tensors of the operands; NULL without memory. Release them with web_release_tensors. */
tg_tensor *web_tensors(const web_operand *operands, int32_t count);
void web_release_tensors(tg_tensor *tensors, int32_t count);

#endif
