"""Test the checksum of a model."""

from dataclasses import replace

from engine import Model, load_model, save
from engine.loading.checksum import checksum

from ..tools.tiny_models import hf_folder, random_model
from ..tools.tiny_text import tiny_text


def test_the_format_of_the_file_does_not_matter(tmp_path):
    folder = load_model(hf_folder(tmp_path / "folder"))
    save(folder, tmp_path / "model.npz")
    assert checksum(folder) == checksum(load_model(tmp_path / "model.npz"))
    assert len(checksum(folder)) == 64


def test_every_part_counts():
    encoder = random_model(tiny_text())
    name = sorted(encoder.weights)[0]
    weights = {key: array.copy() for key, array in encoder.weights.items()}
    weights[name].view("uint8").flat[-1] ^= 1
    others = [replace(encoder, weights=weights), replace(encoder, text=tiny_text(max_seq_length=5)),
              replace(encoder, text=None), replace(encoder, config=replace(encoder.config, norm_eps=1e-3))]
    sums = {checksum(Model(encoder=one)) for one in (encoder, *others)}
    assert len(sums) == 5
    assert checksum(Model(encoder=replace(encoder))) in sums
