/* tensorgrad: trace a small network once, differentiate it, fuse the step, run it anywhere.
 *
 * The whole public C API. Include this file; it includes one part for each concern:
 *   core    version, status codes, contexts, shapes, axes, options, operands
 *   trace   parameters, inputs, states, constants, captures, gradients
 *   ops     operations on tensors
 *   nn      layers and losses
 *   optim   learning rates and optimisers
 *   device  kinds of device, WebGPU adapters, precision
 *   model   compile, step, run, train; parameters, files; inspection, tuning
 *
 * Rules for every function:
 *  - No function aborts, exits or prints. The context keeps the first error since it was last
 *    cleared: status, message, and the caller's file and line.
 *  - Calls that can fail are macros that pass their line. tg_step(...) is
 *    tg_step_at(TG_SITE, ...); bindings and wrappers call tg_step_at with a site of their own.
 *  - Operations take and return tg_tensor by value. An operation that fails returns the poison
 *    tensor (id 0). An operation on poison returns poison and records no error. So check once,
 *    after tg_compile.
 *  - Shapes are row-major. An axis may be negative: -1 is the last. Broadcasting is NumPy's.
 *  - Results are written only on success, unless the comment of a call says otherwise.
 *  - "Returned" objects belong to the caller, until the destroy function that the comment names.
 *    Arguments are borrowed for the call, unless the comment says otherwise.
 *  - Options come last, by name: tg_sum(x, TG_AXES(0), .keepdims = true). An option that is 0 is
 *    not given and has its default, which its comment says. TG_ZERO in a double means 0 on purpose
 *    (.beta1 = TG_ZERO); an option that cannot be 0 refuses it. Options also refuse NaN, infinity,
 *    negative numbers where these make no sense, and numbers that their enum does not have.
 *    A refused option is TG_ERROR_ARGUMENT; the message names it.
 *  - One thread at a time uses a context and everything made from it.
 */
#ifndef TENSORGRAD_H
#define TENSORGRAD_H

#include "core.h"
#include "trace.h"
#include "ops.h"
#include "nn.h"
#include "optim.h"
#include "device.h"
#include "model.h"

#endif /* TENSORGRAD_H */
