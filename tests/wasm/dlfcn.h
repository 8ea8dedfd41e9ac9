/* dlfcn: what support.c calls to load emitted C, which a WebAssembly module cannot: see home.c. */
#ifndef TENSORGRAD_TESTS_WASM_DLFCN_H
#define TENSORGRAD_TESTS_WASM_DLFCN_H
enum { RTLD_NOW = 1, RTLD_LOCAL = 2 };
#define P_tmpdir "/tmp"
void *dlopen(const char *path, int flags);
void *dlsym(void *handle, const char *name);
char *dlerror(void);
int dlclose(void *handle);
int system(const char *command);
char *mkdtemp(char *path);
#endif
