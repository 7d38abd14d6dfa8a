// kvcts certify: makes a package that a second party checks again.
#include "cli/certify/certify.hpp"

#include <memory>

#include "certificate/error.hpp"
#include "cli/verbs/verbs.hpp"

namespace kvcts::cli::certify_verb {

Action declare(Command& command, const Globals& globals) {
  auto o = std::make_shared<CertifyOptions>();
  command.add_option("--profile", o->profile, "Profile of cases/profiles that selects the cases").required();
  command.add_option("--product", o->product, "File that describes the product (kvcts explain --schema product --reference)")
      .type_name("FILE")
      .required();
  command.add_option("--key", o->key, "Private key to sign with (kvcts key new)").type_name("FILE").required();
  command
      .add_option("--challenge", o->challenge,
                  "Challenge of the second party, which fixes the seed and the blind negatives (kvcts challenge)")
      .type_name("FILE");
  command.add_option("-o,--out", o->out, "Package to write").type_name("X.kvcert").required();
  command
      .add_option("--bundle", o->bundle,
                  "Write the signed statement as a Sigstore bundle, too (cosign verify-blob-attestation --key)")
      .type_name("FILE");
  command.add_option("--run", o->run, "Folder of the run, resumed if it exists (default: X.kvcert.run)").type_name("DIR");
  command.add_option("-j,--jobs", o->jobs, "Number of cases to run in parallel").show_default().range(1, 1024);
  return [o, &globals] {
    try {
      return certify(*o, globals);
    } catch (const certificate::Error& error) {
      throw UsageError(error.what());
    }
  };
}

}  // namespace kvcts::cli::certify_verb
