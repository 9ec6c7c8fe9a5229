"""Build the script of the block editor from `editor/`: `./dev bundle`.

    python tools/bundle.py NODE MODULES [FOLDER]

MODULES is the node_modules that npm installed from editor/package-lock.json. Without FOLDER the
result goes to where pages load it from, and its checksums into vendor.toml there.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "editor"
VENDOR = ROOT / "src" / "postroom" / "web" / "static" / "vendor"
BUNDLE, LICENCES = "editor.min.js", "LICENSE-editor.txt"
OPTIONS = (
    "--bundle",
    "--minify",
    "--format=iife",
    "--global-name=PostroomEditor",
    "--target=es2022",
    "--charset=utf8",
    "--legal-comments=none",
)
BUILD_S_MAX = 300


def main(node: str, modules: str, folder: str = "") -> None:
    build(node, Path(modules), Path(folder) if folder else VENDOR)
    if not folder:
        _record()


def build(node: str, modules: Path, folder: Path) -> None:
    """Write the bundle and the licences of what is in it."""
    command = [node, str(modules / "esbuild" / "bin" / "esbuild"), "src/main.js", *OPTIONS]
    subprocess.run(
        [*command, f"--outfile={folder / BUNDLE}", "--log-level=warning"],
        cwd=SOURCE,
        env={"NODE_PATH": str(modules)},
        check=True,
        timeout=BUILD_S_MAX,
    )
    (folder / LICENCES).write_text(_licences(modules), encoding="utf-8")


def _licences(modules: Path) -> str:
    """Each text once, below the packages it belongs to; esbuild itself is not in the bundle."""
    packages: dict[str, list[str]] = {}
    for path in sorted(modules.glob("*/LICENSE*")):
        if path.parent.name != "esbuild":
            text = path.read_text(encoding="utf-8").strip()
            packages.setdefault(text, []).append(path.parent.name)
    return "\n\n".join(f"{', '.join(names)}\n\n{text}" for text, names in packages.items()) + "\n"


def checksum_of_inputs() -> str:
    """Of everything that decides what the bundle is."""
    files = [SOURCE / "package-lock.json", *sorted((SOURCE / "src").glob("*.js"))]
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _record() -> None:
    path = VENDOR / "vendor.toml"
    text = path.read_text(encoding="utf-8")
    sums = {
        name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
        for name in (BUNDLE, LICENCES)
    }
    for name, value in {f'"{name}"': each for name, each in sums.items()}.items():
        text = re.sub(
            rf'^{re.escape(name)} = ".*"$', f'{name} = "{value}"', text, flags=re.MULTILINE
        )
    text = re.sub(
        r'^inputs = ".*"$', f'inputs = "{checksum_of_inputs()}"', text, flags=re.MULTILINE
    )
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
