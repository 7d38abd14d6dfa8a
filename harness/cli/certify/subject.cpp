#include "cli/certify/subject.hpp"

#include "case/resolve/resolve.hpp"

namespace kvcts::cli {

namespace {
matrix::Query query_for(const catalogue::ProfileEntry& profile) {
  matrix::Query query;
  query.suites = {catalogue::suite_of(profile)};
  return query;
}
}  // namespace

Subject::Subject(const std::filesystem::path& cases, const std::string& profile, const std::string& product,
                 const std::string& shown)
    : profile_(catalogue::load_profile(cases, profile)),
      product_(catalogue::read_product(product, shown)),
      catalogue_(cases, catalogue::additions_of(profile_, product_)),
      selection_(matrix::select(catalogue_, query_for(profile_))) {}

ResolvedCase Subject::resolve(std::size_t i, std::uint64_t seed, const std::string& engine) const {
  CaseSpec spec = selection_.spec(i);
  spec.seed = seed;
  if (!engine.empty()) spec.engine = engine;
  ResolvedCase resolved = kvcts::resolve(spec, catalogue_);
  resolved.facts.update(selection_.facts(i));
  return resolved;
}

}  // namespace kvcts::cli
