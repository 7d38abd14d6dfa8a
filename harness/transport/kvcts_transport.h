/* The transport C ABI of KV-CTS, version 0: what a shared library must offer to be tested as an engine.
 *
 * C11 and C++ clean; no other header of the suite is needed. A plug-in exports one symbol, kvcts_transport_entry(), which
 * returns a table of functions. Version 0 may still change; version 1 will be frozen.
 *
 * THE MODEL
 *   agent     one endpoint: it registers memory and talks to peers. A worker process opens one agent a side that it hosts
 *             (two agents in one process when both sides live there) and keeps it for many cases.
 *   region    a range of memory, a file or a keyed object that the agent was told about.
 *   metadata  an opaque blob about an agent and some of its regions; the suite carries it to the peer, byte for byte.
 *   peer      what an agent knows of another agent from one blob. Its regions are numbered 0.. in the order in which the
 *             other side passed them to export_metadata().
 *   request   a list of descriptors with one direction: prepared once, posted once or many times, polled, released.
 *
 * WHAT THE SUITE GUARANTEES
 *   - One plug-in in a process, loaded once with RTLD_NOW | RTLD_LOCAL, never unloaded; one plug-in's process never forks.
 *   - Calls on agents of one process come from one thread at a time, unless claims.thread_safe is set.
 *   - Structures that it passes are valid during the call only, except where said; memory of a registered region stays
 *     mapped, at its address, until it was deregistered or the process ends, also after a failed transfer.
 *   - After a failed, cancelled or timed-out request it treats the memory as still owned by the engine and watches it.
 *   - It ends a process that passes a deadline with SIGKILL and then looks at the memory from another process.
 *
 * WHAT THE SUITE DEMANDS
 *   - Every call returns a status; no exception, exit(), abort() or signal leaves a plug-in because of a bad argument.
 *   - A request that was accepted is executed wholly and only: bytes outside the descriptors never change.
 *   - post, poll, progress, notify, take_notification, flush and cancel do not wait for the peer. open, register_region,
 *     export_metadata, add_peer, prepare, release, deregister_region and close may block for a bounded time.
 *   - A handle that was never given out or was given back is answered with KVCTS_E_NOT_FOUND. Handles are never 0.
 *   - What claims() says is true. The suite tests it.
 *
 * STRUCTURES AND VERSIONS
 *   Each structure begins with its own size in bytes, set by whoever fills it. The reader uses only members that lie wholly
 *   within that size and takes the others as zero; new members are only ever added at the end. For out-parameters the
 *   suite sets size before the call, and the plug-in writes no byte beyond it.
 *   Strings are UTF-8, end with a zero byte, and are never NULL unless said.
 *
 * ERRORS
 *   Functions that return int32_t return KVCTS_OK, sometimes KVCTS_IN_PROGRESS, or one of the negative KVCTS_E_ codes. After
 *   a negative code last_error() has the words and the engine's own number.
 */
#ifndef KVCTS_TRANSPORT_H
#define KVCTS_TRANSPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVCTS_TRANSPORT_ABI 0u

/* Status of a call. */
enum {
  KVCTS_OK = 0,
  KVCTS_IN_PROGRESS = 1,
  KVCTS_E_INVALID = -1,       /* an argument is malformed, unaligned or contradictory */
  KVCTS_E_NOT_FOUND = -2,     /* unknown region, peer or request; nothing registered covers this range; nothing to take */
  KVCTS_E_NOT_PERMITTED = -3, /* the region was registered without this access */
  KVCTS_E_NOT_SUPPORTED = -4, /* the engine cannot do this at all */
  KVCTS_E_PEER_LOST = -5,     /* the peer is gone or does not answer any more */
  KVCTS_E_BACKEND = -6,       /* the library below failed; last_error() has its code */
  KVCTS_E_MISMATCH = -7,      /* metadata that is damaged, stale or of another engine or version */
  KVCTS_E_BUSY = -8,          /* posted again while active; deregistered while in use */
  KVCTS_E_CANCELED = -9,      /* the request ended because of cancel() */
  KVCTS_E_TOO_SMALL = -10,    /* the buffer given is too small; the size needed was stored */
  KVCTS_E_NO_RESOURCES = -11, /* memory, descriptors, queue places */
  KVCTS_E_TIMED_OUT = -12,    /* a limit of the engine's own passed */
  KVCTS_E_NOT_POSTED = -13    /* polled or cancelled before post() */
};

