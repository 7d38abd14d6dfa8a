/* Engine hostile: the template transport (transport/template/transport.c), wrong on purpose in one way that a vendor's first
 * plug-in may be. It shows that the suite survives such a plug-in and names the fault. One option, mode:
 *
 *   exit:CALL block:CALL abort:CALL
 *       exits the process, never returns, aborts in CALL (open, claims, register_region, ... close)
 *   garbage:CALL nothing:CALL
 *       returns status 4711; returns KVCTS_OK without doing anything (handles stay 0)
 *   claim:NAME=NUMBER
 *       makes this claim whether it is true or not, and provides the calls that the claim needs; also combined with another
 *       mode: early+claim:...
 *   late early again noisy
 *       bytes change after completion; completion precedes the bytes; completes twice; bytes move after cancel and release
 *   backwards excess
 *       progress decreases; progress exceeds the request
 *   threads files
 *       every close() leaves a thread, a descriptor
 *   stale
 *       keeps what it mapped of a peer, and takes it for that of the next one with the same process and descriptor
 *   two-sided unsafe hasty
 *       falsely claims one_sided, thread_safe, notification_after_data
 *   silent endless
 *       returns an error without a message, with an endless message
 *
 * $KVCTS_HOSTILE_LOAD breaks it before any call: crash, exit or hang (in dlopen), null, truncated or no-poll (the table).
 */
#define kvcts_transport_entry honest_entry
#include "transport/template/transport.c"
#undef kvcts_transport_entry

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

const kvcts_transport* kvcts_transport_entry(uint32_t host_abi);

/* What both processes see of a side: its number of progress() calls, and its pending notifications. */
typedef struct {
  atomic_ullong rounds, notified;
} board;
typedef struct mate {
  struct mate* next;
  uint64_t peer;
  board* board;
} mate;

static const kvcts_transport* honest;
static char mode[128], lie[128]; /* per process: workers with different options do not share one */
static int board_file = -1;
static board* own;
static mate* mates;
static atomic_int inside;
static atomic_ullong taken;
static struct {
  uint64_t request, completions, rounds, polls;
  char *at, *from;
  uint64_t bytes;
} last; /* the last request that was posted */

static int is(const char* what) { return strcmp(mode, what) == 0; }
/* "exit:post" -> the mode's argument if this is its call. */
static int strikes(const char* what, const char* call) {
  const size_t n = strlen(what);
  return strncmp(mode, what, n) == 0 && mode[n] == ':' && strcmp(mode + n + 1, call) == 0;
}
/* 1: the call ends here with *status. */
static int struck(const char* call, int32_t* status) {
  if (strikes("exit", call)) _exit(7);
  if (strikes("abort", call)) abort();
  while (strikes("block", call)) pause();
  if (strikes("garbage", call)) return *status = 4711, 1;
  if (strikes("nothing", call)) return *status = KVCTS_OK, 1;
  return 0;
}
#define STRIKE(call)                          \
  do {                                        \
    int32_t status;                           \
    if (struck(call, &status)) return status; \
  } while (0)

static void* sleep_for_ever(void* nothing) {
  for (;;) pause();
  return nothing;
}
typedef struct {
  char *at, *from;
  uint64_t bytes;
} late;
static void* change_later(void* raw) {
  late* l = raw;
  nanosleep(&(struct timespec){0, 75000000}, NULL);
  if (l->from != NULL)
    memmove(l->at, l->from, l->bytes);
  else
    l->at[0] ^= 0x40;
  return free(l), NULL;
}
static void start(void* (*run)(void*), late given) {
  pthread_t thread;
  late* copy = malloc(sizeof *copy);
  *copy = given;
  if (pthread_create(&thread, NULL, run, copy) == 0) pthread_detach(thread);
}

