#include "golden/golden.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "golden/child.hpp"
#include "golden/sha256.hpp"
#include "process/installation.hpp"
#include "process/json_text.hpp"
#include "process/unique_fd.hpp"

namespace kvcts::golden {
namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "golden data sets are little endian and read as they are");
static_assert(sizeof(Record) == 28);

namespace {

constexpr std::string_view magic = "KVGOLD01";

fs::path reader_beside_us() { return process::program_folder() / "kvcts-golden-reader"; }

/// The reader's output: a JSON header and the bytes of its data sets.
struct Dump {
  json header;
  std::string raw;
  std::size_t body{0};
  std::string_view blobs() const { return std::string_view(raw).substr(body); }
};

process::UniqueFd in_memory(const std::string& bytes) {
  process::UniqueFd fd(::memfd_create("kvcts-golden", MFD_CLOEXEC));
  std::size_t done = 0;
  while (fd && done < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n <= 0) throw Error("a memory file of " + std::to_string(bytes.size()) + " bytes cannot be written: out of memory?");
    done += static_cast<std::size_t>(n);
  }
  if (!fd || ::lseek(fd.get(), 0, SEEK_SET) != 0) throw Error("a memory file cannot be made (memfd_create)");
  return fd;
}

std::string first_line(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.empty() ? "" : ": " + line;
}

Dump read_in_child(const fs::path& file, const std::string& bytes, const std::vector<std::string>& dtypes,
                   const LoadOptions& options) {
  const fs::path reader = options.reader.empty() ? reader_beside_us() : options.reader;
  std::vector<std::string> argv{reader.string()};
  argv.insert(argv.end(), dtypes.begin(), dtypes.end());
  const process::UniqueFd image = in_memory(bytes);
  const ChildLimits limits{options.deadline, static_cast<std::size_t>(options.output_bytes)};
  ChildResult child = run_child(argv, image.get(), limits);
  if (!child.ok()) {
    throw Error(file.string() + ": the reader (" + reader.filename().string() + ") " + child.how(limits) +
                first_line(child.err));
  }
  Dump dump;
  dump.raw = std::move(child.out);
  std::uint64_t length = 0;
  if (dump.raw.size() < magic.size() + sizeof length || !dump.raw.starts_with(magic)) {
    throw Error(file.string() + ": the reader wrote no golden dump; is it of the same build?");
  }
  std::memcpy(&length, dump.raw.data() + magic.size(), sizeof length);
  dump.body = magic.size() + sizeof length;
  if (length > dump.raw.size() - dump.body) throw Error(file.string() + ": the reader's dump is cut off within its header");
  dump.header = json::parse(std::string_view(dump.raw).substr(dump.body, length));
  dump.body += length;
  return dump;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const auto extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, extent, &n)) throw Error("a shape of the reader's dump is not sane");
  }
  return n;
}

/// One data set of the dump; computes its content digest instead of trusting one.
class Blob {
 public:
  Blob(const Dump& dump, const json& at) : path_(at.at("path")), shape_(at.at("shape")) {
    const std::string kind = at.at("kind");
    const std::size_t from = at.at("at"), bytes = at.at("bytes");
    const auto all = dump.blobs();
    if (from > all.size() || bytes > all.size() - from) throw Error(path_ + ": the reader's dump is cut off");
    data_ = {reinterpret_cast<const std::uint8_t*>(all.data()) + from, bytes};
    kind_ = kind;
    std::string head = kind + " ";
    for (std::size_t i = 0; i < shape_.size(); ++i) head += (i == 0 ? "" : "x") + std::to_string(shape_[i]);
    digest_ = sha256(head + "\n", data_);
  }
  const std::string& path() const { return path_; }
  const std::string& digest() const { return digest_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }

  /// The elements, which must have one of the given types (NumPy's names).
  template <typename T>
  std::vector<T> as(std::string_view kind) const {
    if (kind_ != kind) throw Error(path_ + ": expected elements " + std::string(kind) + ", found " + kind_);
    if (product(shape_) * static_cast<std::int64_t>(sizeof(T)) != static_cast<std::int64_t>(data_.size())) {
      throw Error(path_ + ": " + std::to_string(data_.size()) + " bytes do not make its shape");
    }
    std::vector<T> out(data_.size() / sizeof(T));
    std::memcpy(out.data(), data_.data(), data_.size());
    return out;
  }
  std::vector<std::uint32_t> codes() const {
    const auto widen = [](const auto& narrow) { return std::vector<std::uint32_t>(narrow.begin(), narrow.end()); };
    if (kind_ == "|u1") return widen(as<std::uint8_t>("|u1"));
    if (kind_ == "<u2") return widen(as<std::uint16_t>("<u2"));
    return as<std::uint32_t>("<u4");
  }

 private:
  std::string path_, kind_, digest_;
  std::vector<std::int64_t> shape_;
  std::span<const std::uint8_t> data_;
};

constexpr std::string_view record_kind = "{layer:<i4,kv:<i4,block:<i4,slot:<i4,token:<i4,head:<i4,channel:<i4}";

