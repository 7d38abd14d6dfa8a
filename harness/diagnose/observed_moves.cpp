#include "diagnose/observed_moves.hpp"

#include <algorithm>

#include "diagnose/hypothesis_search.hpp"

namespace kvcts::scenario {

using layout::Axis;

AddressToElement::AddressToElement(const View& view, const AddressSpace& space, const std::vector<std::int64_t>& ids,
                                   const std::vector<std::int64_t>& positions, std::int64_t first_token) {
  const layout::Cache cache = cache_of(view);
  const std::vector<BufferAddress> starts = space.addresses(view, cache);
  for (const layout::Plane& plane : cache.planes) {
    MappedPlane mapped{plane, starts.at(static_cast<std::size_t>(plane.allocation))};
    mapped.start.offset += view.offset + (plane.component == layout::Component::scale ? view.scale_offset : 0);
    std::erase_if(mapped.plane.modes, [](const layout::Mode& mode) { return mode.extent == 1; });
    std::ranges::stable_sort(mapped.plane.modes, [](const auto& a, const auto& b) { return a.stride > b.stride; });
    std::int64_t inside = layout::bits(plane.dtype);
    for (auto mode = mapped.plane.modes.rbegin(); mode != mapped.plane.modes.rend(); ++mode) {
      mapped.nested = mapped.nested && mode->stride >= inside;
      inside = mode->stride * mode->extent;
    }
    slots_ = std::max(slots_, layout::domain(plane).hi[Axis::slot]);
    planes_.push_back(std::move(mapped));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t position = i < positions.size() ? positions[i] : static_cast<std::int64_t>(i);
    if (ids[i] != no_block) token_of_block_.emplace(ids[i], first_token + position * slots_);
  }
}

bool AddressToElement::sees(int buffer) const {
  return std::ranges::any_of(planes_, [&](const MappedPlane& mapped) { return mapped.start.buffer == buffer; });
}

bool AddressToElement::nested() const {
  return std::ranges::all_of(planes_, [](const MappedPlane& mapped) { return mapped.nested; });
}

std::optional<ViewElement> AddressToElement::at(BufferAddress address) const {
  for (const MappedPlane& mapped : planes_) {
    if (mapped.start.buffer != address.buffer) continue;
    const std::int64_t bit = (address.offset - mapped.start.offset) * 8;
    layout::Coord at = mapped.plane.origin;
    if (mapped.nested) {
      std::int64_t rest = bit - mapped.plane.offset;
      if (rest < 0) continue;
      for (const layout::Mode& mode : mapped.plane.modes) {
        // An id beyond the pool also has an address if nothing lies outside the blocks.
        const bool open = &mode == &mapped.plane.modes.front() && mode.axis == Axis::block;
        const std::int64_t digit = open ? rest / mode.stride : std::min(rest / mode.stride, mode.extent - 1);
        at[mode.axis] += digit * mode.step;
        rest -= digit * mode.stride;
      }
      if (rest != 0) continue;
    } else {
      const auto found = layout::inverse(mapped.plane, bit);
      if (found.empty()) continue;
      at = found.front().coord;
    }
    ViewElement out{mapped.plane.component, mapped.plane.dtype, at[Axis::kv], at[Axis::layer],
                    at[Axis::head],         at[Axis::channel],  {},           at[Axis::block],
                    at[Axis::slot]};
    const auto has = [&](Axis axis) {
      return std::ranges::any_of(mapped.plane.modes, [&](const auto& m) { return m.axis == axis; });
    };
    if (!has(Axis::block) && !has(Axis::slot)) {
      out.block = -1, out.token = 0;
    } else if (const auto token = token_of_block_.find(out.block); token != token_of_block_.end()) {
      out.token = token->second + out.slot;
    }
    return out;
  }
  return std::nullopt;
}

std::optional<BufferAddress> ElementToAddress::at(const ViewElement& element) const {
  if (!element.token) return std::nullopt;
  const std::int64_t n = view_.block_size(), position = (*element.token - first_token_) / n;
  if (*element.token < first_token_) return std::nullopt;
  std::size_t index = static_cast<std::size_t>(position);
  if (!positions_.empty()) index = static_cast<std::size_t>(std::ranges::find(positions_, position) - positions_.begin());
  if (index >= ids_.size() || ids_[index] == no_block) return std::nullopt;
  return at(element, ids_[index]);
}

std::optional<BufferAddress> ElementToAddress::at(const ViewElement& element, std::int64_t block) const {
  const std::int64_t slot = (element.token.value_or(first_token_) - first_token_) % view_.block_size();
  for (const PlaneLocator& plane : view_.planes()) {
    const layout::Box& box = plane.domain();
    if (plane.plane().component != element.component || element.channel < box.lo[Axis::channel] ||
        element.channel >= box.hi[Axis::channel])
      continue;
    if (element.kv >= box.hi[Axis::kv] || element.layer >= box.hi[Axis::layer] || element.head >= box.hi[Axis::head])
      continue;
    const auto k = plane.part(Axis::kv, element.kv), l = plane.part(Axis::layer, element.layer),
               h = plane.part(Axis::head, element.head);
    const auto b = plane.part(Axis::block, block), s = plane.part(Axis::slot, slot),
               c = plane.part(Axis::channel, element.channel);
    if (!k || !l || !h || !b || !s || !c) continue;
    const BitRange bits_at = plane.at(*k + *l + *h + *b + *s + *c);
    return BufferAddress{bits_at.buffer, bits_at.bit >= 0 ? bits_at.bit / 8 : -((7 - bits_at.bit) / 8)};
  }
  return std::nullopt;
}

std::int64_t picked_source(const Picks& from, const Picks& to, std::int64_t destination) {
  if (!to || !from) return destination;
  const auto at = std::find(to->rbegin(), to->rend(), destination);  // of two at one place, the last
  if (at == to->rend()) return destination;
  const auto index = static_cast<std::size_t>(to->rend() - at) - 1;
  return index < from->size() ? (*from)[index] : destination;
}

std::int64_t picked_destination(const Picks& from, const Picks& to, std::int64_t source) {
  return picked_source(to, from, source);
}

bool picked(const Picks& picks, std::int64_t value) {
  return !picks || std::find(picks->begin(), picks->end(), value) != picks->end();
}

std::vector<std::int64_t> ids_in(const ScenarioRequest& request, const View& view,
                                 const std::optional<std::vector<std::int64_t>>& instead) {
  if (instead) return *instead;
  const auto ids = request.blocks.find(memory_of(view));
  return ids == request.blocks.end() ? std::vector<std::int64_t>{} : ids->second;
}

std::vector<std::int64_t> positions_in(const ScenarioRequest& request, const View& view) {
  const auto positions = request.positions.find(memory_of(view));
  return positions == request.positions.end() ? std::vector<std::int64_t>{} : positions->second;
}

void keep_only(Action& action, Picks StepSelection::* axis, const std::set<std::int64_t>& destinations) {
  Picks &from = action.pick.*axis, &to = action.pick_to.*axis;
  if (!from) {
    from.emplace(destinations.begin(), destinations.end());
    return;
  }
  const std::vector<std::int64_t> sources = *from, addresses = to ? *to : sources;
  from->clear();
  if (to) to->clear();
  for (std::size_t i = 0; i < addresses.size() && i < sources.size(); ++i) {
    if (!destinations.contains(addresses[i])) continue;
    from->push_back(sources[i]);
    if (to) to->push_back(addresses[i]);
  }
}

namespace {

bool picked(const Picks& from, const Picks& to, std::int64_t destination) {
  return scenario::picked(to ? to : from, destination);
}

ViewElement element_of(const Symbol& symbol) {
  return {symbol.component, symbol.dtype, symbol.kv, symbol.layer, symbol.head, symbol.channel, symbol.token, -1, 0};
}

// Elements of an output, by their order.
class OutputToElement {
 public:
  OutputToElement(const Action& read, TokenRange tokens, int buffer) : shape_(output_shape(read, tokens)), buffer_(buffer) {}
  /// The bytes of the number that begins there are consecutive; at() knows the first.
  bool same_number(BufferAddress first, BufferAddress other) const {
    return first.buffer == other.buffer && first.offset / 4 == other.offset / 4;
  }
  std::optional<ViewElement> at(BufferAddress address) const {
    if (address.buffer != buffer_) return std::nullopt;
    for (const OutputSection& section : shape_.sections) {
      if (address.offset >= section.begin && address.offset < section.begin + section.bytes())
        return in(section, address.offset - section.begin);
    }
    return std::nullopt;
  }

