#include "cli/glossary.hpp"

#include <array>

namespace kvcts::cli {
namespace {

struct Term {
  const char *name, *meaning, *advice;
};

constexpr std::array terms{
    // the cache
    Term{"KV cache", "The keys and values that attention computed for earlier tokens, kept so that they are computed once.",
         ""},
    Term{"block", "A fixed number of token slots; the unit in which a KV cache is allocated, shared and moved.",
         "Also called a page. `block_size` is its number of slots."},
    Term{"page", "Another word for block.", ""},
    Term{"slot", "The place of one token in a block.", ""},
    Term{"KV head", "One of the heads that keys and values are computed for. Several query heads may share one (GQA).", ""},
    Term{"head_dim", "Number of channels of one head.", ""},
    Term{"channel", "One number of a head's vector.", ""},
    Term{"block table", "The list of block ids that holds a request's tokens, in order.", ""},
    Term{"block id", "Index of a block in the pool of one side. The two sides use different ids for one request.", ""},
    Term{"pool", "All blocks of one side, used or free.", ""},
    Term{"layout",
         "How a cache lies in memory: the order of its axes, what is an allocation of its own, padding and scales.",
         "`kvcts layouts NAME` draws one."},
    Term{"template", "A layout as a line of text over the axes L K B N H C.",
         "Grammar: `kvcts explain --schema case --reference`."},
    Term{"axes", "L layer, K keys or values, B block, N slot, H KV head, C channel. Also: what varies between cases.",
         "`kvcts explain --schema axes` lists the axes of the matrix."},
    Term{"stride", "Bytes from one element to the next along an axis.", ""},
    Term{"geometry", "The sizes of a model and its pool: layers, blocks, block_size, KV heads, head_dim.", ""},
    Term{"dtype", "Cache dtype: the number format of the codes, with the scales that belong to it.", ""},
    Term{"scale", "A factor that turns quantised codes into numbers, for a row, a group or the whole cache.", ""},
    Term{"rank", "One process of a tensor-parallel group; it holds some of the KV heads.", ""},
    Term{"tensor parallelism", "Several ranks share a model's heads; `tp` is their number.", ""},
    Term{"generation", "Which content a request's tokens have. A new generation in an old block exposes stale data.", ""},
    // moving it
    Term{"prefill", "Computes the cache of a prompt. The producer of a transfer.", ""},
    Term{"decode", "Generates tokens, reading the cache. The consumer of a transfer.", ""},
    Term{"producer", "The side whose cache is filled: prefill.", ""},
    Term{"consumer", "The side that needs the cache: decode.", ""},
    Term{"backend", "An attention implementation, which decides the layout of its cache.", ""},
    Term{"connector", "Code that turns two caches and two block tables into copies.", "Example: vLLM's NixlConnector."},
    Term{"engine", "Code that registers memory and moves bytes between processes, as a plug-in.",
         "Examples: UCX, NIXL, Mooncake."},
    Term{"transport", "Another word for engine, in its C header.", ""},
    Term{"plug-in", "A shared library behind a C header of the suite: a transport or a memory provider.", ""},
    Term{"connector program", "A connector that runs as a program of its own and moves the bytes itself.", ""},
    Term{"registration", "Handing a range of memory to an engine, so that it may read or write there.", ""},
    Term{"memory region", "A range of memory that is registered, or could be.", ""},
    Term{"plan", "The list of copies that a connector made for a case.", ""},
    Term{"copy", "One contiguous range of bytes, from a place to a place.", ""},
    Term{"op", "Who acts: in a write the producer pushes, in a read the consumer pulls.", ""},
    Term{"relayout", "A plan that changes the order of elements on the way, not only their block ids.", ""},
    Term{"completion", "The engine's report that a transfer has ended.", ""},
    Term{"handshake", "How two engines exchange metadata before they transfer.", ""},
    // cases
    Term{"case", "Two caches, who moves what, and what a user needs to come of it. Everything has a default.",
         "`kvcts explain ID` prints one; reports/guide/write-a-case.md shows how to write one."},
    Term{"case id", "The canonical name of a case: values of axes, or the name that its file gives it.", ""},
    Term{"scripted case", "A case that tells a bug step by step, without the code that had it.",
         "reports/guide/describe-a-bug.md shows how to write one."},
    Term{"control", "A variant of a case without the fault, which must pass.", ""},
    Term{"expected", "The outcome that a user of the code needs; PASS unless the case says otherwise.", ""},
    Term{"suite", "A named selection of cases.", "`kvcts list` shows all."},
    Term{"matrix", "All combinations of the values of all axes.", ""},
    Term{"cover", "Few cases that still contain every combination of values of any T axes.", ""},
    Term{"constraint", "A combination that cannot work, with its reason; its cases are UNSUPPORTED or must be REFUSED.", ""},
    Term{"waiver", "A known failure with reason, owner, link and last day; its cases are XFAIL until then.", ""},
    Term{"request", "Tokens of one sequence and the blocks that hold them on each side.", ""},
    Term{"claim", "What a connector is given as a cache's layout, or what a plug-in says about itself, true or not.", ""},
    Term{"published bugs", "Faults of KV caches from public issues, each as a scripted case. Suite: museum.",
         "`kvcts report --museum` shows how each ends."},
    Term{"museum", "The suite of published bugs.", "`kvcts report --museum` shows how each ends."},
    Term{"injected faults", "Faults put into right code on purpose, to measure what a suite detects.", "`kvcts inject`"},
    Term{"saboteur", "One injected fault: an engine, connector, planner or reader that is wrong on purpose.",
         "`kvcts inject --list`"},
    Term{"engine edge behaviour", "What an engine answers at the edges of its API, such as ranges past the end.",
         "`kvcts conformance --rules` tests it."},
    Term{"rule", "One recorded answer of engines at the edge of their API.", "`kvcts conformance --rules`"},
    // checking
    Term{"tag", "The value of one element: a function of its layer, token, head, channel, generation and pass.",
         "No two elements are exchanged unseen."},
    Term{"poison", "Bytes that fill everything no one should write, different at every address and in every pass.", ""},
    Term{"guard", "Watched bytes below and above each allocation.", ""},
    Term{"pass", "One execution of a case with its own tags. Also the outcome PASS.", ""},
    Term{"deciding passes", "Passes after which chance could have made wrong bytes look right with p < 2^-64.", ""},
    Term{"oracle", "Independent code that computes what every byte must be.", ""},
    Term{"golden tensor", "A cache made by a separate NumPy program, kept as HDF5, compared with bit for bit.",
         "`kvcts golden list`"},
    Term{"fault class", "The kind of a cause, such as axis-permuted. Given only when it explains every wrong byte.",
         "`kvcts explain` lists them."},
    Term{"diagnosis", "The simplest change of the right transfer that predicts every observed byte.", ""},
    Term{"unexplained", "No known change predicts every wrong byte. The best idea is then called a guess.", ""},
    Term{"reader", "Code that gathers keys and values from a cache as an attention kernel does.", ""},
    Term{"checked", "Bytes that were compared: every byte of every region on both sides.", ""},
    Term{"planned", "Bytes in the copies of the plan.", ""},
    Term{"moved", "Bytes that the engine reports as transferred.", ""},
    Term{"wrong", "Bytes that differ from the oracle.", ""},
    Term{"engine claims", "What an engine says about itself. Shown, but never used as evidence.", ""},
    // runs
    Term{"run", "A selection of cases, executed and stored in a folder.", ""},
    Term{"headline", "The sentence that ends a run: how many cases ended as expected, and what is missing.", ""},
    Term{"execution", "One case really run. Cases that differ only in architecture share one.", ""},
    Term{"shard", "One of n disjoint parts of a plan, for several machines.", "`kvcts merge` joins them."},
    Term{"budget", "A time limit for a run.", ""},
    Term{"store", "The SQLite file in a run's folder; all reports are views of it.", ""},
    Term{"repro line", "A command that runs one case again exactly as it ran.", ""},
    Term{"not isolated", "The run had no sandbox, so code under test could have reached what judges it.",
         "Fine for development, not for a certificate. `kvcts doctor` names what is missing."},
    Term{"granted", "What an engine's entry lets its sandbox see beyond the default, such as /sys.", ""},
    Term{"sandbox", "Where code under test runs: its own processes, mounts and IPC, and a system call filter.", ""},
    Term{"worker", "The process that hosts code under test.", ""},
    Term{"checker", "The trusted process that fills and compares memory.", ""},
    Term{"supervisor", "The process with the plan, the clock and the store; it runs no code under test.", ""},
    Term{"canary", "A minimal transfer after a hang or crash; if it fails, the engine is set aside.", ""},
    Term{"stalled", "A hang without any progress.", ""},
    Term{"runaway", "A hang with progress that could not have ended in time.", ""},
    // certificates
    Term{"profile", "The cases that a certificate requires.", ""},
    Term{"product", "What is certified: a vendor's engine, described in one file.", ""},
    Term{"challenge", "A secret of the second party that fixes seed and blind negatives.", ""},
    Term{"blind negative", "A case made wrong by the challenge; a run that reports it as PASS did not check.", ""},
    Term{"replay", "Running a share of certified cases again, to compare outcome and bytes.", ""},
};

}  // namespace

const std::vector<Word>& glossary() {
  static const std::vector<Word> all = [] {
    std::vector<Word> out;
    for (const Term& term : terms) out.push_back({"term", term.name, term.meaning, term.advice});
    return out;
  }();
  return all;
}

}  // namespace kvcts::cli
