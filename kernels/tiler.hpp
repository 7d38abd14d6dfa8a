// From rows to tiles: makes the bytes of batches of rows and hands them to a sink (sinks.hpp).
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/plane_shape.hpp"
#include "kernels/row_batch.hpp"
#include "kernels/row_writer.hpp"
#include "kernels/sinks.hpp"

namespace kvcts::kernels {

/// A tile: small enough to stay in the first-level cache with its tables and the memory fetched meanwhile.
inline constexpr std::size_t tile_bytes = 4096;

template <typename Sink>
class Tiler {
 public:
  Tiler(const PlaneShape& shape, const RowWriter& writer, Sink& sink) : shape_(shape), writer_(writer), sink_(sink) {
    first_word_ = shape.first * writer.width() / 32;
    if (shape.way == Way::buffered) {
      row_.resize(static_cast<std::size_t>((shape.last * writer.width() + 7) / 8 - first_word_ * 4));
    }
  }

  /// False where rows do not end at whole bytes and the sink cannot store single bits; these rows are then left out.
  bool rows(RowBatch& batch) {
    const RowKeys keys = makes_bytes ? batch.keys() : RowKeys{nullptr, nullptr, nullptr, batch.rows()};
    bool all = true;
    for (const RowGroup& group : batch.groups()) {
      const RowKeys of_group = keys.part(group.first, group.count);
      switch (way_of(group)) {
        case Way::rows:
          for (const Runs& runs : shape_.runs) run_by_run(of_group, group, runs);
          break;
        case Way::columns:
          for (const Runs& runs : shape_.runs) column_by_column(of_group, group, runs);
          break;
        case Way::buffered:
          for (std::size_t r = 0; r < group.count; ++r) buffered(of_group.part(r, 1), bit_of(group, r));
          break;
        case Way::bitwise:
          if constexpr (requires { sink_.memory(); }) {
            for (std::size_t r = 0; r < group.count; ++r) bitwise(batch, group.first + r, bit_of(group, r));
          } else {
            all = false;
          }
          break;
      }
    }
    return all;
  }

 private:
  static constexpr bool makes_bytes = !requires { Sink::places_only; };

  static std::int64_t bit_of(const RowGroup& group, std::size_t row) {
    return group.bit + static_cast<std::int64_t>(row) * group.pitch;
  }

  Way way_of(const RowGroup& group) const {
    if (shape_.way != Way::columns || writer_.width() >= 8) return shape_.way;
    const bool pairs = group.pitch == writer_.width() && group.count % 2 == 0 && group.bit % 8 == 0;
    return pairs ? Way::columns : Way::bitwise;
  }

  void run_by_run(const RowKeys& keys, const RowGroup& group, const Runs& runs) {
    const std::int64_t width = writer_.width();
    const auto bytes = static_cast<std::size_t>(runs.channels * width / 8);
    // Rows longer than a tile are split; shorter ones fill a tile with many rows, then many runs.
    for (std::size_t from = 0; from < bytes; from += tile_bytes) {
      const std::size_t part = std::min(tile_bytes, bytes - from);
      const std::size_t most_rows = std::max<std::size_t>(1, tile_bytes / part);
      for (std::size_t r = 0; r < keys.rows; r += most_rows) {
        const std::size_t n = std::min(most_rows, keys.rows - r);
        const auto most_runs = static_cast<std::int64_t>(std::max<std::size_t>(1, tile_bytes / (part * n)));
        for (std::int64_t k = 0; k < runs.count; k += most_runs) {
          const std::int64_t m = std::min(most_runs, runs.count - k);
          const std::int64_t at = (bit_of(group, r) + runs.bit + k * runs.stride) / 8 + static_cast<std::int64_t>(from);
          const auto word = static_cast<std::uint32_t>((runs.first + k * runs.channels) * width / 32) +
                            static_cast<std::uint32_t>(from / 4);
          make_runs(keys.part(r, n), at, part, group.pitch / 8, m, runs, word);
        }
      }
    }
  }

  void make_runs(const RowKeys& keys, std::int64_t at, std::size_t bytes, std::int64_t pitch, std::int64_t count,
                 const Runs& runs, std::uint32_t word) {
    RowShape shape{word, bytes, pitch};
    shape.runs = static_cast<std::size_t>(count);
    shape.run_words = static_cast<std::uint32_t>(runs.channels * writer_.width() / 32);
    shape.run_pitch = runs.stride / 8;
    if (std::uint8_t* const to = sink_.direct(at); to != nullptr) {
      writer_.rows(keys, shape, to);
      return;
    }
    const Pieces pieces = Pieces{at, bytes, keys.rows, pitch, shape.runs, runs.stride / 8}.joined();
    sink_.expect(pieces);
    shape.pitch = static_cast<std::ptrdiff_t>(bytes);
    shape.run_pitch = static_cast<std::ptrdiff_t>(bytes * keys.rows);
    if constexpr (makes_bytes) writer_.rows(keys, shape, tile_);
    sink_.take(pieces, tile_);
  }

