/* A stand-in for the few runtime calls that torch_memory_saver makes. "Device" addresses are host addresses. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

size_t stub_free(void);

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
    *address = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return *address ? 0 : 2;
}

int cudaFreeHost(void *address) {
    free(address);
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = stub_free();
    return 0;
}
