// SPDX-License-Identifier: Apache-2.0
#include "data/template/template.h"

#include "data/template/run.h"
#include "data/unicode/unicode.h"

namespace weft::jinja {

Template::Template(std::string_view source) : body_(parse(text::repaired(source))) {}

std::string Template::render(Named variables, const Clock& clock) const {
  return Run(std::move(variables), clock).render(*body_);
}

}  // namespace weft::jinja
