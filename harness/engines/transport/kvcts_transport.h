/* The transport C ABI of KV-CTS, version 1 (frozen): what a shared library must offer to be tested as an engine.
 *
 * C11 and C++ clean; needs no other header of the suite. A plug-in exports one symbol, kvcts_transport_entry(), which
 * returns a table of functions. A complete plug-in in C, to copy: harness/engines/transport/template/transport.c.
 *
 * THE MODEL
 *   agent     one endpoint: it registers memory and talks to peers. A worker process opens one agent per side that it hosts
 *             (two agents in one process when both sides live there) and keeps it for many cases.
 *   region    a range of memory, a file or a keyed object, registered with an agent.
 *   metadata  an opaque blob about an agent and some of its regions; the suite carries it to the peer unchanged.
 *   peer      what one blob describes of another agent. Its regions are numbered 0.. in the order in which the other side
 *             passed them to export_metadata().
 *   request   a list of descriptors with one direction: prepared once, posted once or many times, polled, released.
 *
 * WHAT THE SUITE GUARANTEES
 *   - A process loads one plug-in, once, with RTLD_NOW | RTLD_LOCAL, never unloads it, and does not fork afterwards.
 *   - Calls on all agents of a process come from one thread at a time, though not always the same one. Only where
 *     claims.thread_safe is set may calls come from several threads at once, also on one agent. Even then open, close and
 *     claims are not concurrent, and while a call gives a request, peer or region handle back, no other call uses it.
 *   - Pointers that the suite passes are valid during the call only, and not NULL, unless stated otherwise. Memory of a
 *     registered region stays mapped, at its address, until it is deregistered or the process ends, also after a failed
 *     transfer.
 *   - After a failed, cancelled or timed-out request the suite assumes that the engine still owns the memory and watches it.
 *   - The suite kills a process that passes a deadline (SIGKILL), then inspects the memory from another process.
 *   - Standard output and error are captured and shown with the result, but never parsed.
 *
 * WHAT THE SUITE DEMANDS
 *   - Every call returns a status; bad arguments cause no exception, exit(), abort() or signal.
 *   - An accepted request is executed completely and exactly: bytes outside the descriptors never change, and none change
 *     once the request has ended.
 *   - Calls marked "does not wait" return within milliseconds whatever the peer does. The others block for a bounded time,
 *     for what this process itself needs; a peer that does not answer is KVCTS_E_PEER_LOST or KVCTS_E_TIMED_OUT.
 *   - A handle that was never given out, or was given back, yields KVCTS_E_NOT_FOUND. The plug-in chooses handles; 0 and
 *     UINT64_MAX are none. Handles of regions, peers and requests are distinguished by the call, not by their values.
 *   - The process stays the suite's: no change of signal handlers, working directory, standard streams or limits, and no
 *     child process. Threads are welcome; close() ends those of its agent.
 *   - What claims() reports is true. The suite tests it (kvcts conformance).
 *
 * STRUCTURES AND VERSIONS
 *   KVCTS_TRANSPORT_ABI counts incompatible versions; this is the first. Within version 1 everything here keeps its place
 *   and meaning. Later releases only add members at the end of a structure and optional calls at the end of the table:
 *   status codes and enum values are complete. So
 *   - each structure begins with its own size in bytes, set by whoever allocates it: the suite for arguments and
 *     out-parameters, the plug-in for its table;
 *   - a reader uses only members that lie wholly within that size (KVCTS_HAS) and takes the others as zero;
 *   - for out-parameters the suite sets size before the call; the plug-in writes no byte beyond it and does not change it;
 *   - kvcts_descriptor and kvcts_option, which are passed as arrays, have no size and do not grow.
 *   A plug-in of an early release of version 1 works with every later suite of version 1, and vice versa.
 *   Reserved members are 0. Strings are UTF-8, end with a zero byte, and are never NULL unless stated otherwise.
 *
 * ERRORS
 *   Functions that return int32_t return KVCTS_OK, KVCTS_IN_PROGRESS where documented, or a negative KVCTS_E_ code; anything
 *   else breaks the contract. After a negative code last_error() has a message and the engine's own number; unless stated
 *   otherwise, the call has given out no handle and its out-parameters are undefined. The suite tests for the codes that
 *   each call names; any call may also return KVCTS_E_BACKEND, KVCTS_E_NO_RESOURCES or KVCTS_E_NOT_SUPPORTED.
 */
#ifndef KVCTS_TRANSPORT_H
#define KVCTS_TRANSPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVCTS_TRANSPORT_ABI 1u

/* Whether a structure passed by pointer is long enough to have this member. */
#define KVCTS_HAS(pointer, member) \
  ((pointer)->size >= (uint64_t)((const char*)(&(pointer)->member + 1) - (const char*)(pointer)))

