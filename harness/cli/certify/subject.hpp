// What a certificate is about, for both parties: the profile with the product in it, and the required outcome of every case.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "case/catalogue/certification.hpp"
#include "matrix/select.hpp"

namespace kvcts::cli {

class Subject {
 public:
  /// `product`: the text of a product file. Throws catalogue::Error.
  Subject(const std::filesystem::path& cases, const std::string& profile, const std::string& product,
          const std::string& shown);
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const catalogue::ProfileEntry& profile() const { return profile_; }
  const catalogue::ProductEntry& product() const { return product_; }
  const catalogue::Catalogue& catalogue() const { return catalogue_; }
  const matrix::Selection& selection() const { return selection_; }
  /// The case as it is run with this seed. `engine`: "" = the product's. Throws as kvcts::resolve.
  ResolvedCase resolve(std::size_t i, std::uint64_t seed, const std::string& engine = "") const;

 private:
  catalogue::ProfileEntry profile_;
  catalogue::ProductEntry product_;
  catalogue::Catalogue catalogue_;
  matrix::Selection selection_;
};

}  // namespace kvcts::cli