  void column_by_column(const RowKeys& keys, const RowGroup& group, const Runs& runs) {
    const std::int64_t width = writer_.width(), codes = 32 / width;
    constexpr std::size_t most_rows = tile_bytes / 4 / 4;
    for (std::size_t r = 0; r < keys.rows; r += most_rows) {
      const std::size_t n = std::min(most_rows, keys.rows - r);
      const auto most_words = static_cast<std::int64_t>(tile_bytes / 4 / n);
      const std::int64_t end = runs.first + runs.count;
      for (std::int64_t word = runs.first / codes; word * codes < end; word += most_words) {
        const std::int64_t first = std::max(runs.first, word * codes), last = std::min(end, (word + most_words) * codes);
        const std::int64_t at = bit_of(group, r) + runs.bit + (first - runs.first) * runs.stride;
        make_columns(keys.part(r, n), at / 8, group.pitch, runs.stride / 8, word, first, last);
      }
    }
  }

  /// Channels [first, last) starting at `word`, of which `first` may be in the middle.
  void make_columns(const RowKeys& keys, std::int64_t at, std::int64_t pitch, std::int64_t stride, std::int64_t word,
                    std::int64_t first, std::int64_t last) {
    const std::int64_t width = writer_.width(), codes = 32 / width;
    const auto column = keys.rows * static_cast<std::size_t>(width) / 8;
    Pieces pieces{at,        static_cast<std::size_t>(width) / 8,    keys.rows,
                  pitch / 8, static_cast<std::size_t>(last - first), stride};
    if (pitch == width || keys.rows == 1) pieces.bytes = column, pieces.count = 1;
    pieces = pieces.joined();
    const std::int64_t words = (last + codes - 1) / codes - word, before = first - word * codes;
    std::uint8_t* to = pieces.one() && before == 0 && last % codes == 0 ? sink_.direct(at) : nullptr;
    const bool in_place = to != nullptr;
    if (!in_place) {
      sink_.expect(pieces);
      to = tile_;
    }
    if constexpr (makes_bytes) writer_.columns(keys, static_cast<std::uint32_t>(word), static_cast<std::size_t>(words), to);
    if (!in_place) sink_.take(pieces, tile_ + static_cast<std::size_t>(before) * column);
  }

  void buffered(const RowKeys& key, std::int64_t bit) {
    const std::int64_t width = writer_.width();
    if constexpr (makes_bytes) {
      writer_.rows(key, static_cast<std::uint32_t>(first_word_), row_.size(), static_cast<std::ptrdiff_t>(row_.size()),
                   row_.data());
    }
    for (const Runs& runs : shape_.runs) {
      const std::uint8_t* from = row_.data() + (runs.first * width / 8 - first_word_ * 4);
      sink_.take(Pieces{(bit + runs.bit) / 8, static_cast<std::size_t>(runs.channels * width / 8),
                        static_cast<std::size_t>(runs.count), runs.stride / 8}
                     .joined(),
                 from);
    }
  }

  void bitwise(const RowBatch& batch, std::size_t row, std::int64_t row_bit) {
    const int width = writer_.width();
    // Reads a scale's digit back from its OR mask: bits 2..3 of the first code.
    const std::uint32_t digit = batch.or_mask(row) >> 2 & 3u;
    for (const Runs& runs : shape_.runs) {
      for (std::int64_t k = 0; k < runs.count; ++k) {
        std::int64_t bit = row_bit + runs.bit + k * runs.stride;
        const std::int64_t first = runs.first + k * runs.channels;
        for (std::int64_t c = first; c < first + runs.channels; ++c, bit += width) {
          put_bits(writer_.high_nibble_first() ? bit ^ 4 : bit,
                   writer_.code(batch.key(row), digit, static_cast<std::uint64_t>(c)));
        }
      }
    }
  }

  /// Writes one code at any bit, low bits first, and preserves every other bit.
  void put_bits(std::int64_t bit, std::uint32_t code) {
    const int shift = static_cast<int>(bit % 8);
    std::uint64_t mask = ((std::uint64_t{1} << writer_.width()) - 1) << shift;
    std::uint64_t value = std::uint64_t{code} << shift;
    for (std::uint8_t* byte = sink_.memory() + bit / 8; mask != 0; ++byte, mask >>= 8, value >>= 8) {
      *byte = static_cast<std::uint8_t>((*byte & ~mask) | value);
    }
  }

  const PlaneShape& shape_;
  const RowWriter& writer_;
  Sink& sink_;
  std::int64_t first_word_{0};
  std::vector<std::uint8_t> row_;
  alignas(64) std::uint8_t tile_[tile_bytes];
};

}  // namespace kvcts::kernels
