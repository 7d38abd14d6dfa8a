// The commit that this program was built from.
#pragma once

namespace kvcts::cli {

/// "ef559fb", with "+" where tracked files had changed; "unknown" where the sources lay in no git checkout.
const char* built_from();

}  // namespace kvcts::cli
