/* Engine mutant: the template transport (transport/template/transport.c) with one fault of real engines that a test of
 * conformance_test.cpp is there for. $KVCTS_MUTANT:
 *   keeps-own    a region at an address and of a size that were registered before reaches the memory of that time
 *   keeps-peers  so does a peer's region
 *   ahead        completion is said before the last piece is copied; a thread copies it immediately
 *   chunk:N      of a piece longer than N bytes, what follows the last whole N bytes is not copied
 *   nothing      nothing is copied
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void* moved(void* to, const void* from, size_t bytes);
#define memmove moved
#define kvcts_transport_entry honest_entry
#include "transport/template/transport.c"
#undef kvcts_transport_entry
#undef memmove

static int is(const char* what) {
  const char* mode = getenv("KVCTS_MUTANT");
  return mode != NULL && strcmp(mode, what) == 0;
}

typedef struct {
  void* to;
  const void* from;
  size_t bytes;
} piece;
static piece last; /* of `ahead`: not copied yet */
static pthread_t copier;
static int copying;

static void* moved(void* to, const void* from, size_t bytes) {
  const char* mode = getenv("KVCTS_MUTANT");
  if (is("nothing")) return to;
  if (mode != NULL && strncmp(mode, "chunk:", 6) == 0) {
    const size_t chunk = strtoull(mode + 6, NULL, 10);
    if (bytes > chunk) bytes -= bytes % chunk;
  }
  if (!is("ahead")) return memmove(to, from, bytes);
  if (last.bytes > 0) memmove(last.to, last.from, last.bytes);
  last = (piece){to, from, bytes};
  return to;
}

static void* copy_last(void* given) {
  memmove(last.to, last.from, last.bytes);
  last.bytes = 0;
  return given;
}
static void join(void) {
  if (copying) pthread_join(copier, NULL);
  copying = 0;
}
static int32_t mutant_poll(kvcts_agent* agent, uint64_t handle, kvcts_progress* progress) {
  join();
  const int32_t status = poll_request(agent, handle, progress);
  if (last.bytes == 0) return status;
  if (status == KVCTS_OK)
    copying = pthread_create(&copier, NULL, copy_last, NULL) == 0;
  else
    copy_last(NULL);
  return status;
}
static int32_t mutant_post(kvcts_agent* agent, uint64_t handle) { return join(), post(agent, handle); }
static int32_t mutant_release(kvcts_agent* agent, uint64_t handle) { return join(), release(agent, handle); }

/* What was mapped first at an address of a process. */
static struct {
  long long process;
  const void* at;
  uint64_t bytes;
  char* here;
} kept[256];
static char* keep(long long process, const void* at, uint64_t bytes, char* here) {
  size_t i = 0;
  while (i < 255 && kept[i].here != NULL && (kept[i].process != process || kept[i].at != at || kept[i].bytes != bytes)) ++i;
  if (kept[i].here == NULL) kept[i].process = process, kept[i].at = at, kept[i].bytes = bytes, kept[i].here = here;
  return kept[i].here;
}
static int32_t mutant_register(kvcts_agent* agent, const kvcts_region* in, uint64_t* handle) {
  const int32_t status = register_region(agent, in, handle);
  if (status != KVCTS_OK || !is("keeps-own")) return status;
  char* base = mmap(NULL, in->fd_offset + in->bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED, in->fd, 0);
  region* r = find(agent, agent->regions, *handle);
  if (base != MAP_FAILED) r->address = keep(0, in->address, in->bytes, base + in->fd_offset);
  return status;
}
static int32_t mutant_add_peer(kvcts_agent* agent, const void* metadata, uint64_t bytes, uint64_t* handle) {
  const int32_t status = add_peer(agent, metadata, bytes, handle);
  if (status != KVCTS_OK || !is("keeps-peers")) return status;
  const head* h = metadata;
  const region* theirs = (const region*)(h + 1);
  peer* p = find(agent, agent->peers, *handle);
  for (uint64_t i = 0; i < p->count; ++i)
    p->regions[i].address = keep(h->process, theirs[i].address, theirs[i].bytes, p->regions[i].address);
  return status;
}
static int32_t mutant_remove_peer(kvcts_agent* agent, uint64_t handle) {
  if (!is("keeps-peers")) return remove_peer(agent, handle);
  return take(agent, &agent->peers, handle) != NULL ? KVCTS_OK : agent->status; /* mapped for ever */
}
static void mutant_close(kvcts_agent* agent) {
  join();
  while (is("keeps-peers") && agent->peers != NULL) mutant_remove_peer(agent, agent->peers->id);
  close_agent(agent);
}

const kvcts_transport* kvcts_transport_entry(uint32_t host_abi) {
  static kvcts_transport table;
  if (honest_entry(host_abi) == NULL) return NULL;
  table = *honest_entry(host_abi);
  table.name = "mutant";
  table.close = mutant_close, table.register_region = mutant_register;
  table.add_peer = mutant_add_peer, table.remove_peer = mutant_remove_peer;
  table.post = mutant_post, table.poll = mutant_poll, table.release = mutant_release;
  return &table;
}
