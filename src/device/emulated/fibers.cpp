// SPDX-License-Identifier: Apache-2.0
#include <ucontext.h>

#include <exception>
#include <memory>

#include "src/device/emulated/device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace weft::cuda::emulated {

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

/// The target stack of a switch, reported to the address sanitizer.
struct StackNote {
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
};

void note_switch([[maybe_unused]] StackNote* from, [[maybe_unused]] const StackNote& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(from ? &from->fake : nullptr, to.bottom, to.bytes);
#endif
}

void note_arrival([[maybe_unused]] StackNote& here, [[maybe_unused]] StackNote* before) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here.fake, before ? &before->bottom : nullptr,
                                  before ? &before->bytes : nullptr);
#endif
}

struct Fiber {
  ucontext_t context;
  std::unique_ptr<std::byte[]> stack;
  StackNote note;
  bool ended = false;
};

/// The thread block that the calling thread runs.
struct Run {
  const std::function<void(int)>* body;
  std::vector<Fiber> fibers;
  int current = 0;
  ucontext_t main;
  StackNote main_note;
  std::exception_ptr error;
};

thread_local Run* running = nullptr;

void leave(bool forever) {
  Run& run = *running;
  Fiber& self = run.fibers[static_cast<size_t>(run.current)];
  self.ended = forever;
  note_switch(forever ? nullptr : &self.note, run.main_note);
  swapcontext(&self.context, &run.main);
  note_arrival(self.note, nullptr);
}

void begin_fiber() {
  Run& run = *running;
  note_arrival(run.fibers[static_cast<size_t>(run.current)].note, &run.main_note);
  try {
    (*run.body)(run.current);
  } catch (...) {
    run.error = std::current_exception();
  }
  leave(true);
}

void prepare(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  fiber.note = {nullptr, fiber.stack.get(), kStackBytes};
  fiber.ended = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, begin_fiber, 0);
}

/// Set while the calling thread ends: streams that end later still run kernels.
thread_local bool fibers_ended = false;

/// Stacks that the calling thread keeps for its next thread block.
struct KeptFibers {
  std::vector<Fiber> fibers;
  ~KeptFibers() { fibers_ended = true; }
  std::vector<Fiber> take() { return fibers_ended ? std::vector<Fiber>() : std::move(fibers); }
  void give(std::vector<Fiber> used) {
    if (!fibers_ended) fibers = std::move(used);
  }
};

}  // namespace

void Fibers::run(int threads, const std::function<void(int)>& body) {
  thread_local KeptFibers kept;
  Run run{&body, kept.take(), 0, {}, {}, {}};
  run.fibers.resize(static_cast<size_t>(threads));
  for (Fiber& fiber : run.fibers) prepare(fiber);
  Run* const before = running;
  running = &run;
  for (int left = threads; left > 0 && !run.error;) {
    for (run.current = 0; run.current < threads; ++run.current) {
      Fiber& fiber = run.fibers[static_cast<size_t>(run.current)];
      if (fiber.ended) continue;
      note_switch(&run.main_note, fiber.note);
      swapcontext(&run.main, &fiber.context);
      note_arrival(run.main_note, nullptr);
      if (fiber.ended) --left;
    }
  }
  running = before;
  kept.give(std::move(run.fibers));
  if (run.error) std::rethrow_exception(run.error);
}

void Fibers::sync() { leave(false); }

}  // namespace weft::cuda::emulated
