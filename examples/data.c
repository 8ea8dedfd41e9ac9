/* Files and random numbers of the examples. */
#include "data.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[1200];

/* folder/name; false: too long. */
static bool find(const char *folder, const char *name, char *path, size_t room) {
    const char *data = getenv("TENSORGRAD_DATA"), *share = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int length;
    if (folder == NULL && data != NULL && *data != 0) folder = data;
    if (folder != NULL) length = snprintf(path, room, "%s/%s", folder, name);
    else if (share != NULL && *share != 0) length = snprintf(path, room, "%s/tensorgrad/%s", share, name);
    else length = snprintf(path, room, "%s/.local/share/tensorgrad/%s", home != NULL ? home : ".", name);
    return length > 0 && (size_t)length < room;
}

/* The rest of the file; NULL: it cannot be read, errno says why. */
static unsigned char *read_all(FILE *file, size_t *size) {
    size_t room = 1 << 16, used = 0;
    unsigned char *bytes = malloc(room + 1);
    while (bytes != NULL) {
        used += fread(bytes + used, 1, room - used, file);
        if (used < room) break;
        room *= 2;
        unsigned char *more = realloc(bytes, room + 1);
        if (more == NULL) free(bytes);
        bytes = more;
    }
    if (bytes != NULL && ferror(file)) {
        free(bytes);
        bytes = NULL;
    }
    if (bytes != NULL) bytes[used] = 0;
    *size = used;
    return bytes;
}

unsigned char *tg_example_read(const char *folder, const char *name, size_t *size, const char **problem) {
    char path[1024];
    *size = 0;
    *problem = message;
    if (!find(folder, name, path, sizeof path)) {
        snprintf(message, sizeof message, "the path of the data's folder is too long");
        return NULL;
    }
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = file != NULL ? read_all(file, size) : NULL;
    if (bytes == NULL)
        snprintf(message, sizeof message,
                 "cannot read %s: %s (scripts/get-data fetches the data; TENSORGRAD_DATA or --data names another folder)", path,
                 strerror(errno));
    if (file != NULL) fclose(file);
    return bytes;
}

uint64_t tg_example_random(uint64_t seed, uint64_t t, uint64_t i) {
    uint64_t z = seed * 0x9E3779B97F4A7C15u + t * 0xD1B54A32D192ED03u + i * 0x8CB92BA72F3D8DD7u + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
