// What read_package() says of each package on standard input: its size in 8 bytes (low first), whether the key of the
// command line is trusted (1 byte), its bytes. One line each: "ok", or the check that is wrong, and why.
#include <cstdint>
#include <iostream>

#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "certificate/package.hpp"

int main(int argc, char** argv) {
  using namespace kvcts::certificate;
  if (argc != 2) return 2;
  const PublicKey key = read_public_key(argv[1]);
  unsigned char head[9];
  while (std::cin.read(reinterpret_cast<char*>(head), sizeof head)) {
    std::uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | head[i];
    std::string bytes(size, '\0');
    if (!std::cin.read(bytes.data(), static_cast<std::streamsize>(size))) return 2;
    const PackageReading reading = read_package(bytes, head[8] != 0 ? std::optional(key) : std::nullopt);
    std::string message = reading.good() ? "ok" : reading.checks.back().what + " " + reading.checks.back().wrong;
    for (char& c : message)
      if (c == '\n') c = ' ';
    std::cout << message << std::endl;
  }
}
