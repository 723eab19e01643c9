// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "weft/error.h"

namespace weft {

/// The folder of MPI when weft was built, tried where the dynamic linker does not find MPI.
static constexpr const char* kMpiDirectory = WEFT_MPI_DIRECTORY "/";

/// An ABI's name, weft's library for it, and the names of MPI libraries that have it.
struct AbiNames {
  const char* abi;
  const char* library;
  std::array<const char*, 2> mpi;
};
static constexpr AbiNames kAbis[] = {
    {"Open MPI", "libweft-openmpi.so", {"libmpi.so.40", ""}},
    {"MPICH", "libweft-mpich.so", {"libmpi.so.12", "libmpich.so.12"}},
    {"MPI 5", "libweft-mpi5.so", {"libmpi_abi.so.1", "libmpi_abi.so.0"}},
};
static const AbiNames& names_of(MpiAbi abi) { return kAbis[static_cast<int>(abi)]; }

namespace {

/// A loaded MPI library.
struct LoadedMpi {
  void* handle;
  std::string path;
  MpiAbi abi;
};

}  // namespace

static std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

static int note_mpi(dl_phdr_info* object, size_t, void* paths) {
  const std::string path = object->dlpi_name;
  // The program itself, which has no name here, may have been linked with a static library.
  if (path.empty() || name_in(path).starts_with("libmpi")) {
    static_cast<std::vector<std::string>*>(paths)->push_back(path);
  }
  return 0;
}

static MpiAbi abi_of(void* mpi, const std::string& path) {
  if (::dlsym(mpi, "ompi_mpi_comm_world")) return MpiAbi::openmpi;
  return name_in(path).starts_with("libmpi_abi") ? MpiAbi::standard : MpiAbi::mpich;
}

/// Finds the MPI library that this process has loaded, under any name.
static std::optional<LoadedMpi> find_loaded_mpi() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(note_mpi, &paths);
  for (const std::string& path : paths) {
    void* handle = ::dlopen(path.empty() ? nullptr : path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle || !::dlsym(handle, "MPI_Init_thread")) continue;
    // A program that is linked with MPI finds its functions by itself, too: prefers the library.
    if (path.empty() && paths.size() > 1) continue;
    return LoadedMpi{handle, path, abi_of(handle, path)};
  }
  return {};
}

bool MpiLibrary::is_initialized_by_program() {
  const std::optional<LoadedMpi> found = find_loaded_mpi();
  if (!found) return false;
  // These two functions are the same in each ABI.
  const auto says = [&](const char* name) {
    int answer = 0;
    const auto ask = reinterpret_cast<int (*)(int*)>(::dlsym(found->handle, name));
    return ask && ask(&answer) == 0 && answer != 0;
  };
  return says("MPI_Initialized") && !says("MPI_Finalized");
}

/// Opens weft's library for the ABI, which is next to weft's own, or in the lib next to the
/// program's folder.
static MpiCallsOf* open_calls(MpiAbi abi, const std::string& why) {
  const char* file = names_of(abi).library;
  Dl_info own{};
  ::dladdr(reinterpret_cast<void*>(&open_calls), &own);
  const std::filesystem::path folder =
      std::filesystem::path(own.dli_fname ? own.dli_fname : "").parent_path();
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  void* handle = ::dlopen((folder / file).c_str(), RTLD_NOW);
  if (!handle) handle = ::dlopen((program / "../lib" / file).c_str(), RTLD_NOW);
  if (!handle) {
    fail_call("dlopen", file, " is missing in ", folder.empty() ? "." : folder.string(),
              ", and weft needs it because ", why,
              "; CMake builds it where it finds an mpi.h of that kind");
  }
  auto* calls = reinterpret_cast<MpiCallsOf*>(::dlsym(handle, kMpiCallsOf));
  if (!calls) fail_call("dlsym", file, " has no ", kMpiCallsOf, "; it is of another version");
  return calls;
}

