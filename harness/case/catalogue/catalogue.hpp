// cases/ as values. Each kind is read on first use, so a program pays only for the kinds it needs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "case/catalogue/entries.hpp"
#include "case/catalogue/error.hpp"

namespace kvcts::catalogue {

/// All entries of a kind, ordered by id.
template <class T>
class Entries {
 public:
  Entries() = default;
  Entries(std::string kind, std::map<std::string, T, std::less<>> entries)
      : kind_(std::move(kind)), entries_(std::move(entries)) {}

  const T* find(std::string_view id) const {
    const auto it = entries_.find(id);
    return it == entries_.end() ? nullptr : &it->second;
  }
  bool contains(std::string_view id) const { return find(id) != nullptr; }
  /// Throws Error: "expected a known layout, found 'x'; did you mean 'y'?"
  const T& at(std::string_view id) const;
  std::vector<std::string> ids() const {
    std::vector<std::string> out;
    for (const auto& [id, entry] : entries_) out.push_back(id);
    return out;
  }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::string kind_;
  std::map<std::string, T, std::less<>> entries_;
};

/// The directory of case data: `given` if not empty, else $KVCTS_CASES, else share/kvcts/cases or cases beside or above the
/// running program. Throws Error with the places searched.
std::filesystem::path find_cases(const std::string& given = "");

/// Entries that no file of the directory has. Each has a new id.
struct Additions {
  std::vector<EngineEntry> engines;
  std::vector<SuiteEntry> suites;
  std::vector<WaiverEntry> waivers;
};

class Catalogue {
 public:
  /// Reads nothing yet. Throws Error unless `directory` is a directory.
  explicit Catalogue(std::filesystem::path directory, Additions additions = {});
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  const std::filesystem::path& directory() const { return directory_; }

  // Each throws Error on the first bad file of its kind. Safe to call from several threads.
  const Entries<LayoutEntry>& layouts() const;
  const Entries<SchemeEntry>& dtypes() const;
  const Entries<BackendEntry>& backends() const;
  const Entries<ArchEntry>& archs() const;
  const Entries<ConnectorEntry>& connectors() const;
  const Entries<EngineEntry>& engines() const;
  const Entries<GeometryEntry>& geometries() const;
  const Entries<ConstraintEntry>& constraints() const;
  const Entries<SuiteEntry>& suites() const;
  const Entries<WaiverEntry>& waivers() const;

  /// What a machine may lack, by name: engines, their needs, connectors, environments of connector programs.
  std::vector<std::string> lackable_names() const;

  /// Reads everything and checks cross-references (a backend's layouts exist, no id is both layout and backend, a suite
  /// includes suites that exist, ...). Throws Error on the first fault.
  void check() const;

 private:
  struct Loaded;
  std::filesystem::path directory_;
  std::unique_ptr<Loaded> loaded_;
};

/// Regular files of `directory` that end in .yaml, sorted by name; empty when it has none.
std::vector<std::filesystem::path> yaml_files(const std::filesystem::path& directory);
/// Does `text` match `glob`? '*' any run (also of '/'), '?' one character, '[abc]', '[a-z]', '[!a]' sets.
bool matches_glob(std::string_view glob, std::string_view text);

}  // namespace kvcts::catalogue
