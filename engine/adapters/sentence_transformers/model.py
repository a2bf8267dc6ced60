"""`Model` and `Encoder`: the base classes of the adapters with the names of sentence-transformers' classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from ...base.arguments import flag, positive_int_or_none
from ...base.errors import InputError, UnsupportedError, listed, shown
from ...encoding.text_encoder import ROLE_PROMPTS
from ...interface.engine import Engine
from ...text.tokenizer import Tokenizer
from .saving import save_folder
from .tensors import cpu

Returned = TypeVar("Returned")

_TRAINS = "the engine trains nothing; train with sentence-transformers, and load the folder that it saves"
_UPLOADS = "save_pretrained writes a folder, which hf upload of huggingface_hub puts on the hub"
_TORCH = "there are no modules of torch here; the attribute engine is the Engine, whose forward gives token vectors"
_ADAPTERS = "Engine.load merges an adapter into the weights; merge yours with peft, and load the folder that it saves"
_ON_CPU = "the engine runs on CPUs; leave it out"
_DTYPE = 'model_kwargs={"dtype": "bfloat16"} or "int8" chooses the precision when the model is loaded'

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("fit", "old_fit", "train", "gradient_checkpointing_enable", "smart_batching_collate",
                     "smart_batching_collate_text_only", "set_keep_in_fp32_modules", "merge"), _TRAINS),
    **dict.fromkeys(("add_adapter", "load_adapter", "set_adapter", "delete_adapter", "enable_adapters",
                     "disable_adapters", "active_adapter", "active_adapters", "get_adapter_state_dict",
                     "has_peft_compatible_model", "check_peft_compatible_model"), _ADAPTERS),
    **dict.fromkeys(("save_to_hub", "push_to_hub"), _UPLOADS),
    **dict.fromkeys(("forward", "parameters", "named_parameters", "modules", "named_modules", "children", "state_dict",
                     "load_state_dict", "transformers_model", "model", "config", "processor", "get_sentence_features",
                     "dtype"), _TORCH),
    **dict.fromkeys(("cuda", "share_memory"), _ON_CPU),
    **dict.fromkeys(("half", "bfloat16", "float", "double"), _DTYPE),
    "compile": "the kernels are compiled already; leave it out",
    "splade_pooling_chunk_size": "no array of all tokens and all words exists, which could be made in chunks",
}
"""The end of the error message for each method and attribute of sentence-transformers that these classes lack."""


def accept_earlier(**names: str) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Return a decorator that also accepts arguments by their names in earlier versions of sentence-transformers.

    names: the present name of an argument, by its earlier name.
    """
    def decorate(function: Callable[..., Returned]) -> Callable[..., Returned]:
        @wraps(function)
        def accepting(*args: Any, **options: Any) -> Returned:
            for earlier, name in names.items():
                if earlier in options:
                    options.setdefault(name, options[earlier])
                    del options[earlier]
            return function(*args, **options)
        return accepting
    return decorate


def check_device(device: Any) -> None:
    """Raise `UnsupportedError` for a device, or a list with one, that is not the CPU. None stands for the CPU."""
    for one in device if isinstance(device, (list, tuple)) else [device]:
        if one is not None and str(one) not in ("cpu", "cpu:0"):
            raise UnsupportedError(f"device={shown(device)}: the engine runs on CPUs, and one engine uses all that the "
                                   'process may use; say device="cpu", or leave it out')


def refuse_options(function: str, options: dict[str, Any]) -> None:
    """Raise `InputError` for options that a function does not know; empty processing_kwargs are accepted.

    function: its name, for the message. options: the ones that it has not read.
    """
    if left := [name for name, value in options.items() if not (name == "processing_kwargs" and not value)]:
        advice = ("; texts are tokenized as the model's folder says, and max_seq_length truncates them"
                  if "processing_kwargs" in left else "")
        raise InputError(f"{function} has no argument {listed(left)}{advice}")


class ModelCard:
    """Accepts the numbers that evaluators write into a model card, and drops them, as no card is written here."""

    def __init__(self, base_model: str):
        self.base_model = base_model
        """The path or the name that was loaded, by which `mine_hard_negatives` tells the files of its cache."""

    def set_evaluation_metrics(self, *args: Any, **options: Any) -> None:
        """Do nothing."""


