// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::cli {

/// The page of `weft report`, `report.html`, with no runs.
extern const char* const report_page;

}  // namespace weft::cli
