"""Which tests to open for a module of the engine.

    python -m tests.map engine/loading/static.py        print them
    .venv/bin/pytest $(python -m tests.map engine/loading/static.py)        run them

The tests of engine/PACKAGE/MODULE are in tests/PACKAGE/test_MODULE.py. A package without a folder of tests has them in
the folder of the package around it, and the kernels of both CPU backends share those in tests/backends/kernels. The
table `OTHERS` holds the tests that have other names. tests/project/test_map.py checks that each module has tests, and
that they see the mistakes of tests/mistakes in it.
"""

from __future__ import annotations

import ast
import re
import sys
from fnmatch import translate
from functools import cache
from pathlib import Path, PurePosixPath

from .tools.paths import ROOT, TESTS

ENGINE = ROOT / "engine"
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".h", ".c"}

OTHERS = {
    "__init__.py": "project/test_imports.py project/test_sizes_of_documents.py",
    "__main__.py": "cli/test_cli.py",
    "*/other_names.py": "interface/test_other_names.py",
    "adapters/sentence_transformers/*.py": "adapters/test_sentence_transformers.py adapters/test_without_torch.py",
    "adapters/spark_daemon.py": "adapters/test_spark.py",
    "backends/batch.py": "backends/cpu/test_plan.py",
    "backends/execute.py": "backends/reference/test_model_and_ops.py programs/test_observe.py",
    "backends/forest.py": "backends/reference/test_decoder.py interface/test_requests.py",
    "backends/steps.py backends/step_checks.py": "backends/reference/test_decoder.py",
    "backends/interfaces.py": "backends/test_backends.py",
    "backends/lock.py backends/requests.py": "backends/cpu/test_decoder.py interface/test_requests.py",
    "backends/ops_interface.py": "ops/test_signatures.py",
    "backends/relative.py": "backends/test_portable_bits.py families/test_deberta.py",
    "backends/score_mods.py": "backends/numba_cpu/test_score_mod.py",
    "backends/cpu/cache.py": "backends/cpu/test_decoder.py",
    "backends/cpu/lowering.py": "programs/test_program.py",
    "backends/cpu/packer.py": "families/test_vectors.py",
    "backends/cpu/placing.py": "backends/kernels/test_logits.py",
    "backends/cpu/native_ops.py": "backends/kernels/test_operations.py backends/cpu/test_random_calls.py",
    "backends/cpu/native/attention_operation.pxi backends/cpu/native/operations.pxi":
        "backends/kernels/test_operations.py ops/test_every_backend.py",
    "backends/cpu/native/best.pxi": "backends/kernels/test_choose.py backends/kernels/test_logits.py",
    "backends/cpu/native/cells.pxi backends/cpu/native/state.pxi":
        "backends/cpu/test_decoder.py backends/cpu/test_attention_over_a_cache.py backends/cpu/test_sources.py",
    "backends/cpu/native/column_maxima.pxi": "backends/kernels/test_maxima.py",
    "backends/cpu/native/executor.pxi": "backends/cpu/test_plan.py backends/cpu/test_stop.py",
    "backends/cpu/native/features.pxi": "backends/cython_cpu/test_instruction_sets.py",
    "backends/cpu/native/kernel_table.pxi":
        "backends/numba_cpu/test_table.py backends/cpu/test_digests.py backends/cpu/test_same_bits.py",
    "backends/cpu/native/table.pxd backends/cpu/native/layout.py":
        "backends/cpu/test_kernel_table.py backends/numba_cpu/test_table.py backends/kernels/test_providers.py",
    "backends/cpu/native/logits.pxi": "backends/kernels/test_logits.py",
    "backends/cpu/native/pool.c backends/cpu/native/pool.h": "backends/cpu/test_stop.py",
    "backends/cpu/native/program.pxi": "backends/cpu/test_plan.py backends/kernels/test_logits.py",
    "backends/cpu/native/schedule.pxi": "backends/cpu/test_plan.py benchmarks/test_simulation.py",
    "backends/cpu/native/turn.pxi": "backends/cpu/test_stop.py interface/test_requests.py",
    "backends/cpu/native/weights.pxi": "backends/cpu/test_plan.py weights/test_packed.py",
    "backends/cpu/native/*": "backends/cpu/test_plan.py backends/cpu/test_random_models.py",
    "backends/cython_cpu/isa.py backends/cython_cpu/__init__.py backends/cython_cpu/kernels*.py?":
        "backends/cython_cpu/test_instruction_sets.py",
    "backends/cython_cpu/kernels.pxi": "backends/kernels/test_providers.py",
    "backends/cython_cpu/tile_kernels.pxi backends/cython_cpu/simd/tiles.h":
        "backends/kernels/test_tiles.py backends/kernels/test_parts.py",
    "backends/cython_cpu/simd/*":
        "backends/kernels/test_linear.py backends/kernels/test_rowwise.py backends/kernels/test_bfloat16.py "
        "backends/kernels/test_int8.py backends/cpu/test_digests.py project/test_setup.py",
    "backends/cython_cpu/kernels/attention.pxi backends/numba_cpu/kernels/attention.py":
        "backends/kernels/test_attention_options.py",
    "backends/cython_cpu/kernels/tiles.pxi": "backends/kernels/test_written_operands.py",
    "backends/*_cpu/kernels/attention_tiles.pxi": "backends/kernels/test_attention_bfloat16.py",
    "backends/cython_cpu/kernels/blocks.pxi": "backends/kernels/test_integers.py weights/test_blocks.py",
    "backends/*_cpu/kernels/cached_*.pxi backends/*_cpu/kernels/cells.* backends/*_cpu/kernels/ranges.*":
        "backends/kernels/test_cached_attention.py",
    "backends/*_cpu/kernels/depth.* backends/cython_cpu/kernels/tile.pxi backends/numba_cpu/kernels/tile.py "
    "backends/numba_cpu/kernels/dot.py": "backends/kernels/test_linear.py backends/kernels/test_bfloat16.py",
    "backends/*_cpu/kernels/elementwise.* backends/*_cpu/kernels/norm.* backends/*_cpu/kernels/lanes.py":
        "backends/kernels/test_rowwise.py",
    "backends/*_cpu/kernels/embed.*": "families/test_vectors.py weights/test_embedding_tables.py",
    "backends/cython_cpu/kernels/few_rows.pxi": "backends/kernels/test_int8.py backends/kernels/test_tiles.py",
    "backends/cython_cpu/kernels/nibbles.pxi backends/numba_cpu/kernels/integer_pairs.py":
        "backends/kernels/test_integers.py",
    "backends/cython_cpu/kernels/operands.pxi":
        "backends/kernels/test_written_operands.py backends/kernels/test_tiles.py",
    "backends/numba_cpu/kernels/pairs.py": "backends/kernels/test_bfloat16.py",
    "backends/*_cpu/kernels/roofline.*": "backends/test_peak.py",
    "backends/*_cpu/kernels/scores.*": "backends/kernels/test_attention_options.py",
    "backends/numba_cpu/__init__.py": "backends/numba_cpu/test_encoder.py",
    "backends/numba_cpu/rows.py backends/numba_cpu/target.py backends/numba_cpu/compiler/structs.py "
    "backends/numba_cpu/compiler/pointers.py backends/numba_cpu/compiler/vector.py": "backends/numba_cpu/test_table.py",
    "backends/numba_cpu/compiler/compiling.py": "backends/numba_cpu/test_cache.py",
    "backends/numba_cpu/compiler/emit.py backends/numba_cpu/compiler/flow.py": "backends/numba_cpu/test_tile.py",
    "backends/global_names.py backends/numba_cpu/compiler/*.py": "backends/numba_cpu/test_score_mod.py",
    "backends/numba_cuda/__init__.py backends/numba_cuda/support.py backends/numba_cuda/toolchain.py":
        "backends/test_cuda.py",
    "backends/numba_cuda/bucket.py": "backends/test_cuda_buckets.py",
    "backends/numba_cuda/device.py": "backends/test_cuda.py backends/numba_cuda/test_plan.py",
    "backends/numba_cuda/kernel.py": "backends/numba_cuda/test_emulate.py backends/numba_cuda/test_compile.py",
    "backends/numba_cuda/tensor_map.py backends/numba_cuda/ptx/*hopper.py": "backends/numba_cuda/test_hopper.py",
    "backends/numba_cuda/kernels/*.py": "backends/numba_cuda/test_rows.py backends/numba_cuda/test_linear.py",
    "backends/numba_cuda/ptx/epilogue.py": "backends/numba_cuda/test_linear.py",
    "backends/numba_cuda/ptx/softmax.py": "backends/numba_cuda/test_attention.py",
    "backends/numba_cuda/ptx/*.py": "backends/numba_cuda/test_emulate.py",
    "backends/numba_cuda/*.py": "backends/numba_cuda/test_plan.py",
    "backends/reference/*.py": "backends/reference/test_model_and_ops.py ops/test_definition.py",
    "base/functions.py": "backends/test_portable_bits.py",
    "base/arguments.py": "interface/test_arguments.py",
    "base/lazy.py": "interface/test_forks.py",
    "base/stop.py": "backends/cpu/test_stop.py",
    "base/version.py": "project/test_setup.py",
    "chat/messages.py": "chat/test_template.py",
    "chat/render.py": "chat/test_renderer.py chat/test_hostile_templates.py",
    "cli/chat.py": "chat/test_terminal.py",
    "cli/describe.py": "programs/test_program.py",
    "cli/embed.py": "jobs/test_embed.py",
    "cli/fetch.py": "loading/test_hub.py",
    "cli/other_options.py": "cli/test_typed_lines.py cli/test_generate.py",
    "cli/serve.py": "server/test_stop.py",
    "cli/subtitles.py cli/transcribe.py": "speech/test_recordings.py interface/test_transcriber.py",
    "cli/*.py": "cli/test_cli.py",
    "encoding/maxsim.py": "heads/test_late.py",
    "encoding/packing.py": "families/test_masks_and_limits.py",
    "encoding/text_encoder.py": "interface/test_engine.py weights/test_modules.py",
    "encoding/vector_precision.py": "encoding/test_similarity.py",
    "families/__init__.py families/fields.py families/parts.py": "families/test_configs.py families/test_names.py",
    "families/bart.py": "families/test_generating.py loading/test_left_out.py heads/test_golden.py",
    "families/clip.py families/siglip.py": "families/test_clip_and_siglip.py families/test_images_and_sound.py",
    "families/deberta.py families/names.py": "families/test_vectors.py",
    "families/heads.py": "heads/test_golden.py heads/test_heads.py",
    "families/modernbert.py": "families/test_modernbert_configs.py families/test_vectors.py",
    "families/vit.py families/whisper.py": "families/test_images_and_sound.py families/test_generating.py",
    "families/*.py": "families/test_vectors.py families/test_generating.py families/test_names.py",
    "files/claims.py": "server/test_http.py jobs/test_embed.py",
    "files/cursor.py files/gguf_*.py": "files/test_gguf.py",
    "files/reading.py":
        "files/test_safetensors.py files/test_hostile_files.py files/test_mapped_memory.py server/test_mapped.py",
    "files/torch_pickle.py": "files/test_torch_checkpoint.py",
    "files/zip.py": "files/test_npz.py",
    "generation/beams.py generation/greedy.py generation/results.py": "generation/test_golden_generation.py",
    "generation/encoder_decoder.py": "generation/test_cross_attention.py interface/test_generator.py",
    "generation/groups.py generation/handles.py generation/traffic.py": "generation/test_session.py",
    "generation/lengths.py": "interface/test_lengths.py",
    "generation/logit_changes.py generation/timestamps.py":
        "generation/test_processors.py generation/test_golden_generation.py",
    "generation/prepared.py": "interface/test_generator.py loading/test_odd_folders.py",
    "generation/processors.py generation/sampling.py": "generation/test_golden_generation.py",
    "generation/scoring.py": "interface/test_reranker.py",
    "generation/sequences.py generation/works.py":
        "generation/test_schedule.py generation/test_scoring.py generation/test_session.py",
    "generation/session.py": "generation/test_batches.py",
    "generation/top_k.py": "generation/test_sampling.py",
    "generation/*.py": "generation/test_batches.py",
    "heads/sparse.py": "backends/test_portable_bits.py",
    "heads/*.py": "heads/test_golden.py heads/test_heads.py",
    "interface/engine.py": "families/test_adapters.py",
    "interface/engine_base.py interface/vector_methods.py": "interface/test_engine.py",
    "interface/head_methods.py": "heads/test_heads.py heads/test_golden.py",
    "interface/loaded.py": "interface/test_close_and_save.py interface/test_load.py studies/test_calibrate.py",
    "interface/reading_decoder.py": "heads/test_golden.py",
    "interface/rerank_prompts.py": "interface/test_reranker.py",
    "interface/similarity_methods.py": "encoding/test_similarity.py heads/test_late.py",
    "interface/stream.py": "interface/test_generator.py interface/test_requests.py",
    "interface/token_dropout.py": "families/test_masks_and_limits.py families/test_vectors.py",
    "interface/translation.py": "text/test_language_tokenizers.py",
    "jobs/batch_api.py": "jobs/test_readers.py jobs/test_embed.py",
    "jobs/readers.py": "jobs/test_embed.py",
    "jobs/*.py": "jobs/test_embed.py",
    "loading/bge_m3.py": "heads/test_bge_m3.py",
    "loading/chat.py": "chat/test_reading.py",
    "loading/colbert.py loading/late.py": "heads/test_late.py",
    "loading/generation_settings.py": "generation/test_settings.py",
    "loading/gguf*.py": "families/test_generating.py loading/test_gguf_encoders.py",
    "loading/head_tokens.py": "heads/test_heads.py",
    "loading/hub_guard.py": "loading/test_hub.py",
    "loading/logit_score.py": "interface/test_reranker.py",
    "loading/model_type.py": "loading/test_odd_folders.py",
    "loading/modules.py": "weights/test_modules.py heads/test_modules.py",
    "loading/npz_model.py": "loading/test_load_and_save.py loading/test_generating_npz.py",
    "loading/router.py loading/static.py": "heads/test_modules.py",
    "loading/torch_modules.py": "loading/test_pytorch_seq2seq.py loading/test_torch_transformer.py",
    "loading/*.py": "loading/test_load_and_save.py",
    "model/attention.py model/config_checks.py": "model/test_config.py",
    "model/bits.py": "backends/test_portable_bits.py",
    "model/chat_config.py": "chat/test_template.py",
    "model/generation_config.py": "generation/test_settings.py",
    "methods/encode.py": "methods/test_methods.py interface/test_engine.py",
    "methods/encode_sparse.py": "methods/test_methods.py heads/test_sparse.py",
    "methods/encode_tokens.py": "methods/test_methods.py heads/test_late.py",
    "methods/run.py": "methods/test_methods.py methods/test_stream.py interface/test_engine.py",
    "methods/columns.py": "jobs/test_embed.py",
    "methods/steps.py methods/pairs.py": "methods/test_methods.py server/test_service.py heads/test_heads.py",
    "methods/*.py": "methods/test_methods.py heads/test_golden.py heads/test_heads.py",
    "model/head.py": "heads/test_heads.py",
    "model/late_config.py": "heads/test_late.py",
    "model/positions.py":
        "ops/test_golden.py families/test_vectors.py families/test_deberta.py families/test_images_and_sound.py",
    "model/run_config.py": "interface/test_engine.py interface/test_arguments.py",
    "model/text_config.py": "text/test_tokenizer.py loading/test_load_and_save.py",
    "ops/*.py": "ops/test_golden.py ops/test_every_backend.py",
    "programs/encoder.py":
        "programs/test_program.py ops/test_golden.py families/test_vectors.py families/test_names.py "
        "families/test_generating.py",
    "programs/*.py": "programs/test_program.py families/test_vectors.py families/test_generating.py",
    "server/workers.py": "server/test_service.py",
    "queues/ticket.py queues/work.py": "queues/test_model_queue.py queues/test_order.py",
    "server/cohere.py server/openai.py server/tei.py server/refusals.py": "server/test_routes.py",
    "server/forms.py": "server/test_routes.py server/test_http.py",
    "server/keys.py": "server/test_http.py server/test_stop.py",
    "server/protocol.py": "server/test_http.py server/test_connections.py",
    "server/start.py": "server/test_stop.py server/test_http.py server/test_connections.py",
    "server/*.py": "server/test_http.py",
    "speech/containers.py speech/ffmpeg.py speech/samples.py speech/sources.py": "speech/test_audio_files.py",
    "speech/*.py": "speech/test_recordings.py interface/test_transcriber.py",
    "studies/bench*.py": "cli/test_cli.py",
    "studies/compare_calibration.py": "cli/test_calibrate.py",
    "studies/labelled.py": "studies/test_calibrate.py",
    "text/growth.py": "project/test_limits.py text/test_hostile_tokenizers.py",
    "text/incremental.py": "interface/test_generator.py",
    "text/safety.py": "text/test_hostile_tokenizers.py",
    "text/sentences.py": "text/test_tokenizer.py",
    "text/special_tokens.py": "text/test_tokenizer.py families/test_clip_and_siglip.py",
    "text/tokenizer.py": "text/test_cuts.py text/test_long_texts.py interface/test_lengths.py",
    "text/excerpts.py text/truncate.py": "text/test_long_texts.py",
    "text/tokenizers_package.py": "text/test_tokenizer.py text/test_hostile_tokenizers.py",
    "text/vocabularies/fairseq.py text/vocabularies/language_codes.py": "text/test_language_tokenizers.py",
    "text/vocabularies/gguf.py": "text/test_gguf_tokenizer.py loading/test_gguf_encoders.py",
    "text/vocabularies/marian.py": "text/test_marian_tokenizer.py",
    "text/vocabularies/*.py": "text/test_vocabularies.py",
    "text/windows.py": "methods/test_methods.py project/test_limits.py",
    "uncertainty/probabilities.py": "uncertainty/test_temperature.py uncertainty/test_django.py",
    "weights/bfloat16.py weights/int8_bound.py": "weights/test_quantize.py",
    "weights/calibration.py": "studies/test_calibrate.py",
    "weights/head.py": "heads/test_heads.py",
    "weights/input_layers.py": "families/test_images_and_sound.py",
    "weights/native/*": "weights/test_int4.py",
    "weights/parameters.py": "weights/test_model.py loading/test_load_and_save.py",
}
"""Modules, as paths in engine/ or patterns of paths, and their tests in tests/, the test file to open first in front.

Of several rows that fit a module, the first one holds. A path adds tests to those of the module's name; a pattern holds
for the modules that have none of their name.
"""