const MpiLibrary& MpiLibrary::loaded(MpiAbi abi, void* mpi, const std::string& path) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<MpiLibrary>, std::size(kAbis)> libraries;
  const std::lock_guard lock(mutex);
  std::unique_ptr<MpiLibrary>& library = libraries[static_cast<size_t>(abi)];
  if (library) return *library;
  const AbiNames& names = names_of(abi);
  const std::string name = path.empty() ? "the program's MPI" : path;
  MpiCallsOf* const calls_of = open_calls(abi, concat(name, " has the ABI of ", names.abi));
  const char* missing = nullptr;
  const MpiCalls* calls = calls_of(mpi, &missing);
  if (!calls) fail_call("dlsym", name, " has no ", missing, "; weft needs MPI 3.1");
  library.reset(new MpiLibrary(abi, *calls, concat(name, ", by ", names.library)));
  return *library;
}

const MpiLibrary& MpiLibrary::of_program(MpiAbi abi) {
  const std::optional<LoadedMpi> found = find_loaded_mpi();
  const char* wanted = names_of(abi).abi;
  if (!found) fail_call("connect", "no MPI library of ", wanted, " is loaded in this process");
  if (found->abi != abi) {
    fail_call("connect", "the communicator is of ", wanted, ", but this process has loaded ",
              found->path, ", which has the ABI of ", names_of(found->abi).abi);
  }
  return loaded(abi, found->handle, found->path);
}

/// The ABIs that a library of the job's launcher may have.
static std::vector<MpiAbi> abis_of_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return {MpiAbi::openmpi};
  if (std::getenv("MPI_LOCALNRANKS")) return {MpiAbi::mpich, MpiAbi::standard};
  return {MpiAbi::openmpi, MpiAbi::mpich, MpiAbi::standard};
}

const MpiLibrary& MpiLibrary::of_job() {
  if (const auto found = find_loaded_mpi()) return loaded(found->abi, found->handle, found->path);
  if (const char* chosen = std::getenv("WEFT_MPI"); chosen && *chosen) {
    void* mpi = ::dlopen(chosen, RTLD_NOW | RTLD_GLOBAL);
    const char* const error = mpi ? "" : ::dlerror();
    if (!mpi || !::dlsym(mpi, "MPI_Init_thread")) {
      fail_call("dlopen", "WEFT_MPI is ", in_quotes(chosen),
                ", expected the file of an MPI library", *error ? ": " : "", error);
    }
    return loaded(abi_of(mpi, chosen), mpi, chosen);
  }
  std::string tried;
  for (const MpiAbi abi : abis_of_launcher()) {
    for (const char* name : names_of(abi).mpi) {
      if (!*name) continue;
      // Plugins of Open MPI refer to its symbols.
      void* mpi = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);
      if (!mpi) mpi = ::dlopen(concat(kMpiDirectory, name).c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (mpi) return loaded(abi, mpi, name);
      tried += concat(tried.empty() ? "" : ", ", name);
    }
  }
  fail_call("dlopen", "no MPI library can be loaded, tried ", tried,
            "; set WEFT_MPI to its file, or LD_LIBRARY_PATH to its folder");
}

void MpiLibrary::fail(int code, const char* call) const {
  char text[kMpiTextBytes] = "";
  calls_.error_text(code, text);
  fail_call(call, text, " (", in_words(), ')');
}

void MpiLibrary::check_thread() const {
  int is_initialized = 0, is_finalized = 0, is_main_thread = 0;
  check(calls_.state(&is_initialized, &is_finalized), "MPI_Initialized");
  if (!is_initialized || is_finalized) {
    fail_call("MPI_Initialized", "the program has ",
              is_finalized ? "finalised MPI already" : "not initialised MPI yet", " (", in_words(),
              ')');
  }
  MpiLevel level = MpiLevel::single;
  check(calls_.level(&level, &is_main_thread), "MPI_Query_thread");
  if (level >= MpiLevel::serialized || is_main_thread) return;
  fail_call("MPI_Query_thread",
            "the program initialised MPI below MPI_THREAD_SERIALIZED, and this thread is not the "
            "one that did so, which alone may then call weft");
}

std::string MpiLibrary::in_words() const {
  char text[kMpiTextBytes] = "";
  calls_.version(text);
  // "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n..."
  std::string words(text);
  words.resize(std::min(words.size(), words.find_first_of(",\n")));
  std::erase(words, ':');
  std::replace(words.begin(), words.end(), '\t', ' ');
  return concat(words, ", ", name_);
}

}  // namespace weft
