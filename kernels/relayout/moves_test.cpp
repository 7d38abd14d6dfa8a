// The inner loops of every instruction set against a byte-by-byte copy.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/relayout/moves.hpp"

namespace kvcts::kernels::relayout {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes noise(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  return bytes;
}

class MovesOnEachIsa : public testing::TestWithParam<Moves> {};

TEST_P(MovesOnEachIsa, MovesRunsOfAnyLengthAndNothingElse) {
  const Bytes from = noise(20000, 1);
  for (const std::size_t bytes : {1u, 2u, 3u, 4u, 7u, 8u, 16u, 24u, 32u, 63u, 64u, 65u, 128u, 200u, 256u, 700u}) {
    for (const std::int64_t gap : {0, 1, 13, 64}) {
      for (const std::size_t at : {0u, 1u, 63u}) {
        const Runs runs{9, static_cast<std::int64_t>(bytes) + 5, static_cast<std::int64_t>(bytes) + gap, bytes};
        for (const bool swap : {false, true}) {
          for (const MoveRuns move : {GetParam().copy, GetParam().stream, GetParam().swap}) {
            if (swap != (move == GetParam().swap)) continue;
            Bytes to = noise(10000, 2), expected = to;
            for (std::size_t k = 0; k < runs.n; ++k) {
              for (std::size_t i = 0; i < bytes; ++i) {
                const std::uint8_t byte = from[3 + k * static_cast<std::size_t>(runs.from) + i];
                expected[at + k * static_cast<std::size_t>(runs.to) + i] =
                    swap ? static_cast<std::uint8_t>(byte << 4 | byte >> 4) : byte;
              }
            }
            move(to.data() + at, from.data() + 3, runs);
            GetParam().drain();
            ASSERT_EQ(to, expected) << bytes << " bytes, gap " << gap << ", at " << at;
          }
        }
      }
    }
  }
}

TEST_P(MovesOnEachIsa, TransposesTilesOfAnySizeAndNothingElse) {
  const Bytes from = noise(60000, 3);
  for (int kind = 0; kind < 4; ++kind) {
    const std::size_t size = std::size_t{1} << kind;
    for (const std::size_t rows : {1u, 2u, 7u, 16u, 33u}) {
      for (const std::size_t columns : {1u, 3u, 8u, 16u, 47u}) {
        const Tile tile{rows, columns, static_cast<std::int64_t>(columns * size + 3),
                        static_cast<std::int64_t>(rows * size + 5)};
        Bytes to = noise(60000, 4), expected = to;
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t c = 0; c < columns; ++c) {
            for (std::size_t i = 0; i < size; ++i) {
              expected[1 + c * static_cast<std::size_t>(tile.to_column) + r * size + i] =
                  from[1 + r * static_cast<std::size_t>(tile.from_row) + c * size + i];
            }
          }
        }
        GetParam().transpose[kind](to.data() + 1, from.data() + 1, tile);
        ASSERT_EQ(to, expected) << size << " bytes, " << rows << " x " << columns;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MovesOnEachIsa, testing::ValuesIn(usable_moves().begin(), usable_moves().end()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kvcts::kernels::relayout
