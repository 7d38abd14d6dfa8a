// kvcts merge: joins shards of one plan into one run.
#include "run/store/merge.hpp"

#include <memory>

#include "cli/run/run.hpp"
#include "cli/stored.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::merge_verb {

Action declare(Command& command, const Globals& globals) {
  auto out = std::make_shared<std::string>();
  auto parts = std::make_shared<std::vector<std::string>>();
  command.add_option("OUT", *out, "Folder for the merged run, new or empty").required();
  command.add_option("RUN", *parts, "Folders of all shards, e.g. of kvcts run --shard 1/3, 2/3 and 3/3").required();
  return [=, &globals] {
    opening([&] { store::merge(*out, {parts->begin(), parts->end()}, command_line()); });
    const auto cat = catalogue_if_any(globals, "merge");
    return print_run(cat.get(), *out, *out, {}, false, globals.json);
  };
}

}  // namespace kvcts::cli::merge_verb
