// The names of all bytes after a program. The truth's names come from the reference model (truth.hpp); these say where the
// bytes were that a step took.
#pragma once

#include "scene/machine/copy_program.hpp"
#include "scene/truth/truth.hpp"

namespace kvcts::scenario {

/// Plays a program on names, op by op.
class SymbolicReplay {
 public:
  SymbolicReplay(const CopyProgram& program, SymbolTable& symbols)
      : program_(program), symbols_(symbols), images_(program.buffers.size()) {}
  /// Ops before `end`.
  void until(std::size_t end);
  /// Of the program's buffers.
  const std::vector<SymbolImage>& images() const { return images_; }

 private:
  SymbolId id_at(int buffer, std::int64_t offset);
  void set(int buffer, std::int64_t offset, SymbolId id) { images_[static_cast<std::size_t>(buffer)].set(offset, id); }
  void copy(const ProgramOp& op);
  void set_nibble(int buffer, std::int64_t bit, Nibble nibble);
  void row(const RowOp& op);
  void pattern(const ProgramOp& op);
  void decode(const ProgramOp& op);
  /// Id + 1 of a code (Symbol::whole, scale, global_scale); 0: none. `element`: the element of the code, if there is exactly
  /// one.
  std::uint32_t reference(const DecodeOp::Code& code, Symbol* element);

  const CopyProgram& program_;
  SymbolTable& symbols_;
  std::vector<SymbolImage> images_;
  std::size_t next_{0};
};

/// The first code of a row.
Symbol symbol_of(const RowOp& row);

}  // namespace kvcts::scenario
