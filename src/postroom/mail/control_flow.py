"""Conditions and loops in a body: `{% if city == "Oslo" %}…{% else %}…{% endif %}`.

    {% if city == "Oslo" %}…{% elif city %}…{% else %}…{% endif %}
    {% for topic in topics | split(",") %}{{ topic }} {% endfor %}

The outermost `if` or `for` with all that is in it is one *region*. A region becomes one field of
the compiled body, whose value is computed for each recipient; everything around it is spliced as
usual, so a message pays only for the regions it has. Tags are allowed only between HTML tags. So
each branch begins and ends in text, and the escaping of a field is the same in every branch.

minijinja runs the regions with a limit on instructions, the steps. Literals are not part of what it
runs, only their numbers, and expressions are restricted to comparisons and a few filters: nothing
in a template can grow beyond what it is given, call a method or read a file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from postroom.domain.texts import Text, _
from postroom.mail.entities import unescape
from postroom.mail.escape_context import EscapeContext, HtmlScanner
from postroom.mail.merge import (
    VALUE_CHARS_MAX,
    BadTemplate,
    Field,
    Segment,
    ends_in_a_url,
    escape,
    parse,
    placed_field,
    value_of,
    without_invisible,
)

if TYPE_CHECKING:
    import minijinja

REGIONS_MAX = 100  # in one body
DEPTH_MAX = 8
TAG_CHARS_MAX = 300
# Of all regions of an email: a loop of a thousand short rounds, some 20 ms at worst.
STEPS_MAX = 20_000
STEPS_MANY = 5000  # a check advises against more: conditions alone hardly take a hundred
OUTPUT_CHARS_MAX = 256 * 1024  # of all regions for one recipient; one that writes more is left out
SPLIT_CHARS_MAX = 256 * 1024  # that they split; costs far more than the instructions around it
_ANY_TAG = re.compile(rf"\{{%-?\s*[a-z]\w*\b.{{0,{TAG_CHARS_MAX}}}?%\}}", re.DOTALL)
_TAG = re.compile(r"\{%-?\s*(\w+)\b(.*?)-?%\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s+|"[^"\\\x00-\x1f]*"|'[^'\\\x00-\x1f]*'|\d{1,9}(?:\.\d{1,9})?"""
    r"""|([^\W\d]\w*)|==|!=|<=|>=|<|>|\(|\)|,|\||\."""
)
_OPERATORS = frozenset(("and", "or", "not", "in", "is", "defined", "true", "false", "none"))
_FILTERS = frozenset(("default", "first", "int", "last", "length", "lower", "split", "upper"))
_LOOP_PARTS = frozenset(("first", "index", "last", "length"))
_FOR = re.compile(r"\s*([^\W\d]\w*)\s+in\s+(.+)", re.DOTALL)
# Around what minijinja runs, and around numbers: control characters, which no expression contains.
_OPEN, _CLOSE = "\x01", "\x02"
_NUMBER = re.compile("\x03([0-9]+)\x04")
_BETWEEN = "\x05"  # the output of two regions
_TOGETHER = "all"  # the name of the program with all regions


def split_tags(template: str) -> list[str]:
    """Text and control tags in turn, as `re.split` does."""
    pieces: list[str] = []
    position = 0
    start = template.find("{%")
    while start >= 0:
        tag = _ANY_TAG.match(template, start)
        if tag:
            pieces += [template[position:start], tag[0]]
            position = tag.end()
        start = template.find("{%", tag.end() if tag else start + 2)
    return [*pieces, template[position:]]


def has_tags(template: str) -> bool:
    return len(split_tags(template)) > 1


class _TooMuch(Exception):
    """The regions have run, written or split more than they may for one recipient."""


@dataclasses.dataclass
class RegionBudget:
    """What all regions together may still write and split for one recipient."""

    output_chars: int = OUTPUT_CHARS_MAX
    split_chars: int = SPLIT_CHARS_MAX

    def write(self, text: str) -> None:
        self.output_chars -= len(text)
        if self.output_chars < 0:
            raise _TooMuch

    def split(self, text: str) -> None:
        self.split_chars -= len(text)
        if self.split_chars < 0:
            raise _TooMuch