 private:
  static std::optional<ViewElement> in(const OutputSection& section, std::int64_t offset) {
    const std::int64_t row_bytes = section.row_bits() / 8;
    std::int64_t row = offset / row_bytes;
    const std::int64_t bit = offset % row_bytes * 8;
    const auto take = [&](const std::vector<std::int64_t>& list) {
      const auto n = static_cast<std::int64_t>(list.size());
      const std::int64_t value = list[static_cast<std::size_t>(row % n)];
      row /= n;
      return value;
    };
    if (bit % section.width != 0 && section.width >= 8) return std::nullopt;
    ViewElement out;
    out.component = section.component;
    out.channel = section.channels.at(static_cast<std::size_t>(bit / section.width));
    out.head = take(section.heads), out.token = take(section.tokens), out.layer = take(section.layers),
    out.kv = take(section.kv);
    return out;
  }

  OutputShape shape_;
  int buffer_;
};

bool any_sees(const std::vector<AddressToElement>& all, int buffer) {
  return std::ranges::any_of(all, [&](const AddressToElement& to_element) { return to_element.sees(buffer); });
}

std::optional<ViewElement> seen_by(const std::vector<AddressToElement>& all, BufferAddress address) {
  for (const AddressToElement& to_element : all) {
    if (auto element = to_element.at(address)) return element;
  }
  return std::nullopt;
}

// The elements of a step, found in the bytes.
class StepObserver {
 public:
  StepObserver(HypothesisSearch& search, std::size_t step, const ScenarioRequest& request)
      : search_(search), step_(step), request_(request) {
    const SearchEvidence& evidence = search.evidence();
    if (a_.op == Operation::read)
      output_.emplace(a_, TokenRange{request.first_token, request.tokens}, evidence.space.output(a_.output));
    const auto& memories = search.scenario().memories;
    const auto declared = a_.from.empty() ? memories.end() : memories.find(memory_of(a_.from.front()));
    if (declared != memories.end()) side_ = declared->second.side;
    if (!from_.empty())
      addresses_.emplace(search.images_before(step), [&](int buffer) { return any_sees(from_, buffer); }, evidence.symbols);
  }

