"""The route /zero-shot of Hugging Face's API, which classifies by labels of the client: its form and its work."""

from __future__ import annotations

from ..heads.zero_shot import TEMPLATE
from .forms import AnyModel, Form, Kind, Route, Wanted, characters_of, scored_rows
from .images import Item, inputs_of
from .refusals import TEI, Refusal
from .settings import MAX_LABELS, MAX_TOKENIZED
from .tei import Parameters, take_parameters


class ZeroShotParameters(Parameters, kw_only=True):
    """The object `parameters` of a request to /zero-shot: the labels, and how they are compared with the inputs."""

    candidate_labels: str | list[str]
    hypothesis_template: str | None = None
    multi_label: bool | None = None


class ZeroShotForm(Form):
    """A request to /zero-shot."""

    inputs: str | Item | list[str | Item]
    parameters: ZeroShotParameters

    def __post_init__(self) -> None:
        take_parameters(self, self.parameters)


def zero_shot(form: ZeroShotForm, model: AnyModel) -> Wanted:
    """Return the work for /zero-shot: all labels of each text or image, the best first; raises `Refusal`."""
    parameters = form.parameters
    inputs, single = inputs_of("inputs", form.inputs, model)
    labels, template = parameters.candidate_labels, parameters.hypothesis_template or TEMPLATE
    # Labels in one text are divided at commas. Each label becomes a hypothesis, the template with the label in it.
    count = labels.count(",") + 1 if isinstance(labels, str) else len(labels)
    characters = count * len(template) + (len(labels) if isinstance(labels, str) else characters_of(labels))
    for size, most, what in ((count, MAX_LABELS, "labels"), (characters, MAX_TOKENIZED, "characters of hypotheses")):
        if size > most:
            raise Refusal("too_large", f"parameters.candidate_labels has {size:,} {what}, and a request may have "
                          f"{most:,}; send fewer", "parameters.candidate_labels")

    options = {"top_k": None, "candidate_labels": labels, "hypothesis_template": parameters.hypothesis_template,
               "multi_label": bool(parameters.multi_label)}
    return Wanted("classify", inputs, lambda answer, asked: scored_rows(answer.value, single), options=options,
                  single=single)


ROUTES = (Route("/zero-shot", Kind(TEI, ZeroShotForm, zero_shot, ("classify",))),)
