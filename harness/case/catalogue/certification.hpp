// What a certificate is about: a profile (cases/profiles/*.yaml: which cases, and why) and a product (a file of its
// vendor's).
#pragma once

#include "case/catalogue/catalogue.hpp"
#include "case/catalogue/fields.hpp"

namespace kvcts::catalogue {

struct ProfileEntry {
  std::string id;  ///< key `profile`: "core"
  std::string title;
  std::int64_t version{1};                ///< another set of cases is another version
  Evidence evidence{Evidence::modelled};  ///< the weakest that its cases may have
  std::vector<MatrixBlock> matrix;        ///< without the axis engine: that is the product's
  std::string notes, file;
};

struct ProductEntry {
  std::string product, vendor, version;
  EngineEntry engine;  ///< one of cases/engines where `known`: then only its id is set
  bool known{false};
  std::vector<WaiverEntry> waivers;  ///< what the vendor says is known to fail
  std::string notes;
};

const Table<ProfileEntry>& profile_table();
const Table<ProductEntry>& product_table();

/// Ids of cases/profiles, sorted.
std::vector<std::string> profile_ids(const std::filesystem::path& cases);
/// Throws Error: there is no such profile, or a bad file.
ProfileEntry load_profile(const std::filesystem::path& cases, const std::string& id);
/// `text`: of a product file that is shown as `shown`. Throws Error.
ProductEntry read_product(const std::string& text, const std::string& shown);

/// What a run of the profile with the product adds to the case data: the suite "profile-<id>", the engine, the waivers.
Additions additions_of(const ProfileEntry& profile, const ProductEntry& product);
std::string suite_of(const ProfileEntry& profile);
/// What the product file adds that $KVCTS_PRODUCT names; without one nothing. So a case of a certificate is run again by its
/// line.
Additions additions_here();
inline constexpr const char* product_variable = "KVCTS_PRODUCT";

}  // namespace kvcts::catalogue
