/* A stand-in for the few driver calls that torch_memory_saver makes: device memory is a memory file mapped into the
 * process, so that the real library can run without a GPU. Addresses are ordinary host addresses. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define OUT_OF_MEMORY 2

static size_t granularity = 2u << 20;
static size_t capacity = SIZE_MAX;
static size_t used = 0;
static int returns_pages = 1;

static struct { size_t size; } handles[1 << 16];

/* What a test may set: the driver's page size, the size of the device, and a driver that keeps what it is given back. */
void stub_set_granularity(size_t bytes) { granularity = bytes; }
void stub_set_capacity(size_t bytes) { capacity = bytes; }
void stub_set_returns_pages(int value) { returns_pages = value; }
size_t stub_used(void) { return used; }
size_t stub_free(void) { return capacity > used ? capacity - used : 0; }

/* From now on exit() skips the destructors of everything that is loaded, which take half a second in a fork. */
static void leave(int status, void *unused) { (void)unused; _exit(status); }
void stub_leave_at_once(void) { on_exit(leave, NULL); }

int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute; (void)device; *value = 0; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "stub error"; return 0; }

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) {
    (void)properties; (void)option;
    *bytes = granularity;
    return 0;
}

int cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t wanted, uint64_t flags) {
    (void)alignment; (void)wanted; (void)flags;
    void *found = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return OUT_OF_MEMORY;
    *address = (uint64_t)(uintptr_t)found;
    return 0;
}

int cuMemAddressFree(uint64_t address, size_t size) { return munmap((void *)(uintptr_t)address, size) ? 1 : 0; }

int cuMemCreate(uint64_t *handle, size_t size, const void *properties, uint64_t flags) {
    (void)properties; (void)flags;
    if (size > stub_free()) return OUT_OF_MEMORY;
    int file = memfd_create("stub-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) return OUT_OF_MEMORY;
    handles[file].size = size;
    used += size;
    *handle = (uint64_t)file;
    return 0;
}

int cuMemRelease(uint64_t handle) {
    if (returns_pages) used -= handles[handle].size;
    return close((int)handle) ? 1 : 0;
}

int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
    (void)flags;
    void *wanted = (void *)(uintptr_t)address;
    void *found = mmap(wanted, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return found == wanted ? 0 : 1;
}

int cuMemSetAccess(uint64_t address, size_t size, const void *description, size_t count) {
    (void)description; (void)count;
    return mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE) ? 1 : 0;
}

int cuMemUnmap(uint64_t address, size_t size) {
    void *wanted = (void *)(uintptr_t)address;
    void *found = mmap(wanted, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return found == wanted ? 0 : 1;
}

/* Takes the place of libc's where this library is preloaded: a disk that takes no new file. */
static int disk_is_full = 0;
void stub_set_disk_is_full(int value) { disk_is_full = value; }

int posix_fallocate(int file, off_t offset, off_t size) {
    if (disk_is_full) return ENOSPC;
    return fallocate(file, 0, offset, size) == 0 ? 0 : errno;
}
