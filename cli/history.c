/* history: the losses of a run, thinned so that a run of any length fits. */
#include "cli.h"

void cli_history_add(cli_history *history, int64_t step, double loss) {
    if (history->stride == 0) history->stride = 1;
    if (step % history->stride != 0) return;
    if (history->count == CLI_HISTORY_MAX) {
        int kept = 0;
        history->stride *= 2;
        for (int i = 0; i < history->count; i++) {
            if ((int64_t)history->step[i] % history->stride != 0) continue;
            history->step[kept] = history->step[i];
            history->loss[kept++] = history->loss[i];
        }
        history->count = kept;
        if (step % history->stride != 0) return;
    }
    history->step[history->count] = (double)step;
    history->loss[history->count++] = loss;
}
