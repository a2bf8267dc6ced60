"""Files, bytes, images of Pillow and arrays that are no images that can be read: each gives an error that names it."""

import io
import struct
import zlib

import numpy as np
import pytest

from engine.base.errors import EngineError, FileMissing, InputError
from engine.images import begins_with_image, read_images, sources
from engine.images.pixels import pixels_of
from engine.images.sources import FORMATS, opened
from engine.model.image_config import ImageConfig

pytest.importorskip("PIL")

from PIL import Image, ImageFile

from ..tools.image_files import make_images, picture, saved

RGB = Image.fromarray(picture(30, 40))


def png(width, height, depth=8):
    """Return a PNG file that says it has this size, and holds one row at most."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    row = bytes(1 + 3 * depth // 8 * min(width, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


def animated(kind, **options):
    return saved(RGB, kind, save_all=True, append_images=[RGB.rotate(90)], **options)


def test_files_that_are_refused(refusals, tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    deep = io.BytesIO()
    Image.fromarray(np.zeros((3, 4), np.uint16)).save(deep, "TIFF")
    refusals(opened, [
        (b"",), (b"GIF",), (b"nothing of an image",), (saved(RGB, "JPEG")[:20],), (saved(RGB, "PPM"),),
        (saved(RGB, "ICO"),),
        (png(9473, 9473),), (png(20000, 20000),), (png(2, 2, 16),), (deep.getvalue(),), (animated("GIF"),),
        (animated("WEBP"),), (animated("TIFF"),), (animated("PNG", duration=50),), (Image.new("F", (3, 3)),),
        (Image.new("I", (3, 3)),), (Image.new("RGB", (0, 3)),), (tmp_path / "empty.png",), (tmp_path / "none.png",),
        (tmp_path / "folder.png",), (tmp_path / "a\0b",), (np.zeros((3, 3)),), (np.zeros((3, 3, 2), np.uint8),),
        (np.zeros((3, 3, 1), np.uint8),), (np.zeros((2, 3, 3, 3), np.uint8),), (np.zeros((0, 3), np.uint8),),
        (np.zeros((3, 3, 3), np.float32),), (np.broadcast_to(np.uint8(0), (20000, 20000)),), (7,), (["a.png"],),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",),
    ])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_ends_too_early(kind):
    file = saved(RGB, kind)
    with pytest.raises(InputError, match=r"; the file is damaged$"):
        opened(file[: len(file) * 2 // 3])
    assert opened(file).size == RGB.size


def test_a_missing_file_is_a_missing_file_for_python_too(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        [*read_images([tmp_path / "none.png"], images_only=False)[0].pixels(ImageConfig(), 1)]
    assert isinstance(caught.value, FileMissing)
    assert str(caught.value) == f"image 0 ({tmp_path / 'none.png'}): there is no such file; give the path of an image"


def test_a_jpeg_with_a_preview_is_no_animation():
    file = io.BytesIO()
    RGB.save(file, "MPO", save_all=True, append_images=[RGB.resize((4, 3))])
    assert Image.open(io.BytesIO(file.getvalue())).n_frames == 2
    assert opened(file.getvalue()).size == RGB.size


def test_a_side_that_would_grow_beyond_the_limit():
    with pytest.raises(InputError, match="at most 89,478,485 are read"):
        pixels_of(np.zeros((1, 4000), np.uint8), ImageConfig(shortest_edge=224))
    with pytest.raises(InputError, match="would be 3 x 0 as the model needs it"):
        pixels_of(np.zeros((1, 4000), np.uint8), ImageConfig(shortest_edge=3, longest_edge=3))


def test_a_program_that_reads_damaged_files_is_told(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InputError, match="LOAD_TRUNCATED_IMAGES is on"):
        opened(saved(RGB, "PNG"))


def test_the_limit_of_bytes_is_asked_before_a_file_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    (tmp_path / "large.png").write_bytes(saved(RGB, "PNG"))
    for source in (tmp_path / "large.png", saved(RGB, "PNG")):
        with pytest.raises(InputError, match="bytes, and at most 100 are read"):
            opened(source)


def test_inputs_that_are_no_images(refusals):
    array = np.zeros((2, 2), np.uint8)
    refusals(lambda given, images_only: read_images(given, images_only), [
        ([array, "a text"], False), ([array, None], False), ([array, 7], True), (7, True), ({"a": 1}, True),
        ({array.tobytes()}, True), (None, True), ([array, np.zeros((2, 2))], False), ([np.zeros(3, np.uint8)], True),
    ])


def test_what_counts_as_an_image(tmp_path):
    for one in (tmp_path / "a.png", b"", RGB, np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3), np.uint8)):
        assert begins_with_image(one)
        assert begins_with_image([one, "text"])
        assert read_images(one, images_only=False)[1]
    assert begins_with_image(np.zeros((5, 2, 2, 3), np.uint8))
    assert len(read_images(np.zeros((5, 2, 2, 3), np.uint8), images_only=False)[0]) == 5
    assert len(read_images(iter([RGB, b""]), images_only=False)[0]) == 2
    for one in ("a.png", ["a.png"], [], [[1, 2]], [np.array([1, 2])], None, [("a", "b")], np.array([["a", "b"]])):
        assert not begins_with_image(one)
    assert read_images("a.png", images_only=True) == (read_images(["a.png"], images_only=True)[0], True)


def test_damaged_files_give_errors_of_the_engine():
    rng, files = np.random.default_rng(0), [file for file in make_images().values() if isinstance(file, bytes)]
    read = refused = 0
    for i in range(1200):
        damaged = bytearray(files[i % len(files)])
        for _ in range(rng.integers(1, 4)):
            if rng.integers(4) == 0:
                del damaged[rng.integers(len(damaged)) :]
                damaged = damaged or bytearray(b"\0")
            else:
                place = rng.integers(min(len(damaged), [40, 400, 10**9][rng.integers(3)]))
                damaged[place] = rng.integers(256)
        try:
            opened(bytes(damaged))
            read += 1
        except EngineError:
            refused += 1
    assert read > 100
    assert refused > 100