static int32_t bad_open(const kvcts_open_args* args, kvcts_agent** agent) {
  kvcts_open_args rest = *args;
  for (uint64_t i = 0; i < args->option_count; ++i)
    if (strcmp(args->options[i].key, "mode") == 0)
      snprintf(mode, sizeof mode, "%s", args->options[i].value), rest.option_count = args->option_count - 1;
  char* claim = strstr(mode, "claim:");
  snprintf(lie, sizeof lie, "%s", claim != NULL ? claim + strlen("claim:") : "");
  if (claim != NULL) *(claim > mode ? claim - 1 : claim) = 0; /* the "+" before it */
  STRIKE("open");
  if (own == NULL && (board_file = memfd_create("kvcts-hostile", MFD_CLOEXEC)) >= 0 &&
      ftruncate(board_file, sizeof *own) == 0)
    own = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED, board_file, 0);
  return honest->open(&rest, agent);
}
static void bad_close(kvcts_agent* agent) {
  int32_t status;
  if (struck("close", &status)) return;
  if (is("threads")) start(sleep_for_ever, (late){NULL, NULL, 0});
  if (is("files") && dup(board_file) < 0) return;
  honest->close(agent);
}
static int32_t bad_claims(kvcts_agent* agent, kvcts_claims* out) {
  static const struct {
    const char* name;
    size_t at;
    int wide;
  } members[] = {
#define MEMBER(name, wide) {#name, offsetof(kvcts_claims, name), wide}
      MEMBER(kinds, 0),
      MEMBER(memories, 0),
      MEMBER(reach, 0),
      MEMBER(can_write, 0),
      MEMBER(can_read, 0),
      MEMBER(one_sided, 0),
      MEMBER(needs_target_progress, 0),
      MEMBER(repeated_registration, 0),
      MEMBER(overlapping_registration, 0),
      MEMBER(zero_length, 0),
      MEMBER(unregistered_local, 0),
      MEMBER(revokes, 0),
      MEMBER(notifications, 0),
      MEMBER(notification_after_data, 0),
      MEMBER(thread_safe, 0),
      MEMBER(completion, 0),
      MEMBER(ordering, 0),
      MEMBER(cancellation, 0),
      MEMBER(peer_death, 0),
      MEMBER(alignment, 1),
      MEMBER(max_descriptors, 1),
      MEMBER(max_bytes, 1)};
  STRIKE("claims");
  const int32_t status = honest->claims(agent, out);
  if (is("unsafe")) out->thread_safe = 1;
  if (is("hasty")) out->notifications = out->notification_after_data = 1;
  if (is("noisy")) out->cancellation = KVCTS_CANCEL_QUIET;
  for (size_t i = 0; lie[0] != 0 && i < sizeof members / sizeof *members; ++i) {
    const size_t n = strlen(members[i].name);
    if (strncmp(lie, members[i].name, n) != 0 || lie[n] != '=') continue;
    const unsigned long long value = strtoull(lie + n + 1, NULL, 10);
    if (members[i].wide)
      *(uint64_t*)(void*)((char*)out + members[i].at) = value;
    else
      *(uint32_t*)(void*)((char*)out + members[i].at) = (uint32_t)value;
  }
  return status;
}
static int32_t bad_register(kvcts_agent* a, const kvcts_region* r, uint64_t* handle) {
  STRIKE("register_region");
  return honest->register_region(a, r, handle);
}
static int32_t bad_deregister(kvcts_agent* a, uint64_t handle) {
  STRIKE("deregister_region");
  return honest->deregister_region(a, handle);
}
/* The board's descriptor follows the template's blob. */
static int32_t bad_export(kvcts_agent* a, const uint64_t* handles, uint64_t count, void* buffer, uint64_t* bytes) {
  STRIKE("export_metadata");
  const uint64_t room = *bytes;
  *bytes = room < sizeof board_file ? 0 : room - sizeof board_file;
  const int32_t status = honest->export_metadata(a, handles, count, buffer, bytes);
  if (status == KVCTS_OK) memcpy((char*)buffer + *bytes, &board_file, sizeof board_file);
  *bytes += sizeof board_file;
  return status;
}
static struct {
  long long process;
  int fd;
  char* base;
} kept[64];
/* Of each region the first mapping of its process and descriptor, whatever is behind that by now. */
static void keep_mappings(peer* p, long long process) {
  for (uint64_t i = 0; i < p->count; ++i) {
    region* r = &p->regions[i];
    size_t k = 0;
    while (k < 63 && kept[k].base != NULL && (kept[k].process != process || kept[k].fd != r->fd)) ++k;
    if (kept[k].base == NULL) kept[k].process = process, kept[k].fd = r->fd, kept[k].base = r->address - r->fd_offset;
    r->address = kept[k].base + r->fd_offset;
  }
}
static int32_t bad_add_peer(kvcts_agent* a, const void* metadata, uint64_t bytes, uint64_t* handle) {
  STRIKE("add_peer");
  if (bytes < sizeof(head) + sizeof board_file) return fail(a, KVCTS_E_MISMATCH, "the metadata is truncated");
  const int32_t status = honest->add_peer(a, metadata, bytes - sizeof board_file, handle);
  if (status != KVCTS_OK) return status;
  if (is("stale")) keep_mappings(find(a, a->peers, *handle), (long long)((const head*)metadata)->process);
  int file = -1;
  char path[64];
  memcpy(&file, (const char*)metadata + bytes - sizeof file, sizeof file);
  snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)((const head*)metadata)->process, file);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  board* theirs = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *theirs, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (theirs == MAP_FAILED) return fail(a, KVCTS_E_MISMATCH, "the metadata names another file");
  mate* m = malloc(sizeof *m);
  *m = (mate){mates, *handle, theirs};
  mates = m;
  return KVCTS_OK;
}
static int32_t bad_remove_peer(kvcts_agent* a, uint64_t handle) {
  STRIKE("remove_peer");
  for (mate** at = &mates; *at != NULL; at = &(*at)->next) {
    mate* m = *at;
    if (m->peer != handle) continue;
    *at = m->next;
    munmap(m->board, sizeof *m->board), free(m);
    break;
  }
  if (is("late") || is("early") || is("noisy") || is("stale"))
    return take(a, &a->peers, handle) != NULL ? KVCTS_OK : a->status; /* its memory is still written to */
  return honest->remove_peer(a, handle);
}
static board* board_of(uint64_t handle) {
  for (mate* m = mates; m != NULL; m = m->next)
    if (m->peer == handle) return m->board;
  return NULL;
}
static int32_t bad_prepare(kvcts_agent* a, const kvcts_transfer* t, uint64_t* handle) {
  STRIKE("prepare");
  if (is("unsafe") && atomic_fetch_add(&inside, 1) > 0) abort();
  kvcts_transfer without = *t;
  without.notification = NULL;
  if (is("unsafe")) nanosleep(&(struct timespec){0, 1000000}, NULL);
  const int32_t status = honest->prepare(a, is("hasty") ? &without : t, handle);
  if (is("unsafe")) atomic_fetch_sub(&inside, 1);
  if (is("hasty") && t->notification != NULL && board_of(t->peer) != NULL) atomic_fetch_add(&board_of(t->peer)->notified, 1);
  return status;
}
static int32_t bad_post(kvcts_agent* a, uint64_t request_handle) {
  STRIKE("post");
  const request* q = find(a, a->requests, request_handle);
  const int32_t status = honest->post(a, request_handle);
  memset(&last, 0, sizeof last);
  last.request = request_handle;
  if (status == KVCTS_IN_PROGRESS && q->transfer.count > 0 &&
      locate(a, &q->transfer, &q->transfer.descriptors[q->transfer.count - 1], &last.from, &last.at) == KVCTS_OK) {
    last.bytes = q->transfer.descriptors[q->transfer.count - 1].bytes;
    board* theirs = board_of(q->transfer.peer);
    last.rounds = theirs != NULL ? atomic_load(&theirs->rounds) : 0;
  }
  return status;
}
static int32_t bad_poll(kvcts_agent* a, uint64_t handle, kvcts_progress* progress) {
  STRIKE("poll");
  request* q = find(a, a->requests, handle);
  if (q == NULL || q->state != KVCTS_IN_PROGRESS || handle != last.request) {
    if (is("again") && q != NULL && handle == last.request && q->state == KVCTS_OK && last.completions++ == 0)
      return KVCTS_IN_PROGRESS;
    return honest->poll(a, handle, progress);
  }
  board* theirs = board_of(q->transfer.peer);
  if (is("two-sided") && theirs != NULL && atomic_load(&theirs->rounds) == last.rounds) return KVCTS_IN_PROGRESS;
  if (is("hasty") && last.polls++ < 20000) return KVCTS_IN_PROGRESS;
  if ((is("backwards") || is("excess")) && last.polls++ < 2) {
    if (progress != NULL)
      progress->bytes_done = is("excess") ? UINT64_MAX - 4 : last.polls == 1 ? 1 : 0, progress->descriptors_done = 0;
    return KVCTS_IN_PROGRESS;
  }
  if (is("early") && last.bytes > 0) { /* all but the last descriptor */
    for (uint64_t i = 0; i + 1 < q->transfer.count; ++i) {
      char *here = NULL, *there = NULL;
      if (locate(a, &q->transfer, &q->transfer.descriptors[i], &here, &there) == KVCTS_OK)
        memmove(there, here, q->transfer.descriptors[i].bytes);
    }
    q->next = q->transfer.count, q->state = KVCTS_OK;
    for (uint64_t i = 0; i < q->transfer.count; ++i) q->moved += q->transfer.descriptors[i].bytes;
    start(change_later, (late){last.at, last.from, last.bytes});
  }
  const int32_t status = honest->poll(a, handle, progress);
  if (is("late") && status == KVCTS_OK && last.bytes > 0) start(change_later, (late){last.at, NULL, 1});
  return status;
}
static int32_t bad_release(kvcts_agent* a, uint64_t handle) {
  STRIKE("release");
  if (is("noisy") && handle == last.request && last.bytes > 0) start(change_later, (late){last.at, NULL, 1});
  return honest->release(a, handle);
}
static int32_t bad_cancel(kvcts_agent* a, uint64_t handle) {
  request* q = find(a, a->requests, handle);
  if (q == NULL) return a->status;
  if (q->state == KVCTS_IN_PROGRESS) q->state = KVCTS_E_CANCELED;
  return KVCTS_OK;
}
static int32_t bad_progress(kvcts_agent* a) {
  (void)a;
  if (own != NULL) atomic_fetch_add(&own->rounds, 1);
  return KVCTS_OK;
}
static int32_t bad_notify(kvcts_agent* a, uint64_t handle, const void* data, uint64_t bytes) {
  (void)data, (void)bytes;
  if (board_of(handle) == NULL) return fail(a, KVCTS_E_NOT_FOUND, "no such peer");
  return atomic_fetch_add(&board_of(handle)->notified, 1), KVCTS_OK;
}
static int32_t bad_take(kvcts_agent* a, void* buffer, uint64_t* bytes) {
  if (own == NULL || atomic_load(&own->notified) <= atomic_load(&taken))
    return fail(a, KVCTS_E_NOT_FOUND, "no notification is pending");
  if (*bytes > 0) ((char*)buffer)[0] = 'n';
  *bytes = 1;
  return atomic_fetch_add(&taken, 1), KVCTS_OK;
}
static void bad_last_error(kvcts_agent* a, kvcts_error* error) {
  static char endless[1 << 16];
  honest->last_error(a, error);
  if (is("endless")) error->text = memset(endless, 'x', sizeof endless);
  if (is("silent")) error->text = NULL;
}

