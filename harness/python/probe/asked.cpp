#include "python/probe/asked.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/poison.hpp"
#include "layout/template.hpp"
#include "python/probe/damage.hpp"
#include "scene/oracle/oracle.hpp"

namespace kvcts::probe {

using kernels::BlockContent;
using Kind = Provenance::Kind;

namespace {

std::int64_t tokens_of(const Request& request, std::int64_t block_size) {
  return request.tokens < 0 ? static_cast<std::int64_t>(request.blocks.size()) * block_size : request.tokens;
}

std::int64_t bytes_of(const layout::Cache& cache) {
  std::int64_t out = 0;
  for (const auto& allocation : cache.allocations) out += allocation.bytes;
  return out;
}

SideCache side_of(const Subject& subject, const layout::Geometry& geometry, const layout::Cache& cache) {
  return {subject.id.empty() ? "(template)" : subject.id, subject.text, subject.scheme, {{geometry, cache, cache}}};
}

/// A pool of the subject's layout with other numbers; its own where the layout has no such pool.
SideCache pool_of(const Subject& subject, layout::Geometry geometry) {
  try {
    return side_of(subject, geometry, layout::instantiate(subject.text, geometry, subject.scheme));
  } catch (const layout::Error&) {
    return side_of(subject, subject.geometry, subject.cache);
  }
}

/// What the bytes of an allocation should be. Where any may be they are as found.
void write_expected(const Question& q, const Bound& bound, const Content& content, const std::vector<BlockContent>& blocks,
                    std::size_t allocation, std::span<std::uint8_t> out) {
  const auto found = bound.ranges[allocation].bytes;
  const int number = static_cast<int>(allocation);
  if (content.poison) {
    kernels::write(image_of(bound.cache, number, static_cast<std::int64_t>(out.size()), blocks, content), out, q.threads);
    return;
  }
  std::ranges::copy(found, out.begin());
  if (blocks.empty()) return;
  for (const layout::Plane& plane : bound.cache.planes)
    if (plane.allocation == number)
      kernels::generate(out, plane, blocks, content.key, unblocked_generation(content), q.threads);
}

}  // namespace

Asked::Asked(const Question& question, std::int64_t wrong_bytes) : question_(question) {
  const kernels::TagKey& key = question.content.key;
  truth_.seed = key.seed, truth_.guard_bytes = 0;
  tell_groups();
  bytes_.pass = static_cast<int>(key.pass), bytes_.wrong_bytes = wrong_bytes;
  std::int64_t producer = 0, consumer = 0;
  for (const RegionRef& region : regions(truth_, kvcts::Side::producer)) producer += region.bytes;
  for (const RegionRef& region : regions(truth_, kvcts::Side::consumer)) consumer += region.bytes;
  if (std::max(producer, consumer) > static_cast<std::int64_t>(diagnose::RegionExtents::most_bytes)) return;
  add_producer();
  add_elsewhere();
  extents_.emplace(truth_, bytes_.producer);
  for (const diagnose::RegionBytes& one : changed_) extents_->add(one);
  for (std::size_t a = 0; a < question.bound.ranges.size(); ++a) add_consumer(a);
  extents_->search();
  if (!question.content.poison) extents_->mask_unknown();
}

void Asked::tell_groups() {
  const Subject& subject = question_.subject;
  const std::int64_t size = subject.geometry.block_size;
  kvcts::Group& group = truth_.groups.emplace_back();
  group.consumer = side_of(subject, subject.geometry, question_.bound.cache);
  std::vector<Request> theirs;
  if (question_.source) theirs = question_.source->content.requests;
  bool& sent = sent_ = question_.source.has_value();
  std::int64_t blocks = 0, longest = 0;
  std::set<std::uint32_t> generations;
  for (const Request& mine : question_.content.requests) {
    kvcts::Request& reported = group.requests.emplace_back();
    reported.generation = mine.generation, reported.tokens = tokens_of(mine, size), reported.consumer_blocks = mine.blocks;
    for (std::size_t i = 0; i < mine.blocks.size(); ++i) reported.producer_blocks.push_back(blocks++);
    longest = std::max(longest, static_cast<std::int64_t>(mine.blocks.size()));
    generations.insert(mine.generation);
    const auto match = std::ranges::find(theirs, mine.generation, &Request::generation);
    sent = sent && match != theirs.end();
    if (!sent) continue;
    reported.producer_blocks = match->blocks;
    theirs.erase(match);
  }
  truth_.connector.kind = "reference";
  if (sent) {
    const Source& source = *question_.source;
    group.producer = side_of(source.subject, source.subject.geometry, source.bound.cache);
    add_other_ranks(group.producer);
    for (const Request& other : theirs)
      group.requests.push_back(
          {other.generation, tokens_of(other, source.subject.geometry.block_size), false, other.blocks, {}});
  } else {
    layout::Geometry geometry = subject.geometry;
    geometry.blocks = std::max<std::int64_t>(1, blocks);
    if (question_.model_heads > geometry.heads) geometry.first_head = 0, geometry.heads = question_.model_heads;
    for (std::size_t i = 0, block = 0; i < group.requests.size(); ++i)
      for (auto& id : group.requests[i].producer_blocks) id = static_cast<std::int64_t>(block++);
    group.producer = pool_of(subject, geometry);
  }
  if (longest > 0) add_earlier(generations, longest);
}

/// What else could be there: earlier generations, in another memory.
void Asked::add_earlier(const std::set<std::uint32_t>& generations, std::int64_t longest) {
  constexpr std::int64_t enough = 4 << 20, most = 16 << 20;  // bytes
  constexpr std::uint32_t earlier = 64;                      // generations
  const Subject& subject = question_.subject;
  layout::Geometry geometry = subject.geometry;
  geometry.blocks = longest;
  const std::int64_t each = std::max<std::int64_t>(1, bytes_of(pool_of(subject, geometry).ranks.front().truth));
  std::set<std::uint32_t> known;
  for (std::uint32_t back = 1; back <= earlier; ++back)
    for (const std::uint32_t g : generations) {
      const auto many = static_cast<std::int64_t>(known.size()) + 1;
      if (g >= back && !generations.contains(g - back) && many * each <= (back == 1 ? most : enough)) known.insert(g - back);
    }
  if (known.empty()) return;
  geometry.blocks = longest * static_cast<std::int64_t>(known.size()) + 1;
  kvcts::Group& elsewhere = truth_.groups.emplace_back();
  elsewhere.name = "another memory";
  elsewhere.producer = pool_of(subject, geometry);
  const auto& pool = elsewhere.producer.ranks.front();
  std::int64_t block = pool.geometry.blocks;  // downwards: by chance no list of another pool
  const auto later = [&](std::uint32_t g) {   // whose blocks it had, if they were used again
    return std::ranges::find_if(question_.content.requests, [&](const Request& r) { return r.generation > g; });
  };
  for (const std::uint32_t g : known) {
    if (block < longest) break;
    kvcts::Request& reported = elsewhere.requests.emplace_back();
    reported.generation = g, reported.transfer = false, reported.tokens = longest * subject.geometry.block_size;
    for (std::int64_t i = 0; i < longest; ++i) reported.producer_blocks.push_back(--block);
    const auto reuse = later(g);
    if (reuse != question_.content.requests.end()) reported.consumer_blocks = reuse->blocks;
  }
}

/// What other ranks of the source hold, of which only the heads are known.
void Asked::add_other_ranks(SideCache& producer) {
  constexpr std::int64_t most = 16 << 20;  // bytes
  const Subject& own = question_.source->subject;
  const std::int64_t begin = own.geometry.first_head, end = begin + own.geometry.heads;
  for (const auto& [first, stop] : {std::pair<std::int64_t, std::int64_t>{0, begin}, {end, question_.model_heads}}) {
    layout::Geometry geometry = own.geometry;
    geometry.first_head = first, geometry.heads = stop - first;
    if (stop <= first) continue;
    const SideCache others = pool_of(own, geometry);
    const RankCache& rank = others.ranks.front();
    if (rank.geometry.first_head == first && bytes_of(rank.truth) <= most) producer.ranks.push_back(rank);
  }
}

/// The source as it should be; what it should be is what was sent.
void Asked::add_producer() {
  const auto own = regions(truth_, kvcts::Side::producer);
  std::vector<BlockContent> blocks;
  if (sent_) blocks = blocks_of(question_.source->content.requests, question_.source->subject.geometry);
  for (std::size_t a = 0; a < own.size() && own[a].group == 0 && own[a].rank == 0; ++a) {
    auto& expected = image(static_cast<std::size_t>(own[a].bytes));
    bytes_.producer.emplace_back(expected);
    if (!sent_) {
      oracle::write_initial(truth_, own[a], bytes_.pass, expected);
      continue;
    }
    const Source& source = *question_.source;
    write_expected(question_, source.bound, source.content, blocks, a, expected);
    const std::span<const std::uint8_t> found = source.bound.ranges[a].bytes;
    for (std::size_t i = 0; i < found.size(); ++i) bytes_.source_wrong += found[i] != expected[i];
    if (!std::ranges::equal(found, expected)) changed_.push_back({own[a], expected, expected, found});
  }
}

void Asked::add_elsewhere() {
  for (const RegionRef& region : regions(truth_, kvcts::Side::producer)) {
    if (region.group == 0 && region.rank == 0) continue;
    auto& bytes = image(static_cast<std::size_t>(region.bytes));
    oracle::write_initial(truth_, region, bytes_.pass, bytes);
    bytes_.producer.emplace_back(bytes);
  }
}

void Asked::add_consumer(std::size_t allocation) {
  const std::span<const std::uint8_t> found = question_.bound.ranges[allocation].bytes;
  const int number = static_cast<int>(allocation);
  const auto blocks = blocks_of(question_.content.requests, question_.subject.geometry);
  auto &before = image(found.size()), &expected = image(found.size());
  write_expected(question_, question_.bound, question_.content, blocks, allocation, expected);
  if (question_.content.poison)
    kernels::fill_poison(poison_of(question_.content, number), 0, before);
  else  // not known: unlike whatever is there now
    std::ranges::transform(found, before.begin(), [](std::uint8_t byte) { return static_cast<std::uint8_t>(~byte); });
  if (question_.open_tails) {
    for (const auto& tail : tails(question_, question_.bound.cache, number))
      std::ranges::copy(found.subspan(static_cast<std::size_t>(tail.begin), static_cast<std::size_t>(tail.end - tail.begin)),
                        expected.begin() + tail.begin);
  }
  const RegionRef region = regions(truth_, kvcts::Side::consumer).at(allocation);
  bytes_.consumer.push_back(found), bytes_.consumer_before.emplace_back(before),
      bytes_.consumer_expected.emplace_back(expected);
  extents_->add({region, before, expected, found});
}

Diagnosis Asked::diagnosis() const {
  if (extents_) return diagnose::name_the_cause(bytes_, &*extents_);
  Diagnosis out;
  out.text = fmt::format("{}; more than {} MiB are not looked into: verify fewer layers or blocks at a time", not_identified,
                         diagnose::RegionExtents::most_bytes >> 20);
  return out;
}

std::vector<Finding> Asked::what_happened() const { return extents_ ? extents_->what_happened() : std::vector<Finding>{}; }

std::string Asked::where(int allocation, std::int64_t offset) const {
  return oracle::where(truth_, regions(truth_, kvcts::Side::consumer).at(static_cast<std::size_t>(allocation)), offset);
}

std::string Asked::provenance(int allocation, std::int64_t offset) const {
  if (!extents_) return "";
  const auto& all = extents_->extents(changed_.size() + static_cast<std::size_t>(allocation));
  const auto after = std::ranges::upper_bound(all, offset, {}, &diagnose::RegionExtent::at);
  if (after == all.begin()) return "";
  Provenance provenance = std::prev(after)->did;
  if (provenance.kind == Kind::unknown || std::prev(after)->at + std::prev(after)->bytes <= offset) return "";
  provenance.block = provenance.slot = provenance.rank = -1;
  return to_string(provenance);
}

}  // namespace kvcts::probe
