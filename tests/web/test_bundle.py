"""The script of the block editor is what its lock file makes, and all script is small."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "postroom" / "web" / "static"
VENDOR = STATIC / "vendor"
MODULES = ROOT / ".tools" / "editor" / "node_modules"  # ./dev installs them
GZIP_BYTES_MAX = 120_000  # of all script together: a second on a slow phone


@pytest.fixture
def bundling() -> ModuleType:
    """tools/bundle.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "tools" / "bundle.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_build_from_the_lock_file_is_the_committed_bundle(
    bundling: ModuleType, tmp_path: Path
) -> None:
    node = os.environ.get("NODE") or shutil.which("node")
    assert node, "Node is missing: ./dev test installs it, or set NODE to its path."
    assert MODULES.is_dir(), "esbuild is missing: ./dev test tests/web/test_bundle.py installs it."
    bundling.build(node, MODULES, tmp_path)
    for name in (bundling.BUNDLE, bundling.LICENCES):
        is_same = (tmp_path / name).read_bytes() == (VENDOR / name).read_bytes()
        assert is_same, f"{name} differs: run ./dev bundle"


def test_the_bundle_was_built_from_these_sources(bundling: ModuleType) -> None:
    """Needs no Node: notices a changed source whose bundle was not built again."""
    packages = tomllib.loads((VENDOR / "vendor.toml").read_text(encoding="utf-8"))["package"]
    recorded = [package["inputs"] for package in packages if "inputs" in package]
    assert recorded == [bundling.checksum_of_inputs()]


def test_all_script_together_is_small() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in STATIC.rglob("*.js")}
    assert "editor.min.js" in sizes
    assert sum(sizes.values()) <= GZIP_BYTES_MAX, sizes
