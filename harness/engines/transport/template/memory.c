/* A memory provider to copy: host memory in its own memory files. Replace what is marked "yours". kvcts_memory.h defines
 * what each call must do. Build and check:
 *   cc -shared -fPIC -O2 -I FOLDER_OF_THE_HEADERS -o kvcts_memory_acme.so memory.c
 *   kvcts conformance PLUGIN --memory ./kvcts_memory_acme.so
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvcts_memory.h"

typedef struct block {
  struct block* next;
  uint64_t handle;
  char* base;
  uint64_t offset, bytes;
  int fd;
} block;
struct kvcts_memory_pool {
  block* blocks;
  uint64_t handles;
  int32_t status; /* of the last error */
  char text[256];
};
static _Thread_local kvcts_memory_pool nobody; /* for errors of open() */

static int32_t fail(kvcts_memory_pool* pool, int32_t status, const char* text) {
  return snprintf(pool->text, sizeof pool->text, "%s", text), pool->status = status;
}
static int32_t open_pool(const kvcts_memory_open_args* args, kvcts_memory_pool** pool) {
  *pool = NULL;
  if (args->option_count > 0) return fail(&nobody, KVCTS_E_INVALID, "this provider takes no options"); /* yours */
  *pool = calloc(1, sizeof **pool); /* yours: the device's context */
  return *pool != NULL ? KVCTS_OK : fail(&nobody, KVCTS_E_NO_RESOURCES, "no memory for a pool");
}
static int32_t describe(kvcts_memory_pool* pool, kvcts_memory_info* out) { /* yours: what is true */
  kvcts_memory_info info = {.size = out->size,
                            .memory = KVCTS_MEMORY_HOST,
                            .host_accessible = 1,
                            .exports = 1,
                            .alignment = 4096,
                            .max_bytes = UINT64_MAX};
  memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
  return (void)pool, KVCTS_OK;
}
/* Maps a file, which the pool owns from now on. */
static int32_t map(kvcts_memory_pool* pool, int fd, uint64_t offset, uint64_t bytes, kvcts_allocation* out) {
  block* b = calloc(1, sizeof *b);
  char* base = b != NULL && fd >= 0 ? mmap(NULL, offset + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (base == MAP_FAILED) return free(b), close(fd), fail(pool, KVCTS_E_NO_RESOURCES, "not enough memory");
  *b = (block){pool->blocks, ++pool->handles, base, offset, bytes, fd};
  pool->blocks = b;
  out->handle = b->handle, out->address = base + offset, out->bytes = bytes, out->fd = fd, out->fd_offset = offset;
  return KVCTS_OK;
}
static int32_t allocate(kvcts_memory_pool* pool, uint64_t bytes, kvcts_allocation* out) { /* yours */
  if (bytes == 0) return fail(pool, KVCTS_E_INVALID, "expected an allocation of at least one byte");
  const int fd = memfd_create("acme", MFD_CLOEXEC);
  if (fd >= 0 && (bytes > INT64_MAX || ftruncate(fd, (off_t)bytes) != 0))
    return close(fd), fail(pool, KVCTS_E_NO_RESOURCES, "not enough memory");
  return map(pool, fd, 0, bytes, out);
}
static int32_t import_fd(kvcts_memory_pool* pool, int32_t fd, uint64_t offset, uint64_t bytes,
                         kvcts_allocation* out) { /* yours */
  struct stat file;
  if (fstat(fd, &file) != 0 || bytes == 0 || bytes > (uint64_t)file.st_size || offset > (uint64_t)file.st_size - bytes)
    return fail(pool, KVCTS_E_INVALID, "this descriptor has no such range");
  return map(pool, fcntl(fd, F_DUPFD_CLOEXEC, 3), offset, bytes, out);
}
static int32_t release(kvcts_memory_pool* pool, uint64_t handle) {
  for (block** at = &pool->blocks; *at != NULL; at = &(*at)->next) {
    block* b = *at;
    if (b->handle != handle) continue;
    *at = b->next;
    munmap(b->base, b->offset + b->bytes), close(b->fd), free(b); /* yours */
    return KVCTS_OK;
  }
  return fail(pool, KVCTS_E_NOT_FOUND, "no such allocation");
}
/* The address of a range, NULL if there is none. */
static char* range(kvcts_memory_pool* pool, uint64_t handle, uint64_t offset, uint64_t bytes) {
  for (const block* b = pool->blocks; b != NULL; b = b->next)
    if (b->handle == handle && offset <= b->bytes && bytes <= b->bytes - offset) return b->base + b->offset + offset;
  fail(pool, KVCTS_E_NOT_FOUND, "no such allocation, or a range beyond its end");
  return NULL;
}
static int32_t copy_in(kvcts_memory_pool* pool, uint64_t handle, uint64_t offset, const void* from, uint64_t bytes) {
  char* at = range(pool, handle, offset, bytes);
  return at != NULL ? (memcpy(at, from, bytes), KVCTS_OK) : pool->status; /* yours: copy, then wait for the device */
}
static int32_t copy_out(kvcts_memory_pool* pool, uint64_t handle, uint64_t offset, void* to, uint64_t bytes) {
  const char* at = range(pool, handle, offset, bytes);
  return at != NULL ? (memcpy(to, at, bytes), KVCTS_OK) : pool->status; /* yours */
}
static void last_error(kvcts_memory_pool* pool, kvcts_error* error) {
  if (pool == NULL) pool = &nobody;
  error->status = pool->status, error->native = 0, error->text = pool->text;
}
static void close_pool(kvcts_memory_pool* pool) {
  while (pool->blocks != NULL) release(pool, pool->blocks->handle);
  free(pool);
}

const kvcts_memory* kvcts_memory_entry(uint32_t host_abi) { /* yours: name and version */
  static const kvcts_memory table = {.size = sizeof table,
                                     .abi = KVCTS_MEMORY_ABI,
                                     .name = "acme-memory",
                                     .version = "1",
                                     .open = open_pool,
                                     .close = close_pool,
                                     .describe = describe,
                                     .allocate = allocate,
                                     .release = release,
                                     .copy_in = copy_in,
                                     .copy_out = copy_out,
                                     .last_error = last_error,
                                     .import_fd = import_fd};
  return host_abi == KVCTS_MEMORY_ABI ? &table : NULL;
}