typedef struct kvcts_agent kvcts_agent; /* the plug-in's own type */

/* One option of a case or of the catalogue, e.g. {"error_handling", "peer"}. Unknown keys are KVCTS_E_INVALID. */
typedef struct kvcts_option {
  const char* key;
  const char* value;
} kvcts_option;

enum { KVCTS_ROLE_PRODUCER = 0, KVCTS_ROLE_CONSUMER = 1 };

typedef struct kvcts_open_args {
  uint64_t size;
  const char* name;            /* unique among the agents of a run, e.g. "lane3/producer" */
  uint32_t role;               /* KVCTS_ROLE_ */
  uint32_t reserved;           /* 0 */
  const kvcts_option* options; /* may be NULL when there are none */
  uint64_t option_count;
} kvcts_open_args;

/* What an engine says of itself. Every line is tested against behaviour. */
enum { KVCTS_KIND_MEMORY = 0, KVCTS_KIND_FILE = 1, KVCTS_KIND_OBJECT = 2 };
enum { KVCTS_MEMORY_HOST = 0, KVCTS_MEMORY_CUDA = 1, KVCTS_MEMORY_HIP = 2, KVCTS_MEMORY_OTHER = 3 };
enum { KVCTS_COMPLETION_LOCAL = 0, KVCTS_COMPLETION_REMOTE = 1 };
enum { KVCTS_ORDER_NONE = 0, KVCTS_ORDER_REQUESTS = 1, KVCTS_ORDER_DESCRIPTORS = 2 };
enum { KVCTS_CANCEL_NONE = 0, KVCTS_CANCEL_BEST_EFFORT = 1, KVCTS_CANCEL_QUIET = 2 };
enum { KVCTS_DEATH_UNNOTICED = 0, KVCTS_DEATH_AT_POST = 1, KVCTS_DEATH_DURING = 2 };
enum { KVCTS_REACH_PROCESS = 1, KVCTS_REACH_HOST = 2, KVCTS_REACH_NETWORK = 4 };

typedef struct kvcts_claims {
  uint64_t size;
  uint32_t kinds;                    /* bit mask: 1 << KVCTS_KIND_ */
  uint32_t memories;                 /* bit mask: 1 << KVCTS_MEMORY_ */
  uint32_t reach;                    /* bit mask KVCTS_REACH_: peers in the same process, on the same host, elsewhere */
  uint32_t can_write;                /* 0 or 1: KVCTS_OP_WRITE */
  uint32_t can_read;                 /* 0 or 1: KVCTS_OP_READ */
  uint32_t one_sided;                /* 0 or 1: the target's processor takes no part in moving bytes */
  uint32_t needs_target_progress;    /* 0 or 1: the target must call progress() or nothing completes */
  uint32_t repeated_registration;    /* 0 or 1: the same range may be registered twice */
  uint32_t overlapping_registration; /* 0 or 1: ranges may overlap */
  uint32_t zero_length;              /* 0 or 1: descriptors of 0 bytes are accepted, and do nothing */
  uint32_t unregistered_local;       /* 0 or 1: KVCTS_NO_REGION is accepted as the local side */
  uint32_t revokes;                  /* 0 or 1: a transfer to a region that the peer deregistered is an error */
  uint32_t notifications;            /* 0 or 1: notify(), take_notification() and notifications of requests work */
  uint32_t notification_after_data;  /* 0 or 1: when taken, the request's bytes are visible to the taker */
  uint32_t thread_safe;              /* 0 or 1: calls on one agent may come from several threads at once */
  uint32_t completion;               /* KVCTS_COMPLETION_: what KVCTS_OK of poll() means for a write */
  uint32_t ordering;                 /* KVCTS_ORDER_: between requests to one peer; between descriptors of a request */
  uint32_t cancellation;             /* KVCTS_CANCEL_: QUIET = after cancel and release no byte of the request moves */
  uint32_t peer_death;               /* KVCTS_DEATH_: when KVCTS_E_PEER_LOST is reported */
  uint32_t reserved;                 /* 0 */
  uint64_t alignment;                /* of addresses, offsets and lengths, bytes; a power of two; 1 = any */
  uint64_t max_descriptors;          /* of one request; UINT64_MAX = only memory limits it */
  uint64_t max_bytes;                /* of one descriptor; UINT64_MAX = no limit */
} kvcts_claims;

