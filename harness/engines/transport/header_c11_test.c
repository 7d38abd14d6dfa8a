/* Compiled as C11 -pedantic-errors: the ABI is usable from plain C, and its structures have their version 1 sizes. */
#include "kvcts_memory.h"
#include "kvcts_transport.h"

_Static_assert(sizeof(kvcts_descriptor) == 40, "descriptors are an array: their stride is part of the ABI");
_Static_assert(sizeof(kvcts_claims) == 8 + 20 * 4 + 3 * 8, "claims have no hidden padding");
_Static_assert(sizeof(kvcts_region) == 8 + 4 * 4 + 3 * 8 + 2 * 4 + 2 * 8, "regions have no hidden padding");
_Static_assert(sizeof(kvcts_transfer) == 7 * 8, "transfers have no hidden padding");
_Static_assert(sizeof(kvcts_memory_info) == 8 + 4 * 4 + 2 * 8, "what memory is has no hidden padding");
_Static_assert(sizeof(kvcts_allocation) == 4 * 8 + 2 * 4 + 8, "allocations have no hidden padding");

static int32_t no_open(const kvcts_open_args* args, kvcts_agent** agent) {
  (void)args;
  *agent = 0;
  return KVCTS_E_NOT_SUPPORTED;
}

const kvcts_transport* kvcts_transport_entry(uint32_t host_abi) {
  static kvcts_transport table;
  table.size = sizeof table;
  table.abi = KVCTS_TRANSPORT_ABI;
  table.name = "nothing";
  table.version = "0";
  table.open = no_open;
  return host_abi == KVCTS_TRANSPORT_ABI ? &table : 0;
}
