#include "certificate/archive.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "certificate/error.hpp"

namespace kvcts::certificate {

namespace {

constexpr std::uint32_t local_head = 0x04034b50, central_head = 0x02014b50, end_of_all = 0x06054b50;
constexpr std::size_t local_bytes = 30, most_files = 0xffff, most_bytes = 0xffffffff;

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

std::string with_checksums(const Files& files, const Checksums& checksums) {
  std::string out, directory;
  if (files.size() > most_files)
    throw Error("a package of " + std::to_string(files.size()) + " files: expected at most " + std::to_string(most_files));
  for (const auto& [name, bytes] : files) {
    if (name.size() > most_files || out.size() + bytes.size() > most_bytes / 2)
      throw Error("a package would be larger than 2 GiB, with " + name.substr(0, 80));
    put(directory, central_head, 4);
    put(directory, 0x0314, 2);  // made on Unix: the permissions below apply
    put_facts(directory, name, bytes, checksums.at(name));
    put(directory, 0, 6);  // no comment, disk 0, no internal attributes
    put(directory, std::uint64_t{0100644} << 16, 4);
    put(directory, out.size(), 4);
    directory += name;
    put(out, local_head, 4);
    put_facts(out, name, bytes, checksums.at(name));
    out += name;
    out += bytes;
  }
  const std::size_t begin = out.size();
  out += directory;
  put(out, end_of_all, 4);
  put(out, 0, 4);
  put(out, files.size(), 2);
  put(out, files.size(), 2);
  put(out, directory.size(), 4);
  put(out, begin, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace

std::string archive(const Files& files) {
  Checksums checksums;
  for (const auto& [name, bytes] : files) checksums[name] = checksum(bytes);
  return with_checksums(files, checksums);
}

Files read_archive(std::string_view bytes, std::string& contradiction) {
  Files files;
  Checksums checksums;
  std::size_t at = 0;
  while (bytes.size() - at >= local_bytes && get(bytes, at, 4) == local_head) {
    const std::size_t size = get(bytes, at + 18, 4), name_size = get(bytes, at + 26, 2), data = at + local_bytes + name_size;
    if (data > bytes.size() || size > bytes.size() - data)
      throw Error("the package ends too early, or a size in byte " + std::to_string(at + 18) + " is wrong");
    const std::string name(bytes.substr(at + local_bytes, name_size));
    if (!files.empty() && name <= files.rbegin()->first)
      throw Error("the files of the package are not in order at '" + name.substr(0, 80) + "', byte " + std::to_string(at));
    files.emplace(name, bytes.substr(data, size));
    checksums[name] = get(bytes, at + 14, 4);
    at = data + size;
  }
  if (files.empty()) throw Error("expected a package, found something else");
  for (const auto& [name, content] : files)
    if (contradiction.empty() && checksums.at(name) != checksum(content))
      contradiction = "the archive's checksum of " + name + " is not that of its content";
  if (with_checksums(files, checksums) == bytes) return files;
  const std::string expected = archive(files);
  const auto [mine, theirs] = std::mismatch(expected.begin(), expected.end(), bytes.begin(), bytes.end());
  const auto offset = static_cast<std::size_t>(mine - expected.begin());
  if (offset == bytes.size()) throw Error("the package ends too early, after " + std::to_string(offset) + " bytes");
  throw Error("byte " + std::to_string(offset) + " of the package is not what it must be: " +
              (offset >= expected.size() ? "behind its end" : place_of(files, offset)));
}

}  // namespace kvcts::certificate
