"""Convert the config and the tensor names of Hugging Face models to the engine's own, family by family.

A family is a row of `FAMILIES`: a function that describes the encoder, one that describes the decoder with the encoder
that it reads, or both (`parts.py` has their types). To add a family, write its module and enter its model_type below.
"""

from __future__ import annotations

from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from . import (
    albert,
    bart,
    bert,
    big_bird,
    bloom,
    clip,
    codegen,
    cohere2,
    deberta,
    deberta_v2,
    decoder_encoders,
    distilbert,
    dpr,
    electra,
    embedding_gemma,
    esm,
    eurobert,
    falcon,
    gemma,
    glm,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gpt_neox,
    granite,
    gte,
    jina_bert,
    jina_embeddings_v3,
    llama,
    modernbert,
    mpnet,
    mpt,
    neobert,
    nomic_bert,
    olmo,
    olmo2,
    opt,
    phi,
    phi3,
    roberta,
    siglip,
    smollm3,
    stablelm,
    starcoder2,
    t5,
    umt5,
    vit,
    whisper,
)
from .fields import class_name, refuse_remote_code
from .parts import Family, plain

FAMILIES: dict[str, Family] = {
    "albert": plain(albert),
    "bart": Family(bart.read_encoder, bart.read_generator, bart.read_headed_decoder, translates=True),
    "bert": plain(bert),
    "big_bird": plain(big_bird),
    "blenderbot": Family(bart.read_encoder, bart.read_generator, translates=True),
    "bloom": Family(read_generator=bloom.read_generator),
    "camembert": plain(roberta),
    "clip": Family(clip.read_encoder),
    "clip_text_model": Family(clip.read_encoder),
    "codegen": Family(read_generator=codegen.read_generator),
    "cohere2": Family(read_generator=cohere2.read_generator),
    "deberta": plain(deberta),
    "deberta-v2": plain(deberta_v2),
    "dinov2": Family(vit.read_encoder),
    "dinov2_with_registers": Family(vit.read_encoder),
    "distilbert": plain(distilbert),
    "dpr": Family(dpr.read_encoder),
    "electra": plain(electra),
    "ernie4_5": Family(read_generator=llama.read_generator),
    "esm": plain(esm),
    "eurobert": plain(eurobert),
    "exaone4": Family(read_generator=olmo2.read_generator),
    "falcon": Family(read_generator=falcon.read_generator),
    "gemma": Family(read_generator=gemma.read_generator),
    "gemma2": Family(read_generator=gemma.read_generator),
    "gemma3": Family(read_generator=gemma.read_generator),
    "gemma3_text": Family(embedding_gemma.read_encoder, gemma.read_generator, usual=embedding_gemma.usual),
    "glm": Family(read_generator=glm.read_generator),
    "gpt2": Family(read_generator=gpt2.read_generator),
    "gpt_bigcode": Family(read_generator=gpt_bigcode.read_generator),
    "gpt_neo": Family(read_generator=gpt_neo.read_generator),
    "gpt_neox": Family(read_generator=gpt_neox.read_generator),
    "gptj": Family(read_generator=codegen.read_generator),
    "granite": Family(read_generator=granite.read_generator),
    "granitemoehybrid": Family(read_generator=granite.read_generator),
    "gte": plain(gte),
    "helium": Family(read_generator=llama.read_generator),
    "internlm3": Family(read_generator=llama.read_generator),
    "jina_embeddings_v3": Family(jina_embeddings_v3.read_encoder),
    "llama": Family(decoder_encoders.read_encoder, llama.read_generator, usual="generate"),
    "m2m_100": Family(bart.read_encoder, bart.read_generator, translates=True),
    "marian": Family(bart.read_encoder, bart.read_generator, translates=True),
    "mbart": Family(bart.read_encoder, bart.read_generator, translates=True),
    "ministral": Family(read_generator=llama.read_generator),
    "mistral": Family(decoder_encoders.read_encoder, llama.read_generator, usual="generate"),
    "modernbert": plain(modernbert),
    "mpnet": plain(mpnet),
    "mpt": Family(read_generator=mpt.read_generator),
    "mt5": Family(t5.read_encoder, t5.read_generator),
    "neobert": plain(neobert),
    "new": plain(gte),
    "nomic_bert": plain(nomic_bert),
    "olmo": Family(read_generator=olmo.read_generator),
    "olmo2": Family(read_generator=olmo2.read_generator),
    "olmo3": Family(read_generator=olmo2.read_generator),
    "opt": Family(read_generator=opt.read_generator),
    "pegasus": Family(bart.read_encoder, bart.read_generator, translates=True),
    "phi": Family(read_generator=phi.read_generator),
    "phi3": Family(read_generator=phi3.read_generator),
    "qwen2": Family(decoder_encoders.read_encoder, llama.read_generator, usual="generate"),
    "qwen3": Family(decoder_encoders.read_encoder, llama.read_generator),
    "roberta": plain(roberta),
    "seed_oss": Family(read_generator=llama.read_generator),
    "siglip": Family(siglip.read_encoder),
    "siglip2": Family(siglip.read_encoder),
    "siglip2_text_model": Family(siglip.read_encoder),
    "siglip_text_model": Family(siglip.read_encoder),
    "smollm3": Family(read_generator=smollm3.read_generator),
    "stablelm": Family(read_generator=stablelm.read_generator),
    "starcoder2": Family(read_generator=starcoder2.read_generator),
    "t5": Family(t5.read_encoder, t5.read_generator),
    "umt5": Family(umt5.read_encoder, umt5.read_generator),
    "vit": Family(vit.read_encoder),
    "whisper": Family(whisper.read_encoder, whisper.read_generator, generates="transcribe"),
    "xlm-roberta": plain(roberta),
}
"""The family of each model_type of config.json."""