GoldenPlane plane_of(const json& at, const std::function<Blob(const json&)>& blob) {
  const json& attributes = at.at("attributes");
  GoldenPlane plane{.text = attributes.at("text"),
                    .component = attributes.at("component"),
                    .dtype = attributes.at("dtype"),
                    .bits = attributes.at("bits"),
                    .high_nibble_first = attributes.at("nibbles") == "high first",
                    .shape = {},
                    .tags = {},
                    .records = {},
                    .blocked = attributes.at("blocked") != 0,
                    .first = attributes.at("first"),
                    .step = attributes.at("step"),
                    .pool_shape = at.at("bit").at("shape"),
                    .allocation = {},
                    .bit = {}};
  const Blob tags = blob(at.at("tags")), records = blob(at.at("coordinates"));
  const Blob bit = blob(at.at("bit")), allocation = blob(at.at("allocation"));
  plane.shape = tags.shape();
  plane.tags = tags.codes();
  plane.records = records.as<Record>(record_kind);
  plane.bit = bit.as<std::int64_t>("<i8");
  plane.allocation = allocation.as<std::int16_t>("<i2");
  if (plane.shape.size() != 5 || plane.pool_shape.size() != 6 || plane.first.size() != 6 || plane.step.size() != 6 ||
      records.shape() != tags.shape() || bit.shape() != allocation.shape()) {
    throw Error(tags.path() + ": its shape does not agree with coordinates, bit and allocation beside it");
  }
  return plane;
}

layout::Scheme scheme_of(const json& attributes) {
  const auto optional = [&](const char* key) -> std::optional<layout::Dtype> {
    const std::string word = attributes.at(key);
    if (word == "none") return std::nullopt;
    return layout::dtype_from_name(word);
  };
  layout::Scheme scheme{.name = attributes.at("dtype"),
                        .data = layout::dtype_from_name(attributes.at("data").get<std::string>()),
                        .scale = std::nullopt,
                        .global_scale = optional("global_scale")};
  if (const auto scale = optional("scale")) scheme.scale = {*scale, attributes.at("scale_group").get<std::int64_t>()};
  return scheme;
}

GoldenTensor tensor_of(const Dump& dump, const json& at, const ManifestFile& entry) {
  const json &root = dump.header.at("attributes"), &attributes = at.at("attributes"), &numbers = at.at("geometry");
  GoldenTensor tensor;
  tensor.template_text = root.at("template");
  tensor.dtype = attributes.at("dtype");
  tensor.geometry_name = attributes.at("geometry");
  tensor.geometry = {.layers = numbers.at("layers"),
                     .blocks = numbers.at("blocks"),
                     .block_size = numbers.at("block_size"),
                     .heads = numbers.at("heads"),
                     .head_dim = numbers.at("head_dim"),
                     .v_head_dim = numbers.at("v_head_dim"),
                     .kv = numbers.at("kv"),
                     .first_layer = 0,
                     .first_head = 0};
  tensor.scheme = scheme_of(attributes);
  tensor.seed = root.at("seed");
  tensor.pass = root.at("pass");
  tensor.origin = root.at("origin");
  tensor.side = root.at("side");
  tensor.rank = root.at("rank");
  tensor.generation = numbers.at("generation");
  tensor.tokens = numbers.at("tokens");

  std::set<std::string> lines;
  const auto blob = [&](const json& where) {
    Blob b(dump, where);
    lines.insert(b.path() + " " + b.digest() + "\n");
    return b;
  };
  tensor.block_table = blob(at.at("block_table")).as<std::int32_t>("<i4");
  tensor.token_table = blob(at.at("token_table")).as<std::int32_t>("<i4");
  for (const json& a : at.at("allocations")) {
    tensor.allocations.push_back({a.at("name"), blob(a.at("blob")).as<std::uint8_t>("|u1")});
  }
  for (const json& p : at.at("planes")) tensor.planes.push_back(plane_of(p, blob));

  std::string all;
  for (const std::string& line : lines) all += line;
  const auto expected = entry.dtypes.find(tensor.dtype);
  if (expected == entry.dtypes.end() || expected->second != sha256(all)) {
    throw Error("/dtypes/" + tensor.dtype + ": its content digest is " + sha256(all).substr(0, 12) + ", the manifest says " +
                (expected == entry.dtypes.end() ? "nothing" : expected->second.substr(0, 12)));
  }
  if (static_cast<std::int64_t>(tensor.token_table.size()) != tensor.geometry.blocks * tensor.geometry.block_size) {
    throw Error("/dtypes/" + tensor.dtype + ": its token table is not blocks x block_size");
  }
  return tensor;
}

