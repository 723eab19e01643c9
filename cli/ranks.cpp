// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <algorithm>

#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/ranks.h"

namespace weft::cli {

int job_ranks(int asked, const char* flag) {
  const int launched = launched_ranks();
  if (launched == 1) return asked;
  if (asked > 1 && asked != launched) {
    fail(flag, " is ", asked, ", expected ", launched, ", that of the job of this process; leave ",
         flag, " out");
  }
  return launched;
}

static std::string flags_of_process;

void note_flags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) flags_of_process += concat(i > 1 ? " " : "", argv[i]);
}

void check_same_flags(const Communicator& world) {
  check_same(world, "was started", concat("as weft ", flags_of_process));
}

bool is_first_process() { return launched_ranks() == 1 || connect().rank() == 0; }

Device device_of_rank(const std::string& name, int rank) {
  Device device = device_named(name);
  if (name == "cuda") {
    const int on_host = launched_ranks() > 1 ? launched_local_rank().rank : rank;
    device.index = static_cast<int8_t>(on_host % device_count(DeviceKind::cuda));
  }
  return device;
}

int devices_of_ranks(const std::string& name, int ranks) {
  const Device device = device_named(name);
  if (device.kind != DeviceKind::cuda) return ranks;
  const int a_host = name == "cuda" ? device_count(DeviceKind::cuda) : 1;
  const int ranks_a_host = launched_ranks() > 1 ? launched_local_rank().size : ranks;
  if (ranks_a_host == 0) return ranks;
  return ranks / ranks_a_host * std::min(a_host, ranks_a_host);
}

}  // namespace weft::cli