  std::vector<ObservedMove> observe() {
    for (const Attribution& attribution : search_.attributions().all) {
      ObservedMove s;
      s.attribution = &attribution;
      if (!find_place(s)) continue;
      if (s.at) find_asked(s);
      if (!attribution.untouched) find_source(s);
      out_.push_back(std::move(s));
    }
    return std::move(out_);
  }

 private:
  std::vector<AddressToElement> to_elements(const std::vector<View>& views,
                                            const std::optional<std::vector<std::int64_t>>& instead) const {
    std::vector<AddressToElement> all;
    for (const View& view : views)
      all.emplace_back(view, search_.evidence().space, ids_in(request_, view, instead), positions_in(request_, view),
                       request_.first_token);
    return all;
  }

  /// False: it is no place of this step.
  bool find_place(ObservedMove& s) {
    const Attribution& attribution = *s.attribution;
    const BufferAddress here{attribution.buffer, attribution.offset};
    const Symbol& must = attribution.must;
    if (a_.op == Operation::put) {
      const bool content = must.kind == Symbol::Kind::tag || must.kind == Symbol::Kind::number;
      if (!content || must.byte != 0 || must.generation != request_.generation || any_sees(from_, here.buffer)) return false;
      s.at = element_of(must);
      return true;
    }
    if (!output_) {
      if (!any_sees(to_, here.buffer)) return false;
      s.at = seen_by(to_, here);
      return true;
    }
    s.at = output_->at(here);
    // A number may be right in its first byte and wrong after it: an exponent off by one.
    ObservedMove* last = s.at || out_.empty() ? nullptr : &out_.back();
    if (last && attribution.wrong && !last->attribution->wrong && a_.decode &&
        output_->same_number({last->attribution->buffer, last->attribution->offset}, here))
      last->attribution = &attribution;
    return s.at.has_value();
  }

