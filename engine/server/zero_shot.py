"""The route of Hugging Face's API for labels of the client: the form of requests, and the bodies of answers."""

from __future__ import annotations

from ..heads.zero_shot import TEMPLATE
from .forms import AnyModel, Form, Kind, Route, Wanted, characters_of, scored_rows
from .images import Item, inputs_of
from .refusals import TEI, Refusal
from .settings import MAX_LABELS, MAX_TOKENIZED
from .tei import Parameters, take_parameters


class ZeroShotParameters(Parameters, kw_only=True):
    """The labels of a request to /zero-shot."""

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
    """Return the work for labels of the client, all labels of each text or image, the best first."""
    given = form.parameters
    inputs, single = inputs_of("inputs", form.inputs, model)
    labels, template = given.candidate_labels, given.hypothesis_template or TEMPLATE
    count = labels.count(",") + 1 if isinstance(labels, str) else len(labels)
    characters = count * len(template) + (len(labels) if isinstance(labels, str) else characters_of(labels))
    for found, most, what in ((count, MAX_LABELS, "labels"), (characters, MAX_TOKENIZED, "characters of hypotheses")):
        if found > most:
            raise Refusal("too_large", f"parameters.candidate_labels has {found:,} {what}, and a request may have "
                          f"{most:,}; send fewer", "parameters.candidate_labels")

    options = {"top_k": None, "candidate_labels": labels, "hypothesis_template": given.hypothesis_template,
               "multi_label": bool(given.multi_label)}
    return Wanted("classify", inputs, lambda answer, asked: scored_rows(answer.value, single), options=options,
                  single=single)


ROUTES = (Route("/zero-shot", Kind(TEI, ZeroShotForm, zero_shot, ("classify",))),)
