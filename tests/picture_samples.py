"""Pictures as people upload them, and files that try to be more than a picture."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import Any

from PIL import Image, ImageCms, ImageDraw
from PIL.PngImagePlugin import PngInfo

SCRIPT = b"<script>alert(document.cookie)</script>"


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


def drawing(width: int = 80, height: int = 60, mode: str = "RGB") -> Image.Image:
    """A square in a corner, so that it shows which side is up."""
    image = Image.new(mode, (width, height), "#1f7a5c")
    ImageDraw.Draw(image).rectangle((0, 0, width // 4, height // 4), fill="#ff0000")
    return image


def photo(width: int = 1600, height: int = 900) -> Image.Image:
    """Something that JPEG is made for."""
    gray = Image.radial_gradient("L").resize((width, height))
    turned = gray.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    noise = Image.effect_noise((width, height), 30)
    return Image.merge("RGB", (gray, noise, turned))


def jpeg(width: int = 80, height: int = 60, **options: Any) -> bytes:
    return encoded(drawing(width, height), "JPEG", **options)


def png(width: int = 80, height: int = 60) -> bytes:
    return encoded(drawing(width, height), "PNG")


def animation(frames: int, kind: str = "GIF", size: tuple[int, int] = (40, 30)) -> bytes:
    shades = [
        Image.new("RGB", size, (number * 83 % 256, number * 151 % 256, number * 211 % 256))
        for number in range(frames)
    ]
    options = {"save_all": True, "append_images": shades[1:], "duration": 80, "loop": 0}
    return encoded(shades[0], kind, **options)


def jpeg_with_gps() -> bytes:
    """Lying on its side, with a place, a camera, a comment and a profile."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it to the right
    exif[0x010F] = "Secret Camera Works"
    exif.get_ifd(0x8825)[1] = "N"
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return jpeg(80, 40, exif=exif, comment=SCRIPT, icc_profile=profile, quality=95)


def png_with_texts() -> bytes:
    texts = PngInfo()
    texts.add_text("Comment", SCRIPT.decode())
    texts.add_itxt("XML:com.adobe.xmp", "<x:xmpmeta>GPSLatitude 52,31N</x:xmpmeta>")
    return encoded(drawing(), "PNG", pnginfo=texts)


def svg() -> bytes:
    return b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg">' + SCRIPT + b"</svg>"


def png_with_dimensions(width: int, height: int, rows: bytes = b"") -> bytes:
    """A small file whose header promises any number of pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows or bytes(3 * 10_000_000), 9)),
            chunk(b"IEND", b""),
        )
    )


def png_with_text_bomb() -> bytes:
    """A compressed comment of 100 MB."""
    content = b"Comment\0\0" + zlib.compress(bytes(100_000_000), 9)
    chunk = struct.pack(">I", len(content)) + b"zTXt" + content
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + content))
    whole = png()
    return whole[:33] + chunk + whole[33:]


def gif_with_frames(frames: int, width: int = 1, height: int = 1) -> bytes:
    """As few bytes a frame as possible."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    return head + frame * frames + b";"


def gif_that_grows(width: int, height: int) -> bytes:
    """A GIF of 10 × 10 pixels whose second frame is larger."""
    small = encoded(Image.new("P", (10, 10)), "GIF")
    large = encoded(Image.new("P", (width, height)), "GIF")
    return small[:-1] + large[large.index(b"\x2c", 13) : -1] + b";"


def webp_with_dimensions() -> bytes:
    """The header of a WebP file of 16383 × 16383 pixels, and no more."""
    signature = b"\x2f" + struct.pack("<I", 16382 | 16382 << 14) + bytes(8)
    chunk = b"VP8L" + struct.pack("<I", len(signature)) + signature + b"\0"
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def jpeg_with_scans(scans: int) -> bytes:
    """A progressive JPEG that paints its last scan again and again."""
    whole = jpeg(64, 64, progressive=True)
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * scans + whole[-2:]


def jpeg_with_empty_scans(scans: int) -> bytes:
    """A JPEG that is not progressive, and has one empty scan after another."""
    whole = jpeg(64, 64)
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    return whole[: whole.index(b"\xff\xda")] + scan * scans + whole[-2:]


def jpeg_with_fill_bytes(count: int) -> bytes:
    """A JPEG in whose scan fill bytes without end precede no marker."""
    whole = jpeg(64, 64)
    return whole[:-2] + b"\xff" * count + b"\x00" + whole[-2:]


def jpeg_with_film() -> bytes:
    """A photo with a short film behind it, as phones make them: any bytes may be in it."""
    return jpeg() + b"\0\0\0\x18ftypmp42" + b"\xff\xda\x00\x08" * 100


def with_page() -> bytes:
    return jpeg() + b"<html><body>" + SCRIPT + b"</body></html>"


def with_archive() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("index.html", SCRIPT.decode())
    return jpeg() + archive.getvalue()


def gif_with_script() -> bytes:
    """A GIF that is also a program: GIF89a/*…*/=1;alert(1)."""
    whole = encoded(drawing(), "GIF", comment=b"*/=1;alert(document.cookie)//")
    return whole + b"*/=1;alert(document.cookie)//"


def heic() -> bytes:
    return b"\0\0\0\x18ftypheic" + bytes(100)
