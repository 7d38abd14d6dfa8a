#include "diagnose/observe.hpp"

#include <algorithm>
#include <set>

namespace kvcts::scenario {

using nlohmann::json;

void observe_more(Observation& o, const CopyProgram& program, std::uint64_t seed, int passes, const CopyExecutor& executor) {
  for (int pass = static_cast<int>(o.bytes.size()); pass < passes; ++pass) {
    Bytes bytes(program.buffers, seed, pass);
    std::vector<Bytes> at;
    execute(program, bytes, seed, pass, [&](std::size_t) { at.push_back(bytes); }, executor);
    o.bytes.push_back(std::move(at));
  }
}

Observation observe(const CopyProgram& program, std::uint64_t seed, int passes, const CopyExecutor& executor) {
  Observation out;
  out.ending = program.ending;
  out.events = program.events;
  out.checks = program.checks;
  observe_more(out, program, seed, passes, executor);
  return out;
}

// ---- what must be --------------------------------------------------------------------------------------------------

const Checkpoint* Expectation::at(const std::string& check) const {
  for (const Checkpoint& c : truth_.checks) {
    if (c.step == check) return &c;
  }
  return nullptr;
}

Rendering& Expectation::rendering(int pass) {
  while (renderings_.size() <= static_cast<std::size_t>(pass)) {
    renderings_.push_back(
        std::make_unique<Rendering>(symbols_, space_.buffers(), seed_, static_cast<int>(renderings_.size())));
  }
  return *renderings_[static_cast<std::size_t>(pass)];
}

const Bytes& Expectation::fresh(int pass) {
  while (fresh_.size() <= static_cast<std::size_t>(pass)) {
    fresh_.push_back(std::make_unique<Bytes>(space_.buffers(), seed_, static_cast<int>(fresh_.size())));
  }
  return *fresh_[static_cast<std::size_t>(pass)];
}

const std::vector<std::uint8_t>& Expectation::dense(const Checkpoint& check, int buffer, int pass) {
  const auto key = std::tuple(&check, buffer, pass);
  if (const auto known = done_.find(key); known != done_.end()) return known->second;
  const Buffer& b = space_.buffers()[static_cast<std::size_t>(buffer)];
  std::vector<std::uint8_t> out = fresh(pass).dense(buffer);
  Rendering& symbols = rendering(pass);
  for (const auto& [number, ids] : check.images[static_cast<std::size_t>(buffer)].pages()) {
    for (std::int64_t i = 0; i < SymbolImage::page; ++i) {
      const std::int64_t at = number * SymbolImage::page + i + b.guard_below;
      if (at < 0 || at >= static_cast<std::int64_t>(out.size())) continue;
      const SymbolId id = (*ids)[static_cast<std::size_t>(i)];
      if (id != hole) out[static_cast<std::size_t>(at)] = symbols.byte(id);
    }
  }
  return done_.emplace(key, std::move(out)).first->second;
}

std::vector<std::uint8_t> Expectation::page(const Checkpoint& check, int buffer, std::int64_t number, int pass) {
  const Buffer& b = space_.buffers()[static_cast<std::size_t>(buffer)];
  std::vector<std::uint8_t> out(static_cast<std::size_t>(SymbolImage::page));
  const Bytes& before = fresh(pass);
  const auto& pages = check.images[static_cast<std::size_t>(buffer)].pages();
  const auto found = pages.find(number);
  const std::int64_t from = std::max(number * SymbolImage::page, -b.guard_below),
                     to = std::min((number + 1) * SymbolImage::page, b.bytes + b.guard_above);
  if (from >= to) return out;
  before.read(buffer, from, to - from, out.data() + (from - number * SymbolImage::page));
  for (std::int64_t offset = from; offset < to && found != pages.end(); ++offset) {
    const auto i = static_cast<std::size_t>(offset - number * SymbolImage::page);
    if (const SymbolId id = (*found->second)[i]; id != hole) out[i] = rendering(pass).byte(id);
  }
  return out;
}

SymbolId Expectation::id(const Checkpoint& check, int buffer, std::int64_t offset, SymbolTable& symbols) const {
  const Buffer& b = space_.buffers()[static_cast<std::size_t>(buffer)];
  const auto& pages = check.images[static_cast<std::size_t>(buffer)].pages();
  const std::int64_t number = SymbolImage::page_of(offset);
  const auto found = pages.find(number);
  const SymbolId id =
      found == pages.end() ? hole : (*found->second)[static_cast<std::size_t>(offset - number * SymbolImage::page)];
  if (id != hole) return id;
  Symbol symbol;
  if (b.zeroed && offset >= 0 && offset < b.bytes) {
    symbol.kind = Symbol::Kind::constant;
  } else {
    symbol.kind = Symbol::Kind::poison;
    symbol.buffer = buffer;
    symbol.offset = offset;
  }
  return symbols.intern(symbol);
}

// ---- comparison ----------------------------------------------------------------------------------------------------

std::vector<json> reports(const std::vector<json>& events) {
  static const std::set<std::string> ops{"complete", "fail", "get"};
  std::vector<json> out;
  std::set<json> counted;  // the parts of an object that one step gets count as one hit or miss
  for (const json& event : events) {
    if (!ops.contains(event.value("op", "")) || event.contains("bytes_moved")) continue;
    if (event["op"] == "get" &&
        !counted.insert(json::array({event.value("step", ""), event.value("key", json()), event.value("hit", json())}))
             .second)
      continue;
    json kept{{"op", event["op"]}, {"request", event.value("request", "")}};
    for (const char* key : {"fields", "hit"}) {
      if (event.contains(key)) kept[key] = event[key];
    }
    out.push_back(std::move(kept));
  }
  std::ranges::sort(out);
  return out;
}

namespace {

void add(std::vector<WrongRange>& ranges, std::size_t check, int buffer, std::int64_t offset) {
  if (!ranges.empty() && ranges.back().check == check && ranges.back().buffer == buffer && ranges.back().end == offset) {
    ++ranges.back().end;
  } else {
    ranges.push_back({check, buffer, offset, offset + 1});
  }
}

}  // namespace

bool matters(const Checkpoint& check, int buffer, std::int64_t offset) {
  const auto of = check.any.find(buffer);
  return of == check.any.end() || !holds_byte(of->second, offset);
}

Mismatch compare(const Observation& o, const Truth& truth, Expectation& expectation, const AddressSpace& space,
                 const Mismatch* decided) {
  Mismatch out;
  std::set<std::pair<std::size_t, int>> doubtful;
  for (const WrongRange& range : decided ? decided->ranges : std::vector<WrongRange>{})
    doubtful.emplace(range.check, range.buffer);
  const auto& buffers = space.buffers();
  std::map<std::size_t, std::int64_t> wrong_at;
  for (std::size_t c = 0; c < o.checks.size(); ++c) {
    const Checkpoint* check = expectation.at(o.checks[c]);
    if (!check) continue;
    for (const Buffer& buffer : buffers) {
      if (!check->memory.empty() && check->memory != buffer.memory && check->memory != buffer.name) continue;
      const int b = buffer.ordinal;
      if (!buffer.sparse) {
        const std::size_t size = o.bytes[0][c].dense(b).size();
        out.checked_bytes += static_cast<std::int64_t>(size);
        if (decided && !doubtful.contains({c, b})) continue;
        std::vector<bool> wrong;
        for (std::size_t pass = 0; pass < o.bytes.size(); ++pass) {
          const auto& seen = o.bytes[pass][c].dense(b);
          const auto& must = expectation.dense(*check, b, static_cast<int>(pass));
          if (seen == must) continue;
          wrong.resize(size);
          for (std::size_t i = 0; i < size; ++i) {
            if (seen[i] != must[i]) wrong[i] = true;
          }
        }
        for (std::size_t i = 0; i < wrong.size(); ++i) {
          const std::int64_t offset = static_cast<std::int64_t>(i) - buffer.guard_below;
          if (!wrong[i] || !matters(*check, b, offset)) continue;
          add(out.ranges, c, b, offset);
          ++wrong_at[c];
        }
        continue;
      }
      std::set<std::int64_t> numbers;
      for (const auto& [number, ids] : check->images[static_cast<std::size_t>(b)].pages()) numbers.insert(number);
      for (const std::int64_t begin : o.bytes[0][c].pages(b)) numbers.insert(SymbolImage::page_of(begin));
      for (const std::int64_t number : numbers) {
        out.checked_bytes += SymbolImage::page;
        std::vector<bool> wrong(static_cast<std::size_t>(SymbolImage::page));
        const std::int64_t first = std::max(number * SymbolImage::page, -buffer.guard_below);
        const std::int64_t last = std::min((number + 1) * SymbolImage::page, buffer.bytes + buffer.guard_above);
        std::vector<std::uint8_t> seen(static_cast<std::size_t>(last - first));
        for (std::size_t pass = 0; pass < o.bytes.size(); ++pass) {
          o.bytes[pass][c].read(b, first, last - first, seen.data());
          const std::vector<std::uint8_t> must = expectation.page(*check, b, number, static_cast<int>(pass));
          for (std::int64_t i = first; i < last; ++i) {
            if (seen[static_cast<std::size_t>(i - first)] != must[static_cast<std::size_t>(i - number * SymbolImage::page)])
              wrong[static_cast<std::size_t>(i - number * SymbolImage::page)] = true;
          }
        }
        for (std::int64_t i = first; i < last; ++i) {
          if (!wrong[static_cast<std::size_t>(i - number * SymbolImage::page)] || !matters(*check, b, i)) continue;
          add(out.ranges, c, b, i);
          ++wrong_at[c];
        }
      }
    }
  }
  for (const auto& [check, bytes] : wrong_at) out.wrong_bytes = std::max(out.wrong_bytes, bytes);
  out.ending_differs = o.ending.kind != truth.ending.kind;
  out.reports_differ = reports(o.events) != reports(truth.events);
  return out;
}

}  // namespace kvcts::scenario
