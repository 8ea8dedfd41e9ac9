/* steps (private to src/run and to bindings): tg_train, cut in submissions, so that a device that
 * answers later can work between them:
 *
 *   status = tg_train_begin(&call, ...);
 *   while (status == TG_OK && call.most > 0)
 *       ... at most call.most steps, of batches by call.draw, in call.dataset->feeder, or by
 *       tg_train_on_host
 *       status = tg_train_next(&call, executed, losses, how many);
 *   tg_train_end_call(&call)
 *
 * Other calls of the model and its siblings may come between submissions, except for training,
 * recovery and destruction. */
#ifndef TG_STEPS_H
#define TG_STEPS_H
#include "run/call.h"

typedef struct tg_train_call {
    tg_model *model;
    tg_dataset *dataset;
    tg_train_options options;
    tg_variant *variant; /* the step, its inputs bound except those of the data set */
    tg_draw draw;        /* of the next submission */
    int64_t most;        /* steps of the next submission; 0: no more */
    bool exact;          /* as many as that, where a device could choose fewer */
    int64_t best_at;     /* the number of steps after which the least loss came */
    float *losses;
    tg_train_result result;
} tg_train_call;

/* All checks. options and losses are borrowed until the end. On an error there is nothing to
 * end. */
tg_status tg_train_begin(tg_train_call *call, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses);
/* A submission of `count` steps was made with these losses, from which the reports are made, or
 * failed with `executed`. Status of the whole: if it is not TG_OK, training is over. */
tg_status tg_train_next(tg_train_call *call, tg_status executed, float *losses, int64_t count);
/* A step on a batch made on the host begins: the model's inputs are those of the next step, for any
 * feeds since. */
tg_status tg_train_begin_step(tg_train_call *call, tg_model_call *step);
/* One such step. Nothing is counted: that is for tg_train_next. */
tg_status tg_train_on_host(tg_train_call *call, float *loss);
void tg_train_end_call(tg_train_call *call); /* also gives up. Twice is fine */
#endif
