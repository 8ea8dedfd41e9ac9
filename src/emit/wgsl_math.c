/* wgsl_math: the elementary functions that printed kernels define for themselves, because WGSL's
 * own are too rough (sin is good to 2^-11) or go wrong (tanh of 1000 may be NaN). Polynomials are
 * those of run/cpu/vecmath.inc; all arithmetic is f32, correct with and without contraction to fma.
 * Infinities and NaN are made from bits, because constants of them do not compile; NaN is
 * recognised by its bits, because compilers may assume that there is none. Must not know
 * kernels. */
#include "emit/wgsl.h"

#include <string.h>

typedef struct wgsl_helper {
    const char *name, *text;
} wgsl_helper;

static const wgsl_helper wgsl_helpers[] = {
    /* Set by main from the number of workgroups that were launched, which the printer knows and no
     * compiler does. */
    {"tg_zero", "var<private> tg_zero_word: u32; // 0\n"
                "fn tg_zero() -> u32 { return tg_zero_word; }\n"},
    {"tg_keep", "fn tg_keep(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ tg_zero()); } // x, not to be seen through\n"},
    /* x / y, also where 1 / y would be subnormal: devices may take that for 0 */
    {"tg_div", "fn tg_div(x: f32, y: f32) -> f32 {\n    let s = select(1f, 0x1p-32f, abs(y) > 0x1p126f);\n"
               "    return (x * s) / tg_keep(y * s);\n}\n"},
    /* What a + b lost when it was rounded to `sum`, which must be kept; exact, whichever is larger
     * (Knuth). */
    {"tg_lost", "fn tg_lost(a: f32, b: f32, sum: f32) -> f32 {\n"
                "    let c = tg_keep(sum - a);\n"
                "    return (a - (sum - c)) + (b - c);\n}\n"},
    {"tg_regain", "fn tg_regain(sum: f32, lost: f32) -> f32 { // what is infinite has lost nothing\n"
                  "    return select(sum + lost, sum, (bitcast<u32>(sum) & 0x7f800000u) == 0x7f800000u);\n}\n"},
    {"tg_inf", "fn tg_inf() -> f32 { return bitcast<f32>(0x7f800000u ^ tg_zero()); }\n"},
    {"tg_not_a_number", "fn tg_not_a_number() -> f32 { return bitcast<f32>(0x7fc00000u ^ tg_zero()); }\n"},
    {"tg_is_nan", "fn tg_is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }\n"},
    {"tg_equal", "fn tg_equal(a: f32, b: f32) -> bool { return (a == b) & !tg_is_nan(a) & !tg_is_nan(b); }\n"},
    {"tg_sign", "fn tg_sign(x: f32) -> f32 { return select(select(select(0f, -1f, x < 0f), 1f, x > 0f), x, tg_is_nan(x)); }\n"},
    {"tg_relu", "fn tg_relu(x: f32) -> f32 { return select(0f, x, (x > 0f) | tg_is_nan(x)); }\n"},
    {"tg_min", "fn tg_min(a: f32, b: f32) -> f32 { return select(b, a, tg_is_nan(a) | (!tg_is_nan(b) & (a <= b))); }\n"},
    {"tg_max", "fn tg_max(a: f32, b: f32) -> f32 { return select(b, a, tg_is_nan(a) | (!tg_is_nan(b) & (a >= b))); }\n"},
    /* Compared without signs: one driver is wrong about the sign of a negated value whose range it
     * knows, and takes max(least, -i) for i. */
    {"tg_flip", "fn tg_flip(x: i32) -> u32 { return bitcast<u32>(x) ^ 0x80000000u; }\n"},
    {"tg_min_i32", "fn tg_min_i32(a: i32, b: i32) -> i32 { return bitcast<i32>(min(tg_flip(a), tg_flip(b)) ^ 0x80000000u); }\n"},
    {"tg_max_i32", "fn tg_max_i32(a: i32, b: i32) -> i32 { return bitcast<i32>(max(tg_flip(a), tg_flip(b)) ^ 0x80000000u); }\n"},
    /* Does value a at position i win against b at j? The larger (smaller) one wins, NaN before all,
     * the first among equals. */
    {"tg_larger", "fn tg_larger(a: f32, i: i32, b: f32, j: i32) -> bool {\n"
                  "    let first = i < j;\n"
                  "    return select(!tg_is_nan(b) & ((a > b) | ((a == b) & first)), !tg_is_nan(b) | first, tg_is_nan(a));\n}\n"},
    {"tg_smaller", "fn tg_smaller(a: f32, i: i32, b: f32, j: i32) -> bool {\n"
                   "    let first = i < j;\n"
                   "    return select(!tg_is_nan(b) & ((a < b) | ((a == b) & first)), !tg_is_nan(b) | first, tg_is_nan(a));\n}\n"},
    {"tg_larger_i32",
     "fn tg_larger_i32(a: i32, i: i32, b: i32, j: i32) -> bool { return (tg_flip(a) > tg_flip(b)) | ((a == b) & (i < j)); }\n"},
    {"tg_smaller_i32",
     "fn tg_smaller_i32(a: i32, i: i32, b: i32, j: i32) -> bool { return (tg_flip(a) < tg_flip(b)) | ((a == b) & (i < j)); }\n"},
    {"tg_div_i32", "fn tg_div_i32(a: i32, b: i32) -> i32 { // a / 0 is 0\n"
                   "    let q = a / select(b, 1, (b == 0) | (b == -1));\n"
                   "    return select(select(q, -a, b == -1), 0, b == 0);\n}\n"},
    {"tg_to_i32", "fn tg_to_i32(x: f32) -> i32 { // truncates, saturates, NaN is 0\n"
                  "    let inside = (x > -2147483648f) & (x < 2147483648f) & !tg_is_nan(x);\n"
                  "    let beyond = select(select(0, -2147483648, x <= -2147483648f), 2147483647, x >= 2147483648f);\n"
                  "    return select(select(beyond, 0, tg_is_nan(x)), i32(select(0f, x, inside)), inside);\n}\n"},
    /* WGSL has no wide product: this adds the four products of halves, none of which overflows with
     * what is added to it. */
    {"tg_high", "fn tg_high(a: u32, b: u32) -> u32 { // upper 32 bits of a b\n"
                "    let al = a & 0xffffu;\n"
                "    let ah = a >> 16u;\n"
                "    let bl = b & 0xffffu;\n"
                "    let bh = b >> 16u;\n"
                "    let middle = ah * bl + ((al * bl) >> 16u);\n"
                "    return ah * bh + (middle >> 16u) + ((al * bh + (middle & 0xffffu)) >> 16u);\n}\n"},
    {"tg_random", "fn tg_random(index: i32, key0: i32, key1: i32, stream: u32, bound: u32) -> i32 { // Philox 4x32-10\n"
                  "    var a = bitcast<u32>(index);\n"
                  "    var b = 0u;\n"
                  "    var c = stream;\n"
                  "    var d = 0u;\n"
                  "    var k = bitcast<u32>(key0);\n"
                  "    var l = bitcast<u32>(key1);\n"
                  "    for (var round = 0; round < 10; round++) {\n"
                  "        let right = tg_high(c, 0xcd9e8d57u) ^ b ^ k;\n"
                  "        let left = tg_high(a, 0xd2511f53u) ^ d ^ l;\n"
                  "        b = c * 0xcd9e8d57u;\n"
                  "        d = a * 0xd2511f53u;\n"
                  "        a = right;\n"
                  "        c = left;\n"
                  "        k += 0x9e3779b9u;\n"
                  "        l += 0xbb67ae85u;\n"
                  "    }\n"
                  "    let low = a * bound; // floor((a 2^32 + b) bound / 2^64)\n"
                  "    let sum = low + tg_high(b, bound);\n"
                  "    return bitcast<i32>(tg_high(a, bound) + select(0u, 1u, sum < low));\n}\n"},
    {"tg_exp_sum", "fn tg_exp_sum(high: f32, low: f32) -> f32 { // e^(high + low), |low| small\n"
                   "    let x = clamp(high, -104f, 89f);\n"
                   "    let k = round(x * 1.44269504f);\n"
                   "    let n = i32(k);\n"
                   "    let r = ((x - k * 0.693359375f) + k * 2.12194440e-4f) + low;\n"
                   "    var q = 0x1.9f08d8p-13f * r + 0x1.6d8ce8p-10f;\n"
                   "    q = q * r + 0x1.111270p-7f;\n"
                   "    q = q * r + 0x1.55548ep-5f;\n"
                   "    q = q * r + 0x1.555554p-3f;\n"
                   "    q = q * r + 0.5f;\n"
                   "    let p = (q * (r * r) + r) + 1f;\n"
                   "    let half = n >> 1u;\n"
                   "    let y = tg_keep(p * bitcast<f32>((half + 127) << 23u)) * bitcast<f32>((n - half + 127) << 23u);\n"
                   "    return select(y, high, tg_is_nan(high));\n}\n"},
    {"tg_exp", "fn tg_exp(x: f32) -> f32 { return tg_exp_sum(x, 0f); }\n"},
    {"tg_log_tail", "fn tg_log_tail(f: f32) -> f32 { // (log(1 + f) - f + f^2 / 2) / f^3\n"
                    "    var q = 0x1.145ea0p-4f * f - 0x1.de3e50p-4f;\n"
                    "    q = q * f + 0x1.e6ee84p-4f;\n"
                    "    q = q * f - 0x1.fc218cp-4f;\n"
                    "    q = q * f + 0x1.233782p-3f;\n"
                    "    q = q * f - 0x1.555c52p-3f;\n"
                    "    q = q * f + 0x1.99a4b4p-3f;\n"
                    "    q = q * f - 0x1.000006p-2f;\n"
                    "    return q * f + 0x1.555548p-2f;\n}\n"},
    {"tg_split", "fn tg_split(x: f32) -> vec2<f32> { // x = m 2^e, m in [sqrt 1/2, sqrt 2): m - 1 and e\n"
                 "    let tiny = (bitcast<u32>(x) & 0x7f800000u) == 0u;\n"
                 "    let bits = bitcast<i32>(select(x, x * 0x1p23f, tiny));\n"
                 "    let e = (bits - 0x3f3504f3) >> 23u;\n"
                 "    return vec2<f32>(bitcast<f32>(bits - (e << 23u)) - 1f, f32(e - select(0, 23, tiny)));\n}\n"},
    {"tg_log", "fn tg_log(x: f32) -> f32 {\n"
               "    let parts = tg_split(x);\n"
               "    let f = parts.x;\n"
               "    let k = parts.y;\n"
               "    let s = f * f;\n"
               "    var y = tg_log_tail(f) * f * s;\n"
               "    y = y - k * 2.12194440e-4f;\n"
               "    y = y - 0.5f * s;\n"
               "    y = (f + y) + k * 0.693359375f;\n"
               "    let bits = bitcast<u32>(x);\n"
               "    y = select(y, -tg_inf(), (bits << 1u) == 0u);\n"
               "    y = select(y, tg_not_a_number(), (bits > 0x7f800000u) & ((bits << 1u) != 0u));\n"
               "    return select(y, x, bits == 0x7f800000u);\n}\n"},
    {"tg_curve", "fn tg_curve(x: f32, shift: i32) -> f32 { // sin (shift 0), cos (shift 1): 1e-6 up to |x| = 1e5\n"
                 "    let n = round(x * 0.636619747f);\n"
                 "    var r = x - n * 0x1.92p+0f; // pi / 2 in pieces of 8 bits: exact products\n"
                 "    r = r - n * 0x1.fap-12f;\n"
                 "    r = r - n * 0x1.54p-20f;\n"
                 "    r = r - n * 0x1.10b462p-30f;\n"
                 "    r = clamp(r, -0.8f, 0.8f); // only where x is too large to mean anything\n"
                 "    let q = i32(n - round(n * 0.25f) * 4f) + shift;\n"
                 "    let s = r * r;\n"
                 "    var sine = 0x1.6cd756p-19f * s - 0x1.a00f9ap-13f;\n"
                 "    sine = sine * s + 0x1.111108p-7f;\n"
                 "    sine = sine * s - 0x1.555556p-3f;\n"
                 "    sine = sine * (s * r) + r;\n"
                 "    var cosine = -0x1.241e02p-22f * s + 0x1.a010dcp-16f;\n"
                 "    cosine = cosine * s - 0x1.6c16b8p-10f;\n"
                 "    cosine = cosine * s + 0x1.555556p-5f;\n"
                 "    cosine = cosine * (s * s) + (1f - 0.5f * s);\n"
                 "    let y = select(sine, cosine, (q & 1) != 0);\n"
                 "    let wild = (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u;\n"
                 "    return select(select(y, -y, (q & 2) != 0), tg_not_a_number(), wild);\n}\n"},
    {"tg_sin", "fn tg_sin(x: f32) -> f32 { return tg_curve(x, 0); }\n"},
    {"tg_cos", "fn tg_cos(x: f32) -> f32 { return tg_curve(x, 1); }\n"},
    {"tg_copysign", "fn tg_copysign(size: f32, sign: f32) -> f32 {\n"
                    "    return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));\n}\n"},
    {"tg_tanh", "fn tg_tanh(x: f32) -> f32 {\n"
                "    let a = abs(x);\n"
                "    let s = x * x;\n"
                "    var q = 0x1.123418p-9f * s - 0x1.0a2606p-7f;\n"
                "    q = q * s + 0x1.632ed0p-6f;\n"
                "    q = q * s - 0x1.b9e640p-5f;\n"
                "    q = q * s + 0x1.11103cp-3f;\n"
                "    q = q * s - 0x1.555554p-2f;\n"
                "    let near = q * (s * x) + x;\n"
                "    let b = min(a, 20f);\n"
                "    let far = tg_copysign(1f - 2f / (tg_exp(b + b) + 1f), x);\n"
                "    return select(select(far, near, a < 0.625f), x, tg_is_nan(x));\n}\n"},
    {"tg_erf", "fn tg_erf(x: f32) -> f32 {\n"
               "    let a = abs(x);\n"
               "    let s = x * x;\n"
               "    var p = -0x1.43a61ap-17f * s + 0x1.d836acp-14f;\n"
               "    p = p * s - 0x1.bcc1a6p-11f;\n"
               "    p = p * s + 0x1.56293ap-8f;\n"
               "    p = p * s - 0x1.b829b0p-6f;\n"
               "    p = p * s + 0x1.ce2f08p-4f;\n"
               "    p = p * s - 0x1.812746p-2f;\n"
               "    let near = p * (s * x) + x * 0x1.20dd76p+0f;\n"
               "    let b = min(a, 4f);\n"
               "    var q = -0x1.ac8874p-21f * b + 0x1.a983a4p-17f;\n"
               "    q = q * b - 0x1.14d6e4p-14f;\n"
               "    q = q * b - 0x1.8dd224p-14f;\n"
               "    q = q * b + 0x1.b61012p-9f;\n"
               "    q = q * b - 0x1.86075ep-6f;\n"
               "    q = q * b + 0x1.b5f8c8p-4f;\n"
               "    q = q * b + 0x1.44b894p-1f;\n"
               "    q = q * b + 0x1.2112dap+0f;\n"
               "    q = q * b - 0x1.030fa6p-13f;\n"
               "    let far = tg_copysign(1f - tg_exp(-q), x);\n"
               "    return select(select(far, near, a < 1f), x, tg_is_nan(x));\n}\n"},
    {"tg_sigmoid", "fn tg_sigmoid(x: f32) -> f32 {\n"
                   "    let y = select(1f / (1f + tg_exp(-max(x, -88f))), tg_exp(x), x < -88f);\n"
                   "    return select(y, x, tg_is_nan(x));\n}\n"},
    {"tg_softplus", "fn tg_softplus(x: f32) -> f32 { // max(x, 0) + log(1 + u); a small u must not be lost in 1 + u\n"
                    "    let u = tg_exp(-abs(x));\n"
                    "    let small = u - (0.5f * u * u - tg_log_tail(u) * u * (u * u));\n"
                    "    let tail = select(tg_log(1f + u), small, u < 0.4f);\n"
                    "    return select(select(x, 0f, x <= 0f) + tail, x, tg_is_nan(x));\n}\n"},
    /* toward a half: finite values stay finite */
    {"tg_within_half", "fn tg_within_half(v: vec4<f32>) -> vec4<f32> { // infinity and NaN stay\n"
                       "    let finite = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7f800000u)) != vec4<u32>(0x7f800000u);\n"
                       "    return select(v, clamp(v, vec4<f32>(-65504f), vec4<f32>(65504f)), finite);\n}\n"},
    {"tg_floor", "fn tg_floor(x: f32) -> f32 { return select(x, floor(x), abs(x) < 0x1p23f); }\n"},
    {"tg_round", "fn tg_round(x: f32) -> f32 { return select(x, round(x), abs(x) < 0x1p23f); }\n"},
    {"tg_expm1", "fn tg_expm1(x: f32) -> f32 {\n"
                 "    var q = 0x1.71de3ap-19f * x + 0x1.a01a02p-16f;\n"
                 "    q = q * x + 0x1.a01a02p-13f;\n"
                 "    q = q * x + 0x1.6c16c2p-10f;\n"
                 "    q = q * x + 0x1.111112p-7f;\n"
                 "    q = q * x + 0x1.555556p-5f;\n"
                 "    q = q * x + 0x1.555556p-3f;\n"
                 "    q = q * x + 0.5f;\n"
                 "    return select(tg_exp(x) - 1f, q * x * x + x, abs(x) < 0.5f);\n}\n"},
    {"tg_log1p", "fn tg_log1p(x: f32) -> f32 { // near 0 the low bits of x must not be lost in 1 + x\n"
                 "    let f = clamp(x, -0.25f, 0.4f);\n"
                 "    let near = f - (0.5f * f * f - tg_log_tail(f) * f * (f * f));\n"
                 "    return select(tg_log(1f + x), near, f == x);\n}\n"},
    {"tg_upper", "fn tg_upper(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); } // 12 bits\n"},
    /* y log x in two floats. The high one is masked, so that no contraction can make it differ from
     * the value of which the error was taken. */
    {"tg_power", "fn tg_power(x: f32, y: f32) -> f32 { // x^y, x > 0 and finite\n"
                 "    let parts = tg_split(x);\n"
                 "    let f = parts.x;\n"
                 "    let k = parts.y;\n"
                 "    let fh = tg_upper(f);\n"
                 "    let fl = f - fh;\n"
                 "    let half_square = 0.5f * (fh * fh);\n"
                 "    let s = tg_keep(f - half_square);\n"
                 "    var low = ((f - s) - half_square) - (fh * fl + 0.5f * fl * fl) + tg_log_tail(f) * f * (f * f);\n"
                 "    let t = k * 0.693359375f;\n"
                 "    let h = tg_keep(t + s);\n"
                 "    low = (((t - h) + s) + low) - k * 2.12194440e-4f;\n"
                 "    let lh = tg_upper(h + low);\n"
                 "    let ll = (h - lh) + low;\n"
                 "    let z = clamp(y, -1e10f, 1e10f);\n"
                 "    let zh = tg_upper(z);\n"
                 "    let high = tg_upper(z * lh);\n"
                 "    let rest = ((zh * lh - high) + (z - zh) * lh) + z * ll;\n"
                 "    return tg_exp_sum(high, select(0f, rest, abs(high) < 110f));\n}\n"},
    {"tg_pow", "fn tg_pow(x: f32, y: f32) -> f32 {\n"
               "    let a = abs(x);\n"
               "    let huge = bitcast<u32>(a) == 0x7f800000u;\n"
               "    let zero = a == 0f;\n"
               "    var z = tg_power(select(a, 1f, huge | zero), y);\n"
               "    z = select(z, select(0f, tg_inf(), (y > 0f) == huge), huge | zero);\n"
               "    let size = abs(y); // from 2^24 on every float is even\n"
               "    let whole = (size >= 0x1p24f) | (floor(size) == size);\n"
               "    let odd = (size < 0x1p24f) & (floor(size) == size) & ((i32(min(size, 0x1p24f)) & 1) != 0);\n"
               "    z = select(z, -z, odd & (bitcast<i32>(x) < 0));\n"
               "    z = select(z, tg_not_a_number(), (x < 0f) & !huge & !whole);\n"
               "    z = select(z, tg_not_a_number(), tg_is_nan(x) | tg_is_nan(y));\n"
               "    z = select(z, 1f, (x == -1f) & (bitcast<u32>(size) == 0x7f800000u));\n"
               "    return select(z, 1f, (y == 0f) | (x == 1f));\n}\n"},
    /* All in integers: neither a rounded quotient nor a flushed subnormal number can do harm. */
    {"tg_mod", "fn tg_mod(a: f32, b: f32) -> f32 { // in [0, |b|) with the sign of b\n"
               "    let x = bitcast<u32>(a) & 0x7fffffffu;\n"
               "    let y = bitcast<u32>(b) & 0x7fffffffu;\n"
               "    let sign = bitcast<u32>(b) & 0x80000000u;\n"
               "    if (y == 0u || x >= 0x7f800000u || y > 0x7f800000u) { return tg_not_a_number(); }\n"
               "    var r = x;\n"
               "    if (x >= y) {\n"
               "        let divisor = select(y & 0x7fffffu, (y & 0x7fffffu) | 0x800000u, y >= 0x800000u);\n"
               "        r = select(x & 0x7fffffu, (x & 0x7fffffu) | 0x800000u, x >= 0x800000u);\n"
               "        let exponent = max(y >> 23u, 1u);\n"
               "        var left = max(x >> 23u, 1u) - exponent;\n"
               "        r = r % divisor;\n"
               "        while (left > 0u) { // long division, 8 bits at a time\n"
               "            let bits = min(left, 8u);\n"
               "            r = (r << bits) % divisor;\n"
               "            left -= bits;\n"
               "        }\n"
               "        let shift = min(countLeadingZeros(r | 1u) - 8u, exponent - 1u);\n"
               "        r = r << shift;\n"
               "        r = select(r, (r & 0x7fffffu) | ((exponent - shift) << 23u), r >= 0x800000u);\n"
               "    }\n"
               "    if (r == 0u || (((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u) == 0u)) { return bitcast<f32>(r | sign); }\n"
               "    if (y == 0x7f800000u) { return bitcast<f32>(y | sign); }\n"
               "    let turned = bitcast<u32>(bitcast<f32>(y) - bitcast<f32>(r)) & 0x7fffffffu;\n"
               "    return bitcast<f32>(select(turned, y - 1u, turned >= y) | sign);\n}\n"},
};
#define WGSL_HELPERS ((int)(sizeof wgsl_helpers / sizeof wgsl_helpers[0]))

