// A connector program to copy: moves whole blocks between two processes through shared memory. Uses POSIX and nlohmann-json,
// and nothing of the suite.
//
// The suite starts it twice, once per side; it speaks framed JSON on descriptor 3 (reports/guide/add-a-connector.md). It
// accepts two caches only if the bytes of a block have the same order on both sides, as most block movers do, and refuses
// all others. `done` hands a side's blocks to its engine: the side that does not move the bytes stays pending until the
// other has said that they have moved.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

using nlohmann::json;

// A clean no, before any byte has moved. Any other exception is unexpected.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Mapping {
  explicit Mapping(const json& entry) {
    const int fd = ::open(std::string(entry.at("file")).c_str(), O_RDWR | O_CLOEXEC);
    size = static_cast<std::size_t>(::lseek(fd, 0, SEEK_END));
    data = static_cast<char*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    if (data == MAP_FAILED) throw std::runtime_error("cannot open and map " + entry.at("file").dump());
    base = data + entry.at("offset").get<std::int64_t>();
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() { ::munmap(data, size); }
  char *data, *base;
  std::size_t size;
};

// What this connector believes a tensor to be: `pieces` stretches (K and V, say) of `bytes` bytes per block.
struct Blocks {
  std::size_t memory;
  std::vector<std::int64_t> pieces;  // where each begins, for block 0
  std::int64_t stride;               // from block to block
  std::size_t bytes;                 // of a piece
  std::string what;                  // content of a piece: must agree on both sides
};

Blocks blocks_of(const json& tensor) {
  const std::vector<std::int64_t> shape = tensor.at("shape"), strides = tensor.at("strides");
  const std::vector<std::string> axes = tensor.at("axes");
  Blocks out{tensor.at("memory"), {tensor.at("offset").get<std::int64_t>()}, 0, tensor.at("itemsize"), ""};
  out.what = tensor.at("component").dump() + " " + tensor.at("dtype").dump() + " " + tensor.at("origin").dump();
  std::multimap<std::int64_t, std::size_t> dims;  // by stride, innermost first
  for (std::size_t d = 0; d < axes.size(); ++d) dims.emplace(strides[d], d);
  bool inside = true;
  for (const auto& [stride, d] : dims) {
    if (axes[d] == "B") {
      out.stride = stride, inside = false;
    } else if (shape[d] > 1 && inside && stride == static_cast<std::int64_t>(out.bytes)) {
      out.bytes *= static_cast<std::size_t>(shape[d]), out.what += " " + axes[d] + "=" + std::to_string(shape[d]);
    } else if (shape[d] > 1) {  // further stretches: outside the blocks, or beyond a gap
      for (std::size_t p = 0, n = out.pieces.size(); p < n; ++p)
        for (std::int64_t i = 1; i < shape[d]; ++i) out.pieces.push_back(out.pieces[p] + i * stride);
      out.what += " apart " + axes[d] + "=" + std::to_string(shape[d]);
    }
  }
  if (inside && tensor.at("component") != "gscale")
    throw Refusal(tensor.at("name").dump() + " has no separate dim for blocks");
  return out;
}

struct Side {
  explicit Side(const json& call) {
    for (const auto& entry : call.at("memory")) memory.push_back(std::make_unique<Mapping>(entry));
    if (call.at("groups").size() != 1 || call.at("groups")[0].at("ranks").size() != 1)
      throw Refusal("this connector serves one group and one rank");
    for (const auto& tensor : call.at("groups")[0].at("ranks")[0].at("tensors")) tensors.push_back(blocks_of(tensor));
  }
  std::vector<std::unique_ptr<Mapping>> memory;
  std::vector<Blocks> tensors;
};

// How many transfers of a job have moved their bytes: a number in a file of the side that waits for them.
struct Over {
  explicit Over(const std::string& file = "")
      : fd(file.empty() ? ::memfd_create("over", MFD_CLOEXEC) : ::open(file.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd < 0) throw std::runtime_error("cannot open " + file);
  }
  Over(const Over&) = delete;
  ~Over() { ::close(fd); }
  std::string path() const { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd); }
  void announce(std::uint32_t transfers) const {
    if (::pwrite(fd, &transfers, sizeof transfers, 0) < 0) throw std::runtime_error("cannot say that the bytes have moved");
  }
  bool announced(std::uint32_t transfers) const {
    std::uint32_t is = 0;
    return ::pread(fd, &is, sizeof is, 0) == sizeof is && is == transfers;
  }
  int fd;
};

struct Job {
  bool moves;
  std::unique_ptr<Side> mine, theirs;
  std::unique_ptr<Over> over, peer_over;
  json waiting;  // the call that waits for the other side
};

