#include "run/checker/content.hpp"

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "golden/golden.hpp"
#include "kernels/poison.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::checker {

namespace {

class Tags final : public CaseContent {
 public:
  explicit Tags(const ResolvedCase& resolved) : case_(resolved) {}
  void write_initial(const RegionRef& region, int pass, std::span<std::uint8_t> file) const override {
    oracle::write_initial(case_, region, pass, file);
  }
  void write_expected(const RegionRef& region, int pass, std::span<std::uint8_t> file) const override {
    oracle::write_expected(case_, region, pass, file);
  }
  bool holds_expected(const RegionRef& region, int pass, std::span<const std::uint8_t> file) const override {
    return oracle::holds_expected(case_, region, pass, file);
  }
  bool tail_is_unused() const override { return true; }

 private:
  const ResolvedCase& case_;
};

// Tensors are read once per executor (and thread): a suite uses the same few repeatedly, engine by engine.
std::shared_ptr<const golden::GoldenTensor> tensor(const ContentSpec& spec, const std::string& layout,
                                                   const std::string& dtype) {
  thread_local std::deque<std::shared_ptr<const golden::GoldenTensor>> recent;
  for (const auto& t : recent) {
    if (t->layout == layout && t->dtype == dtype) return t;
  }
  auto loaded = std::make_shared<const golden::GoldenTensor>(golden::load(spec.folder, layout, dtype));
  recent.push_front(loaded);
  if (recent.size() > 8) recent.pop_back();
  return loaded;
}

// The consumer starts as the golden file's own poison, so that afterwards it must equal the golden tensor, byte for byte.
class Golden final : public CaseContent {
 public:
  explicit Golden(const ResolvedCase& resolved)
      : case_(resolved),
        producer_(tensor(resolved.content, resolved.content.producer, resolved.dtype)),
        consumer_(tensor(resolved.content, resolved.content.consumer, resolved.dtype)) {}

  void write_initial(const RegionRef& region, int, std::span<std::uint8_t> file) const override {
    if (region.side == Side::producer) return write(region, file, *producer_);
    kernels::fill_poison(oracle::region_key(case_, region), 0, file);
    const auto key = kernels::poison_key(consumer_->seed, consumer_->side, consumer_->rank,
                                         static_cast<std::uint32_t>(region.allocation));
    const auto shape = oracle::file_shape(case_, region.bytes);
    kernels::fill_poison(key, 0, file.subspan(static_cast<std::size_t>(shape.base), static_cast<std::size_t>(shape.bytes)));
  }
  void write_expected(const RegionRef& region, int, std::span<std::uint8_t> file) const override {
    write(region, file, region.side == Side::producer ? *producer_ : *consumer_);
  }
  bool tail_is_unused() const override { return false; }

 private:
  void write(const RegionRef& region, std::span<std::uint8_t> file, const golden::GoldenTensor& from) const {
    kernels::fill_poison(oracle::region_key(case_, region), 0, file);
    const auto& bytes = from.allocations.at(static_cast<std::size_t>(region.allocation)).bytes;
    if (static_cast<std::int64_t>(bytes.size()) != region.bytes) {
      throw std::runtime_error("golden tensor of " + from.layout + ": allocation " + std::to_string(region.allocation) +
                               " has " + std::to_string(bytes.size()) + " bytes, this layout has " +
                               std::to_string(region.bytes));
    }
    std::copy(bytes.begin(), bytes.end(), file.begin() + oracle::file_shape(case_, region.bytes).base);
  }

  const ResolvedCase& case_;
  std::shared_ptr<const golden::GoldenTensor> producer_, consumer_;
};

}  // namespace

std::unique_ptr<CaseContent> make_content(const ResolvedCase& resolved) {
  if (resolved.content.kind == "golden") return std::make_unique<Golden>(resolved);
  if (resolved.content.kind == "tags") return std::make_unique<Tags>(resolved);
  if (resolved.content.kind == "specials") return make_specials(resolved);
  throw std::runtime_error("content: expected tags, golden or specials, found '" + resolved.content.kind + "'");
}

}  // namespace kvcts::checker
