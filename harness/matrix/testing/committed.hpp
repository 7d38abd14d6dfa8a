// For the tests of this folder: the committed catalogue, and folders of case data with some kinds replaced.
#pragma once

#include <filesystem>
#include <random>
#include <string>

#include "matrix/constraints.hpp"
#include "matrix/ids.hpp"
#include "matrix/space.hpp"
#include "testing/checkout.hpp"
#include "testing/temporary_folder.hpp"

namespace kvcts::matrix::testing {

inline std::filesystem::path cases() { return std::filesystem::path(checkout::source()) / "cases"; }

inline const Catalogue& committed() {
  static const Catalogue instance(cases());
  return instance;
}

/// A folder of case data: the repository's kinds, except those written here.
class Folder : public testing_support::TemporaryFolder {
 public:
  Folder() {
    std::filesystem::create_directories(path() / "suites");
    for (const char* kind :
         {"layouts", "dtypes", "backends", "archs", "connectors", "engines", "geometries", "constraints"}) {
      std::filesystem::create_directory_symlink(cases() / kind, path() / kind);
    }
  }
  /// An empty kind in place of the repository's.
  void clear(const std::string& kind) const {
    std::filesystem::remove(path() / kind);
    std::filesystem::create_directory(path() / kind);
  }
};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline Point random_point(Space& space, std::mt19937_64& random) {
  Point point{};
  for (const auto& a : axes())
    at(point, a.id) = static_cast<std::uint16_t>(random() % static_cast<unsigned>(space.size(a.id)));
  return space.canonical(point);
}

}  // namespace kvcts::matrix::testing
