"""Runs the console blocks of a Markdown file as its reader would, and holds the output to them.

A block begins with ```console. A line with `$ ` is a command, lines with `> ` continue it, and
all others up to the next command are what it prints. `…` stands for any text; alone on its line,
for any lines. A command without printed lines may print anything. Every exit code must be 0.

All blocks of a file run in order in one shell (so `cd` and `export` last) in an empty folder.
`./dev serve` and `./dev bench` are run as `postroom serve` and `postroom bench`; a server starts in
the background, counts as up once it has printed what the block shows (or one line), and must stop
with exit code 0 when the file ends. The address of the docs is replaced by a free port.
A block right after `<!-- not run: the reason -->` is left alone.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from postroom_bench.ports import held_port

ADDRESS = "127.0.0.1:8025"
COMMAND_S_MAX = 120.0  # longer is too long for a reader, too
STOP_S_MAX = 120.0

FENCE = re.compile(r"^```(\w*)\s*$")
NOT_RUN = re.compile(r"^<!-- not run: \S.* -->$")
SENTINEL = "--- end of command, exit code"


class Differs(AssertionError):
    """The document and the program do not agree."""


@dataclass
class Step:
    line: int
    command: str
    shown: list[str] = field(default_factory=list)

    @property
    def serves(self) -> bool:
        return bool(re.match(r"(\./dev|postroom) serve\b(?!.*--help)", self.command))


# --- Reading ----------------------------------------------------------------------------------


def steps(text: str) -> Iterator[Step]:
    """The commands of all console blocks that are to be run."""
    block: str | None = None  # the language of the block we are in
    before, skipped = "", False
    step: Step | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and block is None:
            block, skipped = fence[1], bool(NOT_RUN.match(before))
        elif fence:
            block = None
            if step:
                yield step
            step = None
        elif block == "console" and not skipped:
            if line.startswith("$ ") and step:
                yield step
            step = read(line, number, step)
        if line.strip():
            before = line.strip()


def read(line: str, number: int, step: Step | None) -> Step:
    if line.startswith("$ "):
        return Step(number, line[2:])
    if step is None:
        raise Differs(f"line {number}: a console block begins with a command, “$ …”")
    if line.startswith("> ") and not step.shown:
        step.command += "\n" + line[2:]
    else:
        step.shown.append(line)
    return step


def agrees(shown: list[str], printed: list[str], *, whole: bool = True) -> bool:
    """Whether the printed lines are those shown, or (not whole) begin with them."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "…" else as_pattern(line) for line in shown)
    text = "".join(f"{line.rstrip()}\n" for line in printed)
    return bool(re.fullmatch(pattern, text) if whole else re.match(pattern, text))


def as_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"\n"


# --- Running ----------------------------------------------------------------------------------


class Program:
    """A process in a session of its own whose output is read line by line."""

    def __init__(self, words: list[str], *, folder: Path, environment: dict[str, str]) -> None:
        self._drain: threading.Thread | None = None
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout

    def write(self, text: str) -> None:
        self._input.write(text)
        self._input.flush()

    def read_until(self, enough: Callable[[list[str]], bool]) -> tuple[list[str], bool]:
        """The lines up to the one that makes them enough; without it, all up to its end."""
        printed: list[str] = []
        with self._ended_after(COMMAND_S_MAX):
            for line in self._output:
                printed.append(line.rstrip("\n"))
                if enough(printed):
                    return printed, True
        return printed, False

    def go_on(self) -> None:
        """Let it run; whatever it prints from now on is thrown away."""
        self._drain = threading.Thread(target=self._output.read, daemon=True)
        self._drain.start()

    def stop(self) -> int:
        """Ask it to stop, and wait; the exit code."""
        self._process.terminate()
        with self._ended_after(STOP_S_MAX):
            return self._process.wait()

    def end(self) -> None:
        """End whatever is left of it and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._drain:
            self._drain.join()
        self._output.close()
        with suppress(BrokenPipeError):
            self._input.close()

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, os.killpg, [self._process.pid, signal.SIGKILL])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class Reader:
    """One shell that lives as long as the document, and the servers started on the way."""

    def __init__(self, folder: Path, programs: Path | None) -> None:
        self._folder = folder
        self._held = ExitStack()
        self._port = self._held.enter_context(held_port())
        self._servers: list[tuple[Step, Program]] = []
        self._shell = self._start(["sh"], programs)

    def follow(self, step: Step) -> None:
        if step.serves:
            self._serve(step)
        else:
            self._run(step)

    def stop_servers(self) -> None:
        """A server that does not end well is a difference, too."""
        for step, server in self._servers:
            code = server.stop()
            if code != 0:
                raise Differs(f"line {step.line}: {step.command} stopped with exit code {code}")

    def end(self) -> None:
        for program in [self._shell, *(server for _, server in self._servers)]:
            program.end()
        self._held.close()

    def _run(self, step: Step) -> None:
        self._shell.write(
            f"{{ {self._here(step.command)}\n}} </dev/null\nprintf '\\n%s %s\\n' '{SENTINEL}' $?\n"
        )
        printed, ended = self._shell.read_until(lambda lines: lines[-1].startswith(SENTINEL))
        if not ended:
            raise Differs(f"line {step.line}: {step.command} did not end{listed(printed)}")
        code = printed.pop().rpartition(" ")[2]
        if printed[-1] == "":
            printed.pop()  # the line feed that the sentinel brought along
        if code != "0":
            raise Differs(f"line {step.line}: {step.command}: exit code {code}{listed(printed)}")
        if step.shown and not agrees(step.shown, self._there(printed)):
            raise Differs(f"line {step.line}: {step.command} prints{listed(printed)}")

    def _serve(self, step: Step) -> None:
        server = self._start(shlex.split(self._here(step.command)))
        self._servers.append((step, server))
        shown = step.shown or ["…"]
        printed, up = server.read_until(
            lambda lines: agrees(shown, self._there(lines), whole=False)
        )
        if not up:
            raise Differs(f"line {step.line}: {step.command} prints{listed(printed)}")
        server.go_on()

    def _here(self, command: str) -> str:
        """The command as it is typed here: our program, our port."""
        if re.search(r"\./dev (?!serve|bench)", command):
            raise Differs(f"{command}: mark the block <!-- not run: … -->")
        return command.replace("./dev ", "postroom ").replace(ADDRESS, f"127.0.0.1:{self._port}")

    def _there(self, printed: list[str]) -> list[str]:
        """What was printed, with the port of the documents."""
        return [line.replace(f"127.0.0.1:{self._port}", ADDRESS) for line in printed]

    def _start(self, words: list[str], programs: Path | None = None) -> Program:
        environment = self._environment()
        if programs:
            environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        return Program(words, folder=self._folder, environment=environment)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("TMPDIR", "TZ")}
        return kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self._folder),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "100",
            "POSTROOM_BIND": f"127.0.0.1:{self._port}",
            "POSTROOM_URL": f"http://127.0.0.1:{self._port}",
        }


def run(text: str, folder: Path, programs: Path | None = None) -> None:
    """Run all console blocks of a document in this folder; the first difference is raised.

    Commands, but not servers, are looked for in `programs` first.
    """
    reader = Reader(folder, programs)
    try:
        for step in steps(text):
            reader.follow(step)
        reader.stop_servers()
    finally:
        reader.end()


def listed(lines: list[str]) -> str:
    return ":\n" + "\n".join(f"    {line}" for line in lines)
