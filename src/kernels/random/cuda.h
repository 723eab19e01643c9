// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

struct WordStream;
struct Uniform;
struct Normal;
struct Bernoulli;
struct Integers;

namespace cuda {

// GPU versions of the functions of src/random.h; the caller has checked the boxes.

void fill_random(const Block& out, const Box& box, const Shape& shape, const WordStream& words,
                 const Uniform& f);
void fill_random(const Block& out, const Box& box, const Shape& shape, const WordStream& words,
                 const Normal& f);
void fill_random(const Block& out, const Box& box, const Shape& shape, const WordStream& words,
                 const Bernoulli& f);
void fill_random(const Block& out, const Box& box, const Shape& shape, const WordStream& words,
                 const Integers& f);

void dropout(const Block& out, const Block& in, const Box& box, const Shape& shape,
             const WordStream& words, const Bernoulli& kept);

}  // namespace cuda
}  // namespace weft