std::vector<GoldenTensor> load_some(const fs::path& folder, std::string_view layout, const std::vector<std::string>& dtypes,
                                    const LoadOptions& options) {
  const Manifest manifest = read_manifest(folder);
  const auto entry = file_of(manifest, layout);
  if (entry == manifest.files.end()) {
    throw Error("layout '" + std::string(layout) + "' has no golden file in " + (folder / "MANIFEST.json").string() +
                "; generate.py --list says why");
  }
  const fs::path file = folder / entry->first;
  for (const std::string& dtype : dtypes) {
    if (entry->second.dtypes.contains(dtype)) continue;
    std::string known;
    for (const auto& [d, digest] : entry->second.dtypes) known += " " + d;
    throw Error(file.string() + " holds no dtype '" + dtype + "'; it holds" + known);
  }
  const std::string bytes = read_file(file, options.file_bytes);
  if (const std::string hash = sha256(bytes); hash != entry->second.sha256) {
    throw Error(file.string() + ": SHA-256 is " + hash.substr(0, 12) + "..., the manifest says " +
                entry->second.sha256.substr(0, 12) + "...; restore the file from version control");
  }
  try {
    const Dump dump = read_in_child(file, bytes, dtypes, options);
    std::vector<GoldenTensor> tensors;
    for (const json& at : dump.header.at("dtypes")) tensors.push_back(tensor_of(dump, at, entry->second));
    for (GoldenTensor& tensor : tensors) tensor.layout = layout;
    const std::size_t wanted = dtypes.empty() ? entry->second.dtypes.size() : dtypes.size();
    if (tensors.size() != wanted) {
      throw Error("expected " + std::to_string(wanted) + " dtypes, found " + std::to_string(tensors.size()));
    }
    return tensors;
  } catch (const json::exception& fault) {
    throw Error(file.string() + ": not a golden file of this format (" + to_string(fault) + ")");
  } catch (const Error& fault) {
    const std::string text = fault.what();
    throw Error(text.starts_with(file.string()) ? text : file.string() + ": " + text);
  } catch (const layout::Error& fault) {
    throw Error(file.string() + ": " + fault.what());
  }
}

}  // namespace

std::vector<GoldenEntry> list(const fs::path& folder) {
  std::vector<GoldenEntry> entries;
  for (const auto& [file, entry] : read_manifest(folder).files) {
    for (const std::string& layout : entry.layouts) {
      for (const auto& [dtype, digest] : entry.dtypes) entries.push_back({layout, dtype, entry.template_text, file});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const GoldenEntry& a, const GoldenEntry& b) {
    return std::tie(a.layout, a.dtype) < std::tie(b.layout, b.dtype);
  });
  return entries;
}

GoldenTensor load(const fs::path& folder, std::string_view layout, std::string_view dtype, const LoadOptions& options) {
  return std::move(load_some(folder, layout, {std::string(dtype)}, options).front());
}

std::vector<GoldenTensor> load_all(const fs::path& folder, std::string_view layout, const LoadOptions& options) {
  return load_some(folder, layout, {}, options);
}

std::vector<std::vector<std::uint8_t>> tag_bits(const GoldenTensor& tensor) {
  std::vector<std::vector<std::uint8_t>> masks;
  for (const auto& a : tensor.allocations) masks.emplace_back(a.bytes.size(), std::uint8_t{0});
  for (const GoldenPlane& plane : tensor.planes) {
    const auto& shape = plane.pool_shape;
    const std::int64_t row = shape[4] * shape[5], slots = shape[2] * shape[3];
    for (std::size_t i = 0; i < plane.bit.size(); ++i) {
      const std::int64_t place = static_cast<std::int64_t>(i) / row % slots;
      const std::int64_t block = plane.first[2] + plane.step[2] * (place / shape[3]),
                         slot = plane.first[3] + plane.step[3] * (place % shape[3]);
      if (plane.blocked && tensor.token_table.at(static_cast<std::size_t>(block * tensor.geometry.block_size + slot)) < 0)
        continue;
      auto& mask = masks.at(static_cast<std::size_t>(plane.allocation[i]));
      for (std::int64_t bit = plane.bit[i]; bit < plane.bit[i] + plane.bits; bit += 4) {
        mask.at(static_cast<std::size_t>(bit / 8)) |= static_cast<std::uint8_t>(bit % 8 == 0 ? 0x0f : 0xf0);
      }
    }
  }
  return masks;
}

std::string what_is_at(const GoldenTensor& tensor, int allocation, std::int64_t bit) {
  for (const GoldenPlane& plane : tensor.planes) {
    for (std::size_t i = 0; i < plane.bit.size(); ++i) {
      if (plane.allocation[i] != allocation || bit < plane.bit[i] || bit >= plane.bit[i] + plane.bits) continue;
      std::vector<std::int64_t> at(6);
      std::int64_t rest = static_cast<std::int64_t>(i);
      for (std::size_t axis = 6; axis-- > 0;) {
        at[axis] = rest % plane.pool_shape[axis];
        rest /= plane.pool_shape[axis];
      }
      std::string words = plane.component + " of '" + plane.text + "':";
      constexpr std::array<const char*, 6> names{" layer ", " kv ", " block ", " slot ", " head ", " channel "};
      for (std::size_t axis = 0; axis < 6; ++axis)
        words += names[axis] + std::to_string(plane.first[axis] + plane.step[axis] * at[axis]);
      return words;
    }
  }
  return "padding";
}

}  // namespace kvcts::golden