static int loads_as(const char* what) {
  const char* told = getenv("KVCTS_HOSTILE_LOAD");
  return told != NULL && strcmp(told, what) == 0;
}
__attribute__((constructor)) static void loaded(void) {
  if (loads_as("crash")) raise(SIGSEGV);
  if (loads_as("exit")) _exit(0);
  while (loads_as("hang")) pause();
}

const kvcts_transport* kvcts_transport_entry(uint32_t host_abi) {
  static kvcts_transport table;
  if (loads_as("null") || (honest = honest_entry(host_abi)) == NULL) return NULL;
  table = *honest;
  table.name = "hostile";
  table.open = bad_open, table.close = bad_close, table.claims = bad_claims, table.register_region = bad_register;
  table.deregister_region = bad_deregister, table.export_metadata = bad_export, table.add_peer = bad_add_peer,
  table.remove_peer = bad_remove_peer;
  table.prepare = bad_prepare, table.post = bad_post, table.poll = bad_poll, table.release = bad_release,
  table.cancel = bad_cancel;
  table.progress = bad_progress, table.notify = bad_notify, table.take_notification = bad_take,
  table.last_error = bad_last_error;
  if (loads_as("truncated")) table.size = 16;
  if (loads_as("no-poll")) table.poll = NULL;
  return &table;
}
