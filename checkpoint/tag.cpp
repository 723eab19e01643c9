// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <stdexcept>

#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"
#include "weft/error.h"
#include "weft/extend/told_by_first.h"

namespace weft {

std::string drawn_tag() {
  std::random_device device;
  const uint64_t bits = uint64_t{device()} << 32 | device();
  return hex_of({&bits, 1});
}

static constexpr char kFound = 'f', kCallersMistake = 'c', kFailed = 's';

/// Encodes the result or the exception of one rank as a message to the others.
static std::string found_or_thrown(const std::function<std::string()>& find) {
  try {
    return kFound + find();
  } catch (const std::invalid_argument& error) {
    return std::string(1, kCallersMistake) + error.what();
  } catch (const std::exception& error) {
    return std::string(1, kFailed) + error.what();
  }
}

std::string told_by_first(const Communicator& world, const std::function<std::string()>& find) {
  // Also what it throws: the others would take its next collective for the answer.
  const std::string told = world.broadcast(world.rank() == 0 ? found_or_thrown(find) : "", 0);
  const std::string text = told.substr(1);
  if (told[0] == kCallersMistake) throw_invalid_argument(text);
  if (told[0] == kFailed) throw_runtime_error(text);
  return text;
}

}  // namespace weft
