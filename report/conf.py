"""Sphinx configuration of the report. `python -m multigpu report` copies this folder and builds the
copy.
"""

import re
from hashlib import sha256
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

project = "multigpu"
html_title = "How to train on several GPUs"
author = "The multigpu maintainers"
language = "en"

extensions = ["myst_nb"]
exclude_patterns = ["generated"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

# Notebooks arrive executed; their progress bars were on stderr.
nb_execution_mode = "off"
nb_output_stderr = "remove"
nb_ipywidgets_js = {}  # by default two scripts of a content delivery network
nb_code_prompt_show = "code"
nb_code_prompt_hide = "hide the code"
nb_mime_priority_overrides = [("html", "image/svg+xml", 5), ("html", "text/html", 6)]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["report.css"]
html_js_files = [("report.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # it would fetch every page found, which a file may not
html_context = {"default_mode": "auto"}
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_fullscreen_button": False,
    "use_download_button": True,
    "back_to_top_button": False,
    "article_header_end": ["article-header-buttons.html"],
    "footer_content_items": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "claims": []},
    "navbar_persistent": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"**": ["navbar-logo.html", "search-button-field.html", "sbt-sidebar-nav.html"]}


def math_inline(translator, node):
    """Formulas become MathML while the report is built: pages need no script, no fonts and no
    network for them.
    """
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def math_block(translator, node):
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def code_is_not_searched(app, doctree, docname):
    """Readers search for words of the report, not for names in the code of its cells."""
    for node in doctree.findall(nodes.container):
        if node.get("nb_element") == "cell_code_source":
            node["classes"].append("no-search")


def long_scripts_are_files(app, pagename, templatename, context, doctree):
    """A script that is long, as the program that draws what readers move, becomes a file of the
    site, so that all pages with the same one share it.
    """

    def loaded(found):
        if len(found[1]) < 100_000:
            return found[0]
        name = f"program-{sha256(found[1].encode()).hexdigest()[:12]}.js"
        Path(app.outdir, "_static", name).write_text(found[1], encoding="utf-8")
        return f'<script src="_static/{name}"></script>'

    if "body" in context:
        context["body"] = re.sub(r"(?s)<script>(.*?)</script>", loaded, context["body"])


def setup(app):
    app.connect("doctree-resolved", code_is_not_searched)
    app.connect("html-page-context", long_scripts_are_files)
    app.add_html_math_renderer("mathml", (math_inline, None), (math_block, None))
    app.config.html_math_renderer = "mathml"
