"""The pixels of images are those of transformers' processors on Pillow, for files of every kind and five processors."""

import hashlib
import json

import numpy as np
import pytest

from engine.base.errors import InputError
from engine.files.folder import ModelFolder
from engine.images import Images, inputs, read_images
from engine.images.inputs import TOGETHER
from engine.images.pixels import pixels_of
from engine.loading.image_settings import read_image_settings
from engine.model.image_config import ImageConfig

from ..tools.paths import IMAGES

pytest.importorskip("PIL")

from PIL import Image

from ..tools.image_files import PROCESSORS, make_images, picture, saved
from ..tools.threads import wait_for


def settings(tmp_path, values, model_type="vit", name="preprocessor_config.json"):
    """Return the settings that a folder with a preprocessor_config.json has."""
    (tmp_path / name).write_text(json.dumps(values), encoding="utf-8")
    return read_image_settings(ModelFolder(tmp_path), model_type)


@pytest.fixture(scope="module")
def images():
    return make_images()


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_equal_transformers(name, images, tmp_path):
    config = settings(tmp_path, PROCESSORS[name])
    digests = json.loads((IMAGES / "pixels.json").read_text(encoding="utf-8"))[name]
    with np.load(IMAGES / "pixels.npz") as file:
        rows = file[name]
    assert [*digests] == [*images]
    for (image, source), row in zip(images.items(), rows, strict=True):
        found = pixels_of(source, config)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert np.abs(found[:, found.shape[1] // 2] - row).max() <= 1e-6, image
        assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == digests[image], image


def test_paths_images_of_pillow_and_arrays_are_read_as_bytes_are(images, tmp_path):
    config = ImageConfig(size=(9, 7))
    for name in ("rgb.png", "grey.png", "rgba.png"):
        path = tmp_path / name
        path.write_bytes(images[name])
        expected = pixels_of(images[name], config)
        opened = Image.open(path)
        for source in (path, str(path), memoryview(images[name]), opened, np.asarray(opened)):
            assert np.array_equal(pixels_of(source, config), expected), (name, type(source))


def test_an_image_that_is_only_scaled_keeps_its_size():
    pixels = picture(5, 4)
    assert np.array_equal(pixels_of(pixels, ImageConfig(factor=1.0)), pixels.transpose(2, 0, 1).astype(np.float32))


def test_an_odd_row_of_zeros_stands_above_and_left_of_a_small_image():
    """`center_crop` of transformers puts ceil(difference / 2) rows above an image that is smaller than its crop."""
    pixels = picture(4, 5)
    found = pixels_of(pixels, ImageConfig(crop=(7, 8), factor=1.0))
    expected = np.zeros((3, 7, 8), np.float32)
    expected[:, 2:6, 2:7] = pixels.transpose(2, 0, 1)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("height", "width", "shortest", "longest", "expected"), [
    (40, 60, 20, None, (20, 30)), (60, 40, 20, None, (30, 20)), (7, 7, 9, None, (9, 9)), (3, 7, 10, None, (10, 23)),
    (40, 400, 20, 50, (5, 50)), (400, 40, 20, 50, (50, 5)), (40, 60, 20, 50, (20, 30)), (10, 100, 20, 100, (10, 100))])
def test_the_shorter_side_decides(height, width, shortest, longest, expected):
    assert ImageConfig(shortest_edge=shortest, longest_edge=longest).resized(height, width) == expected


def test_several_threads_read_in_order_and_name_what_they_cannot_read(tmp_path):
    config, files = ImageConfig(size=(4, 4)), []
    for i in range(9):
        (tmp_path / f"{i}.png").write_bytes(saved(Image.fromarray(picture(8, 8, seed=i)), "PNG"))
        files.append(tmp_path / f"{i}.png")
    images, single = read_images(files, images_only=False)
    assert not single
    one, four = [*images.pixels(config, 1)], [*images.pixels(config, 4)]
    assert all(np.array_equal(a, b) for a, b in zip(one, four, strict=True))
    assert [*images.parts(4)] == [range(0, 4), range(4, 8), range(8, 9)]
    assert isinstance(images[5:8], Images)
    files[6].write_bytes(b"\x89PNG\r\n")
    for threads in (1, 3):
        with pytest.raises(InputError, match=r"image 6 \(.*6\.png\): "):
            [*images[5:8].pixels(config, threads)]


def test_images_are_read_beside_those_that_are_taken(monkeypatch):
    """Threads are at most `TOGETHER` images ahead, in order, and end with the block."""
    config, begun = ImageConfig(size=(4, 4)), []

    def noting(image, config):
        begun.append(image[0, 0, 0])
        return pixels_of(image, config)

    monkeypatch.setattr(inputs, "pixels_of", noting)
    images, _ = read_images([np.full((2, 2, 3), i, np.uint8) for i in range(250)], images_only=False)
    alone = [*images.pixels(config, 1)]
    begun.clear()
    with images.reading.ahead(images):
        found = [*images[0:10].pixels(config, 3)]
        wait_for(lambda: len(begun) == 10 + TOGETHER)
        assert sorted(begun) == [*range(10 + TOGETHER)]
        found += images[10:150].pixels(config, 3)
        wait_for(lambda: len(begun) == 150 + TOGETHER)
    before = len(begun)
    assert all(np.array_equal(a, b) for a, b in zip(found, alone, strict=False))
    assert [*images[20:22].pixels(config, 1)][1].tolist() == alone[21].tolist()
    assert len(begun) == before + 2


def test_a_processor_of_several_forms(tmp_path):
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 30, "resample": 3, "crop_size": 28}
    new = {"image_processor_type": "CLIPImageProcessorFast", "size": {"shortest_edge": 30, "longest_edge": None},
           "crop_size": {"height": 28, "width": 28}, "image_mean": None, "default_to_square": False}
    config = settings(tmp_path, old)
    assert config == settings(tmp_path, new) == settings(tmp_path, {"size": 30, "crop_size": [28, 28]}, "clip")
    assert config.shortest_edge == 30
    assert config.crop == (28, 28)
    assert config.mean == (0.48145466, 0.4578275, 0.40821073)
    assert settings(tmp_path, {"image_processor": old, "processor_class": "CLIPProcessor"},
                    name="processor_config.json") == config
    plain = settings(tmp_path / "..", {"do_resize": False, "do_rescale": False, "do_normalize": False}, "vit")
    assert plain == ImageConfig(factor=1.0)
    assert settings(tmp_path / "..", {"image_mean": 0.25, "image_std": 2, "size": [20, 30]}, "vit") == ImageConfig(
        size=(20, 30), mean=(0.25,) * 3, std=(2.0,) * 3)
    assert ImageConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_settings_that_cannot_be(tmp_path, refusals):
    refusals(lambda values: settings(tmp_path, values), [
        {"image_processor_type": "SwinImageProcessor"}, {"image_processor_type": 7}, {"resample": 6},
        {"resample": "bicubic"}, {"size": {"longest_edge": 30}}, {"size": {"max_height": 3, "max_width": 4}},
        {"size": {"depth": 3}}, {"size": "large"}, {"size": 0}, {"size": 5000}, {"size": [3]}, {"size": [3.0, 4.0]},
        {"do_center_crop": True, "crop_size": {"shortest_edge": 3}}, {"do_center_crop": True}, {"do_resize": "yes"},
        {"do_pad": True}, {"use_square_size": True}, {"image_mean": [0.5]}, {"image_std": [1.0, 0.0, 1.0]},
        {"image_mean": "imagenet"}, {"rescale_factor": float("nan")}, {"rescale_factor": 1e300},
    ])


def test_a_folder_without_settings(tmp_path):
    assert read_image_settings(ModelFolder(tmp_path), "vit") is None
    (tmp_path / "processor_config.json").write_text("{}", encoding="utf-8")
    assert read_image_settings(ModelFolder(tmp_path), "vit") is None


def test_descriptions_that_cannot_be(refusals):
    refusals(lambda options: ImageConfig(**options), [
        {"size": (3, 4), "shortest_edge": 3}, {"longest_edge": 3}, {"size": (3,)}, {"crop": (0, 3)},
        {"shortest_edge": True}, {"resample": 3}, {"factor": 1}, {"mean": (0.0, 0.0)}, {"std": (1.0, 1.0, 1e-9)},
        {"std": (1.0, 1.0, float("inf"))},
    ])
    refusals(lambda values: ImageConfig.from_json(values), [None, {}, {"size": [3, 4]}])
