// The names of the C library in JavaScript. Messages of the core are worded for both languages;
// their names are replaced here, where an error is made. Names that a user gave stay: they are in
// quotes, before a shape or after a path.

/** Names in JavaScript that are not the C name in camel case. Some are kinds of messages to the
 *  worker. */
const OTHERS: Readonly<Record<string, string>> = {
  set_lr: 'setLR', resolve_lr: 'resolveLR', step_async: 'step', params_upload: 'uploadParams', param_upload: 'uploadParams', params_carry: 'carry',
  param_download: 'downloadParams', param_average_download: 'downloadParams', param_grad_download: 'downloadParamGrads',
  compile_average: 'compileForward', text: 'inspect', resetOptimizer: 'resetOptimizerState', createRuntime: 'compile',
  beta1: 'b1', beta2: 'b2', 'optimizer.average': 'average', TG_ANY: 'a null axis',
}
/** Options and the like, within a message. */
const WITHIN = new Set([
  'beta1', 'beta2', 'optimizer.average', 'TG_ANY', 'eps_mode', 'weight_decay', 'clip_norm', 'clip_value', 'align_corners', 'output_padding',
  'loss_scale', 'max_sizes', 'any_size', 'target_loss', 'steps_per_submission', 'upsample_bilinear',
])

const named = (name: string): string => OTHERS[name] ?? name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())

/** Replaces the name that a message begins with: "log_softmax: ". */
export const namedFirst = (message: string): string => message.replace(/^\w+(?=:)/, named)

/** Replaces the names in the first line of a message of the core. The other lines are sites. */
export function inJavaScript(message: string): string {
  const end = message.indexOf('\n'), line = end < 0 ? message : message.slice(0, end)
  const spoken = namedFirst(line).replaceAll(/"[^"]*"|[\w./]*\w\[?/g, (word) => {
    if (word.startsWith('tg_')) return named(word.slice(word.startsWith('tg_nn_') ? 6 : 3))
    return WITHIN.has(word) ? named(word) : word
  })
  return spoken + message.slice(line.length)
}
