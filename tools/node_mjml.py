"""Compare the six templates with what Node's mjml makes of the same source, and record it.

    npm install --prefix /tmp/mjml mjml@4
    python tools/node_mjml.py NODE /tmp/mjml/node_modules

Writes tests/unit/writing/node_mjml.json, with which tests/unit/writing/test_element_order.py
compares; prints the differences, if there are any.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from postroom.writing.layout import mjml_from_blocks  # noqa: E402
from postroom.writing.mjml import html_from_mjml  # noqa: E402
from postroom.writing.ready_made import READY_MADE, ready_made  # noqa: E402
from tests.unit.writing.element_order import digest, elements  # noqa: E402

RECORD = ROOT / "tests" / "unit" / "writing" / "node_mjml.json"
RENDER = """const source = require("fs").readFileSync(0, "utf8");
process.stdout.write(require(process.argv[1])(source, { fonts: {} }).html)"""
RENDER_S_MAX = 120


def main(node: str, modules: str) -> None:
    package = Path(modules) / "mjml"
    version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    templates = {}
    for name in READY_MADE:
        source = mjml_from_blocks(ready_made(name))
        theirs = elements(_rendered(node, package, source))
        ours = elements(html_from_mjml(source))
        different = list(difflib.unified_diff(theirs, ours, "node", "ours", lineterm="", n=2))
        result = "same" if not different else "different"
        sys.stdout.write(f"{name}: {len(ours)} elements, {result}\n")
        sys.stdout.writelines(f"{line}\n" for line in different)
        templates[name] = {
            "source": digest(source),
            "elements": len(theirs),
            "order": digest(" ".join(theirs)),
        }
    record = {"mjml": version, "templates": templates}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _rendered(node: str, package: Path, source: str) -> str:
    command = [node, "-e", RENDER, str(package.resolve())]
    return subprocess.run(
        command, input=source, capture_output=True, text=True, check=True, timeout=RENDER_S_MAX
    ).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
