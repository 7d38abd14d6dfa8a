// kvcts certify: a package that a second party checks again.
#include "cli/certify/certify.hpp"

#include <memory>

#include "certificate/error.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::certify_verb {

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<CertifyOptions>();
  command.add_option("--profile", o->profile, "Which cases: an id of cases/profiles").required();
  command.add_option("--product", o->product, "What is certified (kvcts schema product --reference)")
      .type_name("FILE")
      .required();
  command.add_option("--key", o->key, "The private key that signs (kvcts key new)").type_name("FILE").required();
  command.add_option("--challenge", o->challenge, "Of the second party: the seed and the blind negatives (kvcts challenge)")
      .type_name("FILE");
  command.add_option("-o,--out", o->out, "The package").type_name("X.kvcert").required();
  command.add_option("--run", o->run, "Folder of the run, gone on with where it is there (default: X.kvcert.run)")
      .type_name("DIR");
  command.add_option("-j,--jobs", o->jobs, "Cases at once").show_default().range(1, 1024);
  return [o, &globals] {
    try {
      return certify(*o, globals);
    } catch (const certificate::Error& error) {
      throw UsageError(error.what());
    }
  };
}

}  // namespace kvcts::cli::certify_verb
