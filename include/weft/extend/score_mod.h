// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace weft {

// Attention with a custom rule for scores. A mod is a struct with numbers as members (at most 24
// bytes, trivially copyable) and some of these members; b, h are indices in the whole tensors, q
// and k positions (of queries: t - s + i):
//
//   template <class T> T score(T score, int64_t b, int64_t h, int64_t q, int64_t k) const;
//   template <class T> T slope(T score, ...same) const;    // derivative of `score`
//   bool mask(int64_t b, int64_t h, int64_t q, int64_t k) const;    // whether q attends to k
//
// The options' own changes are such mods as well, and all run inside the same blocked computation.

/// Consecutive keys for consecutive queries of consecutive heads.
struct ScoreRange {
  int64_t batch, head, heads, query, queries, key, keys;
};

/// The scores of a range, [keys, heads, queries]; `slopes`, unless null, gets their derivatives.
template <class T> struct ScoreTile {
  ScoreRange range;
  T *scores, *slopes;
};

template <class Mod, class T>
concept ChangesScores = requires(const Mod& mod, T score) {
  mod.score(score, 0l, 0l, 0l, 0l);
};
template <class Mod>
concept MasksScores = requires(const Mod& mod) {
  mod.mask(0l, 0l, 0l, 0l);
};

/// Applies a mod to one score; multiplies `slope` unless it is null.
template <class T, class Mod>
inline T modified_score(const Mod& mod, T score, T* slope, int64_t b, int64_t h, int64_t q,
                        int64_t k) {
  if constexpr (ChangesScores<Mod, T>) {
    if (slope) *slope *= mod.slope(score, b, h, q, k);
    score = mod.score(score, b, h, q, k);
  }
  if constexpr (MasksScores<Mod>) {
    score = mod.mask(b, h, q, k) ? score : -std::numeric_limits<T>::infinity();
  }
  return score;
}

/// Applies a mod to all scores of a tile.
template <class T, class Mod> void modify_scores(const Mod& mod, const ScoreTile<T>& tile) {
  const ScoreRange at = tile.range;
  T *scores = tile.scores, *slopes = tile.slopes;
  for (int64_t k = at.key; k < at.key + at.keys; ++k) {
    for (int64_t h = at.head; h < at.head + at.heads; ++h, scores += at.queries) {
      for (int64_t i = 0; slopes && i < at.queries; ++i) {
        scores[i] = modified_score(mod, scores[i], slopes + i, at.batch, h, at.query + i, k);
      }
      for (int64_t i = 0; !slopes && i < at.queries; ++i) {
        scores[i] = modified_score<T>(mod, scores[i], nullptr, at.batch, h, at.query + i, k);
      }
      if (slopes) slopes += at.queries;
    }
  }
}

/// True when no query of the range attends to any of its keys, by the mod's mask.
template <class Mod> bool hides(const Mod& mod, const ScoreRange& at) {
  if constexpr (MasksScores<Mod>) {
    for (int64_t h = at.head; h < at.head + at.heads; ++h) {
      for (int64_t q = at.query; q < at.query + at.queries; ++q) {
        for (int64_t k = at.key; k < at.key + at.keys; ++k) {
          if (mod.mask(at.batch, h, q, k)) return false;
        }
      }
    }
    return true;
  }
  return false;
}

/// A mod whose type is not known to the kernel: its functions, for the bytes of a mod.
struct ScoreMod {
  void (*modify_f32)(const void* mod, const ScoreTile<float>& tile);
  void (*modify_f64)(const void* mod, const ScoreTile<double>& tile);
  bool (*hides)(const void* mod, const ScoreRange& range);

  void modify(const void* mod, const ScoreTile<float>& tile) const { modify_f32(mod, tile); }
  void modify(const void* mod, const ScoreTile<double>& tile) const { modify_f64(mod, tile); }
};

/// The bytes of a mod, as they travel in an op's attributes.
using ScoreModBytes = std::array<double, 3>;

template <class Mod> Mod score_mod_from(const void* bytes) {
  static_assert(std::is_trivially_copyable_v<Mod> && sizeof(Mod) <= sizeof(ScoreModBytes),
                "a score mod holds at most 24 bytes of numbers");
  Mod mod{};
  std::memcpy(static_cast<void*>(&mod), bytes, sizeof(Mod));
  return mod;
}

template <class Mod> constexpr ScoreMod score_mod_of() {
  return {[](const void* mod, const ScoreTile<float>& tile) {
            modify_scores(score_mod_from<Mod>(mod), tile);
          },
          [](const void* mod, const ScoreTile<double>& tile) {
            modify_scores(score_mod_from<Mod>(mod), tile);
          },
          [](const void* mod, const ScoreRange& range) {
            return hides(score_mod_from<Mod>(mod), range);
          }};
}

}  // namespace weft