class Region:
    """The outermost `if` or `for` of a body and all that is in it, as a program for minijinja."""

    def __init__(self, number: int) -> None:
        self.field = Field(f"region {number}", "", EscapeContext.READY)
        self.names: set[str] = set()  # the attributes that its expressions read
        self.pieces: list[Segment] = []  # the numbers in the program stand for them
        self.open: list[str] = []  # the tags that are still open
        self.loop_names: list[str] = []
        self.note_left_out: Callable[[], None] | None = None  # called the first time, and not again
        self.program = ""  # complete when it is finished
        self._pieces_of_program: list[str] = []

    def add(self, segment: Segment) -> None:
        if isinstance(segment, Field) and self._is_of_loop(segment.name):
            code = f"{segment.name}|{_filter_name(segment.context)}"
            self._pieces_of_program.append(f"{_OPEN}={code}={_CLOSE}")
            return
        self._pieces_of_program.append(f"\x03{len(self.pieces)}\x04")
        self.pieces.append(segment)

    def _is_of_loop(self, name: str) -> bool:
        first, _dot, rest = name.partition(".")
        if first == "loop" and self.loop_names:
            return rest in _LOOP_PARTS
        return name in self.loop_names

    def add_tag(self, word: str, inside: str) -> None:
        """Check a tag and add it; BadTemplate if it is out of place or not allowed."""
        match word:
            case "if" | "elif":
                self._check_open(word)
                self._add_code(f"{word} {self._expression(inside)}")
            case "for":
                loop = _FOR.fullmatch(inside)
                if loop is None or loop[1] in _OPERATORS or loop[1] == "loop":
                    raise BadTemplate(_("Write it as {{% for topic in topics | split(',') %}}."))
                self._check_open(word)
                self._add_code(f"for {loop[1]} in {self._expression(loop[2])}")
                self.loop_names.append(loop[1])
            case "else" | "endif" | "endfor":
                self._check_open(word)
                if inside.strip():
                    raise BadTemplate(_("Remove everything after {word}.", word=word))
                self._add_code(word)
            case _:
                raise BadTemplate(
                    _(
                        "“{word}” is not known here. Use if, elif, else, endif, for and endfor.",
                        word=word,
                    )
                )

    def _add_code(self, code: str) -> None:
        self._pieces_of_program.append(f"{_OPEN}%{code}%{_CLOSE}")

    def _check_open(self, word: str) -> None:
        inner = self.open[-1] if self.open else ""
        if word in ("if", "for"):
            if len(self.open) >= DEPTH_MAX:
                raise BadTemplate(_("It is nested more than {limit} levels deep.", limit=DEPTH_MAX))
            self.open.append(word)
            return
        wanted = "for" if word == "endfor" else "if"
        if inner != wanted and not (word == "else" and inner == "for"):
            raise BadTemplate(_("It has no matching “{wanted}” before it.", wanted=wanted))
        if word.startswith("end"):
            self.open.pop()
            if word == "endfor":
                self.loop_names.pop()

    def _expression(self, text: str) -> str:
        """Return an expression of names, texts, numbers, comparisons and known filters."""
        position = 0
        before = ""
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise BadTemplate(
                    _(
                        "“{text}” is not allowed in a condition. Compare fields with text or "
                        "numbers.",
                        text=text.strip(),
                    )
                )
            if name := token[1]:
                self._check_name(name, before)
            elif before == "." or (before == "|" and not token[0].isspace()):
                raise BadTemplate(_("“{text}” is not a condition.", text=text.strip()))
            before = before if token[0].isspace() else token[0]
            position = token.end()
        if not text.strip():
            raise BadTemplate(_("The condition is missing."))
        return text.strip()

    def _check_name(self, name: str, before: str) -> None:
        if before == "|":
            is_known = name in _FILTERS
        elif before == ".":
            is_known = name in _LOOP_PARTS and bool(self.loop_names)
        else:
            is_known = True
            if name not in _OPERATORS and name != "loop" and name not in self.loop_names:
                self.names.add(name)
        if not is_known:
            raise BadTemplate(
                _(
                    "“{name}” is not known. The filters are {filters}.",
                    name=name,
                    filters=", ".join(sorted(_FILTERS)),
                )
            )

    def finish(self) -> None:
        """Check the program; BadTemplate if minijinja does not understand it."""
        import minijinja

        self.program = "".join(self._pieces_of_program)
        try:
            _environment().add_template("region", self.program)
        except minijinja.TemplateError as error:
            raise BadTemplate(_("It cannot be parsed ({why}).", why=error.message)) from None

    def text(self, chosen: str, values: Mapping[str, str], budget: RegionBudget) -> str:
        """The output of the program, with literals and fields in place of their numbers."""
        pieces = _NUMBER.split(chosen)
        for at in range(1, len(pieces), 2):
            piece = self.pieces[int(pieces[at])]
            pieces[at] = (
                piece if isinstance(piece, str) else escape(value_of(piece, values), piece.context)
            )
            budget.write(pieces[at])
        return "".join(pieces)

    def left_out(self) -> str:
        """Nothing, for a recipient with whose values the region is too long or too large."""
        note, self.note_left_out = self.note_left_out, None
        if note:
            note()
        return ""


