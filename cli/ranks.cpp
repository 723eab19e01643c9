// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.h"

#include "weft/context.h"
#include "weft/error.h"

namespace weft::cli {

int job_ranks(int asked, const char* flag) {
  const int launched = launched_ranks();
  if (launched == 1) return asked;
  if (asked > 1 && asked != launched) {
    fail(flag, " is ", asked, ", but this process is one of a job of ", launched, " ranks; leave ",
         flag, " out");
  }
  return launched;
}

bool is_first_process() { return launched_ranks() == 1 || connect().rank() == 0; }

}  // namespace weft::cli