/* Exports the entry point even if the plug-in is built with -fvisibility=hidden. */
#if defined(__GNUC__)
#define KVCTS_EXPORT __attribute__((visibility("default")))
#else
#define KVCTS_EXPORT
#endif

/* Status of a call. */
enum {
  KVCTS_OK = 0,
  KVCTS_IN_PROGRESS = 1,
  KVCTS_E_INVALID = -1,       /* an argument is malformed, unaligned or contradictory */
  KVCTS_E_NOT_FOUND = -2,     /* unknown region, peer or request; nothing registered covers this range; nothing to take */
  KVCTS_E_NOT_PERMITTED = -3, /* the region was registered without this access */
  KVCTS_E_NOT_SUPPORTED = -4, /* the engine cannot do this at all */
  KVCTS_E_PEER_LOST = -5,     /* the peer is gone or no longer answers */
  KVCTS_E_BACKEND = -6,       /* the library below failed; last_error() has its code */
  KVCTS_E_MISMATCH = -7,      /* metadata that is damaged, stale or of another engine or version */
  KVCTS_E_BUSY = -8,          /* posted again while active; deregistered while in use */
  KVCTS_E_CANCELED = -9,      /* the request ended because of cancel() */
  KVCTS_E_TOO_SMALL = -10,    /* the buffer given is too small; the size needed was stored */
  KVCTS_E_NO_RESOURCES = -11, /* memory, descriptors, queue places */
  KVCTS_E_TIMED_OUT = -12,    /* the engine's own time limit passed */
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
  uint32_t role;               /* KVCTS_ROLE_; a hint: either may post */
  uint32_t reserved;           /* 0 */
  const kvcts_option* options; /* may be NULL when there are none */
  uint64_t option_count;
} kvcts_open_args;

/* What an engine claims about itself. The suite tests every line. */
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
  uint32_t repeated_registration;    /* 0 or 1: the same range may be registered twice; 0: KVCTS_E_INVALID */
  uint32_t overlapping_registration; /* 0 or 1: ranges may overlap; 0: KVCTS_E_INVALID */
  uint32_t zero_length;              /* 0 or 1: descriptors of 0 bytes are accepted and do nothing; 0: KVCTS_E_INVALID */
  uint32_t unregistered_local;       /* 0 or 1: KVCTS_NO_REGION is accepted as the local side; 0: KVCTS_E_NOT_FOUND */
  uint32_t revokes;                  /* 0 or 1: a transfer to a region that the peer deregistered is KVCTS_E_NOT_FOUND */
  uint32_t notifications;            /* 0 or 1: notify(), take_notification() and notifications of requests work */
  uint32_t notification_after_data;  /* 0 or 1: when taken, the request's bytes are visible to the taker */
  uint32_t thread_safe;              /* 0 or 1: calls on one agent may come from several threads at once */
  uint32_t completion;               /* KVCTS_COMPLETION_: KVCTS_OK of poll() for a write means that the source may change
                                        (LOCAL: flush() makes the bytes visible there) or that they are visible (REMOTE) */
  uint32_t ordering;                 /* KVCTS_ORDER_: of requests to one peer, the one posted later wins where they overlap
                                        (REQUESTS); also within a request, the later descriptor (DESCRIPTORS) */
  uint32_t cancellation;    /* KVCTS_CANCEL_: NONE = no cancel(); QUIET = once cancelled and released, no byte moves */
  uint32_t peer_death;      /* KVCTS_DEATH_: a peer that died is KVCTS_E_PEER_LOST never, at the next post, or also for
                               requests that are under way */
  uint32_t reserved;        /* 0 */
  uint64_t alignment;       /* of addresses, offsets and lengths, bytes; a power of two; 1 = any; else KVCTS_E_INVALID */
  uint64_t max_descriptors; /* of one request; UINT64_MAX = only memory limits it; more are KVCTS_E_INVALID */
  uint64_t max_bytes;       /* of one descriptor; UINT64_MAX = no limit; more are KVCTS_E_INVALID */
} kvcts_claims;

enum { KVCTS_ACCESS_LOCAL = 1, KVCTS_ACCESS_REMOTE_READ = 2, KVCTS_ACCESS_REMOTE_WRITE = 4 };

/* A region to register. MEMORY: address, bytes; fd and fd_offset name the file behind it, if any (else fd = -1): a
 * memory file for host memory, which the suite's own always has; for device memory, what a memory provider
 * exports. FILE: fd, fd_offset, bytes. OBJECT: key, bytes. The plug-in duplicates fd if it needs it after the
 * call. */
