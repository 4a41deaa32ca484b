/* Runs one kernel in a process of its own, which may be emulated: reads a job from standard input, writes its buffers to
   standard output. Numbers are int64: kernel, number of arguments, then for each argument its kind and
   0: a number | 1: bytes, and a buffer of as many | 2: number of buffers, and for each bytes and content: a struct of their addresses */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int hypercaps_run(void *pool, int64_t kernel, const void *job, int64_t most);

static struct {
    void *at;
    size_t bytes;
} buffers[64];
static int count;

static int64_t number(void) {
    int64_t value;
    if (fread(&value, sizeof(value), 1, stdin) != 1) exit(2);
    return value;
}

static int64_t buffer(void) {
    size_t bytes = (size_t)number();
    void *at = malloc(bytes + 1); /* no more than is needed: an emulator does not hide what is read beyond */
    if (!at || fread(at, 1, bytes, stdin) != bytes) exit(2);
    buffers[count].at = at;
    buffers[count++].bytes = bytes;
    return (int64_t)(intptr_t)at;
}

int main(void) {
    int64_t kernel = number(), arguments = number(), job[16], addresses[16], pool[8] = {0};
    for (int64_t i = 0; i < arguments; i++) {
        int64_t kind = number();
        job[i] = kind == 0 ? number() : kind == 1 ? buffer() : (int64_t)(intptr_t)addresses;
        if (kind == 2)
            for (int64_t j = 0, many = number(); j < many; j++) addresses[j] = buffer();
    }
    if (hypercaps_run(pool, kernel, job, 0)) return 1;
    for (int i = 0; i < count; i++) fwrite(buffers[i].at, 1, buffers[i].bytes, stdout);
    return 0;
}
