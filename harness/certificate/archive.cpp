#include "certificate/archive.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "certificate/error.hpp"
#include "certificate/form.hpp"

namespace kvcts::certificate {

namespace {

constexpr std::uint32_t local_head = 0x04034b50, central_head = 0x02014b50, end_of_all = 0x06054b50;
constexpr std::size_t local_bytes = 30, central_bytes = 46, end_bytes = 22, longest_name = 255;

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint32_t get(std::string_view bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)])) << (8 * i);
  return value;
}

using Checksums = std::map<std::string, std::uint32_t>;

std::uint32_t checksum(const std::string& bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Common to both headers of a file: version 2.0, UTF-8, stored, 1980-01-01 00:00.
void put_facts(std::string& out, const std::string& name, const std::string& bytes, std::uint32_t crc) {
  put(out, 20, 2);
  put(out, 0x0800, 2);
  put(out, 0, 2);
  put(out, 0, 2);
  put(out, 0x0021, 2);
  put(out, crc, 4);
  put(out, bytes.size(), 4);
  put(out, bytes.size(), 4);
  put(out, name.size(), 2);
  put(out, 0, 2);
}

/// Names the file that a byte of an archive belongs to.
std::string place_of(const Files& files, std::size_t offset) {
  std::size_t begin = 0;
  for (const auto& [name, bytes] : files) {
    const std::size_t data = begin + local_bytes + name.size(), end = data + bytes.size();
    if (offset < data) return "the head of " + name;
    if (offset < end) return name + ", byte " + std::to_string(offset - data);
    begin = end;
  }
  return "the directory at its end";
}

/// Printable ASCII without spaces: what any program shows as it is.
void expect_name(std::string_view name) {
  if (name.empty() || name.size() > longest_name ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; }))
    throw Error("the name of a file of the package is not 1 to 255 printable characters");
}

std::size_t size_of(const Files& files) {
  std::size_t size = end_bytes;
  for (const auto& [name, bytes] : files) size += local_bytes + central_bytes + 2 * name.size() + bytes.size();
  return size;
}

/// Hands the bytes of an archive to `take`, piece by piece.
template <class Take>
void emit(const Files& files, const Checksums& checksums, const Take& take) {
  std::string head, directory;
  std::size_t at = 0;
  for (const auto& [name, bytes] : files) {
    put(directory, central_head, 4);
    put(directory, 0x0314, 2);  // made on Unix: the permissions below apply
    put_facts(directory, name, bytes, checksums.at(name));
    put(directory, 0, 6);  // no comment, disk 0, no internal attributes
    put(directory, std::uint64_t{0100644} << 16, 4);
    put(directory, at, 4);
    directory += name;
    head.clear();
    put(head, local_head, 4);
    put_facts(head, name, bytes, checksums.at(name));
    head += name;
    take(head);
    take(bytes);
    at += head.size() + bytes.size();
  }
  const std::size_t size = directory.size();
  put(directory, end_of_all, 4);
  put(directory, 0, 4);
  put(directory, files.size(), 2);
  put(directory, files.size(), 2);
  put(directory, size, 4);
  put(directory, at, 4);
  put(directory, 0, 2);
  take(directory);
}

/// How many of the first of `bytes` are those of an archive.
std::size_t common(const Files& files, const Checksums& checksums, std::string_view bytes) {
  std::size_t same = 0;
  bool differs = false;
  emit(files, checksums, [&](std::string_view piece) {
    if (differs) return;
    const std::string_view theirs = bytes.substr(same, piece.size());
    const auto here =
        static_cast<std::size_t>(std::mismatch(theirs.begin(), theirs.end(), piece.begin()).first - theirs.begin());
    same += here, differs = here < piece.size();
  });
  return same;
}

}  // namespace

std::string archive(const Files& files) {
  if (files.size() > most_files || size_of(files) > most_bytes)
    throw Error("expected a package of at most 1,000 files and 256 MiB, found " + std::to_string(files.size()) + " files, " +
                std::to_string(size_of(files)) + " bytes");
  Checksums checksums;
  for (const auto& [name, bytes] : files) expect_name(name), checksums[name] = checksum(bytes);
  std::string out;
  out.reserve(size_of(files));
  emit(files, checksums, [&](std::string_view piece) { out += piece; });
  return out;
}

Files read_archive(std::string_view bytes, std::string& contradiction) {
  if (bytes.size() > most_bytes) throw Error("the package is larger than 256 MiB");
  Files files;
  Checksums reported, right;
  std::size_t at = 0;
  while (bytes.size() - at >= local_bytes && get(bytes, at, 4) == local_head) {
    const std::size_t size = get(bytes, at + 18, 4), name_size = get(bytes, at + 26, 2), data = at + local_bytes + name_size;
    if (data > bytes.size() || size > bytes.size() - data)
      throw Error("the package ends too early, or a size in byte " + std::to_string(at + 18) + " is wrong");
    const std::string name(bytes.substr(at + local_bytes, name_size));
    if (files.size() == most_files) throw Error("the package has more than 1,000 files");
    if (!files.empty() && name <= files.rbegin()->first)
      throw Error("the files of the package are not in order at '" + name.substr(0, 80) + "', byte " + std::to_string(at));
    right[name] = checksum(files.emplace(name, bytes.substr(data, size)).first->second);
    reported[name] = get(bytes, at + 14, 4);
    at = data + size;
  }
  if (files.empty()) throw Error("expected a package, found something else");
  if (common(files, reported, bytes) != bytes.size() || bytes.size() != size_of(files)) {
    const std::size_t offset = common(files, right, bytes);
    if (offset == bytes.size()) throw Error("the package ends too early, after " + std::to_string(offset) + " bytes");
    throw Error("byte " + std::to_string(offset) + " of the package is not what it must be: " +
                (offset == size_of(files) ? "behind its end" : place_of(files, offset)));
  }
  for (const auto& [name, crc] : right) {
    expect_name(name);
    if (contradiction.empty() && reported.at(name) != crc)
      contradiction = "the archive's checksum of " + name + " is not that of its content";
  }
  return files;
}

}  // namespace kvcts::certificate