typedef struct kvcts_region {
  uint64_t size;
  uint32_t kind;   /* KVCTS_KIND_ */
  uint32_t memory; /* KVCTS_MEMORY_ */
  int32_t device;  /* ordinal for device memory, else 0 */
  int32_t fd;
  uint64_t fd_offset;
  void* address; /* in this process; for device memory as the device's API takes it */
  uint64_t bytes;
  uint32_t access;   /* bit mask KVCTS_ACCESS_ */
  uint32_t reserved; /* 0 */
  const char* key;   /* OBJECT: key_bytes bytes, no zero needed; else NULL */
  uint64_t key_bytes;
} kvcts_region;

#define KVCTS_NO_REGION UINT64_MAX

/* bytes from local (region, offset) to remote (region, offset) for a write, the reverse for a read.
 * local_region: a handle of register_region(), or KVCTS_NO_REGION: then local_offset is an unregistered address.
 * remote_region: the ordinal of the region in the peer's metadata. Offsets count from the region's start; engines
 * that address absolutely add the base. A range beyond the end is refused with KVCTS_E_NOT_FOUND, by prepare(),
 * post() or poll(). */
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
  uint64_t notification_bytes;         /* at most KVCTS_LONGEST_NOTIFICATION */
} kvcts_transfer;

#define KVCTS_LONGEST_NOTIFICATION 4096u
#define KVCTS_UNKNOWN UINT64_MAX

/* Progress of a request; until the next post(), neither number decreases or exceeds the request. */
typedef struct kvcts_progress {
  uint64_t size;
  uint64_t bytes_done;       /* or KVCTS_UNKNOWN */
  uint64_t descriptors_done; /* or KVCTS_UNKNOWN */
} kvcts_progress;

typedef struct kvcts_error {
  uint64_t size;
  int32_t status;   /* of the last failed call */
  int32_t reserved; /* 0 */
  int64_t native;   /* the engine's own code, 0 when there is none */
  const char* text; /* one sentence of at most 4095 bytes; valid until the next call on the agent; never NULL */
} kvcts_error;

typedef void (*kvcts_fact_sink)(void* context, const char* key, const char* value);

