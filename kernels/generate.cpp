#include "kernels/generate.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/axis_table.hpp"
#include "kernels/row_writer.hpp"

namespace kvcts::kernels {
namespace {

using layout::Axis;

/// Channels that follow each other in coordinates and in memory.
struct ChannelRun {
  std::int64_t first{0}, count{0};
  std::int64_t bit{0};  ///< from the row's bit
};

std::vector<ChannelRun> channel_runs(const AxisTable& channels, int width) {
  std::vector<ChannelRun> runs;
  for (const AxisEntry& entry : channels.entries()) {
    if (!runs.empty()) {
      ChannelRun& last = runs.back();
      if (entry.coord == last.first + last.count && entry.bit == last.bit + last.count * width) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({entry.coord, 1, entry.bit});
  }
  return runs;
}

/// A row that waits to be written: where its channel 0 digit lies, and its key.
struct PendingRow {
  std::uint64_t key{0};
  std::int64_t bit{0};
  std::uint32_t digit{0};
};

/// Writes rows of one plane. Three ways, chosen once: straight into memory where a row is one run of whole bytes; through a
/// small buffer, run by run, where codes are whole bytes; bit by bit otherwise.
class RowSink {
 public:
  RowSink(std::span<std::uint8_t> memory, const layout::Plane& plane, const AxisTable& channels)
      : memory_(memory),
        writer_(plane.dtype, plane.component, plane.high_nibble_first),
        runs_(channel_runs(channels, writer_.width())),
        swap_(writer_.width() == 4 && plane.high_nibble_first) {
    const int width = writer_.width();
    bool bytes = plane.offset % 8 == 0;
    for (const layout::Mode& mode : plane.modes) {
      // Within a run the stride is the width; between runs, and between rows, it must keep to whole bytes.
      if (mode.axis != Axis::channel || width >= 8) bytes = bytes && (mode.stride % 8 == 0 || mode.extent == 1);
    }
    first_ = runs_.front().first;
    const std::int64_t last = runs_.back().first + runs_.back().count;  // sorted by coordinate: the last run ends highest
    const bool dense = last - first_ <= 2 * static_cast<std::int64_t>(channels.entries().size()) + 64;
    for (const ChannelRun& run : runs_) {
      bytes = bytes && run.bit % 8 == 0 && (run.first * width) % 8 == 0 && (run.count * width) % 8 == 0;
    }
    if (bytes && runs_.size() == 1 && first_ * width % 32 == 0) {
      way_ = Way::straight;
    } else if (bytes && dense) {
      way_ = Way::buffered;
    }
    first_word_ = first_ * width / 32;
    row_bytes_ = way_ == Way::straight ? runs_.front().count * width / 8 : (last * width + 7) / 8 - first_word_ * 4;
    if (way_ == Way::buffered) buffer_.resize(static_cast<std::size_t>(row_bytes_));
    rows_.reserve(batch);
  }

  void add(const PendingRow& row) {
    rows_.push_back(row);
    if (rows_.size() == batch) flush();
  }

  void flush() {
    switch (way_) {
      case Way::straight:
        write_straight();
        break;
      case Way::buffered:
        write_buffered();
        break;
      case Way::bitwise:
        write_bitwise();
        break;
    }
    rows_.clear();
  }

 private:
  enum class Way : std::uint8_t { straight, buffered, bitwise };
  static constexpr std::size_t batch = 64;

  void write_straight() {
    LaneRow lanes[batch];
    for (std::size_t k = 0; k < rows_.size(); ++k) {
      lanes[k] = writer_.row(rows_[k].key, rows_[k].digit, memory_.data() + (rows_[k].bit + runs_.front().bit) / 8);
    }
    writer_.write({lanes, rows_.size()}, static_cast<std::uint32_t>(first_word_), static_cast<std::size_t>(row_bytes_));
  }

  void write_buffered() {
    const int width = writer_.width();
    for (const PendingRow& row : rows_) {
      const LaneRow lane = writer_.row(row.key, row.digit, buffer_.data());
      writer_.write({&lane, 1}, static_cast<std::uint32_t>(first_word_), buffer_.size());
      for (const ChannelRun& run : runs_) {
        const std::uint8_t* from = buffer_.data() + (run.first * width / 8 - first_word_ * 4);
        std::uint8_t* to = memory_.data() + (row.bit + run.bit) / 8;
        switch (const auto n = static_cast<std::size_t>(run.count * width / 8)) {  // fixed sizes become single moves
          case 1:
            *to = *from;
            break;
          case 2:
            std::memcpy(to, from, 2);
            break;
          case 4:
            std::memcpy(to, from, 4);
            break;
          case 16:
            std::memcpy(to, from, 16);
            break;
          default:
            std::memcpy(to, from, n);
        }
      }
    }
  }

  void write_bitwise() {
    for (const PendingRow& row : rows_) {
      for (const ChannelRun& run : runs_) {
        std::int64_t bit = row.bit + run.bit;
        for (std::int64_t c = 0; c < run.count; ++c, bit += writer_.width()) {
          put_bits(swap_ ? bit ^ 4 : bit, writer_.code(row.key, row.digit, static_cast<std::uint64_t>(run.first + c)));
        }
      }
    }
  }

  /// Writes one code at any bit, low bits first, and leaves every other bit as it was.
  void put_bits(std::int64_t bit, std::uint32_t code) {
    const int shift = static_cast<int>(bit % 8);
    std::uint64_t mask = ((std::uint64_t{1} << writer_.width()) - 1) << shift;
    std::uint64_t value = std::uint64_t{code} << shift;
    for (std::uint8_t* byte = memory_.data() + bit / 8; mask != 0; ++byte, mask >>= 8, value >>= 8) {
      *byte = static_cast<std::uint8_t>((*byte & ~mask) | value);
    }
  }

  std::span<std::uint8_t> memory_;
  RowWriter writer_;
  std::vector<ChannelRun> runs_;
  bool swap_;
  Way way_{Way::bitwise};
  std::int64_t first_{0}, first_word_{0}, row_bytes_{0};
  std::vector<std::uint8_t> buffer_;
  std::vector<PendingRow> rows_;
};

struct Limit {
  Axis axis;
  std::int64_t end;
};

void check_coordinates(const layout::Plane& plane) {
  // channel: a row's words are counted in 32 bits, and buffers are sized by it.
  for (const Limit limit : {Limit{Axis::kv, 1 << 4}, Limit{Axis::layer, 1 << 24}, Limit{Axis::head, 1 << 20},
                            Limit{Axis::channel, std::int64_t{1} << 31}}) {
    const Extremes range = extremes(plane, limit.axis);
    if (range.least < 0 || range.most >= limit.end) {
      throw layout::Error(std::string("axis ") + layout::letter(limit.axis) + " of a plane must lie in [0, " +
                          std::to_string(limit.end) + ") for tag/1, found [" + std::to_string(range.least) + ", " +
                          std::to_string(range.most) + "]");
    }
  }
  extremes(plane, Axis::block);
  extremes(plane, Axis::slot);
}

void check_content(std::span<const BlockContent> content) {
  constexpr std::int64_t token_end = std::int64_t{1} << 44;
  for (const BlockContent& block : content) {
    if (block.tokens < 0 || block.first_token < 0 || block.tokens > token_end - block.first_token) {
      throw layout::Error("block " + std::to_string(block.block) + " must hold tokens within [0, 2^44), found " +
                          std::to_string(block.tokens) + " tokens from " + std::to_string(block.first_token) + " on");
    }
    if (block.first_slot < 0 || block.first_slot > token_end) {
      throw layout::Error("block " + std::to_string(block.block) + " must start at a slot within [0, 2^44], found " +
                          std::to_string(block.first_slot));
    }
  }
}

/// Where one filled slot lies and which token it holds.
struct TokenRow {
  std::int64_t bit{0};
  std::uint64_t token{0};
};

/// Walks a plane: planes of (layer, kv), then blocks, then (slot, head) in the order in which they lie in memory.
class Generator {
 public:
  Generator(std::span<std::uint8_t> memory, const layout::Plane& plane, const TagKey& key)
      : plane_(plane),
        key_(key),
        layers_(plane, Axis::layer),
        kvs_(plane, Axis::kv),
        blocks_(plane, Axis::block),
        slots_(plane, Axis::slot),
        heads_(plane, Axis::head),
        channels_(plane, Axis::channel),
        sink_(memory, plane, channels_) {}

  void blocks(std::span<const BlockContent> content) {
    for (const AxisEntry& layer : layers_.entries()) {
      for (const AxisEntry& kv : kvs_.entries()) {
        const std::uint64_t prefix = prefix_of(layer, kv);
        for (const BlockContent& block : content) {
          const std::uint64_t base = tag_base(prefix, block.generation);
          places_.clear();
          blocks_.within(block.block, block.block + 1, places_);
          for (const AxisEntry& place : places_) {
            fill_tokens(block, plane_.offset + layer.bit + kv.bit + place.bit);
            rows(base, layer, kv);
          }
        }
      }
    }
    sink_.flush();
  }

  void unblocked(std::uint32_t generation) {
    tokens_.assign(1, TokenRow{});
    for (const AxisEntry& layer : layers_.entries()) {
      for (const AxisEntry& kv : kvs_.entries()) {
        tokens_.front().bit = plane_.offset + layer.bit + kv.bit;
        rows(tag_base(prefix_of(layer, kv), generation), layer, kv);
      }
    }
    sink_.flush();
  }

 private:
  std::uint64_t prefix_of(const AxisEntry& layer, const AxisEntry& kv) const {
    return tag_prefix(key_.seed, key_.pass, key_.origin, static_cast<std::uint64_t>(plane_.component),
                      static_cast<std::uint64_t>(kv.coord), static_cast<std::uint64_t>(layer.coord));
  }

  void fill_tokens(const BlockContent& block, std::int64_t bit) {
    tokens_.clear();
    filled_.clear();
    slots_.within(block.first_slot, block.first_slot + block.tokens, filled_);
    for (const AxisEntry& slot : filled_) {
      tokens_.push_back({bit + slot.bit, static_cast<std::uint64_t>(block.first_token + (slot.coord - block.first_slot))});
    }
  }

  void rows(std::uint64_t base, const AxisEntry& layer, const AxisEntry& kv) {
    if (heads_.pitch() <= slots_.pitch()) {
      for (const TokenRow& token : tokens_) {
        for (const AxisEntry& head : heads_.entries()) row(base, layer, kv, head, token);
      }
    } else {
      for (const AxisEntry& head : heads_.entries()) {
        for (const TokenRow& token : tokens_) row(base, layer, kv, head, token);
      }
    }
  }

  void row(std::uint64_t base, const AxisEntry& layer, const AxisEntry& kv, const AxisEntry& head, const TokenRow& token) {
    const auto h = static_cast<std::uint64_t>(head.coord);
    sink_.add({tag_row_key(base, h, token.token), token.bit + head.bit,
               scale_digit(static_cast<std::uint64_t>(kv.coord), static_cast<std::uint64_t>(layer.coord), h, token.token)});
  }

  const layout::Plane& plane_;
  const TagKey& key_;
  AxisTable layers_, kvs_, blocks_, slots_, heads_, channels_;
  RowSink sink_;
  std::vector<AxisEntry> places_, filled_;
  std::vector<TokenRow> tokens_;
};

}  // namespace

void check_rows(const layout::Plane& plane, std::span<const BlockContent> content, std::uint64_t bytes) {
  check_plane(plane, code_rule(plane.dtype).width, bytes);
  check_coordinates(plane);
  check_content(content);
}

void generate(std::span<std::uint8_t> allocation, const layout::Plane& plane, std::span<const BlockContent> content,
              const TagKey& key, std::uint32_t unblocked_generation) {
  check_rows(plane, content, allocation.size());
  const bool unblocked = std::none_of(plane.modes.begin(), plane.modes.end(), [](const layout::Mode& mode) {
    return mode.axis == Axis::block || mode.axis == Axis::slot;
  });
  Generator generator(allocation, plane, key);
  if (unblocked) {
    generator.unblocked(unblocked_generation);
  } else {
    generator.blocks(content);
  }
}

}  // namespace kvcts::kernels
