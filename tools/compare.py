"""Compares the speed of two versions: `postroom bench` of each, in turns, on one machine.

    python tools/compare.py A B [--pairs 3] [--keep FILE] [-- OPTIONS OF postroom bench]

A and B are each a folder with a checkout, or a Git revision of this one. Both get the same work,
because the bench of this checkout measures the product of either; an A so old that this bench does
not fit it needs --own-bench. Only neighbours are compared: the machine's speed changes from minute
to minute, for both alike. On a busy machine --at-once is fairer still. With --keep, runs are added
to a file and those already in it count, so that a comparison may be made in several short sittings.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
USUAL = "--recipients 200000 --attributes 8 --senders 1 --lanes 16 --window 4 --no-baselines"
RUN_S_MAX = 3600.0
ROLES = ("scheduler", "sender")  # whose CPU time is the measure

Figures = dict[str, Any]
Pair = tuple[Figures, Figures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("a", help="the version before: a folder or a Git revision")
    parser.add_argument("b", help="the version after")
    parser.add_argument("--pairs", type=int, default=3, help="how often each runs")
    parser.add_argument("--keep", type=Path, help="a file for the figures of every run")
    parser.add_argument(
        "--at-once",
        action="store_true",
        help="run both at the same time, on a machine that others use: then rates mean nothing, "
        "but both meet the same conditions",
    )
    parser.add_argument("--own-bench", action="store_true", help="measure each with its own bench")
    parser.epilog = f"Options of the bench follow a lone --. Usually they are {USUAL}"
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    asked = parser.parse_args(own.split())
    pairs = read_pairs(asked.keep)
    with tempfile.TemporaryDirectory(prefix="postroom-compare-") as folder:
        trees = [
            tree_of(name, Path(folder) / str(at)) for at, name in enumerate((asked.a, asked.b))
        ]
        for _ in range(asked.pairs):
            # Whoever comes second finds warm disks: each does so in every other pair.
            order = (0, 1) if len(pairs) % 2 == 0 else (1, 0)
            with ThreadPoolExecutor(2 if asked.at_once else 1) as runs:
                started = {
                    at: runs.submit(
                        run, trees[at], options.split() or USUAL.split(), asked.own_bench
                    )
                    for at in order
                }
                found = {at: figures.result() for at, figures in started.items()}
            pairs.append((found[0], found[1]))
            sys.stderr.write(line_of(pairs[-1]) + "\n")
            if asked.keep:
                asked.keep.write_text(json.dumps(pairs), encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in table(pairs))
    return 1 if any(one["lost"] or one["twice"] for pair in pairs for one in pair) else 0


def read_pairs(path: Path | None) -> list[Pair]:
    if path is None or not path.exists():
        return []
    return [(a, b) for a, b in json.loads(path.read_text(encoding="utf-8"))]


def tree_of(name: str, folder: Path) -> Path:
    """The folder of a version; a revision is unpacked into `folder`."""
    if Path(name).is_dir():
        return Path(name).resolve()
    folder.mkdir()
    packed = subprocess.run(
        ["git", "-C", str(HERE), "archive", name, "src", "tools"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def run(tree: Path, options: list[str], own_bench: bool) -> Figures:
    """One run of the bench; its figures."""
    tools = (tree if own_bench else HERE) / "tools"
    environ = {name: text for name, text in os.environ.items() if not name.startswith("POSTROOM_")}
    environ["PYTHONPATH"] = f"{tree / 'src'}{os.pathsep}{tools}"  # before what is installed
    done = subprocess.run(
        [sys.executable, "-m", "postroom.cli", "bench", "--json", *options],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )
    try:
        figures: Figures = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"the bench of {tree} failed:\n{done.stderr}") from None
    return figures


def cpu_us(figures: Figures, role: str) -> float:
    return float(figures[f"{role}_cpu_us"])


def both_us(figures: Figures) -> float:
    return sum(cpu_us(figures, role) for role in ROLES)


def line_of(pair: Pair) -> str:
    before, after = map(both_us, pair)
    return f"{before:.1f} and {after:.1f} µs a mail: {after / before:.3f}"


def table(pairs: list[Pair]) -> Iterator[str]:
    """A line for each figure: of A, of B, and the ratio with its spread over the pairs."""
    measures = [(f"{role} CPU, µs a mail", f"{role}_cpu_us") for role in ROLES]
    measures += [("mails a second", "mails_per_s"), ("storage calls a mail", "calls_per_mail")]
    measures += [(f"{role} memory, MB", f"{role}_peak_mb") for role in ROLES]
    yield f"{'':>24}  {'A':>10}  {'B':>10}  B / A (least to most of {len(pairs)})"
    rows = [(name, [(a[field], b[field]) for a, b in pairs]) for name, field in measures]
    rows.insert(2, ("both CPU, µs a mail", [(both_us(a), both_us(b)) for a, b in pairs]))
    for name, values in rows:
        ratios = [b / a for a, b in values]
        before, after = (statistics.median(column) for column in zip(*values, strict=True))
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        yield f"{name:>24}  {before:>10,.2f}  {after:>10,.2f}  {ratio}"
    lost, twice = (sum(one[name] for pair in pairs for one in pair) for name in ("lost", "twice"))
    yield f"{'lost, twice':>24}  {lost}, {twice}"


if __name__ == "__main__":
    sys.exit(main())
