// Places of a declared layout, as findings count them.
#pragma once

#include "diagnose/findings/extents.hpp"
#include "layout/layout.hpp"

namespace kvcts::findings {

/// What a global scale has not: it is one for all of them.
inline constexpr std::array per_token{ContentAxis::token, ContentAxis::block, ContentAxis::slot, ContentAxis::head,
                                      ContentAxis::channel};

LayoutBox plane_of(const layout::Plane& plane);

}  // namespace kvcts::findings