BY_POSITIONS: dict[tuple[str, str], tuple[str, Family]] = {
    ("bert", "alibi"): ("jina_bert", plain(jina_bert)),
    ("xlm-roberta", "rotary"): ("jina_embeddings_v3", Family(jina_embeddings_v3.read_encoder)),
}
"""The name and the row of a family that shares its model_type, by model_type and position_embedding_type."""

_EMBEDDING_GEMMA_2 = "EmbeddingGemma 2 adds a gated input to each layer; the first EmbeddingGemma is supported"
REFUSED = {"embedding_gemma2": _EMBEDDING_GEMMA_2, "embedding_gemma2_text": _EMBEDDING_GEMMA_2}
"""Why a model_type is refused that users may take for one of the supported families."""

REFUSED_CLASSES = ("ChronosBoltModelForForecasting", "Chronos2Model")
"""Classes that forecast series of numbers, and whose config.json has the model_type of a supported family."""

REMOTE_CODE = {
    "eurobert": ("EuroBertModel",),
    "falcon": ("FalconModel", "RWModel"),
    "gte": ("GteModel",),
    "internlm3": ("InternLM3Model",),
    "jina_bert": ("JinaBertModel",),
    "jina_embeddings_v3": ("XLMRobertaLoRA", "XLMRobertaModel"),
    "neobert": ("NeoBERT",),
    "new": ("NewModel",),
    "nomic_bert": ("NomicBertModel",),
    "qwen2": ("Qwen2Model",),
    "xlm-roberta": ("XLMRobertaModel",),
}
"""The classes of remote code that compute the same as the family here, under their names in auto_map.

The keys are values of model_type and names in `BY_POSITIONS`. Folders of these families were published with
their code, before transformers had it.
"""

_STATED_BY_CODE = ("qwen2",)
"""Names whose code decides whether a token sees later tokens, unless config.json states it."""


def get_family(values: dict[str, Any]) -> Family:
    """Return the family of the model that a config.json describes; raises `UnsupportedError` for an unknown one."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(FAMILIES)}), not {shown(model_type)}")
    if model_type not in FAMILIES:
        reason = f" ({REFUSED[model_type]})" if model_type in REFUSED else ""
        raise UnsupportedError(f"model_type {shown(model_type)} is not supported{reason}; supported are "
                               f"{', '.join(FAMILIES)}")
    if class_name(values) in REFUSED_CLASSES:
        raise UnsupportedError(f"architectures names {class_name(values)}, which forecasts series of numbers and is "
                               f"no plain {shown(model_type)} model; the engine does not run this kind of model")
    name, family = model_type, FAMILIES[model_type]
    positions = values.get("position_embedding_type")
    if isinstance(positions, str):
        name, family = BY_POSITIONS.get((model_type, positions), (name, family))
    known = REMOTE_CODE.get(name, ())
    if name in _STATED_BY_CODE and type(values.get("is_causal")) is not bool:
        known = ()
    refuse_remote_code(values, known)
    return family
