// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::cli {

/// The page of `weft report`, `page.html` with its style and scripts, with no runs.
extern const char* const report_page;

}  // namespace weft::cli
