/* A stand-in for the few runtime calls that torch_memory_saver makes. "Device" addresses are host addresses. */
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY 2

size_t stub_free(void);

static size_t host_capacity = SIZE_MAX;
static size_t host_used = 0;

/* How much host memory can be pinned. */
void stub_set_host_capacity(size_t bytes) { host_capacity = bytes; }
size_t stub_host_used(void) { return host_used; }

int cudaDeviceSynchronize(void) { return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaSetDevice(int device) { (void)device; return 0; }
const char *cudaGetErrorString(int error) { (void)error; return "stub error"; }

int cudaMemcpy(void *target, const void *source, size_t size, int kind) {
    (void)kind;
    memcpy(target, source, size);
    return 0;
}

int cudaMallocHost(void **address, size_t size) {
    *address = NULL;
    if (host_used > host_capacity || size > host_capacity - host_used) return OUT_OF_MEMORY;
    *address = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (*address == NULL) return OUT_OF_MEMORY;
    host_used += malloc_usable_size(*address);
    return 0;
}

int cudaFreeHost(void *address) {
    host_used -= malloc_usable_size(address);
    free(address);
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = stub_free();
    return 0;
}
