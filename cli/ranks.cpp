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

static std::string flags_of_process;

void note_flags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) flags_of_process += concat(i > 1 ? " " : "", argv[i]);
}

std::string told_by_first(const Communicator& world, std::string text) {
  auto length = static_cast<int64_t>(text.size());
  const auto tell = [&](void* data, int64_t count, DType dtype) {
    const Piece piece{.send = data, .recv = data, .dtype = dtype, .counts = {&count, 1}};
    world.broadcast({&piece, 1}, 0).wait();
  };
  tell(&length, 1, DType::i64);
  text.resize(static_cast<size_t>(length));
  if (length > 0) tell(text.data(), length, DType::u8);
  return text;
}

void check_same_flags(const Communicator& world) {
  if (launched_ranks() == 1) return;
  const std::string first = told_by_first(world, flags_of_process);
  if (first == flags_of_process) return;
  fail("rank ", world.rank(), " was started as weft ", flags_of_process, " but rank 0 as weft ",
       first);
}

bool is_first_process() { return launched_ranks() == 1 || connect().rank() == 0; }

}  // namespace weft::cli
