#include "case/catalogue/fault_injector.hpp"

#include <set>

#include "case/catalogue/tables.hpp"

namespace kvcts::catalogue {

const Table<FaultInjectorEntry>& fault_injector_table() {
  static const Table<FaultInjectorEntry> table{
      "a saboteur",
      {
          required("saboteur", &FaultInjectorEntry::id, path_name(), "id"),
          required("kind", &FaultInjectorEntry::kind, one_of({"transport", "writer", "connector", "planner", "reader"}),
                   "whose place it takes: the engine's (transport, writer), the connector's (connector, planner) or the "
                   "reader's"),
          required("title", &FaultInjectorEntry::title, text(), "what it does wrong, in one line"),
          required("options", &FaultInjectorEntry::options, anything(),
                   "`fault`, a row of harness/engines/sabotage (transport, writer) or harness/connector/misread.cpp (the "
                   "others), and its numbers"),
          optional("class", &FaultInjectorEntry::fault_class, fault_class_codec(),
                   "what the diagnosis has to call it; needed without harmless"),
          optional("likely", &FaultInjectorEntry::likely, any_text(), "axis expression: cases to try first"),
          optional("only", &FaultInjectorEntry::only, any_text(),
                   "axis expression: the cases in which it differs from right code at all"),
          optional("harmless", &FaultInjectorEntry::harmless, boolean(), "right code, as a control: must not be caught"),
          optional("notes", &FaultInjectorEntry::notes, any_text(), "anything else"),
      },
      [](const FaultInjectorEntry& s, const Node& node) {
        const Node options = *node.find("options");
        if (!s.options.is_object() || !s.options.contains("fault"))
          fail(options, "options with a fault", "name a row: fault: nothing");
        if ((s.fault_class == FaultClass::none) != s.harmless)
          fail(node, "a class or harmless: true, one of them", "say what the diagnosis has to call it");
      }};
  return table;
}

std::vector<FaultInjectorEntry> load_fault_injectors(const Catalogue& catalogue) {
  std::vector<FaultInjectorEntry> all;
  std::set<std::string> seen;
  for (const auto& path : yaml_files(catalogue.directory() / "saboteurs")) {
    for (const auto& document : parse_yaml_file(path, "cases/saboteurs/" + path.filename().string())) {
      FaultInjectorEntry one = read(fault_injector_table(), document);
      if (!seen.insert(one.id).second) {
        throw Error(document.where() + ": expected a new saboteur id, found '" + one.id + "' again; rename one of them");
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace kvcts::catalogue
