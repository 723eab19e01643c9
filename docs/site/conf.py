# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the site that scripts/docs builds from build/docs/source."""

import os

project = "weft"
author = "the weft authors"
copyright = author
release = os.environ.get("WEFT_VERSION", "")
version = release
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
# Generated pages hold names of types as the headers write them.
nitpicky = False
# A name of an annotation that several modules have is not a mistake of a page.
suppress_warnings = ["ref.python"]
html_theme = "furo"
html_title = "weft " + release
html_static_path = [os.path.join(os.path.dirname(__file__), "static")]
html_css_files = ["weft.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
add_module_names = False
toc_object_entries = False
python_maximum_signature_line_length = 80
pygments_dark_style = "monokai"
highlight_language = "text"
# Rules and flags have dots and dashes that mean themselves.
smartquotes = False
