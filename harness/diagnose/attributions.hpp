// Who is where: who each content byte and each wrong byte must be, and who it is. Names observed bytes by their values over
// the naming passes; nothing here knows what the code under test did.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "diagnose/observe.hpp"

namespace kvcts::scenario {

struct Attribution {
  int buffer{0};
  std::int64_t offset{0};
  Symbol must, is;
  bool wrong{false};
  bool untouched{false};       ///< still holds its value from before the first write
  std::uint64_t signature{0};  ///< of a byte that is unknown: over all passes
};

struct Attributions {
  std::size_t check{0};          ///< the check at which they are taken
  std::vector<Attribution> all;  ///< by buffer and offset; content bytes, and wrong bytes of any kind
  std::int64_t wrong{0}, unknown{0}, untouched{0};
  std::int64_t damage{0}, left{0};  ///< wrong bytes that should hold no content: written, or not erased
};

/// Bytes over which a signature is taken: enough for the narrowest codes.
inline constexpr int naming_passes = 24;
/// One more pass of a signature, starting at 0. Names differ in it (lab/identity counts).
std::uint64_t extend_signature(std::uint64_t signature, std::uint8_t byte);

/// Turns the bytes of all passes into names. `observation` must have naming_passes passes.
class SymbolResolver {
 public:
  SymbolResolver(const Observation& observation, SymbolTable& symbols, const AddressSpace& space, std::uint64_t seed);
  Symbol symbol(std::size_t check, int buffer, std::int64_t offset) const;
  bool is(const Symbol& symbol, std::size_t check, int buffer, std::int64_t offset) const;

 private:
  /// Enough passes to leave one or two candidates for any bytes; the other passes decide between those.
  static constexpr int first_passes = 8;
  const Observation& observation_;
  SymbolTable& symbols_;
  /// Signatures of the first passes, each with its name: an open hash table that chains names sharing a signature.
  std::vector<std::pair<std::uint64_t, SymbolId>> table_;
  mutable std::vector<Rendering> renderings_;
};

/// Numbers that were to be decoded, with other scales: none, twice, and every scale of the same layer. Single bytes of them
/// are often equal (0x00), so a byte is asked for these first.
class Rescaled {
 public:
  Rescaled(const Observation& observation, const Mismatch& mismatch, const Expectation& expectation, SymbolTable& symbols);
  std::optional<Symbol> symbol(const Symbol& must, const SymbolResolver& resolver, std::size_t check, int buffer,
                               std::int64_t offset);

 private:
  static constexpr std::size_t most = 10'000'000;  ///< bytes times scales
  /// Until f(Who) is true.
  template <class F>
  void each_of(const Symbol& number, F&& f) const;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::set<std::uint32_t>> scales_;  ///< by generation and layer
  std::optional<Symbol> last_;
};

/// At the first check with wrong bytes.
Attributions attribute_bytes(const Observation& observation, const Mismatch& mismatch, const Truth& truth,
                             Expectation& expectation, const AddressSpace& space, SymbolTable& symbols, std::uint64_t seed);

/// Who a wrong byte is, by its place.
using SymbolAt = std::function<Symbol(const Symbol& must, int buffer, std::int64_t offset)>;
/// The same, where that is known.
Attributions attribute_bytes(const Observation& observation, const Mismatch& mismatch, Expectation& expectation,
                             const AddressSpace& space, SymbolTable& symbols, const SymbolAt& symbol_at);

/// "K layer 1 token 3 head 0 channel 0", and where such an element must be: the place of each content byte in the truth.
class ElementIndex {
 public:
  /// Places in the truth at a check, in buffers of one memory or (empty) all.
  ElementIndex(const Checkpoint& check, const AddressSpace& space, const SymbolTable& symbols);
  /// Places in those images (by buffer) that `of` accepts.
  ElementIndex(const std::vector<SymbolImage>& images, const std::function<bool(int buffer)>& of,
               const SymbolTable& symbols);
  std::span<const BufferAddress> of(const Symbol& symbol) const;

 private:
  std::vector<std::uint64_t> keys_;  ///< ascending; keys of addresses_[i]
  std::vector<BufferAddress> addresses_;
};
/// A number for a byte of an element. Lookups compare byte for byte afterwards, so a collision does no harm.
std::uint64_t identity_key(const Symbol& symbol);

}  // namespace kvcts::scenario
