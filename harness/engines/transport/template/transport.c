/* A transport to copy: the initiator maps the memory files of a peer on the same host, and copies. Replace what is marked
 * "yours", keep the rest: every transport needs handles, checks and errors. kvcts_transport.h defines what each call must
 * do. Build and check:
 *   cc -shared -fPIC -O2 -I FOLDER_OF_THE_HEADER -o kvcts_engine_acme.so transport.c
 *   kvcts conformance ./kvcts_engine_acme.so
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvcts_transport.h"

/* Regions, peers and requests are in lists. Ids count up: a released handle is never reused. */
typedef struct item {
  struct item* next;
  uint64_t id;
} item;
typedef struct {
  item item;
  char* address;
  uint64_t bytes, fd_offset;
  int32_t fd;
  uint32_t access;
} region; /* own, or a peer's, mapped here */
typedef struct {
  item item;
  uint64_t count;
  region regions[];
} peer;
typedef struct {
  item item;
  kvcts_transfer transfer;
  int32_t state;
  uint64_t next, moved;
} request;
struct kvcts_agent {
  item *regions, *peers, *requests;
  uint64_t ids;
  int32_t status; /* of the last error */
  char text[256];
};
/* Metadata: a head, then its regions. The sum covers everything after it. */
typedef struct {
  char magic[8];
  uint64_t sum;
  int64_t process;
  uint64_t count;
} head;
static _Thread_local kvcts_agent nobody; /* for errors of open() */
static int32_t fail(kvcts_agent* agent, int32_t status, const char* text) {
  return snprintf(agent->text, sizeof agent->text, "%s", text), agent->status = status;
}
static int32_t add(kvcts_agent* agent, item** list, item* it, uint64_t* handle) {
  it->next = *list, *list = it, *handle = it->id = ++agent->ids;
  return KVCTS_OK;
}
static void* find(kvcts_agent* agent, item* list, uint64_t id) {
  while (list != NULL && list->id != id) list = list->next;
  if (list == NULL) fail(agent, KVCTS_E_NOT_FOUND, "no such region, peer or request");
  return list;
}
static void* take(kvcts_agent* agent, item** list, uint64_t id) {
  item* found = find(agent, *list, id);
  while (found != NULL && *list != found) list = &(*list)->next;
  return found != NULL ? (*list = found->next, found) : NULL;
}
static uint64_t sum_of(const head* h, uint64_t bytes) { /* FNV-1a */
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint64_t i = offsetof(head, process); i < bytes; ++i) hash = (hash ^ ((const unsigned char*)h)[i]) * 0x100000001b3u;
  return hash;
}
static int32_t open_agent(const kvcts_open_args* args, kvcts_agent** agent) {
  *agent = NULL;
  if (args->option_count > 0) return fail(&nobody, KVCTS_E_INVALID, "this transport takes no options"); /* yours */
  *agent = calloc(1, sizeof **agent); /* yours: device, queues, threads */
  return *agent != NULL ? KVCTS_OK : fail(&nobody, KVCTS_E_NO_RESOURCES, "no memory for an agent");
}
static int32_t claims(kvcts_agent* agent, kvcts_claims* out) { /* yours: what is true, and no more */
  kvcts_claims c = {.size = out->size,
                    .kinds = 1u << KVCTS_KIND_MEMORY,
                    .memories = 1u << KVCTS_MEMORY_HOST,
                    .reach = KVCTS_REACH_PROCESS | KVCTS_REACH_HOST,
                    .can_write = 1,
                    .can_read = 1,
                    .one_sided = 1,
                    .repeated_registration = 1,
                    .overlapping_registration = 1,
                    .zero_length = 1,
                    .completion = KVCTS_COMPLETION_REMOTE,
                    .alignment = 1,
                    .max_descriptors = UINT64_MAX,
                    .max_bytes = UINT64_MAX};
  memcpy(out, &c, out->size < sizeof c ? out->size : sizeof c);
  return (void)agent, KVCTS_OK;
}
static int32_t register_region(kvcts_agent* agent, const kvcts_region* in, uint64_t* handle) {
  struct stat file;
  if (in->kind != KVCTS_KIND_MEMORY || in->memory != KVCTS_MEMORY_HOST || (in->fd < 0 && in->address != NULL))
    return fail(agent, KVCTS_E_NOT_SUPPORTED, "only host memory with a memory file can be registered");
  if (in->address == NULL || fstat(in->fd, &file) != 0 || in->bytes > (uint64_t)file.st_size ||
      in->fd_offset > (uint64_t)file.st_size - in->bytes)
    return fail(agent, KVCTS_E_INVALID, "the region has no address, or ends beyond the end of its file");
  region* r = calloc(1, sizeof *r);
  if (r == NULL) return fail(agent, KVCTS_E_NO_RESOURCES, "no memory for a region");
  r->address = in->address, r->bytes = in->bytes, r->access = in->access, r->fd_offset = in->fd_offset;
  r->fd = fcntl(in->fd, F_DUPFD_CLOEXEC, 3); /* yours: pin the memory, make keys */
  return add(agent, &agent->regions, &r->item, handle);
}
static int32_t deregister_region(kvcts_agent* agent, uint64_t handle) {
  for (request* q = (request*)agent->requests; q != NULL; q = (request*)q->item.next)
    for (uint64_t d = 0; q->state == KVCTS_IN_PROGRESS && d < q->transfer.count; ++d)
      if (q->transfer.descriptors[d].local_region == handle)
        return fail(agent, KVCTS_E_BUSY, "an active request uses the region");
  region* r = take(agent, &agent->regions, handle);
  return r != NULL ? (close(r->fd), free(r), KVCTS_OK) : agent->status;
}
static int32_t export_metadata(kvcts_agent* agent, const uint64_t* handles, uint64_t count, void* buffer, uint64_t* bytes) {
  const uint64_t room = *bytes, size = sizeof(head) + count * sizeof(region);
  *bytes = size;
  if (room < size) return fail(agent, KVCTS_E_TOO_SMALL, "the buffer is too small for the metadata");
  head* h = buffer;
  *h = (head){"acme-1", 0, getpid(), count}; /* yours: how a peer reaches this agent */
  for (uint64_t i = 0; i < count; ++i) {
    if (find(agent, agent->regions, handles[i]) == NULL) return agent->status;
    ((region*)(h + 1))[i] = *(region*)find(agent, agent->regions, handles[i]);
  }
  return h->sum = sum_of(h, size), KVCTS_OK;
}
static void forget(peer* p) {
  for (uint64_t i = 0; i < p->count; ++i)
    munmap(p->regions[i].address - p->regions[i].fd_offset, p->regions[i].fd_offset + p->regions[i].bytes + 1);
  free(p);
}
static int32_t add_peer(kvcts_agent* agent, const void* metadata, uint64_t bytes, uint64_t* handle) {
  head h = {"", 0, 0, 0};
  memcpy(&h, metadata, bytes < sizeof h ? bytes : sizeof h);
  if (bytes < sizeof h || memcmp(h.magic, "acme-1", sizeof h.magic - 1) != 0 || h.sum != sum_of(metadata, bytes))
    return fail(agent, KVCTS_E_MISMATCH, "the metadata is damaged, or not of this transport");
  peer* p = calloc(1, sizeof *p + h.count * sizeof *p->regions);
  if (p == NULL) return fail(agent, KVCTS_E_NO_RESOURCES, "no memory for a peer");
  memcpy(p->regions, (const head*)metadata + 1, h.count * sizeof *p->regions);
  for (; p->count < h.count; ++p->count) { /* yours: connect, import keys */
    region* r = &p->regions[p->count];
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)h.process, r->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char* base = fd < 0 ? MAP_FAILED : mmap(NULL, r->fd_offset + r->bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (base == MAP_FAILED)
      return forget(p), fail(agent, KVCTS_E_PEER_LOST, "cannot open the peer's memory; is its process gone?");
    r->address = base + r->fd_offset;
  }
  return add(agent, &agent->peers, &p->item, handle);
}
static int32_t remove_peer(kvcts_agent* agent, uint64_t handle) {
  peer* p = take(agent, &agent->peers, handle);
  return p != NULL ? (forget(p), KVCTS_OK) : agent->status;
}

