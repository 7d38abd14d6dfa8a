#include "kernels/relayout/nest.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <numeric>

#include "kernels/parallel.hpp"

namespace kvcts::kernels::relayout {
namespace {

/// Targets of this size and above exceed the caches: they are written past them.
constexpr std::int64_t stream_from = std::int64_t{8} << 20;
/// Size of the first-level stage that is assembled before it is written past the caches.
constexpr std::int64_t stage_limit = std::int64_t{32} << 10;
/// A run of this size is worth writing on its own.
constexpr std::int64_t line = 64;
constexpr std::size_t most_loops = 72;

std::int64_t largest_divisor(std::int64_t n, std::int64_t limit) {
  for (std::int64_t d = std::min(n, limit); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

/// Steps through loops, the last one fastest. The loops must outlive it.
class Odometer {
 public:
  Odometer(const std::vector<Loop>& loops, std::int64_t at) : loops_(&loops) {
    for (std::size_t i = loops.size(); i-- > 0;) {
      digit_[i] = at % loops[i].count;
      at /= loops[i].count;
      from_ += place(i, digit_[i], &Pairs::from, loops[i].from);
      to_ += place(i, digit_[i], &Pairs::to, loops[i].to);
    }
  }
  std::int64_t from() const { return from_; }
  std::int64_t to() const { return to_; }
  void next() {
    for (std::size_t i = loops_->size(); i-- > 0;) {
      const Loop& loop = (*loops_)[i];
      const std::int64_t old = digit_[i];
      const std::int64_t now = old + 1 < loop.count ? old + 1 : 0;
      digit_[i] = now;
      if (loop.is_list()) {
        from_ += place(i, now, &Pairs::from, 0) - place(i, old, &Pairs::from, 0);
        to_ += place(i, now, &Pairs::to, 0) - place(i, old, &Pairs::to, 0);
      } else {
        from_ += (now - old) * loop.from;
        to_ += (now - old) * loop.to;
      }
      if (now != 0) return;
    }
  }

 private:
  std::int64_t place(std::size_t i, std::int64_t digit, std::vector<std::int64_t> Pairs::* side, std::int64_t stride) const {
    return (*loops_)[i].is_list() ? ((*loops_)[i].list.*side)[static_cast<std::size_t>(digit)] : digit * stride;
  }

  const std::vector<Loop>* loops_;
  std::array<std::int64_t, most_loops> digit_{};
  std::int64_t from_{0}, to_{0};
};

std::int64_t product(const std::vector<Loop>& loops) {
  std::int64_t n = 1;
  for (const Loop& loop : loops) n *= loop.count;
  return n;
}

/// Separates loops with strides from lists; joins neighbours that continue one another on both sides, and merges those that
/// continue the run.
struct Shape {
  std::vector<Loop> loops;  ///< ascending by the target's stride
  std::vector<Loop> lists;
  std::int64_t run{0};  ///< bits
  std::int64_t from{0}, to{0};

  Shape(const std::vector<Loop>& all, int width, std::int64_t from_bit, std::int64_t to_bit)
      : run(width), from(from_bit), to(to_bit) {
    for (Loop loop : all) {
      if (loop.is_list()) {
        lists.push_back(std::move(loop));
        continue;
      }
      if (loop.to < 0) {  // backwards
        from += (loop.count - 1) * loop.from;
        to += (loop.count - 1) * loop.to;
        loop.from = -loop.from;
        loop.to = -loop.to;
      }
      loops.push_back(std::move(loop));
    }
    while (join() || absorb()) {
    }
    std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.to < b.to; });
  }

  bool whole_bytes() const {
    const auto whole = [](std::int64_t bit) { return bit % 8 == 0; };
    bool all = whole(run) && whole(from) && whole(to);
    for (const Loop& loop : loops) all = all && whole(loop.from) && whole(loop.to);
    for (const Loop& loop : lists) {
      all = all && std::all_of(loop.list.from.begin(), loop.list.from.end(), whole) &&
            std::all_of(loop.list.to.begin(), loop.list.to.end(), whole);
    }
    return all;
  }

  void to_bytes() {
    run /= 8, from /= 8, to /= 8;
    for (Loop& loop : loops) loop.from /= 8, loop.to /= 8;
    for (Loop& loop : lists) {
      for (std::int64_t& bit : loop.list.from) bit /= 8;
      for (std::int64_t& bit : loop.list.to) bit /= 8;
    }
  }

 private:
  bool join() {
    for (std::size_t outer = 0; outer < loops.size(); ++outer) {
      for (std::size_t inner = 0; inner < loops.size(); ++inner) {
        const Loop &o = loops[outer], &i = loops[inner];
        if (outer == inner || o.from != i.count * i.from || o.to != i.count * i.to) continue;
        loops[inner].count *= o.count;
        loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(outer));
        return true;
      }
    }
    return false;
  }
  bool absorb() {
    for (std::size_t i = 0; i < loops.size(); ++i) {
      if (loops[i].from != run || loops[i].to != run) continue;
      run *= loops[i].count;
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
};

/// How to copy whole bytes: for each step of `outer`, the steps of `tile`, each one a leaf move.
struct Plan {
  std::vector<Loop> outer;  ///< slowest first
  std::vector<Loop> tile;   ///< slowest first
  MoveRuns runs_move{};
  Runs runs{};
  MoveTile tile_move{};
  Tile leaf_tile{};
  std::size_t staged{0};  ///< bytes of the target that the tile fills without gaps, assembled first; 0: written directly
  bool walks{false};      ///< the tile's source is also one stretch of `staged` bytes, from its first byte
};

int transposable(std::int64_t run) { return run == 1 ? 0 : run == 2 ? 1 : run == 4 ? 2 : run == 8 ? 3 : -1; }

class Planner {
 public:
  Planner(Shape shape, bool swap) : shape_(std::move(shape)), moves_(best_moves()), swap_(swap) {
    const std::int64_t bytes = shape_.run * product(shape_.loops) * product(shape_.lists);
    large_ = bytes >= stream_from;
  }

  Plan plan() {
    if (shape_.run >= line || shape_.loops.empty()) {
      long_runs();
    } else if (!transposed()) {
      short_runs();
    }
    // Lists outermost: their steps are far apart on one side or both.
    plan_.outer.insert(plan_.outer.begin(), shape_.lists.begin(), shape_.lists.end());
    return std::move(plan_);
  }

 private:
  /// In source order: sequential reads are worth more than sequential writes, because whole lines are written anyway.
  void long_runs() {
    set_runs(large_ && !swap_ ? moves_.stream : swap_ ? moves_.swap : moves_.copy);
    sort_by_source(shape_.loops, std::less<>());
    if (!shape_.loops.empty()) take_inner(shape_.loops, 0);
    for (std::size_t i = shape_.loops.size(); i-- > 0;) plan_.outer.push_back(shape_.loops[i]);
  }

  /// The target's innermost loop against the source's: vector transposition of tiles.
  bool transposed() {
    const int kind = transposable(shape_.run);
    if (kind < 0 || swap_ || shape_.loops.front().to != shape_.run) return false;
    const auto source =
        std::find_if(shape_.loops.begin() + 1, shape_.loops.end(), [&](const Loop& l) { return l.from == shape_.run; });
    if (source == shape_.loops.end()) return false;
    plan_.tile_move = moves_.transpose[kind];
    std::vector<Loop> dense = take_dense();
    const auto inside = std::find_if(dense.begin(), dense.end(), [&](const Loop& l) { return l.from == shape_.run; });
    if (inside == dense.end() || dense.front().to != shape_.run) {
      // The source's line is longer than a tile of the target: square tiles directly.
      for (const Loop& loop : dense) shape_.loops.push_back(loop);
      Loop rows = take([&](const Loop& l) { return l.to == shape_.run; });
      Loop columns = take([&](const Loop& l) { return l.from == shape_.run; });
      set_tile(cut(rows, 4 * line / shape_.run), cut(columns, 4 * line / shape_.run));
      outer_by_target();
      return true;
    }
    const std::vector<Loop> whole = dense;
    const Loop columns = *inside;
    dense.erase(inside);
    const Loop rows = dense.front();
    dense.erase(dense.begin());
    set_tile(rows, columns);
    finish(std::move(dense), whole);
    return true;
  }

  /// Runs of less than a line, not transposable: in the order of the source, into a stage.
  void short_runs() {
    set_runs(swap_ ? moves_.swap : moves_.copy);
    std::vector<Loop> dense = take_dense();
    if (dense.empty()) {
      take_inner(shape_.loops, 0);
      outer_by_target();
      return;
    }
    const auto inner = std::min_element(dense.begin(), dense.end(),
                                        [](const Loop& a, const Loop& b) { return std::abs(a.from) < std::abs(b.from); });
    const std::vector<Loop> whole = dense;
    take_inner(dense, static_cast<std::size_t>(inner - dense.begin()));
    finish(std::move(dense), whole);
  }

  /// `whole`: all loops of the tile, including the leaf's.
  void finish(std::vector<Loop> dense, std::vector<Loop> whole) {
    const std::int64_t bytes = shape_.run * product(whole);
    sort_by_source(whole, std::less<>());
    std::int64_t stretch = shape_.run;
    for (const Loop& loop : whole) stretch = loop.from == stretch ? stretch * loop.count : 0;
    plan_.walks = stretch == bytes;
    if (large_ && bytes >= 4 * line) plan_.staged = static_cast<std::size_t>(bytes);
    sort_by_source(dense, std::greater<>());
    plan_.tile = std::move(dense);
    outer_by_target();
  }

  /// Takes the innermost loops of the target, while they fill it without gaps and fit a stage.
  std::vector<Loop> take_dense() {
    std::vector<Loop> dense;
    std::int64_t bytes = shape_.run;
    while (!shape_.loops.empty() && shape_.loops.front().to == bytes) {
      Loop& loop = shape_.loops.front();
      const std::int64_t fits = largest_divisor(loop.count, stage_limit / bytes);
      if (fits == 1) break;
      Loop part = loop;
      part.count = fits;
      dense.push_back(part);
      bytes *= fits;
      if (fits == loop.count) {
        shape_.loops.erase(shape_.loops.begin());
        continue;
      }
      loop.count /= fits;
      loop.from *= fits;
      loop.to *= fits;
      break;
    }
    return dense;
  }

  template <typename Predicate>
  Loop take(Predicate wanted) {
    const auto found = std::find_if(shape_.loops.begin(), shape_.loops.end(), wanted);
    Loop loop = *found;
    shape_.loops.erase(found);
    return loop;
  }

  /// The inner part of a loop; the outer part goes back to the shape.
  Loop cut(Loop loop, std::int64_t limit) {
    const std::int64_t inner = largest_divisor(loop.count, std::max<std::int64_t>(1, limit));
    if (inner != loop.count) {
      Loop rest = loop;
      rest.count /= inner;
      rest.from *= inner;
      rest.to *= inner;
      shape_.loops.push_back(rest);
    }
    loop.count = inner;
    return loop;
  }

  void take_inner(std::vector<Loop>& loops, std::size_t at) {
    plan_.runs.n = static_cast<std::size_t>(loops[at].count);
    plan_.runs.from = loops[at].from;
    plan_.runs.to = loops[at].to;
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void outer_by_target() {
    std::sort(shape_.loops.begin(), shape_.loops.end(), [](const Loop& a, const Loop& b) { return a.to > b.to; });
    plan_.outer = shape_.loops;
  }

  template <typename Order>
  static void sort_by_source(std::vector<Loop>& loops, Order order) {
    std::sort(loops.begin(), loops.end(),
              [&](const Loop& a, const Loop& b) { return order(std::abs(a.from), std::abs(b.from)); });
  }

  void set_runs(MoveRuns move) {
    plan_.runs_move = move;
    plan_.runs = {1, 0, 0, static_cast<std::size_t>(shape_.run)};
  }
  void set_tile(const Loop& rows, const Loop& columns) {
    plan_.leaf_tile = {static_cast<std::size_t>(rows.count), static_cast<std::size_t>(columns.count), rows.from, columns.to};
  }

  Shape shape_;
  const Moves& moves_;
  bool swap_, large_{false};
  Plan plan_;
};

void leaf(const Plan& plan, std::uint8_t* to, const std::uint8_t* from) {
  if (plan.tile_move != nullptr) return plan.tile_move(to, from, plan.leaf_tile);
  plan.runs_move(to, from, plan.runs);
}

void prefetch(const std::uint8_t* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += line)
    __builtin_prefetch(from + i, 0, 2);  // into the second-level cache: the first is full
}

void run_plan(const Plan& plan, const std::uint8_t* from, std::uint8_t* to, std::int64_t begin, std::int64_t end) {
  alignas(64) std::array<std::uint8_t, stage_limit> stage;
  const Moves& moves = best_moves();
  const std::int64_t leaves = product(plan.tile);
  // No processor predicts reads across a tile's rows: while one tile moves, prefetch the next, one part per leaf.
  const std::int64_t part = plan.staged != 0 && plan.walks ? static_cast<std::int64_t>(plan.staged) / leaves : 0;
  Odometer outer(plan.outer, begin), next(plan.outer, begin);
  for (std::int64_t step = begin; step < end; ++step, outer.next()) {
    std::uint8_t* target = plan.staged != 0 ? stage.data() : to + outer.to();
    if (leaves == 1) {
      leaf(plan, target, from + outer.from());
    } else {
      if (part != 0 && step + 1 < end) next.next();
      Odometer inner(plan.tile, 0);
      for (std::int64_t k = 0; k < leaves; ++k, inner.next()) {
        prefetch(from + next.from() + k * part, part);
        leaf(plan, target + inner.to(), from + outer.from() + inner.from());
      }
    }
    if (plan.staged != 0) moves.stream(to + outer.to(), stage.data(), {1, 0, 0, plan.staged});
  }
  moves.drain();
}

/// One run, or a few long ones: threads share the bytes of each.
void run_bytes(const Plan& plan, const std::uint8_t* from, std::uint8_t* to, int threads) {
  parallel_ranges(threads, plan.runs.bytes, 4096, [&](std::size_t begin, std::size_t end) {
    plan.runs_move(to + begin, from + begin, {1, 0, 0, end - begin});
    best_moves().drain();
  });
}

/// 4-bit codes not aligned to whole bytes: one by one, on one thread, because neighbours share bytes.
void run_nibbles(const Shape& shape, bool from_high, bool to_high, const std::uint8_t* from, std::uint8_t* to) {
  std::vector<Loop> loops = shape.lists;
  loops.insert(loops.end(), shape.loops.rbegin(), shape.loops.rend());
  loops.push_back({shape.run / 4, 4, 4, {}});
  const std::int64_t from_flip = from_high ? 4 : 0, to_flip = to_high ? 4 : 0;
  const Loop inner = loops.back();
  loops.pop_back();
  const std::int64_t steps = product(loops);
  Odometer outer(loops, 0);
  for (std::int64_t step = 0; step < steps; ++step, outer.next()) {
    std::int64_t f = shape.from + outer.from(), t = shape.to + outer.to();
    for (std::int64_t i = 0; i < inner.count; ++i, f += inner.from, t += inner.to) {
      const unsigned code = (unsigned{from[f / 8]} >> ((f ^ from_flip) & 4)) & 0xfu;
      const auto shift = static_cast<unsigned>((t ^ to_flip) & 4);
      std::uint8_t& byte = to[t / 8];
      byte = static_cast<std::uint8_t>((byte & ~(0xfu << shift)) | (code << shift));
    }
  }
}

/// 4-bit codes, one per byte, so that they move like bytes; packed into nibbles at the target.
void unpack_nibbles(std::vector<std::uint8_t>& out, const std::uint8_t* from, bool high) {
  for (std::size_t i = 0; i < out.size() / 2; ++i) {
    out[2 * i] = static_cast<std::uint8_t>(high ? from[i] >> 4 : from[i] & 0xf);
    out[2 * i + 1] = static_cast<std::uint8_t>(high ? from[i] & 0xf : from[i] >> 4);
  }
}
void pack_nibbles(std::uint8_t* to, const std::vector<std::uint8_t>& codes, bool high) {
  for (std::size_t i = 0; i < codes.size() / 2; ++i) {
    to[i] = static_cast<std::uint8_t>(high ? codes[2 * i] << 4 | codes[2 * i + 1] : codes[2 * i + 1] << 4 | codes[2 * i]);
  }
}

/// The stretch of a side that the inner loops reach, in whole bytes around the first bit's place.
struct Reach {
  std::int64_t before{0}, bits{0};  ///< of the first bit within the stretch; length
};
Reach reach(const std::vector<Loop>& loops, std::int64_t run, std::int64_t first, std::int64_t Loop::* side) {
  std::int64_t low = 0, high = run;
  for (const Loop& loop : loops) {
    const std::int64_t far = (loop.count - 1) * loop.*side;
    (far < 0 ? low : high) += far;
  }
  const std::int64_t begin = first + low, aligned = begin - ((begin % 8) + 8) % 8;
  return {first - aligned, (first + high - aligned + 7) / 8 * 8};
}

/// Nibbles through bytes: loops whose steps are not whole bytes, and those inside them, move in a stage of one byte per
/// code. False, and nothing done, if these reach too far or leave too much between.
bool run_staged_nibbles(Shape shape, bool from_high, bool to_high, const std::uint8_t* from, std::uint8_t* to) {
  constexpr std::int64_t reach_limit = std::int64_t{1} << 20;  // bits per side
  const auto whole = [](std::int64_t bit) { return bit % 8 == 0; };
  for (const Loop& list : shape.lists) {
    if (!std::all_of(list.list.from.begin(), list.list.from.end(), whole) ||
        !std::all_of(list.list.to.begin(), list.list.to.end(), whole))
      return false;
  }
  std::size_t inner = 0;
  for (std::size_t i = 0; i < shape.loops.size(); ++i) {
    if (!whole(shape.loops[i].from) || !whole(shape.loops[i].to)) inner = i + 1;
  }
  const auto cut = shape.loops.begin() + static_cast<std::ptrdiff_t>(inner);
  std::vector<Loop> outer = shape.lists;
  outer.insert(outer.end(), std::make_reverse_iterator(shape.loops.end()), std::make_reverse_iterator(cut));
  shape.loops.erase(cut, shape.loops.end());
  shape.lists.clear();
  const Reach source = reach(shape.loops, shape.run, shape.from, &Loop::from),
              target = reach(shape.loops, shape.run, shape.to, &Loop::to);
  const std::int64_t moved = shape.run * product(shape.loops);
  if (std::max(source.bits, target.bits) > std::min(reach_limit, 16 * moved)) return false;
  const std::int64_t from_byte = (shape.from - source.before) / 8, to_byte = (shape.to - target.before) / 8;
  std::vector<std::uint8_t> read(static_cast<std::size_t>(source.bits / 4)),
      written(static_cast<std::size_t>(target.bits / 4));
  // A nibble is a byte here: distances in bits are doubled, then counted in bytes.
  shape.run *= 2, shape.from = source.before * 2, shape.to = target.before * 2;
  for (Loop& loop : shape.loops) loop.from *= 2, loop.to *= 2;
  shape.to_bytes();
  const std::int64_t first_read = shape.from, first_written = shape.to;
  const Plan plan = Planner(std::move(shape), false).plan();
  const std::int64_t inner_steps = product(plan.outer), steps = product(outer);
  Odometer place(outer, 0);
  for (std::int64_t step = 0; step < steps; ++step, place.next()) {
    std::uint8_t* at = to + to_byte + place.to() / 8;
    unpack_nibbles(read, from + from_byte + place.from() / 8, from_high);
    unpack_nibbles(written, at, to_high);  // bytes that do not move keep their value
    run_plan(plan, read.data() + first_read, written.data() + first_written, 0, inner_steps);
    pack_nibbles(at, written, to_high);
  }
  return true;
}

}  // namespace

std::vector<Loop> loops_of(const Pairs& pairs) {
  std::vector<Loop> loops;
  Pairs rest = pairs;
  while (rest.from.size() > 1) {
    const auto n = static_cast<std::int64_t>(rest.from.size());
    const std::int64_t from = rest.from[1] - rest.from[0], to = rest.to[1] - rest.to[0];
    // Every place where the strides change must be a multiple of the loop's count.
    std::int64_t count = n;
    for (std::size_t i = 1; i < rest.from.size(); ++i) {
      if (rest.from[i] - rest.from[i - 1] != from || rest.to[i] - rest.to[i - 1] != to)
        count = std::gcd(count, static_cast<std::int64_t>(i));
    }
    if (count == 1) {
      for (std::size_t i = rest.from.size(); i-- > 0;) {
        rest.from[i] -= rest.from[0];
        rest.to[i] -= rest.to[0];
      }
      loops.push_back({n, 0, 0, std::move(rest)});
      return loops;
    }
    loops.push_back({count, from, to, {}});
    Pairs heads;
    for (std::size_t i = 0; i < rest.from.size(); i += static_cast<std::size_t>(count)) {
      heads.from.push_back(rest.from[i]);
      heads.to.push_back(rest.to[i]);
    }
    rest = std::move(heads);
  }
  return loops;
}

void Nest::add(const Pairs& pairs) {
  from_ += pairs.from.front();
  to_ += pairs.to.front();
  for (Loop& loop : loops_of(pairs)) loops_.push_back(std::move(loop));
}

std::int64_t Nest::run_bits() const { return Shape(loops_, width_, from_, to_).run; }

std::int64_t Nest::moves() const {
  const Shape shape(loops_, width_, from_, to_);
  return product(shape.loops) * product(shape.lists);
}

void Nest::run(std::span<const std::uint8_t> from, std::span<std::uint8_t> to, int threads) const {
  Shape shape(loops_, width_, from_, to_);
  if (!shape.whole_bytes()) {
    if (run_staged_nibbles(shape, from_high_, to_high_, from.data(), to.data())) return;
    return run_nibbles(shape, from_high_, to_high_, from.data(), to.data());
  }
  shape.to_bytes();
  const std::uint8_t* source = from.data() + shape.from;
  std::uint8_t* target = to.data() + shape.to;
  const Plan plan = Planner(std::move(shape), width_ == 4 && from_high_ != to_high_).plan();
  if (plan.outer.empty() && plan.tile.empty() && plan.runs.n == 1 && plan.tile_move == nullptr) {
    return run_bytes(plan, source, target, threads);
  }
  const std::int64_t steps = product(plan.outer);
  parallel_ranges(threads, static_cast<std::size_t>(steps), 1, [&](std::size_t begin, std::size_t end) {
    run_plan(plan, source, target, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
  });
}

}  // namespace kvcts::kernels::relayout
