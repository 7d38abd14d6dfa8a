#include "connector/blocks.hpp"
#include "connector/contract.hpp"
#include "connector/explicit.hpp"
#include "connector/misread.hpp"
#include "connector/reference.hpp"

namespace kvcts::connector {

std::unique_ptr<Connector> make_connector(const ConnectorSpec& spec) {
  if (const auto sabotage = spec.options.find("sabotage"); sabotage != spec.options.end()) {
    ConnectorSpec inside = spec;
    inside.options.erase("sabotage");
    return std::make_unique<Misreading>(make_connector(inside), *sabotage);
  }
  if (spec.kind == "reference") return std::make_unique<Reference>(spec.options);
  if (spec.kind == "blocks") return std::make_unique<Blocks>(spec.options);
  if (spec.kind == "contract") return std::make_unique<Contract>(spec.options);
  if (spec.kind == "explicit") return std::make_unique<Explicit>();
  if (spec.kind == "none") return std::make_unique<None>();
  if (spec.kind == "program")
    throw std::runtime_error("connector '" + spec.name + "' is a program: it moves its bytes itself, with engine own");
  throw std::runtime_error("connector '" + spec.name +
                           "': expected kind reference, blocks, contract, explicit, none or program, found '" + spec.kind +
                           "'");
}

}  // namespace kvcts::connector
