"""Mistakes in the classes that users hold, and in the command line."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="cut-without-a-word",
        what="A text that is longer than the model reads is cut without a warning.",
        file="engine/text/tokenizer.py",
        right="            self._report(part, kept, encoded)\n",
        wrong="",
        tests="tests/text/test_cuts.py",
        caught_by=(
            "tests/text/test_cuts.py::test_a_call_warns_once",
            "tests/text/test_cuts.py::test_a_stream_warns_once",
        ),
    ),
    Mistake(
        name="bits-as-numbers",
        what="Vectors of one bit a dimension are compared by the cosine of their bytes.",
        file="engine/encoding/similarity.py",
        right='        return "binary" if array.dtype == np.int8 else "ubinary"',
        wrong="        return array.dtype.name",
        tests="tests/encoding/test_similarity.py",
        caught_by=(
            "tests/encoding/test_similarity.py::test_packed_vectors_are_compared_by_their_bits",
            "tests/encoding/test_similarity.py::test_vectors_in_two_precisions_are_not_compared",
        ),
    ),
    Mistake(
        name="status-of-an-error",
        what="The command line says what is wrong, and ends with the status of success.",
        file="engine/cli/main.py",
        right='    except (EngineError, OSError) as error:\n        print(f"engine {args.command}: '
              '{spoken(str(error))}", file=sys.stderr)\n        return 1',
        wrong='    except (EngineError, OSError) as error:\n        print(f"engine {args.command}: '
              '{spoken(str(error))}", file=sys.stderr)',
        tests="tests/cli/test_cli.py",
        caught_by=(
            "tests/cli/test_cli.py::test_convert_wants_an_npz",
            "tests/cli/test_cli.py::test_convert_to_int8",
        ),
    ),
    Mistake(
        name="digits-of-a-number",
        what="Vectors are written with seven digits, of which other numbers are read back.",
        file="engine/cli/encode.py",
        right='f"{x:.9g}"',
        wrong='f"{x:.7g}"',
        tests="tests/cli/test_cli.py -k encode",
        caught_by=("tests/cli/test_cli.py::test_encode_to_text",),
    ),
    Mistake(
        name="pickle-without-the-task",
        what="A pickled engine forgets its adapter.",
        file="engine/interface/engine.py",
        right="memory=memory, task=task,\n                                 revision=commit)",
        wrong="memory=memory,\n                                 revision=commit)",
        tests="tests/families/test_adapters.py",
        caught_by=("tests/families/test_adapters.py::test_a_pickled_engine_keeps_its_task",),
    ),
    Mistake(
        name="half-a-character",
        what="A stream gives the replacement character before all bytes of a character are there.",
        file="engine/text/incremental.py",
        right="yield self._decoder.decode(data), False",
        wrong="yield self._decoder.decode(data, True), False",
        tests="tests/interface/test_generator.py -k stream",
        caught_by=("tests/interface/test_generator.py::test_a_stream_waits_for_all_bytes_of_a_character",),
    ),
    Mistake(
        name="timeout-of-true",
        what="True is taken for a timeout of one second.",
        file="engine/base/stop.py",
        right="if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9:",
        wrong="if not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9:",
        tests="tests/interface/test_arguments.py tests/backends/cpu/test_stop.py tests/interface/test_engine.py",
        caught_by=("tests/backends/cpu/test_stop.py::test_timeouts_of_an_engine",),
    ),
    Mistake(
        name="smallest-cosine",
        what='precision="auto" looks at the mean of the cosines, and not at the least one.',
        file="engine/interface/auto_precision.py",
        right='return float(np.min((a * b).sum(axis=1)))',
        wrong='return float(np.mean((a * b).sum(axis=1)))',
        tests="tests/interface/test_auto_precision.py",
        caught_by=("tests/interface/test_auto_precision.py::test_the_worst_vector_decides",),
    ),
    Mistake(
        name="start-of-a-known-prompt-too-long",
        what="A long document is cut as if the pieces before it had no tokens, so a prompt is longer than max_length.",
        file="engine/interface/reranker.py",
        right="limit = self.max_length - len(self._end) - len(prefix)",
        wrong="limit = self.max_length - len(self._end)",
        tests="tests/interface/test_reranker.py",
        caught_by=("tests/interface/test_reranker.py::test_the_prompt_of_a_known_model",),
    ),
    Mistake(
        name="classifier-generates",
        what="The folder of a classifier, of an embedding model or of a reranker generates in silence.",
        file="engine/interface/loaded.py",
        right='        if kind == "generate" and not source.kind_given:\n',
        wrong='        if kind == "other":\n',
        tests="tests/interface/test_load.py -k silence",
        caught_by=("tests/interface/test_load.py::test_a_folder_of_another_use_does_not_generate_in_silence",),
    ),
)
