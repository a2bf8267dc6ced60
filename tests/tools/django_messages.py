"""The translated messages of Django's .po files, as texts with the app that each belongs to."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("ca", "da", "de", "es", "fr", "it", "nb", "nl", "pl", "pt", "ro", "sv")
"""Those that the classifier is trained in."""
OTHER_LANGUAGES = ("ar", "cs", "el", "fi", "he", "hu", "ja", "ko", "ru", "tr", "vi", "zh_Hans")
"""Those that it is not."""


@dataclass(frozen=True)
class Message:
    """A message of one app in one language."""

    app: str
    language: str
    message: str
    """In English."""
    text: str
    """Translated."""


def entries(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each message of a .po file with its translation; of plurals the singular, and nothing marked as fuzzy."""
    fields: dict[str, str] = {}
    name, fuzzy = "", False
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if not line.strip():
            text = fields.get("msgstr") or fields.get("msgstr[0]")
            if fields.get("msgid") and text and not fuzzy:
                yield fields["msgid"], text
            fields, name, fuzzy = {}, "", False
        elif line.startswith("#,"):
            fuzzy = "fuzzy" in line
        elif line.startswith("msg"):
            name, _, quoted = line.partition(" ")
            fields[name] = ast.literal_eval(quoted)
        elif line.startswith('"') and name:
            fields[name] += ast.literal_eval(line)


def messages(package: Path) -> list[Message]:
    """Return the messages of Django's package in all of these languages, once each, without those of several apps."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for path in sorted(package.glob("**/locale/*/LC_MESSAGES/*.po")):
        language = path.parts[-3]
        app = path.parts[-5] if "contrib" in path.parts else "core"
        if language in (*LANGUAGES, *OTHER_LANGUAGES):
            for message, text in entries(path):
                found[language, " ".join(text.split())].add((app, message))
    return [Message(app, language, message, text) for (language, text), own in found.items()
            if len({app for app, _ in own}) == 1 for app, message in [min(own)]]


def apps_of(rows: list[Message], least: int) -> list[str]:
    """Return the apps with at least so many different messages."""
    of_app: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        of_app[row.app].add(row.message)
    return sorted(app for app, own in of_app.items() if len(own) >= least)