  void find_asked(ObservedMove& s) const {
    const StepSelection &from = a_.pick, &to = a_.pick_to;
    ViewElement e = *s.at;
    const bool asked_for = a_.parts == "all" || (a_.parts == "data") == (e.component == layout::Component::data);
    s.taken = asked_for && e.token && picked(from.kv, to.kv, e.kv) && picked(from.layers, to.layers, e.layer) &&
              picked(from.tokens, to.tokens, *e.token) && picked(from.heads, to.heads, e.head);
    e.kv = picked_source(from.kv, to.kv, e.kv), e.layer = picked_source(from.layers, to.layers, e.layer);
    e.head = picked_source(from.heads, to.heads, e.head), e.channel = picked_source(from.channels, to.channels, e.channel);
    if (e.token) e.token = picked_source(from.tokens, to.tokens, *e.token);
    e.block = -1;
    s.asked = e;
  }

  bool accept(ObservedMove& s, BufferAddress address, std::int64_t odd) const {
    auto found = seen_by(from_, address);
    if (!found) return false;
    found->channel += odd;
    const bool as_asked = found->token == s.asked.token && found->kv == s.asked.kv && found->layer == s.asked.layer &&
                          found->head == s.asked.head && found->channel == s.asked.channel;
    if (!s.from || as_asked) s.from = found, s.source = address;
    return as_asked;
  }

  void find_source(ObservedMove& s) {
    const Symbol& is = s.attribution->is;
    const bool element = (is.kind == Symbol::Kind::tag || is.kind == Symbol::Kind::number) && is.byte == 0;
    if (is.kind == Symbol::Kind::poison && addresses_) accept(s, {is.buffer, is.offset}, 0);
    if (element && addresses_) {
      Symbol code = is;
      code.kind = Symbol::Kind::tag;
      const std::int64_t odd = layout::bits(code.dtype) == 4 ? code.channel % 2 : 0;  // the even code names its byte
      code.channel -= odd;
      for (const BufferAddress& address : addresses_->of(code)) {
        if (accept(s, address, odd)) break;
      }
      if (!s.source && s.taken && s.attribution->wrong) find_unexpected(s);
    }
    if (!s.from && element && is.generation == request_.generation) s.from = element_of(is);
  }

  void find_unexpected(ObservedMove& s) {
    const SearchEvidence& evidence = search_.evidence();
    if (!everywhere_) everywhere_.emplace(search_.images_before(step_), [](int) { return true; }, evidence.symbols);
    for (const BufferAddress& address : everywhere_->of(s.attribution->is)) {
      const bool same_side = evidence.space.buffers()[static_cast<std::size_t>(address.buffer)].side == side_;
      if (!s.unexpected || same_side) s.unexpected = address;
      if (same_side) break;
    }
  }