def modules() -> list[str]:
    """Return the paths in engine/ of all modules that define something. Compiled modules count."""
    return sorted(path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*")
                  if path.suffix in SUFFIXES and not _is_generated(path) and not _only_imports(path))


def _is_generated(path: Path) -> bool:
    """Return whether Cython writes the file: a .c file beside a .pyx file of its name."""
    return path.suffix == ".c" and path.with_suffix(".pyx").exists()


def _only_imports(path: Path) -> bool:
    """Return whether a module is an __init__.py that defines no function and no class."""
    return path.name == "__init__.py" and not any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def files_of(module: str) -> list[str]:
    """Return the test files of a module, as paths in tests/; the list is empty if the map lacks the module.

    module: its path in engine/, such as "loading/static.py".
    """
    pattern, row = fit_of(module) or ("", "")
    found = named(module)
    return found + OTHERS[row].split() if row and (pattern == module or not found) else found


def named(module: str) -> list[str]:
    """Return the test files that have the name of a module, as paths in tests/, those of the nearest folder first.

    module: its path in engine/. An __init__.py has the name of its package.
    """
    path = PurePosixPath(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    folders = [folder for parent in path.parents for folder in
               ([parent, parent / "kernels"] if "_cpu/kernels/" in module else [parent])]
    return [found for folder in folders if (TESTS / (found := f"{folder}/test_{name}.py")).exists()]


def fit_of(module: str) -> tuple[str, str] | None:
    """Return the first pattern of `OTHERS` that fits a module, and the key of its row; None if none fits.

    module: its path in engine/.
    """
    return next(((pattern, row) for compiled, pattern, row in _patterns() if compiled.match(module)), None)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str, str]]:
    """Return each pattern of `OTHERS`, compiled and as it is, with the key of its row, in their order."""
    return [(re.compile(translate(pattern)), pattern, row) for row in OTHERS for pattern in row.split()]


def main(arguments: list[str]) -> int:
    """Print the test files of modules, given as paths from the root or in engine/; return 1 if one is no module."""
    missing = 0
    for argument in arguments:
        module = argument.removeprefix("./").removeprefix("engine/")
        tests = files_of(module) if (ENGINE / module).is_file() else []
        missing |= not tests
        print(*([f"tests/{test}" for test in tests] or [f"{argument} is no module that the map has"]), sep="\n",
              file=sys.stdout if tests else sys.stderr)
    return int(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