enum { KVCTS_ACCESS_LOCAL = 1, KVCTS_ACCESS_REMOTE_READ = 2, KVCTS_ACCESS_REMOTE_WRITE = 4 };

/* A region to register. MEMORY: address, bytes; fd and fd_offset name the memory file behind it, when there is one
 * (fd = -1 otherwise): the suite's host memory always has one. FILE: fd, fd_offset, bytes. OBJECT: key, bytes.
 * The plug-in duplicates fd if it needs it after the call. */
typedef struct kvcts_region {
  uint64_t size;
  uint32_t kind;       /* KVCTS_KIND_ */
  uint32_t memory;     /* KVCTS_MEMORY_ */
  int32_t device;      /* ordinal for device memory, else 0 */
  int32_t fd;
  uint64_t fd_offset;
  void* address;
  uint64_t bytes;
  uint32_t access;     /* bit mask KVCTS_ACCESS_ */
  uint32_t reserved;   /* 0 */
  const char* key;     /* OBJECT: key_bytes bytes, no zero needed; else NULL */
  uint64_t key_bytes;
} kvcts_region;

#define KVCTS_NO_REGION UINT64_MAX

/* bytes from local (region, offset) to remote (region, offset) for a write, the other way for a read.
 * local_region: a handle of register_region(), or KVCTS_NO_REGION: then local_offset is an address that nobody registered.
 * remote_region: the ordinal of the region in the peer's metadata. Offsets count from the region's start; engines that
 * address absolutely add the base. A range beyond the end is refused with KVCTS_E_NOT_FOUND, by prepare(), post() or poll(). */
typedef struct kvcts_descriptor {
  uint64_t local_region;
  uint64_t local_offset;
  uint64_t remote_region;
  uint64_t remote_offset;
  uint64_t bytes;
} kvcts_descriptor;

enum { KVCTS_OP_WRITE = 0, KVCTS_OP_READ = 1 };

typedef struct kvcts_transfer {
  uint64_t size;
  uint64_t peer;
  uint32_t op;                         /* KVCTS_OP_ */
  uint32_t reserved;                   /* 0 */
  const kvcts_descriptor* descriptors; /* stay valid and unchanged until release(); a stride of sizeof(kvcts_descriptor) */
  uint64_t count;                      /* 0 is allowed: such a request completes and moves nothing */
  const void* notification;            /* NULL: none. Else sent to the peer once the data is there; valid until release() */
  uint64_t notification_bytes;
} kvcts_transfer;

#define KVCTS_UNKNOWN UINT64_MAX

typedef struct kvcts_progress {
  uint64_t size;
  uint64_t bytes_done;       /* or KVCTS_UNKNOWN */
  uint64_t descriptors_done; /* or KVCTS_UNKNOWN */
} kvcts_progress;

typedef struct kvcts_error {
  uint64_t size;
  int32_t status;    /* of the last failed call on this agent */
  int32_t reserved;
  int64_t native;    /* the engine's own code, 0 when there is none */
  const char* text;  /* one sentence; valid until the next call on the agent; never NULL */
} kvcts_error;

typedef void (*kvcts_fact_sink)(void* context, const char* key, const char* value);

