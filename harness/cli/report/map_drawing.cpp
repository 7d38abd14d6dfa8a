#include "cli/report/map_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "cli/report/text.hpp"

namespace kvcts::report {
namespace {

using nlohmann::json;

constexpr std::array axis_names{"rank", "layer", "kv",      "block",
                                "slot", "head",  "channel", "generation"};  // as places have them
constexpr std::array order{3, 5, 2, 7, 0, 1, 4, 6};  // block, head, kv, generation; the others where they differ
constexpr std::size_t always = 4;
constexpr int tints = 8;  // classes t0 .. t7 of the style sheet
constexpr int left = 78, width = 576, strip = 12, gap = 10, top = 14;

std::string value_text(int axis, const json& place) {
  if (!place.is_array()) return place.get<std::string>();
  const auto value = place[static_cast<std::size_t>(axis)].get<std::int64_t>();
  return axis == 2 ? (value == 0   ? "K"
                      : value == 1 ? "V"
                                   : fmt::format("kv {}", value))
                   : fmt::format("{} {}", axis_names[static_cast<std::size_t>(axis)], value);
}

/// Class of a colour; places that have only words are hollow.
std::string tint(int axis, const json& place) {
  if (!place.is_array()) return "pad";
  return fmt::format("t{}", place[static_cast<std::size_t>(axis)].get<std::int64_t>() % tints);
}

/// Cells of one strip; neighbours of one colour are one rectangle.
std::string strip_of(const json& moves, const char* key, int axis, double y, double cell) {
  std::string out;
  for (std::size_t i = 0; i < moves.size();) {
    const json& place = moves[i][key];
    const std::string shade = tint(axis, place), message = value_text(axis, place);
    std::size_t end = i + 1;
    while (end < moves.size() && tint(axis, moves[end][key]) == shade && value_text(axis, moves[end][key]) == message) ++end;
    // The value stands in the rectangle where it has room.
    const double x = static_cast<double>(i) * cell, wide = static_cast<double>(end - i) * cell;
    out += fmt::format("<rect class=\"{}\" x=\"{:.4g}\" y=\"{:.4g}\" width=\"{:.4g}\" height=\"{}\"/>", shade, left + x, y,
                       wide - 0.6, strip - 1);
    const std::string label =
        place.is_array() ? axis == 2 ? message : std::to_string(place[static_cast<std::size_t>(axis)].get<std::int64_t>())
                         : "–";
    if (wide >= 7.0 * static_cast<double>(label.size()) + 2)
      out +=
          fmt::format("<text class=\"cell\" x=\"{:.4g}\" y=\"{:.4g}\">{}</text>", left + x + wide / 2, y + strip - 3, label);
    i = end;
  }
  return out;
}

}  // namespace

std::string map_svg(const json& picture) {
  if (!picture.is_object() || !picture.contains("moves") || picture["moves"].empty()) return "";
  json moves = picture["moves"];
  const auto wrong = [](const json& move) { return move["should"] != move["did"]; };
  const auto differs = [&](int axis) {
    return std::any_of(moves.begin(), moves.end(), [&](const json& m) {
      return m["should"].is_array() && m["did"].is_array() &&
             m["should"][static_cast<std::size_t>(axis)] != m["did"][static_cast<std::size_t>(axis)];
    });
  };
  std::vector<int> axes;
  std::string differing;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool differs_here = differs(order[i]);
    if (i < always || differs_here) axes.push_back(order[i]);
    if (differs_here)
      differing += fmt::format("{}{}", differing.empty() ? "" : ", ", axis_names[static_cast<std::size_t>(order[i])]);
  }
  const bool planned = picture.value("moves_from", "") == "plan";
  const std::size_t all = moves.size();
  const auto others = std::count_if(moves.begin(), moves.end(), wrong);
  for (;;) {
    const double cell = static_cast<double>(width) / static_cast<double>(moves.size());
    std::string body;
    double y = top;
    for (const int axis : axes) {
      body += fmt::format("<text class=\"note\" x=\"0\" y=\"{:.4g}\">{}</text>", y + strip + 3,
                          axis_names[static_cast<std::size_t>(axis)]);
      body += fmt::format("<g><title>{}: above what belongs there, below what is there</title>",
                          axis_names[static_cast<std::size_t>(axis)]);
      body += strip_of(moves, "should", axis, y, cell) + strip_of(moves, "did", axis, y + strip, cell) + "</g>";
      y += 2 * strip + gap;
    }
    std::string marks;
    for (std::size_t i = 0; i < moves.size(); ++i)
      if (wrong(moves[i]))
        marks += fmt::format("M{:.4g} {:.4g}h{:.4g}", left + static_cast<double>(i) * cell, y - 4, cell - 0.6);
    if (!marks.empty()) body += fmt::format("<path class=\"off\" d=\"{}\"/>", marks);
    const json &first = moves.front(), &last = moves.back();
    const std::string region = first["region"].get<std::string>();
    body += fmt::format("<text class=\"note\" x=\"{}\" y=\"10\">{}: bytes {} to {}</text>", left, escaped(region),
                        thousands(first["offset"].get<std::int64_t>()),
                        thousands(last["offset"].get<std::int64_t>() + last["bytes"].get<std::int64_t>()));
    const std::string message = fmt::format(
        "{} of {} of {} came from another place{}{}{}", others, plural(static_cast<std::int64_t>(all), "byte range"), region,
        differing.empty() ? "" : "; they differ in " + differing, planned ? ", by the plan" : "",
        moves.size() < all ? fmt::format("; the first {} are drawn", moves.size()) : "");
    const std::string out = fmt::format(
        "<figure class=\"map\"><svg viewBox=\"0 0 {} {:.4g}\" role=\"img\" class=\"map\" "
        "aria-label=\"{}\">{}</svg><figcaption>{}. Above: what belongs there. "
        "Below: what is there. A red line marks bytes from elsewhere.</figcaption></figure>",
        left + width, y + 2, escaped(message), body, escaped(message));
    if (out.size() < map_svg_limit || moves.size() <= 8) return out;
    moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(moves.size() / 2),
                moves.end());  // what cannot be seen that small anyway
  }
}

}  // namespace kvcts::report
