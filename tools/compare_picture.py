"""The picture of docs/compare.md: learning curves over steps, from what `hmx compare --json` prints.

hmx compare A B --json > found.json
python tools/compare_picture.py found.json > docs/img/compare.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.cli import compare_html


def picture(found: dict[str, Any]) -> str:
    """The curves of the first environment, as a file of their own."""
    drawing = compare_html.drawings(found["tasks"][0], found)[0].svg
    head, _, rest = drawing.partition(">")
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg">{ground}{rest}\n'


if __name__ == "__main__":
    sys.stdout.write(picture(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
