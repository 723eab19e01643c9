// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/session.h"
#include "src/launch/connection.h"

namespace weft {

namespace {

/// The engines of the worlds of a program that uses MPI. An engine ends when all processes have
/// left its world: when they hold no communicator of it any more, or finalise MPI.
class GuestEngines {
 public:
  static GuestEngines& of_process() {
    static auto* engines = new GuestEngines;  // outlives all communicators
    return *engines;
  }

  /// Returns the engine, which leaves its world when it is released.
  std::shared_ptr<MpiEngine> keep(std::unique_ptr<MpiEngine> engine) {
    const std::lock_guard lock(mutex_);
    engines_.push_back(std::move(engine));
    return {engines_.back().get(), [this](MpiEngine* released) { release(*released); }};
  }

  /// Ends engines whose worlds all processes have left; called where MPI may be called.
  void end_left() {
    const std::lock_guard lock(mutex_);
    for (MpiEngine* engine : std::exchange(released_, {})) {
      engine->leave();
      left_.push_back(engine);
    }
    std::erase_if(left_, [&](MpiEngine* engine) {
      if (!engine->try_end()) return false;
      // MPI may still write into the memory of a world that has failed.
      if (!engine->has_failed()) {
        std::erase_if(engines_, [&](const auto& owned) { return owned.get() == engine; });
      }
      return true;
    });
  }

  /// Called at the start of MPI_Finalize, which all processes call: ends all engines together.
  void end_all() {
    const std::lock_guard lock(mutex_);
    for (const auto& engine : engines_) engine->leave();
    for (const auto& engine : engines_) engine->end();
  }

 private:
  void release(MpiEngine& engine) {
    const std::lock_guard lock(mutex_);
    // This thread may not be one that may call MPI.
    released_.push_back(&engine);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<MpiEngine>> engines_;
  std::vector<MpiEngine*> released_, left_;
};

}  // namespace

static void end_guests() {
  if (const Connection* first = Connection::first) {
    first->shared().end_for_good(first->world.rank());
  }
  GuestEngines::of_process().end_all();
}

void end_before_finalize(const MpiLibrary& mpi) {
  mpi.check(mpi->before_finalize(end_guests), "MPI_Comm_set_attr");
}

void end_left_engines() { GuestEngines::of_process().end_left(); }

std::shared_ptr<MpiEngine> new_engine(std::unique_ptr<MpiSession> session,
                                      std::shared_ptr<World> world) {
  const bool is_guest = session->is_guest();
  if (is_guest) end_before_finalize(session->library());
  auto engine = std::make_unique<MpiEngine>(std::move(session), std::move(world));
  if (!is_guest) return engine;
  return GuestEngines::of_process().keep(std::move(engine));
}

}  // namespace weft
