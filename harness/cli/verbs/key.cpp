// kvcts key new | show | rotate: the key that signs certificates.
#include "certificate/key.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "certificate/error.hpp"
#include "certificate/key_file.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::key_verb {
namespace {

using certificate::PublicKey;

/// What is public of a key; for people its PEM alone goes to standard output, so that it can be put into a file.
int tell(const PublicKey& key, const Globals& globals, const std::string& news) {
  if (globals.json)
    fmt::print("{}\n", nlohmann::json{{"id", key.id()}, {"public", key.pem()}}.dump(2));
  else
    fmt::print("{}", key.pem());
  fmt::print(stderr, "key {}{}\n", key.id(), news);
  return exit_as_expected;
}

}  // namespace

Action declare(Command& command, const Globals& globals) {
  auto file = std::make_shared<std::string>();
  auto action = std::make_shared<std::function<int()>>();
  const auto add = [&](const char* name, const char* help, std::function<int()> act) {
    command.add_command(name, help, [=] { *action = act; })
        .add_option("FILE", *file, "File with the private key; show also takes a public one")
        .required();
  };
  add("new", "Make a key, in a file that only its owner can read", [=, &globals] {
    const auto key = certificate::PrivateKey::generate();
    certificate::create_key(*file, key);
    return tell(key.public_key(), globals, " in " + *file + "; standard output has its public half, for who checks");
  });
  add("show", "Show the public half of a key",
      [=, &globals] { return tell(certificate::read_public_key(*file), globals, ""); });
  add("rotate", "Replace a key with a new one, signed by the old one", [=, &globals] {
    const auto kept = certificate::rotate_key(*file);
    return tell(certificate::read_key(*file).public_key(), globals,
                fmt::format(" in {}; the old one is in {}, and {}.rotations.json leads from it to this one", *file,
                            kept.string(), *file));
  });
  return [action] {
    try {
      return (*action)();
    } catch (const certificate::Error& error) {
      throw UsageError(error.what());
    }
  };
}

}  // namespace kvcts::cli::key_verb
