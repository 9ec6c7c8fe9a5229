"""Re-encode an uploaded picture, so that nothing of the uploaded file is served.

Only the pixels are kept: no location, camera data or comment, no second file after the first. The
format is decided by the content, never by a name. A picture is rotated as its metadata says, and
its colours are converted to sRGB. Opaque pictures become JPEG or PNG, whichever is clearly smaller;
transparent ones PNG; animated ones GIF.

It is called in a thread (parsing.py), one picture at a time. The limits keep one picture below
about 600 MB of memory, most photos below 200 MB.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator

import msgspec
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from postroom.domain.errors import BadInput
from postroom.domain.picture import UPLOAD_BYTES_MAX, WIDTHS, PictureKind
from postroom.domain.texts import Text, _

FORMATS = ("JPEG", "PNG", "GIF", "WEBP")
MAX_IMAGE_PIXELS = 50_000_000  # a camera of a phone; JPEG is decoded at a smaller size
WHOLE_PIXELS_MAX = 20_000_000  # where all pixels must be in memory, some of them twice
SIDE_PIXELS_MAX = 65_500  # of a JPEG; each row costs memory, however short it is
FRAMES_MAX = 150  # of an animation
ANIMATION_PIXELS_MAX = 60_000_000  # all frames together: 150 of 600 × 600
# Choosing the best 256 colours among so many takes a second per million pixels or two.
COLOURS_MANY = 30_000
BEST_COLOURS_PIXELS_MAX = 6_000_000  # of such frames in an animation; longer ones take a fast way
SCANS_MAX = 60  # of a JPEG; cameras and programs write about ten
FILE_BYTES_MAX = 5 * 1024 * 1024  # of a file that is served; a check warns long before
JPEG_QUALITY = 84
FRAME_MS_MIN = 20  # browsers show shorter frames for 100 ms
PNG_TIMES_MAX = 2  # a PNG may be this many times as large as a JPEG of the same picture
Image.MAX_IMAGE_PIXELS = MAX_IMAGE_PIXELS
_SRGB = ImageCms.createProfile("sRGB")
# A marker of a JPEG, except those that may occur within a scan: 00 and restarts. Any number of FF
# may precede it, but a pattern that spans them takes hours for megabytes of them.
_JPEG_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_JPEG_SCAN, _JPEG_END = b"\xda", b"\xd9"
_JPEG_WITHOUT_LENGTH = (b"\x01", b"\xd8")
_DAMAGED = (  # what Pillow raises for files that it cannot read
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    struct.error,
    ImageCms.PyCMSError,
)
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


class PictureContent(msgspec.Struct, frozen=True):
    """One width, ready to be served."""

    width: int
    height: int
    content: bytes


class EncodedPicture(msgspec.Struct, frozen=True):
    kind: PictureKind
    files: list[PictureContent]  # the smallest first
    is_animated: bool = False


def encode_picture(content: bytes) -> EncodedPicture:
    """Decode and encode it; BadInput with a sentence if that is not possible."""
    _check_bytes(content)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_pixels(image, content)
            if getattr(image, "is_animated", False) and image.format in ("GIF", "WEBP", "PNG"):
                encoded = _encode_animation(image)
            else:
                encoded = _encode_still(image)
    except _BOMBS:
        raise BadInput(_too_many_pixels(MAX_IMAGE_PIXELS)) from None
    except UnidentifiedImageError:
        raise BadInput(_unknown_format(content)) from None
    except BadInput:
        raise
    except _DAMAGED:
        raise BadInput(
            _(
                "The picture is damaged or incomplete. Open it in an image program, save it "
                "again and upload that file."
            )
        ) from None
    if len(encoded.files[-1].content) > FILE_BYTES_MAX:
        raise BadInput(
            _(
                "Even scaled down, the picture would be larger than {limit} MB. Save it with "
                "fewer pixels or colors, or shorten the animation.",
                limit=FILE_BYTES_MAX // 1024 // 1024,
            )
        )
    return encoded


def _check_bytes(content: bytes) -> None:
    if not content:
        raise BadInput(_("The file is empty. Choose a picture."))
    if len(content) > UPLOAD_BYTES_MAX:
        limit = UPLOAD_BYTES_MAX // 1024 // 1024
        raise BadInput(
            _("The file is larger than {limit} MB. Save a smaller version.", limit=limit)
        )


def _unknown_format(content: bytes) -> Text:
    head = content[:4096].lower()
    if b"<svg" in head:
        return _(
            "SVG pictures can contain scripts, and most email programs do not show them. Save the "
            "picture as PNG."
        )
    if content[4:8] == b"ftyp":
        return _(
            "Most email programs do not show HEIC and AVIF pictures. Save the picture as JPEG."
        )
    return _("This picture cannot be read. Use a JPEG, PNG, GIF or WebP file.")


def _check_pixels(image: Image.Image, content: bytes) -> None:
    """Before anything is decoded: the size in the header is all that memory depends on."""
    width, height = image.size
    is_whole = image.format not in ("JPEG", "MPO") or bool(image.info.get("progressive"))
    limit = WHOLE_PIXELS_MAX if is_whole else MAX_IMAGE_PIXELS
    if width * height > limit or max(width, height) > SIDE_PIXELS_MAX:
        raise BadInput(_too_many_pixels(limit))
    # Each scan costs as much as the first, even if it is empty.
    if image.format in ("JPEG", "MPO") and _has_many_scans(content):
        raise BadInput(_("This JPEG has an unusual structure. Save it again as a normal JPEG."))


def _has_many_scans(content: bytes) -> bool:
    """Whether the first picture of a JPEG has; what follows its end is never decoded."""
    scans = 0
    position = 2  # after the start of the picture
    while marker := _JPEG_MARKER.search(content, position):
        kind = marker[1]
        if kind == _JPEG_END:
            return False
        scans += kind == _JPEG_SCAN
        if scans > SCANS_MAX:
            return True
        position = marker.end()
        if kind not in _JPEG_WITHOUT_LENGTH:
            position += int.from_bytes(content[position : position + 2], "big")
    return False


def _too_many_pixels(limit: int) -> Text:
    return _(
        "The picture has too many pixels. Scale it down to at most {limit} million, such as "
        "{width} × {height}.",
        limit=limit // 1_000_000,
        width=8000 if limit == MAX_IMAGE_PIXELS else 5000,
        height=6000 if limit == MAX_IMAGE_PIXELS else 4000,
    )


# --- Pictures that do not move ------------------------------------------------------------------


def _encode_still(image: Image.Image) -> EncodedPicture:
    is_photo = image.format in ("JPEG", "MPO")
    # Halves, quarters or eighths while decoding, but not below twice the size that we need.
    image.draft(None, (2 * WIDTHS[-1], 2 * WIDTHS[-1]))
    pixels = _upright(image)
    sized = [_scaled(pixels, width) for width in _widths(pixels.width)]
    if pixels.mode == "RGBA":
        return _encoded(PictureKind.PNG, [(each, _png(each)) for each in sized])
    photos = [(each, _jpeg(each)) for each in sized]
    if not is_photo:
        drawings = [(each, _png(each)) for each in sized]
        if len(drawings[-1][1]) <= PNG_TIMES_MAX * len(photos[-1][1]):
            return _encoded(PictureKind.PNG, drawings)
    return _encoded(PictureKind.JPEG, photos)


def _encoded(kind: PictureKind, files: list[tuple[Image.Image, bytes]]) -> EncodedPicture:
    return EncodedPicture(kind, [PictureContent(*image.size, content) for image, content in files])


def _widths(width: int) -> list[int]:
    """The widths of the files; a picture is never enlarged."""
    return sorted({min(width, each) for each in WIDTHS})


def _upright(image: Image.Image) -> Image.Image:
    """Its pixels in RGB or RGBA, upright and in sRGB, without anything else."""
    image.load()
    profile = image.info.get("icc_profile")
    ImageOps.exif_transpose(image, in_place=True)  # else it is copied even if it is upright
    pixels: Image.Image = image
    if pixels.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I"):
        pixels = pixels.convert("I").point(lambda value: value / 256).convert("L")
    is_transparent = pixels.has_transparency_data
    pixels = _in_srgb(pixels, profile, is_transparent=is_transparent)
    mode = "RGBA" if is_transparent else "RGB"
    pixels = pixels.convert(mode) if pixels.mode != mode else pixels
    if is_transparent and pixels.getchannel("A").getextrema() == (255, 255):
        pixels = pixels.convert("RGB")
    pixels.info = {}  # else encoders write comments and profiles again
    return pixels


def _in_srgb(image: Image.Image, profile: object, *, is_transparent: bool) -> Image.Image:
    """Convert the colours; a profile that cannot be used is ignored, as browsers do."""
    if not isinstance(profile, bytes) or image.mode not in ("RGB", "RGBA", "CMYK"):
        return image
    mode = "RGBA" if is_transparent else "RGB"
    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if image.mode == mode:  # without a second copy of all pixels
            ImageCms.profileToProfile(image, own, _SRGB, inPlace=True)
            return image
        converted = ImageCms.profileToProfile(image, own, _SRGB, outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError):
        return image
    return converted or image


def _scaled(image: Image.Image, width: int) -> Image.Image:
    if image.width <= width:
        return image
    height = max(1, round(image.height * width / image.width))
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)


def _jpeg(image: Image.Image) -> bytes:
    target = io.BytesIO()
    image.save(target, "JPEG", quality=JPEG_QUALITY, optimize=True, progressive=True)
    return target.getvalue()


def _png(image: Image.Image) -> bytes:
    target = io.BytesIO()
    image.save(target, "PNG", optimize=True)
    return target.getvalue()


# --- Animations ---------------------------------------------------------------------------------


def _encode_animation(image: Image.Image) -> EncodedPicture:
    """One file of at most the smaller width: at twice that, an animation is too heavy."""
    loop = image.info.get("loop")
    frames: list[Image.Image] = []
    lasts_ms: list[int] = []
    for frame, frame_ms in _frames(image):
        frames.append(frame)
        lasts_ms.append(frame_ms)
    if len(frames) == 1:
        return _encode_still(frames[0])
    has_alpha = frames[0].mode == "RGBA"
    frames = _with_few_colours(frames)
    target = io.BytesIO()
    frames[0].save(
        target,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=lasts_ms,
        disposal=2 if has_alpha else 1,
        **({"loop": loop} if isinstance(loop, int) else {}),
    )
    file = PictureContent(*frames[0].size, target.getvalue())
    return EncodedPicture(PictureKind.GIF, [file], is_animated=True)


def _with_few_colours(frames: list[Image.Image]) -> list[Image.Image]:
    """The frames with the colours of a GIF, if the encoder would take long to choose them."""
    colourful = [
        frame for frame in frames if frame.mode == "RGB" and frame.getcolors(COLOURS_MANY) is None
    ]
    if sum(frame.width * frame.height for frame in colourful) <= BEST_COLOURS_PIXELS_MAX:
        return frames
    return [frame.quantize(256, method=Image.Quantize.FASTOCTREE) for frame in frames]


def _frames(image: Image.Image) -> Iterator[tuple[Image.Image, int]]:
    """Each frame and how long it is shown; BadInput as soon as there are too many."""
    width, height = image.size
    count = 0
    while True:
        count += 1
        if count > FRAMES_MAX or count * width * height > ANIMATION_PIXELS_MAX:
            raise BadInput(
                _(
                    "The animation is too long or too large. Use at most {frames} frames, and "
                    "fewer if it is wider than {width} pixels.",
                    frames=FRAMES_MAX,
                    width=WIDTHS[0],
                )
            )
        mode = "RGBA" if image.has_transparency_data else "RGB"
        frame = _scaled(image.convert(mode), WIDTHS[0])
        frame.info = {}
        duration = image.info.get("duration", 100)
        yield frame, max(FRAME_MS_MIN, int(duration) if duration else 100)
        try:
            image.seek(count)
        except EOFError:
            return
        if image.size != (width, height):  # a frame of a GIF may enlarge the whole picture
            raise ValueError("a frame is larger than the picture")
