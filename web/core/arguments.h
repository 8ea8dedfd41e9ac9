/* arguments: what a call brings, taken one after another: operands and numbers, each in their order. Whatever does not fit (an operand of
 * the other sort, one too few) is an internal fault, recorded once, and gives poison or 0. */
#ifndef TG_WEB_ARGUMENTS_H
#define TG_WEB_ARGUMENTS_H

#include "exports.h"

typedef struct web_arguments {
    tg_site site;
    const web_operand *operand, *operand_end;
    const double *number, *number_end;
    tg_tensor *parts; /* taken; given back by web_arguments_end */
    int part_count;
    char *text; /* the same */
    size_t text_bytes;
    bool is_misfit;
} web_arguments;

tg_tensor web_take_tensor(web_arguments *a);
tg_tensor web_take_optional(web_arguments *a); /* {NULL, 0} where it is left out, or there are no more operands */
tg_operand web_take_either(web_arguments *a);
const tg_tensor *web_take_parts(web_arguments *a); /* all that are left, `part_count`; NULL and 0 without memory */

double web_take_number(web_arguments *a);
bool web_take_flag(web_arguments *a);
int64_t web_take_whole(web_arguments *a); /* a number that is none is INT64_MIN, which is no size, axis or dim */
int32_t web_take_small(web_arguments *a); /* the same: INT32_MIN */
uint64_t web_take_bits(web_arguments *a); /* low and high 32 bits */
tg_shape web_take_shape(web_arguments *a); /* a rank over TG_MAX_RANK is kept, for the operation to refuse */
tg_axes web_take_axes(web_arguments *a);
const char *web_take_text(web_arguments *a); /* "" without memory */

tg_tensor web_misfit(web_arguments *a); /* poison */
/* Gives back what was taken; false: it did not fit, or something is left. */
bool web_arguments_end(web_arguments *a);

/* A double as a whole number: see web_take_whole, web_take_small. */
int64_t web_whole(double x);
int32_t web_small(double x);
/* Dims as an export has them. */
tg_shape web_shape_of(const double *dims, int32_t rank);
tg_tensor web_tensor(const web_operand *operand);
tg_operand web_either(const web_operand *operand);
/* Tensors of the operands; NULL without memory. Release with web_release_tensors. */
tg_tensor *web_tensors(const web_operand *operands, int32_t count);
void web_release_tensors(tg_tensor *tensors, int32_t count);

#endif
