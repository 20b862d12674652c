"""Documents and how to draw them: blocks in, terminal text, Markdown, HTML, SVG or CSV out."""
