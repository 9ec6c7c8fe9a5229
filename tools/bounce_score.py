"""Scores the bounce classifier against a folder of labelled mails.

    python tools/bounce_score.py FOLDER [--wrong]

FOLDER contains the mails and `labels.tsv` with the columns file and class; the class `any` counts
as right whatever is answered.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import Counter
from pathlib import Path

from postroom.feedback.report import Report, read_report

ANY = "any"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrong", action="store_true", help="list what was answered wrongly")
    arguments = parser.parse_args()
    with (arguments.folder / "labels.tsv").open(encoding="utf-8", newline="") as file:
        labels = {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    mails = {name: (arguments.folder / name).read_bytes() for name in labels}
    began_at = time.perf_counter()
    reports = {name: read_report(raw) for name, raw in mails.items()}
    seconds = time.perf_counter() - began_at
    show(labels, reports, seconds)
    if arguments.wrong:
        show_wrong(labels, reports)
    return 0


def show(labels: dict[str, dict[str, str]], reports: dict[str, Report], seconds: float) -> None:
    confusion = Counter(
        (label["class"], reports[name].classification.bounce_class.value)
        for name, label in labels.items()
    )
    total = len(labels)
    recognised = sum(is_recognised(label["class"], reports[name]) for name, label in labels.items())
    right = sum(count for (want, got), count in confusion.items() if want in (ANY, got))
    wrongly_dead = sum(
        count
        for (want, got), count in confusion.items()
        if got == "dead" and want not in (ANY, got)
    )
    complaints = sum(count for (want, _), count in confusion.items() if want == "complaint")
    for words, count, of in (
        ("recognised", recognised, total),
        ("class right", right, total),
        ("called dead wrongly", wrongly_dead, total),
        ("complaints found", confusion["complaint", "complaint"], complaints),
    ):
        sys.stdout.write(f"{words:20} {count:4} of {of:4}  {100 * count / max(of, 1):5.1f} %\n")
    sys.stdout.write(f"{'speed':20} {total / seconds:.0f} mails/s\n\nlabel → answer\n")
    for (want, got), count in sorted(confusion.items()):
        sys.stdout.write(f"  {want:10} {got:10} {count:4}\n")


def is_recognised(want: str, report: Report) -> bool:
    return (report.kind is not None) or want == "ignore"


def show_wrong(labels: dict[str, dict[str, str]], reports: dict[str, Report]) -> None:
    for name, label in labels.items():
        report = reports[name]
        found = report.classification
        is_right = label["class"] in (ANY, found.bounce_class.value)
        if is_right and is_recognised(label["class"], report):
            continue
        sys.stdout.write(
            f"{name}: {label['class']} {label.get('reason', '')} {label.get('status', '')} → "
            f"{report.kind} {found.bounce_class} {found.reason} {found.status} | {found.words}\n"
        )


if __name__ == "__main__":
    sys.exit(main())
