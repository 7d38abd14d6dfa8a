// clang-format off
// How the processes of a run talk: the whole contract.
//
//   supervisor -- owns matrix, store and clock; drives each case phase by phase; runs no code under test
//     launcher   -- one per run: forks/execs checkers and workers, is their subreaper, reports exits, kills process trees.
//                 Ends everything when the supervisor's socket closes (kill -9 of the supervisor leaves nothing behind).
//     checker  -- one per lane, trusted: allocates memory files, generates, poisons, compares, diagnoses
//     worker   -- one or two per lane, untrusted: hosts connector, engine plug-in and reader; reused while healthy
//
// Channels are SOCK_STREAM socketpairs. Frame = u32 length (little endian) + JSON text (at most 64 MiB). File
// descriptors travel as SCM_RIGHTS with the frame's first byte (at most 253 per frame; more follow in frames
// {"op":"more-fds"}). Every request has an "op" (request.hpp) and gets exactly one reply:
//   {"ok":true, ...}                                       done
//   {"refused":{"text":..., "at":...}}                     a typed refusal (connector or engine error code) -> REFUSED
//   {"raised":{"type":"ValueError","text":...,"at":...}}   an untyped exception of code under test -> FAIL
//   {"skipped":{"text":...}}                               this machine lacks something (hello only) -> SKIPPED
//   {"crash":{"signal":"SIGSEGV","text":...}}              connector program died or broke the protocol -> CRASH
//   {"memory":{"text":...}}                                memory ran out: the worker must go -> CRASH (memory limit)
//   {"error":{"text":...}}                                 the suite's own fault -> ERROR
// Every request carries "seq" (1, 2, 3, ... per channel) and its reply repeats it: an out-of-order reply breaks the
// protocol.
// A checker may have several cases open (watched until they are quiescent); "key" (u64) identifies a case.
//
// Checker
//   open     {key, case: <to_json(ResolvedCase)>, side}    -> ok {files:[{side, region, name, size, base, bytes}],
//            total_bytes} + fds; phase allocate. Files are memfds sealed against shrinking and growing; base = guard +
//            misalign; size = whole file. side, if any: the only one that this checker compares; the other one is on another
//            host, with a checker of its own
//   fill     {key, pass}                                   -> ok {bytes, ns}            phase generate (poison + tags, both
//            sides)
//   see      {key, reuse: bool}                            -> ok {}   keeps what the destination holds: compare reports what
//            had not arrived. reuse: another request's content lies in the producer's blocks of this transfer until compare
//   compare  {key, pass, events:[...], moved, planned, transferred: bool, state: bool}  phases read back, compare, diagnose
//            transferred false: the case ended before any byte may move (refusal, exception): the destination must be
//            untouched. Omit moved/planned when unknown. `outcome` in the reply covers bytes and counts only.
//            -> ok {report: <to_json(Report)>}
//            Or {case}: a whole case whose steps our machine performs; no worker takes part and nothing stays open.
//            state true: report how much had arrived (hung, crashed). events: what workers replied or raised, in order,
//            last how the case ended if it failed: {phase, role, refused|raised|hang|crash: {...}}. Never the case's
//            expected outcome.
//   look     {key, region: name, offset, bytes}             -> ok {hex}   current bytes of a region, guards below 0
//   recheck  {key}                                         -> ok {late: <to_json(LateWrite)>}   changes since the last
//            compare or recheck
//   close    {key}                                         -> ok {}
//
// Worker (role: "producer" | "consumer" | "both")
//   hello    {role, name, engine:{name, plugin, options}}  -> ok {pid, engine:{name, version, claims:{...},
//            device_facts:{device, arch, device_evidence}}, load_ns}; device_facts only where the engine tells them
//            loads the plug-in; or {role, name, connector:{name, options}}: starts a connector program (connector/program/)
//            instead of an engine. Then there is no plan, transfer goes to both workers, and prepare has ports
//   prepare  {key, case: <worker_view>, files:[...], forget:[keys]} + fds -> ok {metadata: base64, regions}     phase
//            register. Forgets old cases, maps whole memory files, gives the connector its tensors, registers regions with
//            the engine ("both" connects its two sides here: no metadata, no connect). files: from the reply to open
//   connect  {key, peer: {role, metadata}}                 -> ok {}                                      phase register
//   upload   {key}  -> ok {}     if the engine has a memory_provider: copies the files into its memory, before each pass;
//            phase transfer
//   download {key}  -> ok {}     copies them back after each pass, and again after each end; phase complete
//   plan     {key}                                         -> ok {copies, bytes, relayout, sample:[first 64 copies], digest}
//   transfer {key, pass}  -> ok {moved, copies, path: {...engine counters...}, ns:{complete}}  phases transfer,
//            complete
//   read     {key, pass}                                   -> ok {tokens, output..., events}            the reader, phase
//            read back. Requests are kept until they are released; when one fails, all unfinished ones are released at once
//   end      {key, call}                                   -> ok {peak_bytes}   call: release (to the side that posted),
//            then remove_peer, then deregister (to all); or end (of a program's job). The checker rechecks after each.
//            Mappings stay until forget
//   close    {}  -> ok {}   before bye: closes agents, shuts a program down; mappings stay until the process exits
//   cancel   {}  -> ok {}   sent while another request is being answered: stops waiting for a connector program (ok
//            {abandoned: true})
//   forget   {keys:[...]}                                  -> ok {}   unmap
//   bye      {}                                            no reply: exits, running the plug-in's destructors and exit
//            handlers
//   A target (the side that does not post) keeps calling its engine's progress() while it waits for a request.
//
// Completion. A worker counts it on its status page, then stops itself; its launcher stops the rest and reports it. The
// supervisor has it proven thread by thread, asks the checker to see, and resumes all. A reply to
// transfer that nothing announced is an announcement. The same is done around each recheck.
//
// Status page: one memfd per worker (status.hpp), written by the worker, read by the supervisor at any time: phase
// and when it was entered, the key, progress done/total, a note. The supervisor derives deadlines from it and
// enforces them from outside.
// clang-format on
#pragma once

#include <cstdint>

namespace kvcts::process {
inline constexpr int protocol_version = 1;
inline constexpr std::uint32_t max_frame = 64u << 20;
}  // namespace kvcts::process