class Model:
    """A model of sentence-transformers on an `Engine`, which is the attribute `engine`.

    The arguments are those of sentence-transformers; model_kwargs are options of `Engine.load`, such as threads=2 or
    dtype="bfloat16". Refused by name are arguments for torch: modules, another device, backend or config.
    """

    _own_prompts: tuple[str, ...] = ()
    """The names of prompts that are empty if neither the caller nor the files have them."""

    def __init__(self, model_name_or_path: Any = None, *, modules: None = None, device: Any = None,
                 prompts: dict[str, str] | None = None, default_prompt_name: str | None = None,
                 cache_folder: str | None = None, trust_remote_code: bool = False, revision: str | None = None,
                 local_files_only: bool = False, token: bool | str | None = None,
                 use_auth_token: bool | str | None = None, model_kwargs: dict[str, Any] | None = None,
                 processor_kwargs: dict[str, Any] | None = None, tokenizer_kwargs: dict[str, Any] | None = None,
                 config_kwargs: dict[str, Any] | None = None, model_card_data: None = None, backend: str = "torch"):
        """Load a model, and keep the prompts that the caller or the files state.

        processor_kwargs, tokenizer_kwargs: may have model_max_length alone. config_kwargs and other arguments for torch
        are refused. Raises the errors of `Engine.load`.
        """
        check_device(device)
        if model_name_or_path is None or modules is not None:
            raise InputError(f"{type(self).__name__} takes the path of a model; it makes none from modules of torch")
        if backend != "torch":
            raise UnsupportedError(f"backend={shown(backend)}: the engine reads the original weights, for which the "
                                   'default is right; model_kwargs={"backend": ...} chooses a backend of the engine')
        if config_kwargs:
            raise UnsupportedError(f"config_kwargs={shown(config_kwargs)}: the settings are in the model's folder; "
                                   "change its config.json")
        if model_card_data is not None:
            raise UnsupportedError("model_card_data describes models that are saved; leave it out")
        # `Engine.load` reads some of these options if the caller gives them, and refuses the others with advice.
        of_files = {"cache_folder": cache_folder, "revision": revision, "token": token,
                    "use_auth_token": use_auth_token, "trust_remote_code": trust_remote_code or None,
                    "local_files_only": local_files_only or None}
        options: dict[str, Any] = {name: value for name, value in of_files.items() if value is not None}
        for name, value in (model_kwargs or {}).items():
            options[name] = str(value).removeprefix("torch.") if name in ("dtype", "torch_dtype") else value
        self.engine = Engine.load(model_name_or_path, **options)
        self._check_kind()
        self._stated = _text_settings(self.engine)
        limit = _limit_of(processor_kwargs or tokenizer_kwargs or {})
        if limit is not None:
            self.max_seq_length = limit
        self.model_card_data = ModelCard(str(model_name_or_path))
        of_caller: Any = prompts or {}
        if not isinstance(of_caller, Mapping):
            raise InputError(f"prompts must be a dict of names and prompts, not {shown(of_caller)}")
        self.prompts: dict[str, str] = dict(of_caller)
        for name, text in [*self.engine.prompts.items(), *((name, "") for name in self._own_prompts)]:
            self.prompts.setdefault(name, text)
        self.default_prompt_name = self.engine.default_prompt_name if default_prompt_name is None else (
            default_prompt_name)
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise self._no_prompt("Default prompt name", self.default_prompt_name)

    def _check_kind(self) -> None:
        """Raise `UnsupportedError` if the engine's model is of another kind than this class."""

    def _prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        """Return the text to put in front of texts: `prompt`, or the prompt of a name, or the default prompt, or ""."""
        if prompt is not None:
            return prompt
        name = self.default_prompt_name if prompt_name is None else prompt_name
        if name is not None and name not in self.prompts:
            raise self._no_prompt("Prompt name" if prompt_name is not None else "Default prompt name", name)
        return "" if name is None else self.prompts[name]

    def _no_prompt(self, what: str, name: Any) -> InputError:
        """Return the error for an unknown name of a prompt, with the words of sentence-transformers' own error.

        what: the beginning of the message.
        """
        return InputError(f"{what} {shown(name)} not found in the configured prompts dictionary with keys "
                          f"{[*self.prompts]!r}.")

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, with special tokens; longer texts are truncated. Setting it keeps the weights."""
        return self.engine.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self.engine = self.engine.with_text(max_seq_length=positive_int_or_none("max_seq_length", value))

    def get_max_seq_length(self) -> int | None:
        """Return `max_seq_length`."""
        return self.max_seq_length

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's tokenizer, which has encode, decode and special_tokens."""
        return self.engine.tokenizer

    @accept_earlier(texts="inputs")
    def preprocess(self, inputs: Any, prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """Return token ids as int64 arrays [n,T], padded on the right: input_ids, attention_mask, token_type_ids.

        The option task, such as "query", chooses the tokenizer of a model with routes.
        """
        task = options.pop("task", None)
        refuse_options("preprocess", options)
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if prompt:      # goes in front of a text, or of the first text of a pair
            texts = [prompt + text if isinstance(text, str) else (prompt + text[0], text[1]) for text in texts]
        return (self.engine.engine_of(task) if self.engine.routes else self.engine).tokenize(texts)

    def tokenize(self, texts: Any, **options: Any) -> dict[str, Any]:
        """Return `preprocess(texts)`, which has this name in earlier versions."""
        return self.preprocess(texts, **options)

    @property
    def device(self) -> Any:
        """The CPU: a `torch.device` if torch has been imported, else a str with the attribute `type`."""
        return cpu()

    def to(self, device: Any = None, **options: Any) -> Any:
        """Return this object for the CPU; raises `UnsupportedError` for another device."""
        refuse_options("to", options)
        check_device(device)
        return self

    def cpu(self) -> Any:
        """Return this object."""
        return self

    def eval(self) -> Any:
        """Return this object, which is never trained."""
        return self

    def get_backend(self) -> str:
        """Return the name of the engine's backend."""
        return self.engine.backend

    @property
    def modalities(self) -> list[str]:
        """The kinds of inputs that the model reads."""
        return ["text"]

    def supports(self, modality: Any) -> bool:
        """Return whether the model reads a modality, such as "text"."""
        return modality in self.modalities

    def get_model_kwargs(self) -> list[str]:
        """Return the names of further arguments of a call that have an effect: task, for a model with routes."""
        return ["task"] if self.engine.routes else []

    def evaluate(self, evaluator: Callable[..., Any], output_path: str | None = None) -> Any:
        """Return what an evaluator of sentence-transformers finds; it calls the methods of this object."""
        return evaluator(self, output_path)

    def start_multi_process_pool(self, target_devices: list[str] | None = None) -> dict[str, Any]:
        """Return a pool without processes: one engine uses all CPUs, and calls with this pool run on it."""
        check_device(target_devices)
        return {"input": None, "output": None, "processes": []}

    @staticmethod
    def stop_multi_process_pool(pool: dict[str, Any]) -> None:
        """Do nothing, because a pool of `start_multi_process_pool` has no processes."""
        _check_pool(pool, chunk_size=None)

    def save_pretrained(self, path: Any, model_name: str | None = None, create_model_card: bool = True,
                        train_datasets: Any = None, safe_serialization: bool = True) -> None:
        """Write the folder that was loaded, with the settings of this object in place of its own.

        The settings are prompts, similarity, limits and dimensions; the weights are those of the files, whatever the
        precision. model_name: the name that the examples in README.md load. create_model_card: whether README.md is
        copied. train_datasets has no effect. Raises `UnsupportedError` for a model that is one file, or for a setting
        that has no place in the folder, before anything is written.
        """
        if not flag("safe_serialization", safe_serialization):
            raise UnsupportedError("safe_serialization=False: the files of the weights are copied as they are; leave "
                                   "it out")
        text = _text_settings(self.engine)
        settings = self._settings()
        changed = {name: value for name, value in (text | settings).items() if value != self._stated.get(name)}
        if self.prompts == dict.fromkeys(self._own_prompts, "") | self._stated.get("prompts", {}):
            changed.pop("prompts", None)
        save_folder(self.engine, path, settings, changed, model_name=model_name,
                    card=flag("create_model_card", create_model_card))

    save = save_pretrained

    def _settings(self) -> dict[str, Any]:
        """Return the settings to write into config_sentence_transformers.json, with None for one to leave out."""
        return {"prompts": {**self.prompts}, "default_prompt_name": self.default_prompt_name}

    def __getitem__(self, place: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__}[{shown(place)}]: {_TORCH}")

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__} is not called itself; {_TORCH}")

    def __getattr__(self, name: str) -> Any:
        advice = f"; {REFUSED[name]}" if name in REFUSED else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.engine!r})" if "engine" in vars(self) else object.__repr__(self)


