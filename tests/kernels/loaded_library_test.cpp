// SPDX-License-Identifier: Apache-2.0
#include "src/base/loaded_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/support/scratch.h"

// The header of a library declares these; tests/kernels/counter.cpp is that library.
extern "C" int next_count();
extern "C" int last_count;

namespace weft {
namespace {

constinit const LoadedLibrary kCounter(WEFT_COUNTER_FILE, WEFT_COUNTER_DIRECTORY);

TEST(LoadedLibrary, UsesTheCopyThatTheProcessHas) {
  const std::string built = std::string(WEFT_COUNTER_DIRECTORY) + '/' + WEFT_COUNTER_FILE;
  const std::string copy =
      (std::filesystem::temp_directory_path() / ("weft-counter-" + std::to_string(::getpid())))
          .string();
  std::filesystem::copy_file(built, copy);
  void* handle = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::filesystem::remove(copy);
  ASSERT_NE(handle, nullptr) << ::dlerror();

  constexpr Loaded<decltype(::next_count)> next(kCounter, "next_count");
  constexpr Loaded<decltype(::last_count)> last(kCounter, "last_count");
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(next(), 2);
  EXPECT_EQ(*&last, 2);
  EXPECT_EQ(static_cast<void*>(&last), ::dlsym(handle, "last_count"));
}

std::string message_of(const LoadedLibrary& library, const char* name) {
  return error_of<std::runtime_error>([&] { library.symbol(name); });
}

TEST(LoadedLibrary, NamesTheLibraryThatIsMissing) {
  static const LoadedLibrary missing("libweft-missing.so.3", "/nonexistent");
  EXPECT_FALSE(missing.can_be_loaded());
  EXPECT_NE(message_of(missing, "f").find("dlopen: libweft-missing.so.3 cannot be loaded; "),
            std::string::npos);
  EXPECT_TRUE(kCounter.can_be_loaded());
  EXPECT_EQ(message_of(kCounter, "absent"),
            "dlsym: " WEFT_COUNTER_FILE " has no absent; another version of it was loaded");
}

}  // namespace
}  // namespace weft
