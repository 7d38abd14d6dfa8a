/* A plug-in that breaks the ABI in one way, chosen by KIND at compile time; the host must report one clear error. */
#include <stddef.h>

#include "kvcts_transport.h"

enum {
  NULL_ENTRY,
  WRONG_VERSION,
  TRUNCATED,
  HUGE_SIZE,
  TINY_SIZE,
  MISSING_CALLS,
  NO_NAME,
  NAME_WITHOUT_END,
  NO_ENTRY,
  BAD_STATUS,
  NO_AGENT,
  LYING_CLAIMS,
  NULL_TEXT,
  NONSENSE,
  OLD_VERSION,
  LONG_CLAIMS,
  OTHER_SIZE
};

#if KIND != 8 /* NO_ENTRY; the preprocessor cannot see enums */
static int32_t open_agent(const kvcts_open_args* args, kvcts_agent** agent) {
  static int place;
  (void)args;
  *agent = KIND == NO_AGENT ? NULL : (kvcts_agent*)(void*)&place;
  return KIND == BAD_STATUS ? 4711 : KIND == NULL_TEXT ? KVCTS_E_BACKEND : KVCTS_OK;
}
static void close_agent(kvcts_agent* agent) { (void)agent; }
static int32_t claims(kvcts_agent* agent, kvcts_claims* out) {
  (void)agent;
  out->kinds = out->reach = out->can_write = 1;
  out->max_descriptors = out->max_bytes = 1;
  out->alignment = KIND == LYING_CLAIMS ? 3 : 1;
  if (KIND == LONG_CLAIMS) ((unsigned char*)out)[out->size] = 0;
  if (KIND == OTHER_SIZE) out->size = 8;
  return KVCTS_OK;
}
static int32_t register_region(kvcts_agent* a, const kvcts_region* r, uint64_t* h) {
  return (void)a, (void)r, *h = 0, KVCTS_OK;
}
static int32_t by_handle(kvcts_agent* agent, uint64_t handle) { return (void)agent, (void)handle, KVCTS_OK; }
static int32_t export_metadata(kvcts_agent* a, const uint64_t* h, uint64_t n, void* buffer, uint64_t* bytes) {
  (void)a, (void)h, (void)n, (void)buffer;
  *bytes = UINT64_MAX;
  return KVCTS_OK;
}
static int32_t add_peer(kvcts_agent* a, const void* m, uint64_t n, uint64_t* peer) {
  return (void)a, (void)m, (void)n, *peer = 0, KVCTS_OK;
}
static int32_t prepare(kvcts_agent* a, const kvcts_transfer* t, uint64_t* request) {
  return (void)a, (void)t, *request = 0, KVCTS_OK;
}
static int32_t poll_request(kvcts_agent* a, uint64_t r, kvcts_progress* p) { return (void)a, (void)r, (void)p, 99; }
static void last_error(kvcts_agent* agent, kvcts_error* error) {
  (void)agent;
  error->text = NULL;
}

const kvcts_transport* kvcts_transport_entry(uint32_t host_abi) {
  static char endless[4096];
  static kvcts_transport table;
  for (size_t i = 0; i < sizeof endless; ++i) endless[i] = 'x';
  table.size = KIND == TRUNCATED   ? offsetof(kvcts_transport, prepare)
               : KIND == HUGE_SIZE ? UINT64_MAX
               : KIND == TINY_SIZE ? 4
                                   : sizeof table;
  table.abi = KIND == WRONG_VERSION ? 4711 : KVCTS_TRANSPORT_ABI;
  table.name = KIND == NO_NAME ? NULL : KIND == NAME_WITHOUT_END ? endless : "hostile";
  table.version = "1";
  table.open = open_agent;
  table.close = close_agent;
  table.claims = claims;
  table.register_region = register_region;
  table.deregister_region = by_handle;
  table.export_metadata = export_metadata;
  table.add_peer = add_peer;
  table.remove_peer = by_handle;
  table.prepare = prepare;
  table.post = KIND == MISSING_CALLS ? NULL : by_handle;
  table.poll = KIND == MISSING_CALLS ? NULL : poll_request;
  table.release = by_handle;
  table.last_error = last_error;
  return KIND == NULL_ENTRY || (KIND == OLD_VERSION && host_abi != 0) ? NULL : &table;
}
#else
int kvcts_nothing_here(void);
int kvcts_nothing_here(void) { return 0; }
#endif
