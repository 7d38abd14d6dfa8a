// Reads just enough of cases/layouts/ and cases/dtypes/ for the tests of this folder (harness/case/catalogue has the loader
// with schemas). It ignores unknown keys and throws on missing ones.
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layout/template.hpp"
#include "testing/checkout.hpp"

namespace kvcts::layout::testing {

struct UsedBy {
  std::string system, backend, versions, hint;
};

struct Entry {
  std::string id, text;
  TensorSpec tensors;
  std::map<std::string, std::int64_t> fixed;
  std::vector<std::string> dtypes, requires_;
  std::map<std::string, std::string> names;
  std::vector<UsedBy> used_by;
};

inline std::string scalar(const YAML::Node& node, const std::string& otherwise = "") {
  return node ? node.as<std::string>() : otherwise;
}

inline std::vector<std::filesystem::path> yaml_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& f : std::filesystem::directory_iterator(checkout::source() + "/cases/" + folder)) {
    if (f.path().extension() == ".yaml") files.push_back(f.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::vector<Entry> layouts() {
  std::vector<Entry> entries;
  for (const auto& file : yaml_files("layouts")) {
    const YAML::Node y = YAML::LoadFile(file.string());
    Entry e;
    e.id = y["layout"].as<std::string>();
    if (e.id != file.stem()) throw Error(file.string() + ": the id is '" + e.id + "', expected the file name");
    e.text = y["template"].as<std::string>();
    if (y["tensors"]) e.tensors = {scalar(y["tensors"]["list"]), scalar(y["tensors"]["shape"])};
    for (const auto& kv : y["fixed"]) e.fixed[kv.first.as<std::string>()] = kv.second.as<std::int64_t>();
    for (const auto& d : y["dtypes"]) e.dtypes.push_back(d.as<std::string>());
    for (const auto& r : y["requires"]) e.requires_.push_back(r.IsMap() ? r["that"].as<std::string>() : r.as<std::string>());
    for (const auto& n : y["names"]) e.names[n.first.as<std::string>()] = n.second.as<std::string>();
    for (const auto& u : y["used_by"]) {
      e.used_by.push_back({scalar(u["system"]), scalar(u["backend"]), scalar(u["versions"]), scalar(u["hint"])});
    }
    if (!y["source"] || y["source"].size() == 0) throw Error(e.id + ": no source");
    for (const auto& s : y["source"]) {
      for (const char* key : {"project", "version", "file", "how"}) {
        if (!s[key]) throw Error(e.id + ": a source without " + key);
      }
    }
    entries.push_back(std::move(e));
  }
  return entries;
}

inline std::map<std::string, Scheme> schemes() {
  std::map<std::string, Scheme> out;
  for (const auto& file : yaml_files("dtypes")) {
    const YAML::Node y = YAML::LoadFile(file.string());
    Scheme s{y["dtype"].as<std::string>(), dtype_from_name(y["data"].as<std::string>()), {}, {}};
    if (y["scale"])
      s.scale = ScaleSpec{dtype_from_name(y["scale"]["dtype"].as<std::string>()), y["scale"]["group"].as<std::int64_t>()};
    if (y["global_scale"]) s.global_scale = dtype_from_name(y["global_scale"].as<std::string>());
    out[s.name] = s;
  }
  return out;
}

inline std::int64_t& field(Geometry& g, const std::string& name) {
  static const std::map<std::string, std::int64_t Geometry::*> fields{
      {"layers", &Geometry::layers}, {"blocks", &Geometry::blocks},     {"block_size", &Geometry::block_size},
      {"heads", &Geometry::heads},   {"head_dim", &Geometry::head_dim}, {"v_head_dim", &Geometry::v_head_dim},
      {"kv", &Geometry::kv}};
  return g.*fields.at(name);
}

inline Geometry with_fixed(Geometry g, const Entry& e) {
  for (const auto& [name, value] : e.fixed) field(g, name) = value;
  return g;
}

/// Conditions of the form "name % n == 0", "name == n" or "name <= n"; n is a number or x.
inline bool meets(const Entry& e, Geometry g, const Scheme& scheme) {
  for (const std::string& condition : e.requires_) {
    std::vector<std::string> w;
    std::string word;
    for (char c : condition + ' ') {
      if (c != ' ')
        word += c;
      else if (!word.empty())
        w.push_back(std::exchange(word, ""));
    }
    const auto value = [&](const std::string& s) -> std::int64_t {
      if (s == "x") return 128 / bits(scheme.data);
      return std::isdigit(static_cast<unsigned char>(s[0])) != 0 ? std::stoll(s) : field(g, s);
    };
    bool ok = false;
    if (w.size() == 5 && w[1] == "%" && w[3] == "==")
      ok = value(w[0]) % value(w[2]) == value(w[4]);
    else if (w.size() == 3 && w[1] == "==")
      ok = value(w[0]) == value(w[2]);
    else if (w.size() == 3 && w[1] == "<=")
      ok = value(w[0]) <= value(w[2]);
    else
      throw Error(e.id + ": this test cannot read the condition '" + condition + "'");
    if (!ok) return false;
  }
  return true;
}

}  // namespace kvcts::layout::testing