class Encoder(Model):
    """A model that encodes texts, with prompts and routes for queries and documents."""

    _own_prompts = ("query", "document")

    encode: Callable[..., Any]

    def encode_query(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None, *more: Any,
                     **options: Any) -> Any:
        """Encode queries: as `encode`, with the prompt "query" unless a prompt is given, and task="query"."""
        return self._encode_as("query", inputs, prompt_name, prompt, *more, **options)

    def encode_document(self, inputs: Any = None, prompt_name: str | None = None, prompt: str | None = None, *more: Any,
                        **options: Any) -> Any:
        """Encode documents: as `encode`, with the prompt "document" unless a prompt is given, and task="document"."""
        return self._encode_as("document", inputs, prompt_name, prompt, *more, **options)

    def _encode_as(self, role: str, inputs: Any, prompt_name: str | None, prompt: str | None, *more: Any,
                   **options: Any) -> Any:
        """Encode with the prompt and the task of a role, "query" or "document", unless the caller gives a prompt."""
        if prompt is None and prompt_name is None:
            prompt_name = next((name for name in ROLE_PROMPTS[role] if name in self.prompts), None)
        inputs = options.pop("sentences") if inputs is None and "sentences" in options else inputs
        # Positional arguments are bound to their names, so that `task` can be added; `options` holds the ones by name.
        bound = signature(type(self).encode).bind(self, inputs, prompt_name, prompt, *more, task=role, **options)
        arguments = bound.arguments
        del arguments["self"]
        return self.encode(**arguments.pop("options", {}) | arguments)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"similarity_fn_name": self.similarity_fn_name}

    def _route(self, task: str | None) -> dict[str, Any]:
        """Return the option that chooses a route, for a model that has routes; other models read all tasks alike."""
        return {"task": task} if self.engine.routes and task is not None else {}

    @property
    def similarity_fn_name(self) -> str:
        """The similarity of embeddings: "cosine", "dot", "euclidean" or "manhattan", or "maxsim" or "meanmaxsim"."""
        return self.engine.similarity_fn_name

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Any) -> None:
        name = getattr(value, "value", value)       # the caller may give a member of the enumeration SimilarityFunction
        self.engine = self.engine.with_text(similarity=self._default_similarity if name is None else name)

    _default_similarity = "cosine"

    def set_pooling_include_prompt(self, include_prompt: bool) -> None:
        """Set whether the tokens of the prompt take part in pooling."""
        self.engine = self.engine.with_text(include_prompt=bool(include_prompt))

    def get_embedding_dimension(self) -> int | None:
        """Return the number of dimensions of an embedding."""
        return self.engine.get_embedding_dimension()

    def get_sentence_embedding_dimension(self) -> int | None:
        """Return `get_embedding_dimension()`, which has this name in earlier versions."""
        return self.get_embedding_dimension()


