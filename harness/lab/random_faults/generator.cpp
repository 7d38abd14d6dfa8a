#include "lab/random_faults/generator.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace kvcts::scenario {

using nlohmann::json;

namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  RandomCase make(int faults) {
    shape();
    RandomCase out;
    std::vector<Transformation> all = transformations();
    for (int i = 0, tries = 0; i < faults && tries < 200; ++tries) {
      const std::size_t k = pick(all.size());
      if (!(this->*all[k])(out)) continue;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(k));
      ++i;
    }
    out.document = std::move(case_);
    return out;
  }

 private:
  std::size_t pick(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  template <class T>
  T one_of(std::vector<T> list) {
    return list[pick(list.size())];
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

  std::vector<std::int64_t> ids(std::int64_t count, std::int64_t blocks) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(blocks));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[pick(i)]);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

  // Two caches of one geometry, two requests, a transfer; sometimes numbers are read, objects stored, memory registered.
  void shape() {
    static const std::vector<std::string> orders{"L x K B N H C",   "L x B K N H C", "L x B K H N C",
                                                 "L x K B H N C",   "L x B N K H C", "L x B H N K C",
                                                 "K x L x B N H C", "B L K N H C",   "L B K H N C"};
    layers_ = between(1, 3), heads_ = one_of<std::int64_t>({2, 3, 4}), block_size_ = one_of<std::int64_t>({4, 8, 6}),
    head_dim_ = one_of<std::int64_t>({16, 32, 24});
    blocks_ = between(7, 10);
    dtype_ =
        one_of<std::string>({"bf16", "bf16", "fp16", "fp8_e4m3", "int8", "fp32", "int4", "fp8_per_token_head", "fp8_e5m2"});
    if (dtype_ == "int4" && head_dim_ == 24) head_dim_ = 32;
    tokens_ = between(block_size_ + 1, block_size_ * 3 - 1);
    source_ = one_of(orders), destination_ = one_of(orders);
    case_ = {{"case", "random/case"},
             {"dtype", dtype_},
             {"seed", random_() % 100000 + 1},
             {"geometry",
              {{"layers", layers_},
               {"blocks", blocks_},
               {"block_size", block_size_},
               {"heads", heads_},
               {"head_dim", head_dim_},
               {"tokens", tokens_}}}};
    case_["memory"] = {{"P", {{"side", "producer"}, {"template", source_}, {"guard_below", 256}, {"guard_above", 256}}},
                       {"D", {{"template", destination_}, {"guard_below", 256}, {"guard_above", 256}}}};
    request_blocks();
    add("write", "write-a", {{"request", "A"}, {"to", "P"}});
    add("write", "write-b", {{"request", "B"}, {"to", "P"}});
    kind_ = one_of<std::string>({"move", "move", "move", "read", "decode", "store", "reuse", "registered", "pieces"});
    add_transfer();
    if (chance(30)) add("complete", "complete-a", {{"request", "A"}, {"fields", {{"status", "done"}}}}), completes_ = true;
  }

  void request_blocks() {
    const std::int64_t count = (tokens_ + block_size_ - 1) / block_size_;
    const auto p = ids(count + 2, blocks_), d = ids(count + 2, blocks_);
    source_ids_ = {p.begin(), p.begin() + static_cast<std::ptrdiff_t>(count)},
    destination_ids_ = {d.begin(), d.begin() + static_cast<std::ptrdiff_t>(count)};
    other_ids_ = {p.begin() + static_cast<std::ptrdiff_t>(count), p.end()};
    case_["requests"] = {{"A", {{"tokens", tokens_}, {"blocks", {{"P", source_ids_}, {"D", destination_ids_}}}}},
                         {"B", {{"tokens", block_size_ + 1}, {"generation", 2}, {"blocks", {{"P", other_ids_}}}}}};
  }

  void add_transfer() {
    if (kind_ == "registered") {
      for (const char* memory : {"P", "D"}) {
        json step = json::object();
        step["register"] = {{"name", std::string("register-") + memory}, {"memory", memory}};
        case_["steps"].insert(case_["steps"].begin(), step);
      }
    }
    if (kind_ == "store") {
      const json key_a{{"prefix", "p1"}, {"dtype", dtype_}, {"rank", "0"}},
          key_b{{"prefix", "p1"}, {"dtype", "other"}, {"rank", "0"}};
      add("put", "put-a", {{"store", "S"}, {"request", "A"}, {"from", "P"}, {"key", key_a}});
      add("put", "put-b", {{"store", "S"}, {"request", "B"}, {"from", "P"}, {"key", key_b}});
      add("get", "get-a", {{"store", "S"}, {"request", "A"}, {"to", "D"}, {"key", key_a}});
    } else if (kind_ == "pieces") {
      const std::string cut = std::to_string(block_size_), end = std::to_string(tokens_);
      add("move", "move-1", {{"request", "A"}, {"from", "P"}, {"to", "D"}, {"tokens", "0.." + cut}});
      add("move", "move-2", {{"request", "A"}, {"from", "P"}, {"to", "D"}, {"tokens", cut + ".." + end}});
    } else {
      add("move", "move-a", {{"request", "A"}, {"from", "P"}, {"to", "D"}});
    }
    if (kind_ == "reuse") {  // the blocks of A are given to C when A is done
      case_["requests"]["C"] = {
          {"tokens", tokens_}, {"generation", 3}, {"blocks", {{"P", source_ids_}, {"D", destination_ids_}}}};
      add("read", "read-a", {{"request", "A"}, {"from", "D"}});
      add("write", "write-c", {{"request", "C"}, {"to", "P"}});
      add("move", "move-c", {{"request", "C"}, {"from", "P"}, {"to", "D"}});
    }
    if (kind_ == "read" || kind_ == "decode")
      add("read", "read-a", {{"request", "A"}, {"from", "D"}, {"decode", kind_ == "decode"}});
  }

  void add(const std::string& op, const std::string& name, json body) {
    body["name"] = name;
    json step = json::object();
    step[op] = std::move(body);
    case_["steps"].push_back(std::move(step));
  }
  json* body_of(const std::string& name) {
    for (json& step : case_["steps"])
      for (auto& [op, body] : step.items())
        if (body.value("name", "") == name) return &body;
    return nullptr;
  }
  // One `actually` per step: two faults go to two steps, or to two keys of one.
  bool patch(RandomCase& out, const std::string& step, const json& changes, FaultClass fault_class,
             const std::string& words) {
    json* body = body_of(step);
    if (!body) return false;
    json& actual = (*body)["actually"];
    if (actual.is_string()) return false;
    if (actual.is_null()) actual = json::object();
    for (const auto& [key, value] : changes.items()) {
      if (actual.contains(key)) {
        if (actual.empty()) actual = nullptr;
        return false;
      }
    }
    // A step has one place: before or after another one.
    if ((changes.contains("after") && actual.contains("before")) || (changes.contains("before") && actual.contains("after")))
      return false;
    actual.update(changes);
    out.classes.push_back(fault_class);
    out.words.push_back(words + " in " + step);
    return true;
  }
  bool skip(RandomCase& out, const std::string& step, FaultClass fault_class) {
    json* body = body_of(step);
    if (!body || body->contains("actually")) return false;
    (*body)["actually"] = "skipped";
    out.classes.push_back(fault_class);
    out.words.push_back(step + " skipped");
    return true;
  }

  bool moves() const { return kind_ != "store" && kind_ != "pieces"; }
  std::string reader() const { return kind_ == "read" || kind_ == "decode" || kind_ == "reuse" ? "read-a" : ""; }
  // The step and the end at which a layout is misread.
  struct End {
    std::string step, key, order;
  };
  End end() {
    std::vector<End> ends;
    if (moves()) ends.push_back({"move-a", "from", source_}), ends.push_back({"move-a", "to", destination_});
    if (kind_ == "store") ends.push_back({"put-a", "from", source_}), ends.push_back({"get-a", "to", destination_});
    if (!reader().empty()) ends.push_back({"read-a", "from", destination_});
    return ends.empty() ? End{} : ends[pick(ends.size())];
  }

  static bool one_plane(const std::string& order) { return order.find("K x") == std::string::npos; }

  // A layout is read with two of its axes exchanged.
  bool permute_axes(RandomCase& out) {
    const End e = end();
    if (e.step.empty() || !one_plane(e.order)) return false;
    const std::size_t lists = e.order.starts_with("L x") ? 4 : 0, axes = (e.order.size() - lists + 1) / 2;
    const std::size_t a = pick(axes - 1), b = pick(axes - 1);
    if (a == b) return false;
    std::string now = e.order;
    char &one = now[lists + 2 * a], &other = now[lists + 2 * b];
    const bool kv = one == 'K' || other == 'K';
    if (kv && (a > b ? a - b : b - a) > 1) return false;  // K exchanged with an axis across others: two changes at once
    std::swap(one, other);
    return patch(out, e.step, {{e.key, {{"template", now}}}},
                 kv ? FaultClass::kv_split_vs_interleaved : FaultClass::axis_permuted, e.order + " taken for " + now);
  }
  // One stride of a layout is wrong.
  bool change_stride(RandomCase& out) {
    const End e = end();
    if (e.step.empty() || !one_plane(e.order)) return false;
    const std::string axis = one_of<std::string>({"block", "slot", "head"});
    const std::int64_t width = dtype_ == "fp32" ? 4 : dtype_ == "bf16" || dtype_ == "fp16" ? 2 : 1;
    const std::int64_t row = head_dim_ * width / (dtype_ == "int4" ? 2 : 1);
    const std::int64_t stride =
        row * one_of<std::int64_t>({1, 2, 3, 4, 6, 8, heads_, block_size_, heads_ * block_size_, 2 * heads_ * block_size_});
    return patch(out, e.step, {{e.key, {{"strides", {{axis, stride}}}}}}, FaultClass::wrong_stride,
                 axis + " stride " + std::to_string(stride));
  }
  // A cache is read with blocks of half or double the size.
  bool change_block_size(RandomCase& out) {
    const End e = end();
    if (e.step.empty()) return false;
    const bool finer = chance(50);
    if (finer && block_size_ % 2 != 0) return false;
    return patch(
        out, e.step,
        {{e.key,
          {{"geometry",
            {{"block_size", finer ? block_size_ / 2 : block_size_ * 2}, {"blocks", finer ? blocks_ * 2 : blocks_ / 2}}}}}},
        FaultClass::wrong_block_size, finer ? "finer blocks" : "coarser blocks");
  }
  // Heads come from other heads: a wrong mapping of shards.
  bool shift_heads(RandomCase& out) {
    if (!moves()) return false;
    std::vector<std::int64_t> to(static_cast<std::size_t>(heads_)), from;
    std::iota(to.begin(), to.end(), 0);
    const std::int64_t shift = between(1, heads_ - 1);
    for (const auto h : to) from.push_back(chance(50) ? (h + shift) % heads_ : h / 2);
    return patch(out, "move-a", {{"heads", from}, {"to_heads", to}}, FaultClass::head_shard_mapping, "heads shifted");
  }
  // One layer is not moved.
  bool drop_layer(RandomCase& out) {
    if (!moves() || layers_ < 2) return false;
    const std::int64_t gone = between(0, layers_ - 1);
    std::vector<std::int64_t> left;
    for (std::int64_t l = 0; l < layers_; ++l)
      if (l != gone) left.push_back(l);
    return patch(out, "move-a", {{"layers", left}}, FaultClass::layer_missing, "a layer is missing");
  }
  // Layers arrive in other layers.
  bool rotate_layers(RandomCase& out) {
    if (!moves() || layers_ < 2) return false;
    std::vector<std::int64_t> to(static_cast<std::size_t>(layers_));
    std::iota(to.begin(), to.end(), 0);
    std::vector<std::int64_t> from = to;
    std::rotate(from.begin(), from.begin() + between(1, layers_ - 1), from.end());
    return patch(out, "move-a", {{"layers", from}, {"to_layers", to}}, FaultClass::layer_misrouted, "layers rotated");
  }
  // K and V are exchanged, or K is used for both.
  bool confuse_keys_and_values(RandomCase& out) {
    if (!moves()) return false;
    const bool swapped = chance(30);
    return patch(out, "move-a", {{"kv", swapped ? json{"V", "K"} : json{"K", "K"}}, {"to_kv", {"K", "V"}}},
                 swapped ? FaultClass::kv_split_vs_interleaved : FaultClass::region_aliasing,
                 swapped ? "K and V exchanged" : "K used for V");
  }
  // Scales of a quantized cache are not moved, not applied, or applied twice.
  bool lose_scales(RandomCase& out) {
    if (dtype_ != "fp8_per_token_head") return false;
    if (kind_ == "decode")
      return patch(out, "read-a", {{"scales", chance(50) ? "ignored" : "twice"}}, FaultClass::scale_lost, "scales");
    return moves() && patch(out, "move-a", {{"parts", "data"}}, FaultClass::scale_lost, "scales not moved");
  }
  // Scales are read or written at a wrong offset.
  bool misplace_scales(RandomCase& out) {
    return dtype_ == "fp8_per_token_head" && moves() &&
           patch(out, "move-a",
                 {{one_of<std::string>({"from", "to"}), {{"scale_offset", 4 * between(1, heads_ * block_size_)}}}},
                 FaultClass::scale_misplaced, "scales off");
  }
  // A reader decodes another dtype of the same width.
  bool misread_dtype(RandomCase& out) {
    if (kind_ != "decode") return false;
    static const std::map<std::string, std::vector<std::string>> same{{"bf16", {"fp16"}},
                                                                      {"fp16", {"bf16"}},
                                                                      {"fp8_e4m3", {"fp8_e5m2", "fp8_e4m3fnuz"}},
                                                                      {"fp8_e5m2", {"fp8_e4m3", "fp8_e5m2fnuz"}},
                                                                      {"int8", {"uint8"}}};
    const auto others = same.find(dtype_);
    if (others == same.end()) return false;
    return patch(out, "read-a", {{"from", {{"dtype", one_of(others->second)}}}}, FaultClass::dtype_reinterpreted,
                 "another dtype");
  }
  // Elements of a packed dtype are counted as bytes: half a row moves.
  bool halve_packed_rows(RandomCase& out) {
    return dtype_ == "int4" && moves() &&
           patch(out, "move-a", {{"channels", "0.." + std::to_string(head_dim_ / 2)}}, FaultClass::packed_dim_misread,
                 "half a packed row");
  }
  // A move is carried out after its blocks were given to another request.
  bool move_after_reuse(RandomCase& out) {
    return kind_ == "reuse" &&
           patch(out, "move-a", {{"after", "move-c"}, {"reads", "issue"}}, FaultClass::stale_block, "a late write");
  }
  // A read comes after its blocks were given to another request.
  bool read_after_reuse(RandomCase& out) {
    return kind_ == "reuse" && patch(out, "read-a", {{"after", "move-c"}}, FaultClass::stale_block, "a late read");
  }
  // A move starts before its source is written.
  bool move_before_write(RandomCase& out) {
    return moves() &&
           patch(out, "move-a", {{"before", "write-a"}}, FaultClass::read_before_ready, "moved before it was written");
  }
  // A read comes before the data have arrived.
  bool read_before_move(RandomCase& out) {
    return !reader().empty() &&
           patch(out, "read-a", {{"before", "move-a"}}, FaultClass::read_before_ready, "read before it came");
  }
  // A block table is reversed, rotated, taken for consecutive blocks, or has one wrong id.
  bool change_block_ids(RandomCase& out) {
    std::string step = moves() ? "move-a" : kind_ == "store" ? "put-a" : "";
    if (step.empty()) return false;
    std::vector<std::int64_t> list = source_ids_;
    switch (between(0, 3)) {
      case 0:
        std::reverse(list.begin(), list.end());
        break;
      case 1:
        std::rotate(list.begin(), list.begin() + 1, list.end());
        break;
      case 2:
        for (std::size_t i = 0; i < list.size(); ++i)
          list[i] = std::min(source_ids_[0] + static_cast<std::int64_t>(i), blocks_ - 1);
        break;
      default:
        list[pick(list.size())] = other_ids_[0];
    }
    if (list == source_ids_) return false;
    return patch(out, step, {{"from_blocks", list}}, FaultClass::wrong_block_id, "other ids");
  }
  // The last tokens are not moved.
  bool move_fewer_tokens(RandomCase& out) {
    return moves() && patch(out, "move-a", {{"tokens", "0.." + std::to_string(between(1, tokens_ - 1))}},
                            FaultClass::truncated, "fewer tokens");
  }
  // A read goes beyond the tokens of its request.
  bool read_more_tokens(RandomCase& out) {
    if (reader().empty()) return false;
    const std::int64_t room = static_cast<std::int64_t>(destination_ids_.size()) * block_size_;
    if (room <= tokens_) return false;
    return patch(out, "read-a", {{"tokens", "0.." + std::to_string(between(tokens_ + 1, room))}}, FaultClass::over_read,
                 "more tokens");
  }
  // Source and destination of a move are exchanged.
  bool reverse_direction(RandomCase& out) {
    return moves() && patch(out, "move-a", {{"from", "D"}, {"to", "P"}}, FaultClass::copy_direction, "exchanged");
  }
  // A move does not happen, whether or not its completion is reported.
  bool skip_move(RandomCase& out) {
    return moves() && kind_ != "reuse" &&
           skip(out, "move-a", completes_ ? FaultClass::false_success : FaultClass::silently_skipped);
  }
  // One piece of a move does not happen.
  bool skip_piece(RandomCase& out) {
    return kind_ == "pieces" && skip(out, one_of<std::string>({"move-1", "move-2"}), FaultClass::truncated);
  }
  // A memory is not registered.
  bool skip_registration(RandomCase& out) {
    return kind_ == "registered" && chance(50) &&
           skip(out, one_of<std::string>({"register-P", "register-D"}), FaultClass::registration_missing_region);
  }
  // Keys of stored objects leave out the dtype.
  bool drop_dtype_from_keys(RandomCase& out) {
    if (kind_ != "store") return false;
    bool good = false;
    RandomCase scratch;
    for (const char* step : {"put-a", "put-b", "get-a"})
      good = patch(scratch, step, {{"key", {{"dtype", nullptr}}}}, FaultClass::none, "") || good;
    if (good) out.classes.emplace_back(FaultClass::identity_collision), out.words.emplace_back("keys without dtype");
    return good;
  }

  using Transformation = bool (Maker::*)(RandomCase&);
  // What a seed draws depends on their order and number.
  static std::vector<Transformation> transformations() {
    return {
        &Maker::permute_axes,      &Maker::change_stride,     &Maker::change_block_size,       &Maker::shift_heads,
        &Maker::drop_layer,        &Maker::rotate_layers,     &Maker::confuse_keys_and_values, &Maker::lose_scales,
        &Maker::misplace_scales,   &Maker::misread_dtype,     &Maker::halve_packed_rows,       &Maker::move_after_reuse,
        &Maker::read_after_reuse,  &Maker::move_before_write, &Maker::read_before_move,        &Maker::change_block_ids,
        &Maker::move_fewer_tokens, &Maker::read_more_tokens,  &Maker::reverse_direction,       &Maker::skip_move,
        &Maker::skip_piece,        &Maker::skip_registration, &Maker::drop_dtype_from_keys,
    };
  }

  std::mt19937_64 random_;
  json case_;
  std::int64_t layers_{1}, heads_{1}, block_size_{1}, head_dim_{1}, blocks_{1}, tokens_{1};
  std::string dtype_, source_, destination_, kind_;
  std::vector<std::int64_t> source_ids_, destination_ids_, other_ids_;
  bool completes_{false};
};

}  // namespace

RandomCase random_case(std::uint64_t seed, int faults) { return Maker(seed).make(faults); }

}  // namespace kvcts::scenario
