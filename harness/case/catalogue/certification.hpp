// The subject of a certificate: a profile (cases/profiles/*.yaml: which cases, and why) and a product (a file from its
// vendor).
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

struct ProfileEntry {
  std::string id;  ///< key `profile`: "core"
  std::string title;
  std::int64_t version{1};                ///< a different set of cases is a new version
  Evidence evidence{Evidence::modelled};  ///< the weakest that its cases may have
  std::vector<MatrixBlock> matrix;        ///< without the axis engine, which the product supplies
  std::int64_t waived_at_most{10};        ///< per cent of the cases that were run
  std::string notes, file;
};

struct ProductEntry {
  std::string product, vendor, version;
  EngineEntry engine;  ///< one of cases/engines where `known`: then only its id is set
  bool known{false};
  std::vector<WaiverEntry> waivers;  ///< what the vendor declares as failing
  std::string notes;
};

const Table<ProfileEntry>& profile_table();
const Table<ProductEntry>& product_table();

/// Ids of cases/profiles, sorted.
std::vector<std::string> profile_ids(const std::filesystem::path& cases);
/// Throws Error on an unknown profile or a bad file.
ProfileEntry load_profile(const std::filesystem::path& cases, const std::string& id);
/// `text`: of a product file that errors call `shown`. Throws Error.
ProductEntry read_product(const std::string& text, const std::string& shown);

/// What a run of the profile with the product adds to the case data: the suite "profile-<id>", the engine, the waivers.
Additions additions_of(const ProfileEntry& profile, const ProductEntry& product);
std::string suite_of(const ProfileEntry& profile);
/// What a product file adds to other suites: its engine and its waivers. Throws Error.
Additions additions_of_file(const std::string& file);
/// The variable that names it: with it, a case's repro line reruns a case of a certificate.
inline constexpr const char* product_variable = "KVCTS_PRODUCT";

}  // namespace kvcts::catalogue
