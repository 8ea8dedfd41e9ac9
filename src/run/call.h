/* call (private to src/run and to bindings): one step or run of a model, cut in phases, so that a
 * device that answers later can work between them. tg_step and tg_run are these with executor->run
 * in the middle:
 *
 *   status = tg_model_call_begin(&call, ...);
 *   while (status == TG_OK && call.variant != NULL)
 *       status = tg_model_call_next(&call, execute(call.variant));
 *   ... tg_model_call_end(&call);
 *
 * The model does not change before the last phase of a step. A model has at most one call in
 * progress. No allocation once warm, except for captures. */
#ifndef TG_CALL_H
#define TG_CALL_H
#include "run/model.h"

typedef enum tg_call_kind { TG_CALL_STEP, TG_CALL_STEP_CAPTURES, TG_CALL_RUN, TG_CALL_RUN_CAPTURES } tg_call_kind;

typedef struct tg_model_call {
    tg_model *model;
    tg_call_kind kind;
    /* to execute now, from its inputs to its outputs; NULL: the call is over */
    tg_variant *variant;
    tg_variant *main; /* what the call is for; before it a step may have index checks to run */
    void *output;     /* of a run: where its result goes */
    float loss;       /* of a step that was made */
    tg_step_end end;  /* and the rest of it */
    float found;      /* by TG_VARIANT_FINITE */
    bool refused;     /* TG_ERROR_NOT_FINITE by what was found: the step was not made */
    /* asked for, and filled when the call is over; a caller that takes them leaves NULL */
    tg_captures *captures;
} tg_model_call;

/* All checks. feeds are borrowed until the call is over; output (runs) has room for the result. On
 * an error the call is over and there is nothing to end. */
tg_status tg_model_call_begin(tg_model_call *call, tg_model *model, tg_call_kind kind, const tg_feed *feeds, int n, void *output);
/* A step whose inputs are in model->fed already. */
tg_status tg_model_call_begin_fed(tg_model_call *call, tg_model *model);
/* call->variant was executed with the status `executed`. Returns the status of the call. If it is
 * not TG_OK the call is over and its captures are gone, except for TG_ERROR_NOT_FINITE: then the
 * step was made, or `refused`. */
tg_status tg_model_call_next(tg_model_call *call, tg_status executed);
/* All phases of a call that has begun, on a device that answers at once. Status of the call; its
 * results must be ended. */
tg_status tg_model_call_run(tg_model_call *call);
void tg_model_call_end(tg_model_call *call); /* also gives up a call in progress. Twice is fine */

#endif
