// Plans that are given rather than made: the case's own copy list ("explicit"), or nothing ("none", reader-only cases).
#pragma once

#include "connector/connector.hpp"

namespace kvcts::connector {

class Explicit final : public Connector {
 public:
  void register_caches(const ResolvedCase&, Side) override {}
  Plan plan(const ResolvedCase& view, process::Progress progress) override;
};

class None final : public Connector {
 public:
  void register_caches(const ResolvedCase&, Side) override {}
  Plan plan(const ResolvedCase& view, process::Progress progress) override;
};

}  // namespace kvcts::connector