class Regions:
    """All regions of an email, which share what they may run, write and split for a recipient.

    They run together, as one program. If that is too much, each runs alone with an equal share of
    the steps, and those that take or write more are left out. So no email takes more than twice
    STEPS_MAX steps, however many regions it has.
    """

    def __init__(self, regions: Sequence[Region] = ()) -> None:
        self.each = tuple(regions)
        self._names = frozenset(name for region in self.each for name in region.names)
        self._budget = RegionBudget()  # of the recipient for whom they run
        if self.each:
            self._environment = self._compiled()

    def __bool__(self) -> bool:
        return bool(self.each)

    def _compiled(self) -> minijinja.Environment:
        environment = _environment()
        for context in EscapeContext:
            environment.add_filter(_filter_name(context), partial(self._escaped, context))
        environment.add_filter("split", self._split)
        environment.add_filter("int", _whole_number)
        programs = [region.program for region in self.each]
        environment.add_template(_TOGETHER, _BETWEEN.join(programs))
        for number, program in enumerate(programs):
            environment.add_template(str(number), program)
        return environment

    def with_values(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """The values of a recipient and what each region becomes with them."""
        if not self.each:
            return values
        try:
            texts = self._run_together(values, STEPS_MAX)
        except _TooMuch:
            texts = self._run_alone(values)
        names = (region.field.name for region in self.each)
        return {**values, **dict(zip(names, texts, strict=True))}

    def takes_over(self, steps: int, values: Mapping[str, str]) -> bool:
        """Whether an email with these values takes more steps than this, or writes too much."""
        try:
            self._run_together(values, steps) if self.each else []
        except _TooMuch:
            return True
        return False

    def _run_together(self, values: Mapping[str, str], steps: int) -> list[str]:
        self._budget = RegionBudget()
        chosen = self._run(_TOGETHER, values, steps).split(_BETWEEN)
        pairs = zip(self.each, chosen, strict=True)
        return [region.text(each, values, self._budget) for region, each in pairs]

    def _run_alone(self, values: Mapping[str, str]) -> list[str]:
        self._budget = RegionBudget()
        texts: list[str] = []
        for number, region in enumerate(self.each):
            before = dataclasses.replace(self._budget)
            try:
                chosen = self._run(str(number), values, STEPS_MAX // len(self.each))
                texts.append(region.text(chosen, values, self._budget))
            except _TooMuch:
                self._budget = before  # a region that is left out uses nothing up
                texts.append(region.left_out())
        return texts

    def _run(self, program: str, values: Mapping[str, str], steps: int) -> str:
        import minijinja

        given = {name: values.get(name, "")[:VALUE_CHARS_MAX] for name in self._names}
        self._environment.fuel = steps
        try:
            return self._environment.render_template(program, **given)
        except (minijinja.TemplateError, TypeError):  # TypeError: of a call such as n | int(0)
            raise _TooMuch from None

    def _escaped(self, context: EscapeContext, value: object) -> str:
        escaped = escape(str(value), context)
        self._budget.write(escaped)
        return escaped

    def _split(self, value: object, separator: object = ",") -> list[str]:
        text = str(value)
        self._budget.split(text)
        parts = text.split(str(separator) or ",")
        return [part.strip() for part in parts if part.strip()]


def compile_body(
    template: str, *, is_html: bool, first: int = 0
) -> tuple[list[Segment], list[Region]]:
    """Compile a body with control tags: its segments, and the regions among them."""
    body = _BodyCompiler(is_html=is_html, first=first)
    for segment in parse(template, is_html=is_html):
        if isinstance(segment, Field):
            body.add(body.placed(segment))
            continue
        for at, piece in enumerate(split_tags(segment)):
            if at % 2:
                body.add_tag(without_invisible(unescape(piece) if is_html else piece))
            elif piece:
                body.read(piece)
                body.add(piece)
    return body.finish()


class _BodyCompiler:
    """Reads a body from top to bottom and knows whether it is in a region."""

    def __init__(self, *, is_html: bool, first: int) -> None:
        self._scanner = HtmlScanner() if is_html else None
        self._before = ""  # of a plain text, since the last field or tag
        self._line = 1
        self._segments: list[Segment] = []
        self._regions: list[Region] = []
        self._region: Region | None = None
        self._first = first

    def read(self, literal: str) -> None:
        self._line += literal.count("\n")
        self._before += literal
        if self._scanner:
            self._scanner.read(literal)

    def placed(self, field: Field) -> Field:
        if self._scanner:
            return placed_field(field, self._scanner)
        is_in_url = ends_in_a_url(self._before)
        self._before = "https://x" if is_in_url else ""
        context = EscapeContext.URL_PART if is_in_url else EscapeContext.TEXT
        return Field(field.name, field.fallback, context)

    def add(self, segment: Segment) -> None:
        if self._region:
            self._region.add(segment)
        else:
            self._segments.append(segment)

    def add_tag(self, text: str) -> None:
        tag = _TAG.fullmatch(text)
        try:
            if tag is None:
                raise BadTemplate(_("It cannot be parsed."))
            if self._scanner and not self._scanner.is_in_text:
                raise BadTemplate(_("It is inside an HTML tag or a style; move it into the text."))
            if ends_in_a_url(self._before) and not self._scanner:
                raise BadTemplate(_("It is inside a web address; move it out."))
            self._before = ""
            self._add_to_region(tag[1], tag[2])
        except BadTemplate as error:
            raise self._mistake(text, error) from None

    def _add_to_region(self, word: str, inside: str) -> None:
        if self._region is None:
            if len(self._regions) >= REGIONS_MAX:
                raise BadTemplate(_("There are over {limit} conditions.", limit=REGIONS_MAX))
            self._region = Region(self._first + len(self._regions))
        self._region.add_tag(word, inside)
        if not self._region.open:
            self._region.finish()
            self._segments.append(self._region.field)
            self._regions.append(self._region)
            self._region = None

    def finish(self) -> tuple[list[Segment], list[Region]]:
        if self._region:
            word = self._region.open[-1]
            raise BadTemplate(
                _("The condition “{word}” is never closed; add end{word}.", word=word)
            )
        if self._scanner and not self._scanner.is_in_text:
            raise BadTemplate(
                _(
                    "Line {line}: the HTML ends inside a tag, a comment, or an element such as "
                    "style or title; close it.",
                    line=self._scanner.line,
                )
            )
        return self._segments, self._regions

    def _mistake(self, text: str, why: BadTemplate) -> BadTemplate:
        sentence: Text = _("Line {line}: “{tag}”: {why}", line=self._line, tag=text, why=why)
        return BadTemplate(sentence)


def _environment() -> minijinja.Environment:
    import minijinja

    return minijinja.Environment(
        block_start_string=_OPEN + "%",
        block_end_string="%" + _CLOSE,
        variable_start_string=_OPEN + "=",
        variable_end_string="=" + _CLOSE,
        comment_start_string=_OPEN + "#",
        comment_end_string="#" + _CLOSE,
        keep_trailing_newline=True,
        fuel=STEPS_MAX,
        debug=False,
    )


def _filter_name(context: EscapeContext) -> str:
    return f"escaped_{context.name.lower()}"


def _whole_number(value: object) -> int:
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0
