#include "process/snapshot.hpp"

#include <cstring>

#include "process/status_view.hpp"

namespace kvcts::process {
namespace {

constexpr std::size_t alignment = 8;

struct Header {
  std::int64_t began_ns;  ///< 0: no snapshot
  std::uint64_t used;     ///< bytes of records after the header
};
/// One piece; its bytes follow, padded to `alignment`.
struct Record {
  std::uint32_t file, count;
  std::uint64_t offset;
};

constexpr std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

void SnapshotWriter::clear() {
  used_ = 0, began_ns_ = 0;
  if (file_.empty()) return;
  const Header none{};
  std::memcpy(file_.data(), &none, sizeof none);
}

bool SnapshotWriter::add(std::uint32_t file, std::uint64_t offset, const std::uint8_t* bytes, std::uint32_t count) {
  if (began_ns_ == 0) began_ns_ = now_ns();
  const std::size_t at = sizeof(Header) + used_;
  if (at + sizeof(Record) + padded(count) > file_.size()) return false;
  const Record record{file, count, offset};
  std::memcpy(file_.data() + at, &record, sizeof record);
  std::memcpy(file_.data() + at + sizeof record, bytes, count);
  used_ += sizeof record + padded(count);
  return true;
}

void SnapshotWriter::close() {
  if (file_.empty()) return;
  const Header header{began_ns_ != 0 ? began_ns_ : now_ns(), used_};
  std::memcpy(file_.data(), &header, sizeof header);
}

std::optional<SnapshotView> read_snapshot(std::span<const std::uint8_t> file) {
  Header header{};
  if (file.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.began_ns <= 0 || header.used > file.size() - sizeof header) return std::nullopt;
  SnapshotView view{header.began_ns, {}};
  for (std::span<const std::uint8_t> rest = file.subspan(sizeof header, header.used); !rest.empty();) {
    Record record{};
    if (rest.size() < sizeof record) return std::nullopt;
    std::memcpy(&record, rest.data(), sizeof record);
    if (padded(record.count) > rest.size() - sizeof record) return std::nullopt;
    view.pieces.push_back({record.file, record.offset, rest.subspan(sizeof record, record.count)});
    rest = rest.subspan(sizeof record + padded(record.count));
  }
  return view;
}

}  // namespace kvcts::process
