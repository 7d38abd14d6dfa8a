#include "tools/compat/carry_out.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "connector/connector.hpp"
#include "process/memory_file.hpp"
#include "run/checker/open_case.hpp"

namespace kvcts::compat {

using nlohmann::json;

namespace {

struct Area {
  std::uint8_t* data{nullptr};
  std::int64_t bytes{0};
  bool holds(std::int64_t offset, std::int64_t length) const {
    return offset >= 0 && length >= 0 && offset <= bytes && length <= bytes - offset;
  }
};

/// Memory of the producer and of the consumer.
std::array<std::vector<Area>, 2> areas_of(checker::OpenCase& open, std::vector<process::Mapping>& maps) {
  std::array<std::vector<Area>, 2> sides;
  const json described = open.describe();
  const json& files = described.at("files");
  const auto descriptors = open.descriptors();
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    const auto side = files[i].at("side").get<std::string>();
    maps.emplace_back(descriptors[i], 0);
    if (side == "producer" || side == "consumer")
      sides[side == "consumer"].push_back(
          {maps.back().data() + files[i].at("base").get<std::int64_t>(), files[i].at("bytes").get<std::int64_t>()});
  }
  return sides;
}

/// The first wrong places: who belongs there.
std::vector<std::string> places(const Report& report) {
  std::vector<std::string> out;
  for (const WrongByte& one : report.first_wrong) {
    if (out.size() == 3) break;
    out.push_back(one.region + " + " + std::to_string(one.offset) + ": expected " + one.expected + " (" + one.where +
                  "), found " + one.observed);
  }
  return out;
}

}  // namespace

Carried carry_out(const ResolvedCase& resolved) {
  Carried out;
  const ResolvedCase view = case_from_json(worker_view(resolved));  // what a connector may know
  connector::Plan plan;
  try {
    const auto connector = connector::make_connector(view.connector);
    connector->register_caches(view, Side::producer);
    connector->register_caches(view, Side::consumer);
    plan = connector->plan(view, process::Progress());
  } catch (const connector::Refusal& no) {
    out.end = Carried::End::refused;
    out.text = no.what();
    return out;
  } catch (const connector::Raised& error) {
    out.end = Carried::End::raised;
    out.text = error.type + ": " + error.what();
    return out;
  }
  out.relayout = plan.relayout;
  out.copies = plan.copies.size();

  checker::OpenCase open(resolved);
  std::vector<process::Mapping> maps;
  const auto sides = areas_of(open, maps);
  std::int64_t total = 0;
  for (const Copy& copy : plan.copies) {
    const auto in = [&](std::size_t side, int region, std::int64_t offset) {
      return region >= 0 && static_cast<std::size_t>(region) < sides[side].size() &&
             sides[side][static_cast<std::size_t>(region)].holds(offset, copy.bytes);
    };
    if (!in(0, copy.src, copy.src_offset) || !in(1, copy.dst, copy.dst_offset)) {
      out.end = Carried::End::outside;
      out.text = "a copy of " + std::to_string(copy.bytes) + " bytes from " + std::to_string(copy.src_offset) + " to " +
                 std::to_string(copy.dst_offset) + " leaves its allocation";
      return out;
    }
    out.smallest = out.smallest == 0 ? copy.bytes : std::min(out.smallest, copy.bytes);
    total += copy.bytes;
  }
  for (int pass = 0; pass < std::max(1, resolved.passes); ++pass) {
    open.fill(pass);
    for (const Copy& copy : plan.copies)
      std::memcpy(sides[1][static_cast<std::size_t>(copy.dst)].data + copy.dst_offset,
                  sides[0][static_cast<std::size_t>(copy.src)].data + copy.src_offset, static_cast<std::size_t>(copy.bytes));
    const Report report = open.compare(
        {{"pass", pass}, {"planned", total}, {"moved", total}, {"transferred", true}, {"events", json::array()}});
    if (report.outcome == Outcome::pass) continue;
    out.end = Carried::End::wrong;
    out.text = report.message;
    if (report.diagnosis.exact) out.fault_class = report.diagnosis.fault_class;
    out.bytes = places(report);
    return out;
  }
  return out;
}

}  // namespace kvcts::compat
