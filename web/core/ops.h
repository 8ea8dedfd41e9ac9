/* ops: operations that differ from those of the public header: in C the result is not a single
 * tensor, or the operands come in another order. */
#ifndef TG_WEB_OPS_H
#define TG_WEB_OPS_H

#include "tensorgrad/tensorgrad.h"

tg_tensor web_top_k(tg_site site, tg_tensor x, int64_t k, int axis, bool indices); /* the indices, or the values */
/* One step from the states `before`, of which only an LSTM has c. */
tg_tensor web_rnn_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before);
tg_tensor web_gru_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before);
/* Hidden and cell states side by side along the last axis. */
tg_tensor web_lstm_fwd(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
tg_tensor web_lstm_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before);

#endif
