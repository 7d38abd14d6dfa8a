// The page for the customer (reports/templates/certificate.html).
#include <fmt/format.h>

#include "cli/certify/verify.hpp"
#include "cli/report/template.hpp"
#include "cli/report/text.hpp"

namespace kvcts::cli {

using report::escaped;

std::string page_of(const Verification& v) {
  std::string checks, claims;
  constexpr const char* marks[] = {"holds", "wrong", "told by the vendor", "not checked", "could not be done"};
  for (const Line& line : v.lines)
    checks += fmt::format("<tr class=\"{}\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
                          state_text[static_cast<int>(line.state)], escaped(line.what), marks[static_cast<int>(line.state)],
                          escaped(line.words));
  for (const auto& claim : v.claims) {
    std::string words = claim.value("reason", "");
    if (claim.value("kind", "") == "waiver")
      words +=
          fmt::format(" ({}, {}, until {})", claim.value("owner", ""), claim.value("link", ""), claim.value("expires", ""));
    claims += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                          escaped(claim.value("kind", "")), escaped(claim.value("name", "")),
                          claim.value("cases", std::int64_t{0}), escaped(words));
  }
  if (claims.empty()) claims = "<tr><td colspan=\"4\">none: every case of the profile passed</td></tr>\n";
  const auto text = [&](const nlohmann::json& from, const char* key) {
    return from.is_object() && from.contains(key) && from.at(key).is_string() ? from.at(key).get<std::string>()
                                                                              : std::string("not told");
  };
  const nlohmann::json planned = v.plan.is_object() ? v.plan.value("product", nlohmann::json()) : nlohmann::json();
  return report::fill(report::certificate_template(), {{"style", std::string(report::page_style())},
                                                       {"product", v.product.empty() ? "an unread package" : v.product},
                                                       {"vendor", text(planned, "vendor")},
                                                       {"state", v.status() == exit_as_expected ? "good" : "bad"},
                                                       {"verdict", v.verdict()},
                                                       {"started", text(v.run, "started")},
                                                       {"signer", v.signer.empty() ? "no one" : v.signer},
                                                       {"checks", checks},
                                                       {"claims", claims}});
}

}  // namespace kvcts::cli
