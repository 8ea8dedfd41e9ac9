/* library: finds a WebGPU library at run time and fills the table of its functions. An opened
 * library is never closed: drivers leave threads that run its code. Must not know devices. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include "run/webgpu/webgpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct library_symbol {
    const char *name;
    size_t offset;
    bool required;
} library_symbol;

static const library_symbol library_symbols[] = {
#define LIBRARY_REQUIRED true
#define LIBRARY_OPTIONAL false
#define LIBRARY_SYMBOL(need, result, field, symbol, parameters) {#symbol, offsetof(tg_webgpu_api, field), LIBRARY_##need},
    TG_WGPU_FUNCTIONS(LIBRARY_SYMBOL)
#undef LIBRARY_SYMBOL
#undef LIBRARY_REQUIRED
#undef LIBRARY_OPTIONAL
};

tg_status tg_webgpu_fill(tg_context *ctx, void *(*procedure)(void *user, const char *name), void *user, const char *library,
                         tg_webgpu_api *api) {
    memset(api, 0, sizeof *api);
    for (size_t i = 0; i < sizeof library_symbols / sizeof library_symbols[0]; ++i) {
        const library_symbol *symbol = &library_symbols[i];
        void *address = procedure(user, symbol->name);
        if (address == NULL && symbol->required)
            return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: %s has no %s: not a library of the standard webgpu.h", library,
                           symbol->name);
        /* ISO C has no cast from data to function pointers */
        memcpy((char *)api + symbol->offset, &address, sizeof address);
    }
    return TG_OK;
}

#if defined(__wasm__)

tg_status tg_webgpu_library(tg_context *ctx, tg_webgpu_api *api) {
    (void)api;
    return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no WebGPU library in this build");
}

#else

#  if defined(_WIN32)
#    include <windows.h>
static void *library_open(const char *name, char *why, size_t room) {
    HMODULE library = LoadLibraryA(name);
    if (library == NULL) snprintf(why, room, "error %lu", (unsigned long)GetLastError());
    return (void *)library;
}
static void *library_find(void *library, const char *name) {
    FARPROC address = GetProcAddress((HMODULE)library, name);
    void *result = NULL;
    memcpy(&result, &address, sizeof result);
    return result;
}
#    define LIBRARY_NAMES "webgpu_dawn.dll", "dawn.dll", "wgpu_native.dll", "webgpu.dll", "webgpu_wrapper.dll"
#    define LIBRARY_INSTALLED "webgpu_dawn.dll"
#  else
#    include <dlfcn.h>
static void *library_open(const char *name, char *why, size_t room) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        snprintf(why, room, "%s", error != NULL ? error : "no reason given");
    }
    return library;
}
static void *library_find(void *library, const char *name) { return dlsym(library, name); }
#    if defined(__APPLE__)
#      define LIBRARY_NAMES "libwebgpu_dawn.dylib", "libdawn.dylib", "libwgpu_native.dylib", "libwebgpu.dylib", "libwebgpu_wrapper.dylib"
#      define LIBRARY_INSTALLED "libwebgpu_dawn.dylib"
#    else
#      define LIBRARY_NAMES "libwebgpu_dawn.so", "libdawn.so", "libwgpu_native.so", "libwebgpu.so", "libwebgpu_wrapper.so"
#      define LIBRARY_INSTALLED "libwebgpu_dawn.so"
#    endif
#  endif

/* The path where scripts/get-webgpu puts it; "" if the environment names none. */
static void library_installed_path(char *path, size_t room) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int length = 0;
    if (data != NULL && data[0] == '/') length = snprintf(path, room, "%s/tensorgrad/" LIBRARY_INSTALLED, data);
    else if (home != NULL && home[0] != '\0') length = snprintf(path, room, "%s/.local/share/tensorgrad/" LIBRARY_INSTALLED, home);
    if (length <= 0 || (size_t)length >= room) path[0] = '\0';
}

static void *library_search(const char **found) {
    static const char *const names[] = {LIBRARY_NAMES};
    char why[256], path[1024];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        void *library = library_open(names[i], why, sizeof why);
        *found = names[i];
        if (library != NULL) return library;
    }
    library_installed_path(path, sizeof path);
    *found = LIBRARY_INSTALLED;
    return path[0] != '\0' ? library_open(path, why, sizeof why) : NULL;
}

tg_status tg_webgpu_library(tg_context *ctx, tg_webgpu_api *api) {
    const char *name = getenv("TENSORGRAD_WEBGPU_LIB");
    char why[512] = "";
    void *library = NULL;
    if (name != NULL && name[0] != '\0') {
        library = library_open(name, why, sizeof why);
        if (library == NULL) return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: TENSORGRAD_WEBGPU_LIB cannot be opened: %s", why);
    } else {
        library = library_search(&name);
        if (library == NULL)
            return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE,
                           "webgpu: no WebGPU library found: install Dawn or wgpu-native, or set TENSORGRAD_WEBGPU_LIB to one");
    }
    return tg_webgpu_fill(ctx, library_find, library, name, api);
}

#  undef LIBRARY_NAMES
#  undef LIBRARY_INSTALLED
#endif
