// Pages with placeholders: {{name}} takes escaped text, {{{name}}} takes markup. A placeholder without a value, and a value
// without a placeholder, are errors, so that a template and its code cannot drift apart unnoticed.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace kvcts::report {

/// Throws std::logic_error on an unknown or unused name and on a hole without its end.
std::string fill(std::string_view page, const std::map<std::string, std::string, std::less<>>& values);

/// Texts of reports/templates, built into the program so that it finds them wherever it is installed.
std::string_view page_template();         ///< index.html
std::string_view page_style();            ///< report.css
std::string_view page_script();           ///< *.js, one after the other
std::string_view certificate_template();  ///< certificate.html
std::string_view pairs_template();        ///< pairs.html

}  // namespace kvcts::report
