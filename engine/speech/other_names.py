"""What other libraries call the arguments of a transcription.

`same` names our argument, with pairs (theirs, ours). `instead` and `nothing` have advice, then accepted values.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import AS_ARGUMENTS, OtherName, instead, nothing, register, same
from ..generation.other_names import GENERATE

_WINDOWS = "each window is transcribed by itself, once"
TRANSCRIBE: Mapping[str, OtherName] = {
    **{name: row for name, row in GENERATE.items() if name not in ("input_ids", "src_lang", "tgt_lang")},
    "sounds": OtherName("audio", earlier=True),
    "inputs": same("audio"),
    "file": same("audio"),
    "return_timestamps": same("timestamps"),
    "word_timestamps": same("timestamps", (True, "word")),
    "without_timestamps": same("timestamps", (True, False), (False, True)),
    "timestamp_granularities": instead('timestamps=True gives the times of segments, timestamps="word" those of words'),
    "response_format": instead("timestamps=True gives segments with times", "text"),
    "log_progress": same("show_progress_bar"),
    "generate_kwargs": instead(AS_ARGUMENTS, {}),
    "initial_prompt": nothing("the model gets no text before the recording"),
    "prompt": nothing("the model gets no text before the recording", ""),
    "prompt_ids": nothing("the model gets no text before the recording"),
    "hotwords": nothing("the model gets no text before the recording"),
    "vad_filter": nothing("cut silence off before the call; silent windows give no text anyway", False),
    "vad_parameters": nothing("cut silence off before the call"),
    "clip_timestamps": nothing("pass the samples of each part as a recording", "0"),
    "condition_on_previous_text": nothing(_WINDOWS, False),
    "condition_on_prev_tokens": nothing(_WINDOWS, False),
    "prompt_reset_on_temperature": nothing(_WINDOWS),
    "temperature_increment_on_fallback": nothing(_WINDOWS),
    "compression_ratio_threshold": nothing(_WINDOWS),
    **{name: instead("a silent window is always one with a log probability below -1.0 for a token in the mean", -1.0)
       for name in ("log_prob_threshold", "logprob_threshold")},
    "no_speech_threshold": instead('a silent window is always one whose probability of "no speech" is above 0.6', 0.6),
    "hallucination_silence_threshold": nothing(_WINDOWS),
    "max_initial_timestamp": instead("max_initial_timestamp_index counts steps of 0.02 s"),
    "suppress_blank": instead("begin_suppress_tokens names the tokens that must not come first", True),
    "language_detection_threshold": instead("detect_language gives the probability of the language"),
    "language_detection_segments": instead("the language is that of the first 30 s", 1),
    "multilingual": nothing("each recording has one language", False),
    "chunk_length": nothing("windows have 30 s", 30),
    "chunk_length_s": nothing("windows have 30 s", 0, 30),
    "stride_length_s": nothing("each window begins where the last segment of the window before it ends"),
    "verbose": instead("show_progress_bar=True shows a bar", False),
    "fp16": instead('precision="bfloat16" of load computes in 16 bits, where the CPU does', False),
}

register({"transcribe": TRANSCRIBE, "transcriptions": TRANSCRIBE, "detect_language": {"sounds": TRANSCRIBE["sounds"]},})
