// The position-coded tensor that peers.py passes to other tools.
#pragma once

#include <cstddef>
#include <string>

namespace kvcts::bench {

/// Writes fp16 [blocks, 16, 8, 128] of tags (block outermost, all blocks full), raw, little endian, with as many
/// blocks as fit in `bytes`. Throws std::runtime_error if the file cannot be written.
void write_tensor(const std::string& path, std::size_t bytes);

}  // namespace kvcts::bench