  HypothesisSearch& search_;
  std::size_t step_;
  const ScenarioRequest& request_;
  const Action& a_ = search_.action(step_);
  std::vector<AddressToElement> from_ = to_elements(a_.from, a_.from_blocks), to_ = to_elements(a_.to, a_.to_blocks);
  std::optional<OutputToElement> output_;
  std::string side_;
  std::optional<ElementIndex> addresses_, everywhere_;
  std::vector<ObservedMove> out_;
};

}  // namespace

std::vector<ObservedMove> HypothesisSearch::observe_step(std::size_t step) {
  const auto request = request_at(step, action(step).request);
  return request ? StepObserver(*this, step, *request).observe() : std::vector<ObservedMove>{};
}

const std::vector<ObservedMove>& HypothesisSearch::observed_moves(std::size_t step) {
  if (observed_moves_.empty()) observed_moves_.resize(scenario().steps.size());
  auto& known = observed_moves_[step];
  if (!known) {
    known = observe_step(step);
    common_->work.add_observed_moves(known->size());
  }
  return *known;
}

const std::vector<ByteMove>& HypothesisSearch::byte_moves(std::size_t step) {
  if (byte_moves_.empty()) byte_moves_.resize(scenario().steps.size());
  auto& known = byte_moves_[step];
  if (known) return *known;
  known.emplace();
  std::vector<ByteMove> all;
  // Of scales only where nothing else is wrong.
  const auto wrong = [&](bool scales) {
    const auto such = [&](const Symbol& symbol) {
      return symbol.kind == Symbol::Kind::tag && (symbol.component != layout::Component::data) == scales;
    };
    return std::ranges::any_of(attributions().all,
                               [&](const Attribution& c) { return c.wrong && (such(c.must) || such(c.is)); });
  };
  const bool data = wrong(false) || !wrong(true);
  const StepSelection& pick = action(step).pick;
  const auto sent = [&](const ViewElement& e) {
    return e.token && picked(pick.kv, e.kv) && picked(pick.layers, e.layer) && picked(pick.tokens, *e.token) &&
           picked(pick.heads, e.head);
  };
  for (const ObservedMove& s : observed_moves(step)) {
    if (s.source && (s.from->component == layout::Component::data) == data &&
        layout::bits(s.from->dtype) * s.from->channel % 8 == 0)
      all.push_back({{s.attribution->buffer, s.attribution->offset}, *s.source, s.taken, sent(*s.from)});
  }
  for (const ObservedMove& s : observed_moves(step)) {
    if (s.unexpected && (s.attribution->is.component == layout::Component::data) == data)
      all.push_back({{s.attribution->buffer, s.attribution->offset}, *s.unexpected, s.taken, false});
  }
  constexpr std::size_t enough = 61;
  const std::size_t every = std::max<std::size_t>(1, all.size() / enough);
  for (std::size_t i = every / 2; i < all.size(); i += every) known->push_back(all[i]);
  return *known;
}

// Of a move or a read.
HypothesisSearch::Agreement HypothesisSearch::agreement(std::size_t step, const Action& body) {
  if (body.op != Operation::move || body.from.empty() || body.to.empty()) return {};
  const auto& asked = byte_moves(step);
  const auto request = request_at(step, body.request);
  if (asked.empty() || !request) return {};
  const ScenarioRequest& r = *request;
  std::vector<AddressToElement> to;
  std::vector<ElementToAddress> from;
  for (const View& view : body.to)
    to.emplace_back(view, evidence_.space, ids_in(r, view, body.to_blocks), positions_in(r, view), r.first_token);
  for (const View& view : body.from)
    from.emplace_back(common_->locators.of(view), ids_in(r, view, body.from_blocks), positions_in(r, view), r.first_token);
  const auto agrees = [&](const ByteMove& fact) {
    std::optional<ViewElement> x;
    for (const AddressToElement& to_element : to) {
      if (x = to_element.at(fact.to); x && x->token) break;
    }
    if (!x || !x->token) return false;
    x->kv = picked_source(body.pick.kv, body.pick_to.kv, x->kv),
    x->layer = picked_source(body.pick.layers, body.pick_to.layers, x->layer);
    x->head = picked_source(body.pick.heads, body.pick_to.heads, x->head),
    x->channel = picked_source(body.pick.channels, body.pick_to.channels, x->channel);
    x->token = picked_source(body.pick.tokens, body.pick_to.tokens, *x->token);
    for (const ElementToAddress& to_address : from) {
      if (const auto address = to_address.at(*x)) return *address == fact.from;
    }
    return false;
  };
  const auto share = [&](const auto& of) {
    std::size_t agree = 0, seen = 0;
    for (const ByteMove& fact : asked) {
      if (!of(fact)) continue;
      if (++seen == 9 && agree == 0) return 0.0;
      agree += agrees(fact);
    }
    return seen == 0 ? 0.0 : static_cast<double>(agree) / static_cast<double>(seen);
  };
  return {share([](const ByteMove&) { return true; }), share([](const ByteMove& f) { return f.taken; }),
          share([](const ByteMove& f) { return f.sent; })};
}

const std::vector<SymbolImage>& HypothesisSearch::images_before(std::size_t step) {
  if (images_.empty()) images_.resize(scenario().steps.size());
  auto& known = images_[step];
  if (known) return *known;
  SymbolicReplay replay(replay_.unchanged_program(), evidence_.symbols);
  replay.until(replay_.ops_before(scenario().steps[step].name));
  known = replay.images();
  return *known;
}

Symbol HypothesisSearch::name_before(std::size_t step, int buffer, std::int64_t offset) {
  const SymbolId id = images_before(step)[static_cast<std::size_t>(buffer)].at(offset);
  return evidence_.symbols.at(
      id != hole ? id : fresh_id(evidence_.space.buffers()[static_cast<std::size_t>(buffer)], offset, evidence_.symbols));
}

}  // namespace kvcts::scenario
