/* tensorgrad, device: where models run. Kinds of device, WebGPU adapters, precision, the CPU. */
#ifndef TENSORGRAD_DEVICE_H
#define TENSORGRAD_DEVICE_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- devices */

/* AUTO: WebGPU if a library is found and it offers a real GPU, else the CPU. WEBGPU: any adapter,
 * also a software one; without an adapter or a library TG_ERROR_DEVICE.
 * A new device first computes something small. If the result is wrong, WEBGPU gives
 * TG_ERROR_DEVICE; AUTO takes the CPU and logs the reason. Adapters that execute nothing (backend
 * "null") are never chosen. One is used only where it is named, without that first computation, and
 * its description says so.
 * The library is looked for when a model is compiled: TENSORGRAD_WEBGPU_LIB, then the usual names
 * of Dawn and wgpu-native. Nothing is linked. */
typedef enum tg_device_kind { TG_DEVICE_AUTO = 0, TG_DEVICE_CPU = 1, TG_DEVICE_WEBGPU = 2 } tg_device_kind;

/* An application's own WebGPU device, in terms of the standard webgpu.h. The handles are borrowed
 * until the last model made with them is destroyed, and belong to the calling thread during each
 * call. Such a device is never recovered. */
typedef struct tg_webgpu_device {
    void *instance; /* WGPUInstance */
    void *device;   /* WGPUDevice */
    /* finds "wgpuDeviceCreateBuffer" and so on; NULL: in the library found as above */
    void *(*procedure)(const char *name);
} tg_webgpu_device;

/* One adapter (a GPU, or a software one) of the WebGPU library. Bytes and counts are the adapter's
 * limits. */
typedef struct tg_adapter_info {
    char name[128]; /* "NVIDIA H200" */
    char vendor[64], architecture[64];
    /* "vulkan", "metal", "d3d12", "d3d11", "opengl", "opengles", "null" (executes nothing),
     * "other" */
    char backend[16];
    char type[16]; /* "discrete", "integrated", "cpu", "unknown" */
    int64_t max_buffer_bytes, max_binding_bytes;
    int32_t max_storage_buffers, max_workgroup_bytes, max_workgroup_invocations, max_workgroups;
    int32_t subgroup_min, subgroup_max; /* 0: not known */
    bool timestamps, subgroups;
    bool f16; /* halves in shaders, which TG_PRECISION_F16 needs */
    /* products of small matrices by a whole subgroup (an experiment of Dawn's); used with f16 */
    bool subgroup_matrices;
} tg_adapter_info;
/* Fills out[0 .. min(capacity, *count)), best adapter first. *count gets how many there are;
 * without a library it is 0, the status TG_OK, and the reason is logged. The position of an adapter
 * here is the "#number" of tg_compile_options.adapter. */
TG_API tg_status tg_adapters_at(tg_site site, tg_context *ctx, tg_adapter_info *out, int capacity, int *count);
#define tg_adapters(...) tg_adapters_at(TG_SITE, __VA_ARGS__)
/* Models that ask for the same library, adapter and precision share one WebGPU device, from all
 * contexts and threads: opening one takes a tenth of a second or more, and drivers allow only a
 * few. After its last model is destroyed a device stays open for the next model. At most two such
 * idle devices are kept, those used last, and the library's instance. This call closes them and
 * frees their memory; devices that models use stay. Any thread may call it. */
TG_API void tg_close_idle_devices(void);

/* What contractions (matmul, linear, attention, convolutions, and their gradients) do with their
 * operands. F32: nothing. F16: the contractions that gain by it round their operands to halves
 * (IEEE binary16, to nearest; a driver may take the other neighbour) and add the products in f32.
 * All else stays f32: parameters, gradients and the optimiser's state too. With u = 2^-11, and
 * 2^-25 for the spacing of halves below 2^-14,
 *     |c - sum a b| <= sum (2u + u^2) |a b| + 2^-25 sum (|a| + |b|) + the error of a sum in f32.
 * Finite operands over 65504, the largest half, count as 65504 of their sign; infinity and NaN
 * stay. The same model gives the same bits on the same device, and other bits on another.
 * On WebGPU, F16 acts on large contractions, on an adapter that offers f16. On other adapters and
 * on the CPU, F16 is F32: a warning is logged, and tg_model_info.precision says which is in use. It
 * is never an error. */
typedef enum tg_precision { TG_PRECISION_F32 = 0, TG_PRECISION_F16 = 1 } tg_precision;

/* The instruction set in use on this machine: "avx512", "avx2", "neon", "simd128", "scalar". */
TG_API const char *tg_cpu_name(void);
/* c[m, n] = a[m, k] b[k, n], row-major, sizes at least 1, on the calling thread. The benchmark
 * matmul:N measures it. */
TG_API tg_status tg_gemm_at(tg_site site, tg_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);
#define tg_gemm(...) tg_gemm_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_DEVICE_H */