/* Where a descriptor's bytes are, and whether they may be touched. Checked at each step: they may be gone by then. */
static int32_t locate(kvcts_agent* agent, const kvcts_transfer* t, const kvcts_descriptor* d, char** here, char** there) {
  const peer* p = find(agent, agent->peers, t->peer);
  const region* local = p != NULL ? find(agent, agent->regions, d->local_region) : NULL;
  if (local == NULL) return agent->status;
  const region* remote = d->remote_region < p->count ? &p->regions[d->remote_region] : NULL;
  if (remote == NULL || d->local_offset > local->bytes || d->bytes > local->bytes - d->local_offset ||
      d->remote_offset > remote->bytes || d->bytes > remote->bytes - d->remote_offset)
    return fail(agent, KVCTS_E_NOT_FOUND, "a range of the request is outside of its region");
  if ((remote->access & (t->op == KVCTS_OP_WRITE ? KVCTS_ACCESS_REMOTE_WRITE : KVCTS_ACCESS_REMOTE_READ)) == 0)
    return fail(agent, KVCTS_E_NOT_PERMITTED, "the peer has registered the region without this access");
  *here = local->address + d->local_offset, *there = remote->address + d->remote_offset;
  return KVCTS_OK;
}
static int32_t check(kvcts_agent* agent, const kvcts_transfer* t) {
  char *here, *there;
  int32_t status = find(agent, agent->peers, t->peer) != NULL ? KVCTS_OK : agent->status;
  for (uint64_t i = 0; status == KVCTS_OK && i < t->count; ++i) status = locate(agent, t, &t->descriptors[i], &here, &there);
  return status;
}
static int32_t prepare(kvcts_agent* agent, const kvcts_transfer* t, uint64_t* handle) {
  if (t->op > KVCTS_OP_READ) return fail(agent, KVCTS_E_INVALID, "op is neither write nor read");
  if (t->notification != NULL) return fail(agent, KVCTS_E_NOT_SUPPORTED, "this transport has no notifications");
  if (check(agent, t) != KVCTS_OK) return agent->status;
  request* q = calloc(1, sizeof *q);
  if (q == NULL) return fail(agent, KVCTS_E_NO_RESOURCES, "no memory for a request");
  q->transfer = *t, q->state = KVCTS_E_NOT_POSTED; /* the suite keeps the descriptors until release() */
  return add(agent, &agent->requests, &q->item, handle);
}
static int32_t post(kvcts_agent* agent, uint64_t handle) {
  request* q = find(agent, agent->requests, handle);
  if (q != NULL && q->state == KVCTS_IN_PROGRESS) return fail(agent, KVCTS_E_BUSY, "the request is still active");
  if (q == NULL || check(agent, &q->transfer) != KVCTS_OK) return agent->status;
  q->next = q->moved = 0; /* yours: give the list to the device */
  return q->state = KVCTS_IN_PROGRESS;
}
static int32_t poll_request(kvcts_agent* agent, uint64_t handle, kvcts_progress* progress) {
  request* q = find(agent, agent->requests, handle);
  if (q == NULL) return agent->status;
  const uint64_t enough = q->moved + (8 << 20); /* never block the caller for long */
  for (; q->state == KVCTS_IN_PROGRESS && q->next < q->transfer.count && q->moved < enough;
       ++q->next) { /* yours: query the device */
    const kvcts_descriptor* d = &q->transfer.descriptors[q->next];
    char *here = NULL, *there = NULL;
    if ((q->state = locate(agent, &q->transfer, d, &here, &there)) != KVCTS_OK) return q->state;
    q->transfer.op == KVCTS_OP_WRITE ? memmove(there, here, d->bytes) : memmove(here, there, d->bytes);
    q->moved += d->bytes, q->state = KVCTS_IN_PROGRESS;
  }
  if (q->state == KVCTS_IN_PROGRESS && q->next == q->transfer.count) q->state = KVCTS_OK;
  if (progress != NULL) progress->bytes_done = q->moved, progress->descriptors_done = q->next;
  return q->state >= 0 ? q->state : fail(agent, q->state, "the request was not posted, or has failed before");
}
static int32_t release(kvcts_agent* agent, uint64_t handle) {
  request* q = take(agent, &agent->requests, handle);
  return q != NULL ? (free(q), KVCTS_OK) : agent->status;
}
static void close_agent(kvcts_agent* agent) {
  while (agent->requests != NULL) release(agent, agent->requests->id);
  while (agent->peers != NULL) remove_peer(agent, agent->peers->id);
  while (agent->regions != NULL) deregister_region(agent, agent->regions->id);
  free(agent);
}
static void last_error(kvcts_agent* agent, kvcts_error* error) {
  if (agent == NULL) agent = &nobody;
  error->status = agent->status, error->native = 0, error->text = agent->text;
}

const kvcts_transport* kvcts_transport_entry(
    uint32_t host_abi) { /* yours: name and version; progress, flush, notify, facts ... */
  static const kvcts_transport table = {.size = sizeof table,
                                        .abi = KVCTS_TRANSPORT_ABI,
                                        .name = "acme",
                                        .version = "1",
                                        .open = open_agent,
                                        .close = close_agent,
                                        .claims = claims,
                                        .register_region = register_region,
                                        .deregister_region = deregister_region,
                                        .export_metadata = export_metadata,
                                        .add_peer = add_peer,
                                        .remove_peer = remove_peer,
                                        .prepare = prepare,
                                        .post = post,
                                        .poll = poll_request,
                                        .release = release,
                                        .last_error = last_error};
  return host_abi == KVCTS_TRANSPORT_ABI ? &table : NULL;
}