/* The table. Members marked (required) must not be NULL; NULL elsewhere means not supported. */
typedef struct kvcts_transport {
  uint64_t size;
  uint32_t abi;        /* KVCTS_TRANSPORT_ABI that the plug-in was built with */
  uint32_t reserved;   /* 0 */
  const char* name;    /* (required) e.g. "ucx"; at most 255 printable ASCII characters */
  const char* version; /* (required) of the engine itself, e.g. "1.13.1"; likewise */

  /* (required) Makes an agent, which belongs to the caller until close(). Several may be open, and opened again
   * after close(). Blocks while devices and libraries are opened. On failure *agent is NULL and last_error(NULL,
   * ...) has the message. KVCTS_E_INVALID: an option is unknown or has a bad value. KVCTS_E_NOT_SUPPORTED: this
   * machine lacks something; the suite then SKIPs. */
  int32_t (*open)(const kvcts_open_args* args, kvcts_agent** agent);

  /* (required) Ends the agent with its outstanding requests, peers, registrations, threads and descriptors. Always
   * frees. Blocks for the engine's own threads, never for a peer. */
  void (*close)(kvcts_agent* agent);

  /* (required) Fills *claims, which never change during the agent's life. Does not wait. */
  int32_t (*claims)(kvcts_agent* agent, kvcts_claims* claims);

  /* (required) Makes a region usable as the local side of transfers and, per its access, by peers. The memory
   * stays the suite's. Blocks. KVCTS_E_INVALID: no address, unaligned, already registered where claims forbid it,
   * or beyond the end of its file. KVCTS_E_NOT_SUPPORTED: an unclaimed kind or memory, or no file where the engine
   * needs one. */
  int32_t (*register_region)(kvcts_agent* agent, const kvcts_region* region, uint64_t* handle);

  /* (required) Undoes it; posting a prepared request that uses it then yields KVCTS_E_NOT_FOUND. KVCTS_E_BUSY when
   * an active request uses it. A peer that still holds its metadata gets an error at its next transfer where
   * claims.revokes; elsewhere its bytes may still reach the old address. Blocks. */
  int32_t (*deregister_region)(kvcts_agent* agent, uint64_t handle);

  /* (required) Writes the blob about this agent and these regions, in this order, into buffer. *bytes: in, its
   * capacity; out, the size needed. KVCTS_E_TOO_SMALL when it does not fit (buffer may then be NULL); the suite
   * calls again with room. The blob may differ between calls but all must work. handles may be NULL when count is
   * 0. Blocks. */
  int32_t (*export_metadata)(kvcts_agent* agent, const uint64_t* handles, uint64_t count, void* buffer, uint64_t* bytes);

  /* (required) Makes a peer from a blob. Several peers may come from one agent (one blob per case); connections
   * may be shared and kept. KVCTS_E_MISMATCH: the blob is damaged, or of another engine or version; it leaves no
   * trace: the good blob works afterwards. KVCTS_E_NOT_SUPPORTED: a peer beyond claims.reach. KVCTS_E_PEER_LOST:
   * its process is gone. Blocks. */
  int32_t (*add_peer)(kvcts_agent* agent, const void* metadata, uint64_t bytes, uint64_t* peer);

  /* (required) Forgets one peer. Requests prepared with it yield KVCTS_E_NOT_FOUND from then on. Does not wait. */
  int32_t (*remove_peer)(kvcts_agent* agent, uint64_t peer);

  /* (required) Checks and makes a request; moves nothing. Descriptors and notification are borrowed until
   * release(). Blocks. KVCTS_E_INVALID: op, alignment, or above a maximum. KVCTS_E_NOT_FOUND: an unknown peer,
   * region or range. KVCTS_E_NOT_PERMITTED: access. An engine may report these later, from post() or poll(),
   * before a byte has moved. */
  int32_t (*prepare)(kvcts_agent* agent, const kvcts_transfer* transfer, uint64_t* request);

  /* (required) Starts it. KVCTS_OK: already complete; KVCTS_IN_PROGRESS: poll. May be posted again after
   * completion, KVCTS_E_BUSY before. Errors as prepare(), and KVCTS_E_PEER_LOST. Does not wait. */
  int32_t (*post)(kvcts_agent* agent, uint64_t request);

  /* (required) State of the request; also makes progress where the engine has no thread. KVCTS_IN_PROGRESS,
   * KVCTS_OK, or the error that it ended with. progress may be NULL. After the end it returns the same until post
   * or release. KVCTS_E_NOT_POSTED before the first post. Does not wait. */
  int32_t (*poll)(kvcts_agent* agent, uint64_t request, kvcts_progress* progress);

  /* (required) Gives the request back in any state. An active one is cancelled per claims.cancellation. Blocks. */
  int32_t (*release)(kvcts_agent* agent, uint64_t request);

  /* Status of one descriptor of a posted request, like poll() for the whole. Does not wait. */
  int32_t (*descriptor_status)(kvcts_agent* agent, uint64_t request, uint64_t index);

  /* Asks an active request to end; poll then returns KVCTS_E_CANCELED, or KVCTS_OK if it completed first. KVCTS_OK
   * also for one that has ended; KVCTS_E_NOT_POSTED before the first post. Does not wait. */
  int32_t (*cancel)(kvcts_agent* agent, uint64_t request);

  /* (required where claims.needs_target_progress) One round of work; KVCTS_IN_PROGRESS if it found some, KVCTS_OK
   * if idle. A waiting target calls it repeatedly. Does not wait. */
  int32_t (*progress)(kvcts_agent* agent);

  /* KVCTS_OK: every request to this peer that poll() reported complete is visible there (for engines with local
   * completion). KVCTS_IN_PROGRESS: call again. Does not wait. */
  int32_t (*flush)(kvcts_agent* agent, uint64_t peer);

  /* (required where claims.notifications) Sends a separate notification; it is not ordered after anything. data is
   * borrowed for the call only. KVCTS_E_INVALID: more than KVCTS_LONGEST_NOTIFICATION. Does not wait. */
  int32_t (*notify)(kvcts_agent* agent, uint64_t peer, const void* data, uint64_t bytes);

  /* (required where claims.notifications) Takes the oldest notification. *bytes as in export_metadata; one that does not
   * fit stays. KVCTS_E_NOT_FOUND: none there. Does not wait. */
  int32_t (*take_notification)(kvcts_agent* agent, void* buffer, uint64_t* bytes);

  /* (required) The last failure on this agent (where claims.thread_safe: of this thread on it); agent NULL: the
   * last failure of open() in this thread. Never fails and does not wait. */
  void (*last_error)(kvcts_agent* agent, kvcts_error* error);

  /* Counters and the path really taken: calls sink once per fact, with strings valid during that call only. Where
   * reported, they are "bytes_written", "bytes_read", "descriptors" (decimal), "transport" (e.g. "tcp/lo"). Does
   * not wait. */
  int32_t (*facts)(kvcts_agent* agent, kvcts_fact_sink sink, void* context);

  /* Checks that what this engine shares with other processes (a device, a daemon) still works. Called after a
   * worker hung or died, in a new process that opens no agent; the suite waits 30 s. Any error but
   * KVCTS_E_NOT_SUPPORTED excludes the engine for the rest of the run; last_error(NULL, ...) has the message. */
  int32_t (*canary)(const kvcts_open_args* args);
} kvcts_transport;

/* The one exported symbol. host_abi: the suite's version. NULL: this plug-in does not support it; the suite may
 * then try an older version that it supports. The table lives as long as the process. */
KVCTS_EXPORT const kvcts_transport* kvcts_transport_entry(uint32_t host_abi);
typedef const kvcts_transport* (*kvcts_transport_entry_fn)(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
#endif
