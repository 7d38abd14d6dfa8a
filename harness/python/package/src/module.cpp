// kvcts._native: harness/python/probe for Python. ../kvcts/*.py has the public API; no decisions are made here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "case/catalogue/catalogue.hpp"
#include "kernels/tag.hpp"
#include "layout/layout.hpp"
#include "python/probe/describe.hpp"
#include "python/probe/device.hpp"
#include "python/probe/verify.hpp"
#include "scene/faults/variants.hpp"
#include "tensors.hpp"

namespace nb = nanobind;
using namespace kvcts;
using layout::Axis;

namespace {

nb::dict numbers_of(const layout::Geometry& g) {
  nb::dict out;
  out["layers"] = g.layers, out["blocks"] = g.blocks, out["block_size"] = g.block_size, out["heads"] = g.heads,
  out["head_dim"] = g.head_dim;
  out["v_head_dim"] = g.v_head_dim ? g.v_head_dim : g.head_dim, out["kv"] = g.kv, out["first_layer"] = g.first_layer,
  out["first_head"] = g.first_head;
  return out;
}

nb::tuple coordinate(const layout::Coord& at) {
  return nb::make_tuple(at[Axis::layer], at[Axis::kv], at[Axis::block], at[Axis::slot], at[Axis::head], at[Axis::channel]);
}

nb::list tensors_of(const probe::Subject& subject) {
  nb::list out;
  for (const auto& view : subject.cache.tensors) {
    std::vector<std::int64_t> shape, strides;
    std::vector<std::string> axes;
    for (const auto& dim : view.dims) shape.push_back(dim.extent), strides.push_back(dim.stride), axes.push_back(dim.axes);
    out.append(nb::make_tuple(view.name, shape, strides, axes, std::string(layout::name(view.dtype)), view.allocation,
                              view.offset));
  }
  return out;
}

using RequestTuple = std::tuple<std::vector<std::int64_t>, std::int64_t, std::uint32_t>;

probe::Content content_of(const std::vector<RequestTuple>& requests, std::uint64_t seed, std::uint32_t pass,
                          std::optional<int> side) {
  probe::Content out;
  for (const auto& [blocks, tokens, generation] : requests) out.requests.push_back({blocks, tokens, generation});
  out.key.seed = seed, out.key.pass = pass;
  out.poison = side ? std::optional(*side == 0 ? probe::Side::producer : probe::Side::consumer) : std::nullopt;
  return out;
}

void fill(const probe::Subject& subject, const nb::list& tensors, const std::vector<RequestTuple>& requests,
          std::uint64_t seed, std::uint32_t pass, std::optional<int> side, int threads) {
  python::Held held(tensors, true);
  const probe::Content content = content_of(requests, seed, pass, side);
  nb::gil_scoped_release release;
  const probe::Bound bound = probe::attach(subject, held.tensors());
  if (held.device() >= 0)
    probe::fill_on_device(subject, bound, content, held.device(), threads);
  else
    probe::fill(subject, bound, content, threads);
}

nb::dict report_of(const probe::Report& report) {
  nb::dict out;
  out["checked_bytes"] = report.checked_bytes, out["wrong_bytes"] = report.wrong_bytes;
  out["fault_class"] = std::string(name(report.diagnosis.fault_class)), out["exact"] = report.diagnosis.exact,
  out["text"] = report.diagnosis.text;
  out["look_at"] = report.diagnosis.what_to_do, out["sure"] = report.diagnosis.sure;
  nb::list first, blocks, happened, causes;
  for (const Cause& c : report.diagnosis.causes)
    causes.append(nb::make_tuple(std::string(name(c.fault_class)), c.words, c.share, c.competing));
  for (const Finding& one : report.what_happened) happened.append(one.text);
  for (const auto& w : report.first)
    first.append(nb::make_tuple(w.allocation, w.offset, w.expected, w.found, w.where, w.is));
  for (const auto& b : report.blocks) blocks.append(nb::make_tuple(b.block, b.first_token, b.tokens, b.generation, b.right));
  out["first"] = first, out["blocks"] = blocks, out["what_happened"] = happened, out["causes"] = causes;
  return out;
}

/// (layout, tensors, requests, side) of the producer.
using SourceTuple = std::tuple<nb::object, nb::list, std::vector<RequestTuple>, std::optional<int>>;

nb::dict verify(const probe::Subject& subject, const nb::list& tensors, const std::vector<RequestTuple>& requests,
                std::uint64_t seed, std::uint32_t pass, std::optional<int> side, bool open_tails,
                const std::optional<SourceTuple>& source, int threads, std::int64_t model_heads) {
  python::Held held(tensors, false);
  std::optional<python::Held> theirs;
  const probe::Subject* origin = nullptr;
  probe::Content sent;
  if (source) {
    origin = &nb::cast<const probe::Subject&>(std::get<0>(*source));
    theirs.emplace(std::get<1>(*source), false);
    sent = content_of(std::get<2>(*source), seed, pass, std::get<3>(*source));
  }
  const probe::Content content = content_of(requests, seed, pass, side);
  probe::Report report;
  {
    nb::gil_scoped_release release;
    probe::Question question{subject,    probe::attach(subject, held.tensors()), content, open_tails, std::nullopt, threads,
                             model_heads};
    if (origin) question.source = probe::Source{*origin, probe::attach(*origin, theirs->tensors()), sent};
    const int source_device = theirs ? theirs->device() : -1;
    report = held.device() >= 0   ? probe::verify_on_device(question, held.device(), source_device)
             : source_device >= 0 ? probe::verify_from_device(question, source_device)
                                  : probe::verify(question);
  }
  return report_of(report);
}

nb::dict describe(const nb::list& tensors, const std::map<std::string, std::int64_t>& facts,
                  const catalogue::Catalogue& catalogue) {
  const python::Held held(tensors, false);
  const probe::Tensor& tensor = held.tensors().at(0);
  layout::Facts known;
  for (const auto& [name, value] : facts) {
    if (name == "layers")
      known.layers = value;
    else if (name == "blocks")
      known.blocks = value;
    else if (name == "block_size")
      known.block_size = value;
    else if (name == "heads")
      known.heads = value;
    else if (name == "head_dim")
      known.head_dim = value;
    else
      throw layout::Error("'" + name + "' is no fact about a shape: layers, blocks, block_size, heads, head_dim");
  }
  const probe::Description d = probe::describe(tensor, known, catalogue);
  nb::dict out;
  out["dtype"] = tensor.dtype, out["shape"] = tensor.shape, out["strides"] = tensor.strides;
  nb::list fits, open;
  for (const auto& fit : d.fits)
    fits.append(nb::make_tuple(fit.axes, fit.order, numbers_of(fit.geometry), fit.dtype, fit.layouts));
  for (const auto& reading : d.open) open.append(nb::make_tuple(reading.letters, probe::missing(reading)));
  out["fits"] = fits, out["open"] = open, out["ambiguous"] = d.ambiguous, out["settled_by"] = d.settled_by;
  out["text"] = probe::to_text(tensor, d);
  return out;
}

}  // namespace

