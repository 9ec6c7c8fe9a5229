"""Uploaded pictures: what becomes of good ones, and of files that are no good."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image, ImageCms

from postroom.domain.errors import BadInput
from postroom.domain.picture import UPLOAD_BYTES_MAX, PictureKind, clean_name
from postroom.writing import picture_files
from postroom.writing.picture_files import FRAMES_MAX, SCANS_MAX, encode_picture
from tests import picture_samples as samples
from tests.picture_samples import drawing, encoded, opened

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "empty"),
    "SVG with a script": (samples.svg, "SVG"),
    "a web page": (lambda: b"<html>" + samples.SCRIPT, "This picture cannot be read"),
    "HEIC": (samples.heic, "HEIC"),
    "TIFF": (lambda: encoded(drawing(), "TIFF"), "This picture cannot be read"),
    "BMP": (lambda: encoded(drawing(), "BMP"), "This picture cannot be read"),
    "PDF": (lambda: encoded(drawing(), "PDF"), "This picture cannot be read"),
    "PNG bomb": (lambda: samples.png_with_dimensions(30_000, 30_000), "too many pixels"),
    "PNG, huge width": (lambda: samples.png_with_dimensions(2**31 - 1, 1), "too many pixels"),
    "PNG above our limit": (lambda: samples.png_with_dimensions(6000, 6000), "too many pixels"),
    "PNG between limit and twice": (
        lambda: samples.png_with_dimensions(8000, 8000),
        "too many pixels",
    ),
    "PNG with a comment of 100 MB": (samples.png_with_text_bomb, "damaged"),
    "PNG whose pixels are missing": (
        lambda: samples.png_with_dimensions(1000, 1000, b"\0" * 100),
        "damaged",
    ),
    "GIF with many frames": (lambda: samples.gif_with_frames(500_000), "animation"),
    "GIF with large frames": (lambda: samples.gif_with_frames(100, 4000, 4000), "animation"),
    "WebP bomb": (samples.webp_with_dimensions, "too many pixels"),
    "WebP with many frames": (
        lambda: samples.animation(FRAMES_MAX + 1, "WEBP", (4, 4)),
        "animation",
    ),
    "JPEG with many scans": (lambda: samples.jpeg_with_scans(SCANS_MAX + 1), "unusual"),
    "JPEG with many empty scans": (
        lambda: samples.jpeg_with_empty_scans(SCANS_MAX + 1),
        "unusual",
    ),
    "GIF that grows": (lambda: samples.gif_that_grows(1000, 1000), "damaged"),
    "PNG of a single column": (lambda: samples.png_with_dimensions(1, 70_000), "too many pixels"),
    "half a JPEG": (lambda: encoded(samples.photo(400, 300), "JPEG")[:8000], "damaged"),
    "half a PNG": (lambda: encoded(samples.photo(400, 300), "PNG")[:8000], "damaged"),
    "half a GIF": (lambda: encoded(samples.photo(400, 300), "GIF")[:8000], "damaged"),
    "half a WebP": (lambda: encoded(samples.photo(400, 300), "WEBP")[:800], "damaged"),
    "only the first bytes": (lambda: samples.jpeg()[:20], "This picture cannot be read"),
    "too many bytes": (lambda: samples.jpeg() + bytes(UPLOAD_BYTES_MAX), "MB"),
}


def colour_at(content: bytes, place: tuple[int, int]) -> tuple[int, ...]:
    colour = opened(content).convert("RGB").getpixel(place)
    assert isinstance(colour, tuple)
    return tuple(map(int, colour))


def test_fill_bytes_do_not_make_the_search_for_scans_endless() -> None:
    """With a pattern that spans them, these two megabytes took eleven hours."""
    assert encode_picture(samples.jpeg_with_fill_bytes(2_000_000)).kind is PictureKind.JPEG


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bad_file_is_refused_with_a_sentence(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(BadInput, match=words):
        encode_picture(make())


CLEANED: dict[str, Callable[[], bytes]] = {
    "JPEG with a place, camera and comment": samples.jpeg_with_gps,
    "PNG with texts": samples.png_with_texts,
    "JPEG and a web page": samples.with_page,
    "JPEG and an archive": samples.with_archive,
    "JPEG and a film": samples.jpeg_with_film,
    "GIF and a script": samples.gif_with_script,
    "animated GIF and a web page": lambda: samples.animation(3) + samples.SCRIPT,
}
TRACES = (
    *(b"script", b"alert", b"Secret", b"GPS", b"Exif", b"PK\x03\x04", b"ICC", b"iCCP", b"xmp"),
    b"ftyp",
)


@pytest.mark.parametrize("name", CLEANED)
def test_only_pixels_remain(name: str) -> None:
    for file in encode_picture(CLEANED[name]()).files:
        assert not [trace for trace in TRACES if trace.lower() in file.content.lower()]
        image = opened(file.content)
        assert not image.getexif()
        assert not {"comment", "icc_profile", "exif", "xmp", "Comment"} & set(image.info)


def test_a_photo_is_turned_as_its_camera_says() -> None:
    (file,) = encode_picture(samples.jpeg_with_gps()).files
    assert (file.width, file.height) == (40, 80)
    red, green, _blue = colour_at(file.content, (35, 5))
    assert red > 200 > 100 > green


def test_there_are_two_widths_and_none_is_enlarged() -> None:
    def sizes(width: int, height: int) -> list[tuple[int, int]]:
        files = encode_picture(encoded(samples.photo(width, height), "JPEG")).files
        assert [opened(file.content).size for file in files] == [
            (file.width, file.height) for file in files
        ]
        return [(file.width, file.height) for file in files]

    assert sizes(1600, 900) == [(600, 338), (1200, 675)]
    assert sizes(800, 400) == [(600, 300), (800, 400)]
    assert sizes(600, 300) == [(600, 300)]
    assert sizes(30, 20) == [(30, 20)]
    assert sizes(3000, 1) == [(600, 1), (1200, 1)]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (encoded(samples.photo(300, 200), "JPEG"), PictureKind.JPEG),
        (encoded(samples.photo(300, 200), "PNG"), PictureKind.JPEG),  # far smaller so
        (encoded(samples.photo(300, 200), "WEBP"), PictureKind.JPEG),
        (encoded(drawing(), "PNG"), PictureKind.PNG),
        (encoded(drawing(), "WEBP", lossless=True), PictureKind.PNG),
        (encoded(drawing(), "GIF"), PictureKind.PNG),
        (encoded(drawing(mode="CMYK"), "JPEG"), PictureKind.JPEG),
        (encoded(drawing(mode="L"), "JPEG"), PictureKind.JPEG),
        (encoded(drawing(mode="1"), "PNG"), PictureKind.PNG),
        (encoded(drawing().convert("P"), "PNG"), PictureKind.PNG),
    ],
)
def test_every_picture_becomes_what_mail_programs_show(content: bytes, kind: PictureKind) -> None:
    made = encode_picture(content)
    assert made.kind is kind
    assert opened(made.files[-1].content).format == kind.name
    assert not made.is_animated


def test_a_transparent_picture_stays_transparent() -> None:
    image = drawing(mode="RGBA")
    image.paste((0, 0, 0, 0), (20, 20, 60, 40))
    palette = drawing().convert("P", palette=Image.Palette.ADAPTIVE)
    for content in (
        encoded(image, "PNG"),
        encoded(image, "WEBP", lossless=True),
        encoded(image, "GIF"),
        encoded(palette, "PNG", transparency=0),
    ):
        made = encode_picture(content)
        assert made.kind is PictureKind.PNG
        assert opened(made.files[0].content).convert("RGBA").getchannel("A").getextrema() == (
            0,
            255,
        )


def test_sixteen_bits_a_colour_become_eight() -> None:
    made = encode_picture(encoded(Image.new("I;16", (20, 20), 40_000), "PNG"))
    assert opened(made.files[0].content).convert("L").getpixel((5, 5)) == 40_000 // 256


def test_colours_of_a_profile_become_srgb() -> None:
    image = Image.new("RGB", (20, 20), (200, 30, 30))
    wide = _profile_with_swapped_red_and_blue()
    made = encode_picture(encoded(image, "PNG", icc_profile=wide))
    red, _green, blue = colour_at(made.files[0].content, (5, 5))
    assert blue > red
    assert encode_picture(encoded(image, "PNG", icc_profile=b"no profile"))


def _profile_with_swapped_red_and_blue() -> bytes:
    whole = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, blue = whole.index(b"rXYZ"), whole.index(b"bXYZ")
    whole[red : red + 4], whole[blue : blue + 4] = b"bXYZ", b"rXYZ"
    return bytes(whole)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_stays_one(kind: str) -> None:
    made = encode_picture(samples.animation(5, kind, (900, 300)))
    assert made.is_animated
    assert made.kind is PictureKind.GIF
    (file,) = made.files
    image = opened(file.content)
    assert image.size == (600, 200)
    assert getattr(image, "n_frames", 1) == 5
    assert image.info["duration"] == 80
    assert image.info["loop"] == 0


def test_the_colours_of_a_long_animation_are_chosen_in_a_fast_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choosing the best ones for 150 frames would take a minute or two."""
    frames = [samples.photo(400, 300).rotate(90 * number) for number in range(3)]
    film = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    methods: list[object] = []
    quantize = Image.Image.quantize

    def watched(image: Image.Image, colors: int = 256, **more: Any) -> Image.Image:
        methods.append(more.get("method"))
        return quantize(image, colors, **more)

    monkeypatch.setattr(Image.Image, "quantize", watched)
    assert encode_picture(film).is_animated
    assert methods == []
    monkeypatch.setattr(picture_files, "BEST_COLOURS_PIXELS_MAX", 300_000)
    made = encode_picture(film)
    assert methods == [Image.Quantize.FASTOCTREE] * 3
    assert getattr(opened(made.files[0].content), "n_frames", 1) == 3


def test_a_picture_that_stays_too_heavy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files, "FILE_BYTES_MAX", 1000)
    with pytest.raises(BadInput, match="scaled down"):
        encode_picture(encoded(samples.photo(600, 400), "JPEG"))


@pytest.mark.slow
def test_a_large_photo_of_a_camera_is_accepted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = Image.new("RGB", (8064, 6048), "#888888")
        made = encode_picture(encoded(image, "JPEG", quality=50))
    assert [file.width for file in made.files] == [600, 1200]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("logo.png", "logo.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\holiday.jpg", "holiday.jpg"),
        ("a\r\nSet-Cookie: x\x00.png", "a Set-Cookie: x .png"),
        ("innocent\u202egnp.exe", "innocent gnp.exe"),
        ("/", "picture"),
        ("...", "picture"),
        ("", "picture"),
        ("x" * 300, "x" * 120),
        ("Straße.jpg", "Straße.jpg"),
    ],
)
def test_a_name_loses_folders_and_control_characters(typed: str, name: str) -> None:
    assert clean_name(typed) == name
