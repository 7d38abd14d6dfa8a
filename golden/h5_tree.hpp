// Reads the part of a golden file that the suite needs, with libhdf5 (only inside kvcts-golden-reader).
#pragma once

#include <string>
#include <vector>

namespace kvcts::golden {

struct TreeDump {
  std::string header;  ///< JSON: attributes, groups, and for each data set {path, kind, shape, at, bytes}
  std::string blobs;   ///< bytes of the data sets, each once
};

/// Reads a file image. `dtypes` empty: all. Throws std::runtime_error naming the missing or invalid object.
TreeDump read_tree(std::string image, const std::vector<std::string>& dtypes);

}  // namespace kvcts::golden