def _text_settings(engine: Engine) -> dict[str, Any]:
    """Return the text settings of an engine that its folder can hold, by their names in the files."""
    text = engine.text
    if text is None:
        return {}
    return {"prompts": text.prompts, "default_prompt_name": text.default_prompt_name,
            "similarity_fn_name": text.similarity, "truncate_dim": text.truncate_dim,
            "max_seq_length": text.max_seq_length, "include_prompt": text.include_prompt}


def check_call(device: Any, pool: Any, chunk_size: Any) -> None:
    """Check the arguments of a call that say where it runs; raises `UnsupportedError` and `InputError`."""
    check_device(device)
    _check_pool(pool, chunk_size)


def _check_pool(pool: Any, chunk_size: Any) -> None:
    """Raise `InputError` for a pool that `start_multi_process_pool` did not make: its pools have no processes."""
    positive_int_or_none("chunk_size", chunk_size)
    if pool is not None and (not isinstance(pool, dict) or pool.get("processes") != []):
        raise InputError(f"pool must come from start_multi_process_pool of this object, not {shown(pool)}")


def _limit_of(settings: dict[str, Any]) -> int | None:
    """Return model_max_length, the most tokens of a text, from settings of a tokenizer; None without it.

    Raises `UnsupportedError` for other settings.
    """
    if other := [name for name in settings if name != "model_max_length"]:
        raise UnsupportedError(f"processor_kwargs with {listed(other)}: the tokenizer is that of the model's folder; "
                               "change its tokenizer_config.json. model_max_length alone can be given")
    return positive_int_or_none("model_max_length", settings.get("model_max_length"))
