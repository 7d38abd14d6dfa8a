// clang-format off
// How the processes of a run talk. One contract, here.
//
//   supervisor -- owns matrix, store and clock; drives each case phase by phase; runs no code under test
//     warden   -- one a run: forks/execs checkers and workers, is their subreaper, reports exits, kills whole process trees.
//                 Ends everything when the supervisor's socket closes (kill -9 of the supervisor leaves nothing behind).
//     checker  -- one a lane, trusted: allocates memory files, generates, poisons, compares, diagnoses
//     worker   -- one or two a lane, untrusted: hosts connector, engine plug-in and reader; reused while healthy
//
// Channels are SOCK_STREAM socketpairs. Frame = u32 length (little endian) + JSON text (at most 64 MiB); file descriptors
// travel as SCM_RIGHTS with the frame's first byte (at most 253 a frame; more follow in frames {"op":"more-fds"}). Every
// request has an "op" and gets exactly one reply:
//   {"ok":true, ...}                                       done
//   {"refused":{"text":..., "at":...}}                     a clean, typed refusal (connector or engine error code) ->
//   REFUSED
//   {"raised":{"type":"ValueError","text":...,"at":...}}   an untyped exception of code under test -> FAIL
//   {"skipped":{"text":...}}                               this machine lacks something (hello only) -> SKIPPED
//   {"crash":{"signal":"SIGSEGV","text":...}}              the connector program that it hosts died or broke its protocol
//   -> CRASH
//   {"memory":{"text":...}}                                memory ran out: the worker has to go -> CRASH (memory limit)
//   {"error":{"text":...}}                                 the suite's own fault -> ERROR
// Every request carries "seq" (1, 2, 3, ... on its channel) and its reply the same: a reply out of turn breaks the protocol.
// Several cases may be open at once in a checker (they are watched until quiescent); "key" (u64) names them.
//
// Checker
//   open     {key, case: <to_json(ResolvedCase)>}          -> ok {files:[{side, region, name, size, base, bytes}],
//            total_bytes} + fds; phase allocate. Files are memfds sealed against shrinking and growing; base = guard +
//            misalign; size = whole file. Of side "snapshot": where a worker puts what it sees of the destination when
//            completion is reported (snapshot.hpp).
//   fill     {key, pass}                                   -> ok {bytes, ns}            phase generate (poison + tags, both
//            sides)
//   compare  {key, pass, events:[...], moved, planned, transferred: bool, state: bool}  phases read back, compare, diagnose
//            transferred false: the case ended before any byte may move (refusal, exception): the destination must be
//            untouched. Leave moved/planned out when they are not known. `outcome` in the reply speaks of bytes and counts
//            only.
//            -> ok {wrong_bytes, first_wrong:[WrongByte], checked_bytes, expected_bytes, source_changed, state: "all 2552
//                   bytes had arrived", diagnosis:{...}, outcome, class, message, digests:{producer, consumer: {before,
//                   after}}, ns:{compare, diagnose}}
//            state true: say how much had arrived (hung, crashed). events: what workers replied or raised, in order, last
//            how the case ended if not well: {phase, role, refused|raised|hang|crash: {...}}. Never the case's expected
//            outcome.
//   look     {key, region: name, offset, bytes}             -> ok {hex}   bytes of a region as they are, guards below 0
//            It also holds the bytes that a worker saw when completion was reported against what is there: others had not
//            arrived.
//   recheck  {key}                                         -> ok {changed: bool, late_bytes, message}   since the last
//            compare or recheck?
//   close    {key}                                         -> ok {}
//   script   {case}                                        -> ok {as compare, and phase, hang, signal, events}
//            a scripted case from beginning to end: there is no worker and nothing to keep open
//
// Worker (role: "producer" | "consumer" | "both")
//   hello    {role, name, engine:{name, plugin, options}}  -> ok {pid, engine:{name, version, claims:{...}}, load_ns}
//            loads the plug-in; or {role, name, connector:{name, options}}: starts a connector program (connector/program/)
//            in place of an engine. Then there is no plan, transfer goes to both workers, and prepare has ports
//   prepare  {key, case: <worker_view>, files:[...], forget:[keys]} + fds -> ok {metadata: base64, regions}     phase
//            register. Forgets old cases, maps whole memory files, gives the connector its tensors, registers regions with
//            the engine ("both" connects its two sides here: no metadata, no connect). files: as open gave them, each with
//            its number there (index); shown: of the other side, mapped for reading, for the snapshot; the engine does not
//            know of it
//   connect  {key, peer: {role, metadata}}                 -> ok {}                                      phase register
//   upload   {key}  -> ok {}     where the engine has a memory_provider: the files' bytes into its memory, before each
//            pass; phase transfer
//   download {key}  -> ok {}     the other way behind it, and once more behind each end; phase complete
//   plan     {key}                                         -> ok {copies, bytes, relayout, sample:[first 64 copies], digest}
//   transfer {key, pass}  -> ok {moved, copies, path: {...engine counters...}, ns:{transfer, complete}}  phases transfer,
//            complete
//   read     {key, pass}                                   -> ok {tokens, output..., events}            the reader, phase
//            read back. Requests are kept until they are released; what had not ended when one failed is given back at once
//   end      {key, call}                                   -> ok {peak_bytes}   call: release (to the side that posted),
//            then remove_peer, then deregister (to all); or end (of a program's job). The checker is asked to recheck
//            behind each. Mappings stay until forget
//   close    {}  -> ok {}   before bye: agents are closed, a program is shut down; mappings stay until the process is gone
//   cancel   {}  -> ok {}   sent while another request is being answered: the wait for a connector program ends (ok
//            {abandoned: true})
//   forget   {keys:[...]}                                  -> ok {}   unmap
//   bye      {}                                            no reply: exits, with the destructors and exit handlers of the
//            plug-in
//   A target (the side that does not post) keeps its engine's progress() running whenever it waits for a request.
//
// Status page: one memfd a worker (status.hpp), written by the worker, read by the supervisor at any time: phase and when
// it was entered, the key, progress done/total, a note. Deadlines are measured from it and enforced from outside.
// clang-format on
#pragma once

#include <cstdint>

namespace kvcts::process {
inline constexpr int protocol_version = 1;
inline constexpr std::uint32_t max_frame = 64u << 20;
}  // namespace kvcts::process