// One list: all that Python can call.
NB_MODULE(_native, m) {
  m.attr("__version__") = KVCTS_VERSION;
  m.attr("cuda") = probe::has_device_code();
  nb::exception<layout::Error> error(m, "LayoutError", PyExc_ValueError);
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* type) {
        try {
          std::rethrow_exception(p);
        } catch (const catalogue::Error& e) {
          PyErr_SetString(static_cast<PyObject*>(type), e.what());
        }
      },
      error.ptr());

  nb::class_<catalogue::Catalogue>(m, "Catalogue")
      .def(nb::init<std::string>())
      .def("layouts",
           [](const catalogue::Catalogue& c) {
             std::vector<std::tuple<std::string, std::string, std::string>> out;
             for (const auto& [id, e] : c.layouts()) out.emplace_back(id, e.title, e.text);
             return out;
           })
      .def("demands",  // of a layout: its fixed numbers and the dtypes that it holds
           [](const catalogue::Catalogue& c, const std::string& id) {
             const auto& entry = c.layouts().at(id);
             return std::tuple(entry.fixed, entry.dtypes);
           })
      .def("knows",  // as the id, published name or template of a layout
           [](const catalogue::Catalogue& c, const std::string& name) {
             if (c.layouts().contains(name)) return true;
             try {
               return !layout::template_from_name(name).empty();
             } catch (const layout::Error&) {
               return false;
             }
           })
      .def("backends",  // (name, versions, hint, layout id)
           [](const catalogue::Catalogue& c) {
             std::vector<std::tuple<std::string, std::string, std::string, std::string>> out;
             for (const auto& [id, entry] : c.layouts()) {
               for (const auto& use : entry.used_by) {
                 if (use.system == "vLLM") out.emplace_back(use.backend, use.versions, use.hint, id);
               }
             }
             for (const auto& [id, entry] : c.backends()) {
               out.emplace_back(id, entry.versions, "", entry.layout);
               for (const auto& [hint, layout] : entry.hints) out.emplace_back(id, entry.versions, hint, layout);
             }
             return out;
           })
      .def("dtypes", [](const catalogue::Catalogue& c) { return c.dtypes().ids(); });

  nb::class_<probe::Subject>(m, "Layout")
      .def("__init__",
           [](probe::Subject* self, const catalogue::Catalogue& c, const std::string& name, const std::string& dtype,
              const std::map<std::string, std::int64_t>& numbers,
              const std::optional<std::tuple<std::string, std::string>>& tensors) {
             probe::Wanted wanted{name, dtype, numbers, {}};
             if (tensors) wanted.tensors = layout::TensorSpec{std::get<0>(*tensors), std::get<1>(*tensors)};
             new (self) probe::Subject(probe::make_subject(wanted, c));
           })
      .def_ro("id", &probe::Subject::id)
      .def_ro("title", &probe::Subject::title)
      .def_ro("template", &probe::Subject::text)
      .def_prop_ro("dtype", [](const probe::Subject& s) { return s.scheme.name; })
      .def_prop_ro("numbers", [](const probe::Subject& s) { return numbers_of(s.geometry); })
      .def_prop_ro("tensors", &tensors_of)
      .def_prop_ro("allocations",
                   [](const probe::Subject& s) {
                     std::vector<std::tuple<std::string, std::int64_t>> out;
                     for (const auto& a : s.cache.allocations) out.emplace_back(a.name, a.bytes);
                     return out;
                   })
      .def_prop_ro(
          "names",
          [](const probe::Subject& s) {
            const layout::Names names = layout::names_of(s.text);
            return std::map<std::string, std::string>{
                {"vllm", names.vllm}, {"flashinfer", names.flashinfer}, {"lmcache", names.lmcache}, {"kvbm", names.kvbm}};
          })
      .def_prop_ro("order",
                   [](const probe::Subject& s) {
                     return s.cache.planes.empty() ? std::string() : scenario::order_text(s.cache.planes.front());
                   })
      .def_prop_ro("planes",
                   [](const probe::Subject& s) {
                     std::vector<std::string> out;
                     for (const auto& plane : s.cache.planes) out.push_back(layout::to_text(plane));
                     return out;
                   })
      .def_prop_ro("deciding_passes",
                   [](const probe::Subject& s) {
                     return kernels::deciding_passes(s.scheme.data, layout::bits(s.scheme.data) == 4 ? 2 : 1);
                   })
      .def("locate",
           [](const probe::Subject& s, const std::string& component,
              const std::vector<std::int64_t>& at) -> std::optional<std::tuple<int, std::int64_t, int>> {
             layout::Coord coord;
             for (std::size_t i = 0; i < layout::axis_count; ++i) coord.v[i] = at.at(i);
             const auto found = layout::locate(s.cache, layout::component_from_name(component), coord);
             if (!found) return std::nullopt;
             return std::tuple(found->allocation, found->bit, found->width);
           })
      .def("inverse",
           [](const probe::Subject& s, int allocation, std::int64_t byte) {
             nb::list out;
             std::vector<layout::Element> seen;
             for (const int half : {0, 4}) {
               for (const auto& element : layout::inverse(s.cache, allocation, byte * 8 + half)) {
                 if (std::find(seen.begin(), seen.end(), element) != seen.end()) continue;
                 seen.push_back(element);
                 out.append(nb::make_tuple(
                     std::string(layout::name(s.cache.planes[static_cast<std::size_t>(element.plane)].component)),
                     coordinate(element.coord)));
               }
             }
             return out;
           })
      .def("same_map", [](const probe::Subject& a, const probe::Subject& b) {
        return a.scheme == b.scheme && layout::same_map(a.cache, b.cache);
      });

  m.def("fill", &fill, nb::arg("layout"), nb::arg("tensors"), nb::arg("requests"), nb::arg("seed"), nb::arg("pass_"),
        nb::arg("side").none(), nb::arg("threads"));
  m.def("verify", &verify, nb::arg("layout"), nb::arg("tensors"), nb::arg("requests"), nb::arg("seed"), nb::arg("pass_"),
        nb::arg("side").none(), nb::arg("open_tails"), nb::arg("source").none(), nb::arg("threads"), nb::arg("model_heads"));
  m.def("describe", &describe, nb::arg("tensors"), nb::arg("facts"), nb::arg("catalogue"));
  m.def("compare", [](const probe::Subject& a, const probe::Subject& b, bool blocks) {
    const probe::Compatibility c = probe::compare(a, b, blocks ? probe::Moves::blocks : probe::Moves::coordinates);
    return std::tuple(c.code, std::string(name(c.fault_class)), c.text, c.distinguished);
  });
}
