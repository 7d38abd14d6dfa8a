/* The memory-provider C ABI of KV-CTS, version 1 (frozen): who allocates the regions that a transport moves.
 *
 * Without a provider, regions are host memory in memory files made by the suite. A provider brings other memory: of a
 * device unknown to the suite, or host memory allocated in its own way. A worker process allocates from it, copies
 * the suite's bytes in, registers the allocation with the transport as kvcts_region (kind MEMORY), and copies all of
 * it out again after the transfer, so that guards and bytes outside every descriptor are compared too.
 *
 * A shared library exports kvcts_memory_entry(). Structures, versions, sizes, strings, status codes, options and
 * process rules are as in kvcts_transport.h, the only other header needed. A complete provider in C, to copy:
 * harness/engines/transport/template/memory.c.
 *
 * WHAT THE SUITE GUARANTEES
 *   - A provider is loaded next to at most one transport, and opened once per side. Calls come from one thread at a time.
 *   - An allocation is released only after the transport deregistered it, and never while a request uses it.
 *   - copy_in() and copy_out() are never called while a request posted on the range is active.
 *
 * WHAT IT DEMANDS
 *   - copy_out() returns what the device, or the last writer, left there: copy_in()'s bytes must not be cached.
 *   - Allocations do not overlap, keep their address until release(), and need not hold any particular bytes at first.
 *   - Every call returns a status and blocks for a bounded time.
 */
#ifndef KVCTS_MEMORY_H
#define KVCTS_MEMORY_H

#include "kvcts_transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVCTS_MEMORY_ABI 1u

typedef struct kvcts_memory_pool kvcts_memory_pool; /* the plug-in's own type */

typedef struct kvcts_memory_open_args {
  uint64_t size;
  const char* name;            /* unique in a run, e.g. "lane3/producer" */
  int32_t device;              /* ordinal of the device to allocate on; 0 where there are none */
  uint32_t reserved;           /* 0 */
  const kvcts_option* options; /* may be NULL when there are none; unknown keys are KVCTS_E_INVALID */
  uint64_t option_count;
} kvcts_memory_open_args;

/* What the memory is. The suite tests every field. */
typedef struct kvcts_memory_info {
  uint64_t size;
  uint32_t memory;          /* KVCTS_MEMORY_ that its regions are registered as */
  int32_t device;           /* ordinal that its regions are registered with */
  uint32_t host_accessible; /* 0 or 1: the processor may read and write at the address of an allocation */
  uint32_t exports;   /* 0 or 1: each allocation has a descriptor, by which import_fd() reaches it in another process */
  uint64_t alignment; /* of every allocation's address, bytes; a power of two */
  uint64_t max_bytes; /* of one allocation; UINT64_MAX = only memory limits it */
} kvcts_memory_info;

/* One allocation. address, fd and fd_offset go into kvcts_region unchanged. */
typedef struct kvcts_allocation {
  uint64_t size;
  uint64_t handle;    /* never 0 */
  void* address;      /* what transports and the device's own calls take; never NULL */
  uint64_t bytes;     /* as requested, or more */
  int32_t fd;         /* exported: a memory file, a dma-buf; -1: none. Stays the provider's, open until release() */
  uint32_t reserved;  /* 0 */
  uint64_t fd_offset; /* where the allocation begins in fd */
} kvcts_allocation;

/* The table. Members marked (required) must not be NULL. */
typedef struct kvcts_memory {
  uint64_t size;
  uint32_t abi;        /* KVCTS_MEMORY_ABI that the plug-in was built with */
  uint32_t reserved;   /* 0 */
  const char* name;    /* (required) e.g. "acme-hbm"; at most 255 printable ASCII characters */
  const char* version; /* (required) */

  /* (required) Makes a pool, the caller's until close(). KVCTS_E_NOT_SUPPORTED: this machine lacks what it needs; the suite
   * then SKIPs. On failure *pool is NULL and last_error(NULL, ...) has the words. */
  int32_t (*open)(const kvcts_memory_open_args* args, kvcts_memory_pool** pool);

  /* (required) Ends the pool and releases everything in it. */
  void (*close)(kvcts_memory_pool* pool);

  /* (required) Fills *info, which never changes during the pool's life. */
  int32_t (*describe)(kvcts_memory_pool* pool, kvcts_memory_info* info);

  /* (required) Allocates at least this many bytes (0 is KVCTS_E_INVALID). KVCTS_E_NO_RESOURCES: not enough memory;
   * KVCTS_E_INVALID: more than max_bytes. */
  int32_t (*allocate)(kvcts_memory_pool* pool, uint64_t bytes, kvcts_allocation* allocation);

  /* (required) Releases an allocation. KVCTS_E_NOT_FOUND: no such handle. */
  int32_t (*release)(kvcts_memory_pool* pool, uint64_t handle);

  /* (required) Copies host bytes into the allocation at offset, completely before it returns. KVCTS_E_NOT_FOUND:
   * no such handle, or a range beyond its end. */
  int32_t (*copy_in)(kvcts_memory_pool* pool, uint64_t handle, uint64_t offset, const void* from, uint64_t bytes);

  /* (required) Copies bytes out. Sees the writes of every request that was reported complete. */
  int32_t (*copy_out)(kvcts_memory_pool* pool, uint64_t handle, uint64_t offset, void* to, uint64_t bytes);

  /* (required) As in kvcts_transport. */
  void (*last_error)(kvcts_memory_pool* pool, kvcts_error* error);

  /* (required where info.exports) Imports an allocation of another process by its descriptor (received here) and
   * offset, as an allocation of this pool with its own address. release() releases only the import.
   * KVCTS_E_INVALID: not such a descriptor. */
  int32_t (*import_fd)(kvcts_memory_pool* pool, int32_t fd, uint64_t fd_offset, uint64_t bytes,
                       kvcts_allocation* allocation);
} kvcts_memory;

/* The one exported symbol, like kvcts_transport_entry(). */
KVCTS_EXPORT const kvcts_memory* kvcts_memory_entry(uint32_t host_abi);
typedef const kvcts_memory* (*kvcts_memory_entry_fn)(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
#endif
