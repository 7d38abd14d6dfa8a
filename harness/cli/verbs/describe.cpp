// kvcts layouts --shape: what can a tensor of this shape be? The ambiguity that a connector resolves by guessing, before
// anything moves.
#include <fmt/format.h>

#include <memory>

#include "cli/verbs/verbs.hpp"
#include "python/probe/describe.hpp"

namespace kvcts::cli::describe_verb {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Options {
  std::string dtype{"fp16"};
  Numbers shape, strides;
  layout::Facts facts;
};

/// Packed, the last dimension innermost, where no strides are given.
Numbers strides_of(const Options& o) {
  if (!o.strides.empty()) {
    if (o.strides.size() != o.shape.size())
      throw UsageError(fmt::format("--strides has {} numbers, expected one for each of the {} of the shape",
                                   o.strides.size(), o.shape.size()));
    return o.strides;
  }
  Numbers out(o.shape.size(), 1);
  for (std::size_t d = out.size(); d-- > 1;)
    if (__builtin_mul_overflow(out[d], o.shape[d], &out[d - 1]))
      throw UsageError("a tensor of this shape has more elements than 64 bits can count");
  return out;
}

probe::Tensor tensor_of(const Options& o) {
  probe::Tensor out;
  const layout::Dtype dtype = layout::dtype_from_name(o.dtype);
  if (layout::bits(dtype) < 8)
    throw layout::Error("'" + o.dtype + "' has two codes a byte: describe the tensor as uint8, with its shape in bytes");
  out.dtype = o.dtype;
  out.itemsize = layout::bits(dtype) / 8;
  out.shape = o.shape;
  for (const std::int64_t stride : strides_of(o))
    if (__builtin_mul_overflow(stride, out.itemsize, &out.strides.emplace_back()))
      throw UsageError("a stride is more bytes than 64 bits can count");
  return out;
}

nlohmann::json to_json(const probe::Tensor& tensor, const probe::Description& d) {
  nlohmann::json fits = nlohmann::json::array(), open = nlohmann::json::array();
  for (const probe::Fit& fit : d.fits) {
    const layout::Geometry& g = fit.geometry;
    fits.push_back({{"axes", fit.axes},
                    {"order", fit.order},
                    {"dtype", fit.dtype},
                    {"layouts", fit.layouts},
                    {"layers", g.layers},
                    {"blocks", g.blocks},
                    {"block_size", g.block_size},
                    {"heads", g.heads},
                    {"head_dim", g.head_dim},
                    {"kv", g.kv}});
  }
  for (const layout::Reading& reading : d.open)
    open.push_back({{"axes", reading.letters}, {"needs", probe::missing(reading)}});
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape},    {"strides", tensor.strides}, {"fits", fits},
          {"open", open},          {"ambiguous", d.ambiguous}, {"settled_by", d.settled_by}};
}

int run(const Options& o, const Globals& globals) {
  constexpr int exit_ambiguous = 13;  // as kvcts check
  const catalogue::Catalogue catalogue(catalogue::find_cases(globals.cases));
  probe::Tensor tensor;
  probe::Description description;
  try {
    tensor = tensor_of(o);
    description = probe::describe(tensor, o.facts, catalogue);
  } catch (const layout::Error& error) {
    throw UsageError(error.what());
  }
  if (globals.json) {
    fmt::print("{}\n", to_json(tensor, description).dump(2));
  } else {
    fmt::print("{}\n", to_text(tensor, description));
  }
  return description.ambiguous ? exit_ambiguous : description.fits.empty() ? exit_unexpected : exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto options = std::make_shared<Options>();
  constexpr std::int64_t one = 1, most = std::int64_t{1} << 40;
  command.add_option("SHAPE", options->shape, "Extents of the tensor, comma-separated: 2,9,16,8,64")
      .required()
      .delimiter(',')
      .range(one, most);
  command.add_option("--strides", options->strides, "Strides in elements (default: packed, the last dimension innermost)")
      .delimiter(',')
      .not_negative();
  command.add_option("--dtype", options->dtype, "Element type").show_default();
  for (const auto& [name, fact] : {std::pair{"--layers", &layout::Facts::layers},
                                   {"--blocks", &layout::Facts::blocks},
                                   {"--block-size", &layout::Facts::block_size},
                                   {"--heads", &layout::Facts::heads},
                                   {"--head-dim", &layout::Facts::head_dim}}) {
    command.add_option(name, options->facts.*fact, "A fact that you know about the cache").range(one, most);
  }
  return [options, &globals] { return run(*options, globals); };
}

}  // namespace kvcts::cli::describe_verb
