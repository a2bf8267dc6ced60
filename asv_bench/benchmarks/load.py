"""Measure loading a file until the engine is ready to run."""

from pathlib import Path

from engine import Engine, Model, save

from .models import CONFIGS, random_model, write_hf_folder


class Load:
    timeout = 300

    def setup_cache(self):
        """Write a model of MiniLM's shape as .npz and as a Hugging Face folder; return both paths."""
        model = random_model(CONFIGS["MiniLM"])
        npz, folder = Path("model.npz").absolute(), Path("model").absolute()
        save(Model(encoder=model), npz)
        write_hf_folder(model, folder)
        return npz, folder

    def time_load_npz(self, paths):
        Engine.load(paths[0])

    def time_load_folder(self, paths):
        Engine.load(paths[1])

    def peakmem_load_npz(self, paths):
        Engine.load(paths[0])

    def peakmem_load_folder(self, paths):
        Engine.load(paths[1])
