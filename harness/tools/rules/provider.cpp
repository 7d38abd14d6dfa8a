#include "tools/rules/provider.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace kvcts::rules {

using transport::Block;
using transport::Code;
using transport::MemoryPool;
using transport::TransportError;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr std::size_t some = 100'000;  // not a multiple of a page

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes out(bytes);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15 + 1;
  for (auto& byte : out) {
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    byte = static_cast<std::uint8_t>(word >> 56);
  }
  return out;
}
Bytes bytes_of(const Block& block, std::size_t offset, std::size_t bytes) {
  Bytes out(bytes);
  block.read(offset, out);
  return out;
}

/// "" if the call ends with this error.
template <class Call>
std::string refuses(Code wanted, const char* what, Call&& call) {
  std::string seen = "ok";
  try {
    call();
  } catch (const TransportError& error) {
    if (error.code() == wanted) return "";
    seen = std::string(transport::name(error.code()));
  }
  return std::string(what) + ": expected " + std::string(transport::name(wanted)) + ", found " + seen;
}

std::string round_trip(MemoryPool& pool) {
  Block block = pool.allocate(some);
  const Bytes all = pattern(some, 1), part = pattern(777, 2);
  block.write(0, all);
  if (bytes_of(block, 0, some) != all) return "copy_out differs from copy_in";
  block.write(4321, part);
  Bytes expected = all;
  std::copy(part.begin(), part.end(), expected.begin() + 4321);
  if (bytes_of(block, 0, some) != expected) return "a copy_in of 777 bytes at 4321 changed other bytes, or not all of those";
  return bytes_of(block, some - 1, 1)[0] == expected.back() ? "" : "the last byte is wrong";
}

std::string apart(MemoryPool& pool) {
  std::vector<Block> blocks;
  for (unsigned i = 0; i < 16; ++i) {
    blocks.push_back(pool.allocate(some));
    blocks.back().write(0, pattern(some, i));
  }
  for (unsigned i = 0; i < 16; ++i) {
    if (bytes_of(blocks[i], 0, some) != pattern(some, i))
      return "allocation " + std::to_string(i) + " of 16 has another one's bytes";
    for (unsigned j = 0; j < i; ++j) {
      if (blocks[i].allocation().address == blocks[j].allocation().address) return "two allocations share an address";
    }
  }
  return "";
}

std::string refusals(MemoryPool& pool) {
  Block block = pool.allocate(some);
  const std::size_t end = block.bytes();
  Bytes bytes(8);
  for (const auto& seen :
       {refuses(Code::not_found, "copy_in past the end", [&] { block.write(end - 7, bytes); }),
        refuses(Code::not_found, "copy_out past the end", [&] { block.read(end - 7, bytes); }),
        refuses(Code::not_found, "copy_out at an offset that wraps", [&] { block.read(UINT64_MAX - 3, bytes); }),
        refuses(Code::invalid, "allocate 0 bytes", [&] { pool.allocate(0); }),
        refuses(Code::no_resources, "allocate 2^62 bytes", [&] { pool.allocate(std::uint64_t{1} << 62); })}) {
    if (!seen.empty() && !(pool.info().max_bytes < (std::uint64_t{1} << 62) && seen.find("2^62") != std::string::npos))
      return seen;
  }
  return "";
}

std::string given_back(MemoryPool& pool) {
  kvcts_allocation kept{};
  {
    Block block = pool.allocate(some);
    kept = block.allocation();
  }
  Bytes bytes(8);
  Block stale(pool, kept);  // its destructor releases again: an ignored error
  return refuses(Code::not_found, "copy_out of an allocation that was released", [&] { stale.read(0, bytes); });
}

std::string host_access(MemoryPool& pool) {
  if (pool.info().host_accessible == 0) return "";
  Block block = pool.allocate(some);
  block.write(0, pattern(some, 3));
  auto* at = static_cast<std::uint8_t*>(block.allocation().address);
  if (!std::equal(at, at + some, pattern(some, 3).begin())) return "the bytes at the address differ from copy_in's";
  at[99] ^= 0xff;
  return bytes_of(block, 99, 1)[0] == (pattern(some, 3)[99] ^ 0xff)
             ? ""
             : "copy_out does not see what was written at the address";
}

/// Another process writes; this one reads.
std::string exported(MemoryPool& pool) {
  if (pool.info().exports == 0) return "";
  Block block = pool.allocate(some);
  block.write(0, pattern(some, 4));
  const auto& allocation = block.allocation();
  const auto provider = transport::MemoryProvider::load(pool.provider().file());
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      MemoryPool other(provider, {});
      Block seen = other.import_fd(allocation.fd, allocation.fd_offset, some);
      if (bytes_of(seen, 0, some) == pattern(some, 4)) {
        seen.write(0, pattern(some, 5));
        status = 0;
      }
    } catch (const std::exception&) {
      status = 2;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 2) return "another process cannot import it";
  if (WEXITSTATUS(status) != 0) return "another process that imported it sees other bytes";
  return bytes_of(block, 0, some) == pattern(some, 5) ? "" : "writes of another process do not arrive";
}

}  // namespace

const std::vector<ProviderTest>& provider_tests() {
  static const std::vector<ProviderTest> tests{
      {"copies", "Bytes that go in come out, whole and in part", round_trip},
      {"allocations-apart", "16 allocations keep their own bytes", apart},
      {"refusals", "Ranges past the end, 0 bytes and more than max_bytes are refused", refusals},
      {"released", "A released allocation is no longer known", given_back},
      {"host-accessible", "As claimed, the CPU reads and writes at the address", host_access},
      {"exports", "As claimed, another process can open an allocation by its descriptor", exported},
  };
  return tests;
}

}  // namespace kvcts::rules
