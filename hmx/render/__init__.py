"""Documents, and renderers that draw their blocks as terminal text, Markdown, HTML, SVG or CSV."""
