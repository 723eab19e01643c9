// SPDX-License-Identifier: Apache-2.0
#include "data/template/template.h"

#include "data/template/run.h"
#include "data/unicode/unicode.h"

namespace weft::jinja {

Template::Template(std::string_view source) : body_(parse(text::repaired(source))) {}

std::string Template::render(Named variables, const Clock& clock) const {
  return Run(std::move(variables), clock).render(*body_);
}

std::string Template::render(Named variables,
                             std::vector<std::pair<size_t, size_t>>& generated) const {
  Run run(std::move(variables), {});
  std::string text = run.render(*body_);
  generated.insert(generated.end(), run.generated().begin(), run.generated().end());
  return text;
}

}  // namespace weft::jinja
