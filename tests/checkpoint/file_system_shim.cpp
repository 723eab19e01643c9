// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program that saves: file systems that others use. WEFT_FILE_SYSTEM is
//   eexist estale enoent  a rename is done, and reported to have failed so
//   links                 no RENAME_NOREPLACE; links are made, and reported to exist already
//   neither               no RENAME_NOREPLACE and no hard links, as exFAT
//   none                  nothing gives a file another name, as some object stores
#include <dlfcn.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace {

std::string_view kind() {
  const char* text = std::getenv("WEFT_FILE_SYSTEM");
  return text ? text : "";
}

template <class F> F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

int fails(int error) {
  errno = error;
  return -1;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) {
  const auto next = real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  if (kind() == "links" || kind() == "neither" || kind() == "none") return fails(EINVAL);
  const int result = next(from_in, from, to_in, to, flags);
  if (result != 0 || kind().empty()) return result;
  return fails(kind() == "eexist" ? EEXIST : kind() == "estale" ? ESTALE : ENOENT);
}

int link(const char* from, const char* to) {
  if (kind() == "neither" || kind() == "none") return fails(EPERM);
  const int result = real<int (*)(const char*, const char*)>("link")(from, to);
  return result == 0 && kind() == "links" ? fails(EEXIST) : result;
}

int rename(const char* from, const char* to) {
  if (kind() == "none") return fails(EOPNOTSUPP);
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}

}  // extern "C"
#pragma GCC visibility pop