// The answers to transfers that are over by now.
json ended(std::map<std::uint64_t, Job>& jobs) {
  json calls = json::array();
  for (auto& [number, job] : jobs) {
    if (job.waiting.is_null() || !job.over->announced(job.waiting.at("transfer").get<std::uint32_t>() + 1)) continue;
    calls.push_back({{"id", job.waiting.at("id")}, {"state", "done"}});
    job.waiting = nullptr;
  }
  return calls;
}

json handle(const json& call, std::string& role, std::map<std::uint64_t, Job>& jobs) {
  const std::string name = call.at("call");
  if (name == "hello")
    return role = call.at("role"),
           json{{"name", "template"}, {"version", "1"}, {"capabilities", {{"ops", {"write", "read"}}}}};
  if (name == "shutdown") return json::object();
  if (name == "poll") return {{"calls", ended(jobs)}};
  Job& job = jobs[call.at("job").get<std::uint64_t>()];
  if (name == "register") {
    const bool moves = (call.at("op") == "write") == (role == "producer");
    job = {moves, std::make_unique<Side>(call), nullptr, std::make_unique<Over>(), nullptr, nullptr};
    return {{"metadata", {{"memory", call.at("memory")}, {"groups", call.at("groups")}, {"over", job.over->path()}}}};
  }
  if (name == "handshake") {
    job.theirs = std::make_unique<Side>(call.at("peer"));
    job.peer_over = std::make_unique<Over>(call.at("peer").at("over").get<std::string>());
    if (job.mine->tensors.size() != job.theirs->tensors.size())
      throw Refusal("the two sides have different numbers of tensors");
    for (std::size_t i = 0; i < job.mine->tensors.size(); ++i)
      if (job.mine->tensors[i].what != job.theirs->tensors[i].what)
        throw Refusal("a block is " + job.mine->tensors[i].what + " here and " + job.theirs->tensors[i].what + " there");
  } else if (name == "transfer" && !job.moves) {
    job.waiting = call;
    return {{"state", "pending"}};
  } else if (name == "transfer") {
    std::size_t moved = 0;
    for (std::size_t i = 0; i < job.mine->tensors.size(); ++i) {
      const Blocks &a = job.mine->tensors[i], &b = job.theirs->tensors[i];
      for (const auto& request : call.at("requests")) {
        const std::vector<std::int64_t> here = request.at("blocks"), there = request.at("peer_blocks");
        for (std::size_t k = 0; k < (a.stride == 0 ? 1 : std::min(here.size(), there.size())); ++k) {
          for (std::size_t p = 0; p < a.pieces.size(); ++p, moved += a.bytes) {
            char* local = job.mine->memory.at(a.memory)->base + a.pieces[p] + here[k] * a.stride;
            char* remote = job.theirs->memory.at(b.memory)->base + b.pieces[p] + there[k] * b.stride;
            role == "producer" ? std::memcpy(remote, local, a.bytes) : std::memcpy(local, remote, a.bytes);
          }
        }
      }
    }
    job.peer_over->announce(call.at("transfer").get<std::uint32_t>() + 1);
    return {{"moved", moved}};
  } else if (name == "release") {
    jobs.erase(call.at("job").get<std::uint64_t>());
  } else {
    throw Refusal("unknown call " + name);
  }
  return json::object();
}

bool all(ssize_t (*io)(int, void*, std::size_t), void* data, std::size_t bytes) {
  ssize_t n = 1;
  for (auto* at = static_cast<char*>(data); bytes > 0 && n > 0; at += n, bytes -= static_cast<std::size_t>(n))
    n = io(3, at, bytes);
  return n > 0;
}

int main() {
  std::string role;
  std::map<std::uint64_t, Job> jobs;
  for (std::uint32_t length = 0; all(::read, &length, sizeof length);) {  // little endian, as this machine
    std::string text(length, '\0');
    if (!all(::read, text.data(), length)) return 1;
    const json call = json::parse(text);
    json answer;
    try {
      answer = handle(call, role, jobs);
      if (!answer.contains("state")) answer["state"] = "done";
    } catch (const Refusal& no) {
      answer = {{"state", "refused"}, {"type", "Refusal"}, {"text", no.what()}, {"file", "template.cpp"}};
    } catch (const std::exception& error) {
      answer = {{"state", "raised"}, {"type", "std::exception"}, {"text", error.what()}, {"file", "template.cpp"}};
    }
    answer["id"] = call.at("id");
    length = static_cast<std::uint32_t>((text = answer.dump()).size());
    const auto put = [](int fd, void* data, std::size_t bytes) { return ::write(fd, data, bytes); };
    if (!all(put, &length, sizeof length) || !all(put, text.data(), length)) return 1;
    if (call.at("call") == "shutdown") return 0;
  }
}