/* The table. Members marked (required) must not be NULL; NULL elsewhere means: not supported. */
typedef struct kvcts_transport {
  uint64_t size;
  uint32_t abi;        /* KVCTS_TRANSPORT_ABI that the plug-in was built with */
  uint32_t reserved;   /* 0 */
  const char* name;    /* (required) e.g. "ucx" */
  const char* version; /* (required) of the engine itself, e.g. "1.13.1"; static storage */

  /* (required) Makes an agent. Blocks while devices and libraries are opened. On failure *agent is NULL and
   * last_error(NULL, ...) has the words. */
  int32_t (*open)(const kvcts_open_args* args, kvcts_agent** agent);

  /* (required) Ends the agent: outstanding requests, peers and registrations go with it. Always frees. May wait for the
   * engine's threads, never for a peer. */
  void (*close)(kvcts_agent* agent);

  /* (required) Fills *claims; the same for the life of the agent. claims->size is set by the suite. */
  int32_t (*claims)(kvcts_agent* agent, kvcts_claims* claims);

  /* (required) Makes a region usable as the local side of transfers and, as access says, by peers. */
  int32_t (*register_region)(kvcts_agent* agent, const kvcts_region* region, uint64_t* handle);

  /* (required) Undoes it. KVCTS_E_BUSY when an active request uses it. A peer that still holds its metadata is answered with
   * an error at its next transfer where claims.revokes; elsewhere its bytes may still reach the old address. */
  int32_t (*deregister_region)(kvcts_agent* agent, uint64_t handle);

  /* (required) Writes the blob about this agent and these regions, in this order, into buffer. *bytes: in, its capacity;
   * out, the size needed. KVCTS_E_TOO_SMALL when it does not fit (buffer may then be NULL). The suite asks again with
   * room; the blob may differ between calls but both must work. */
  int32_t (*export_metadata)(kvcts_agent* agent, const uint64_t* handles, uint64_t count, void* buffer, uint64_t* bytes);

  /* (required) Makes a peer of a blob. Several peers may come from one agent (a blob a case); connections may be shared and
   * kept. A damaged blob is KVCTS_E_MISMATCH and leaves no trace: the good blob works afterwards. */
  int32_t (*add_peer)(kvcts_agent* agent, const void* metadata, uint64_t bytes, uint64_t* peer);

  /* (required) Forgets one peer. Requests that were prepared with it answer KVCTS_E_NOT_FOUND from then on. */
  int32_t (*remove_peer)(kvcts_agent* agent, uint64_t peer);

  /* (required) Checks and makes a request; moves nothing. */
  int32_t (*prepare)(kvcts_agent* agent, const kvcts_transfer* transfer, uint64_t* request);

  /* (required) Starts it. KVCTS_OK: it has completed already; KVCTS_IN_PROGRESS: poll. May be posted again after completion:
   * KVCTS_E_BUSY before. */
  int32_t (*post)(kvcts_agent* agent, uint64_t request);

  /* (required) Where the request stands; makes progress on the way where the engine has no thread. progress may be NULL. After
   * completion it answers the same until post or release. */
  int32_t (*poll)(kvcts_agent* agent, uint64_t request, kvcts_progress* progress);

  /* (required) Gives the request back, whatever its state. An active one is cancelled as claims.cancellation says. */
  int32_t (*release)(kvcts_agent* agent, uint64_t request);

  /* Status of one descriptor of a posted request. */
  int32_t (*descriptor_status)(kvcts_agent* agent, uint64_t request, uint64_t index);

  /* Asks an active request to end; poll then answers KVCTS_E_CANCELED, or KVCTS_OK when it was faster. */
  int32_t (*cancel)(kvcts_agent* agent, uint64_t request);

  /* (required where claims.needs_target_progress) One round of work; KVCTS_IN_PROGRESS when it found some, KVCTS_OK when idle. A
   * target calls it again and again while it waits. */
  int32_t (*progress)(kvcts_agent* agent);

  /* KVCTS_OK: every request to this peer that poll() called complete is visible there (for engines with local completion).
   * KVCTS_IN_PROGRESS: call again. */
  int32_t (*flush)(kvcts_agent* agent, uint64_t peer);

  /* Sends a notification of its own; ordered after nothing. At most 4096 bytes. */
  int32_t (*notify)(kvcts_agent* agent, uint64_t peer, const void* data, uint64_t bytes);

  /* Takes the oldest notification. *bytes as in export_metadata. KVCTS_E_NOT_FOUND: none there. */
  int32_t (*take_notification)(kvcts_agent* agent, void* buffer, uint64_t* bytes);

  /* (required) The last failure on this agent; agent NULL: of open() in this thread. Never fails. */
  void (*last_error)(kvcts_agent* agent, kvcts_error* error);

  /* Counters and the path really taken, e.g. "bytes_written" = "4096", "transport" = "tcp/lo". Calls sink once a fact. */
  int32_t (*facts)(kvcts_agent* agent, kvcts_fact_sink sink, void* context);

  /* Does what this engine shares with other processes (a device, a daemon) still work? Called in a fresh process, which opens no
   * agent, after a worker hung or died; the suite waits 30 s. Any error but KVCTS_E_NOT_SUPPORTED sets the engine aside for the
   * rest of the run; last_error(NULL, ...) has the words. */
  int32_t (*canary)(const kvcts_open_args* args);
} kvcts_transport;

/* The one exported symbol. host_abi: the version that the suite speaks. NULL: this plug-in does not speak it. The table lives as
 * long as the process. */
const kvcts_transport* kvcts_transport_entry(uint32_t host_abi);
typedef const kvcts_transport* (*kvcts_transport_entry_fn)(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
#endif