/* Does `text` call `name`? */
static bool wgsl_calls(const char *text, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if (at[length] == '(') return true;
    return false;
}

bool tg_wgsl_has_helper(const tg_wgsl *w, const char *name) {
    for (int i = 0; i < WGSL_HELPERS; i++)
        if (strcmp(wgsl_helpers[i].name, name) == 0) return w->helper[i];
    return false;
}

const char *tg_wgsl_helper(tg_wgsl *w, const char *name) {
    for (int i = 0; i < WGSL_HELPERS; i++) {
        if (strcmp(wgsl_helpers[i].name, name) != 0) continue;
        if (w->helper[i]) return name;
        w->helper[i] = true;
        for (int j = 0; j < WGSL_HELPERS; j++)
            if (j != i && wgsl_calls(wgsl_helpers[i].text, wgsl_helpers[j].name)) (void)tg_wgsl_helper(w, wgsl_helpers[j].name);
        return name;
    }
    tg_wgsl_fail(w, TG_ERROR_INTERNAL, "a math helper that does not exist");
    return name;
}

void tg_wgsl_use_helpers(tg_wgsl *w, const char *expression) {
    for (int i = 0; i < WGSL_HELPERS; i++)
        if (wgsl_calls(expression, wgsl_helpers[i].name)) (void)tg_wgsl_helper(w, wgsl_helpers[i].name);
}

void tg_wgsl_define_helpers(tg_wgsl *w, tg_text_buffer *text) {
    for (int i = 0; i < WGSL_HELPERS; i++)
        if (w->helper[i]) tg_text_add(text, "%s", wgsl_helpers[i].text);
}
#undef WGSL_HELPERS
