"""The texts on which the heads are compared with other libraries. Nothing here needs the engine."""

import random

PEOPLE = ("Anna", "Bilal", "Chen", "Dario", "Eva", "Farah")
PLACES = ("Berlin", "Cairo", "Delhi", "Oslo", "Quito", "Tokyo")
GOOD = ("good", "lovely", "fine", "bright")
BAD = ("bad", "awful", "dull", "grim")
OTHER = ("the", "cat", "sat", "on", "a", "mat", "and", "we", "saw", "it", "today", "with", "friends", "lives", "in",
         "works", "for", "was", "very", "not", "but", "blue", "house", "river", "2024", "42", "rain", "unbelievably")


def sentence(seed: int, words: int) -> str:
    """Return a sentence of this number of words, with names of people and places among them."""
    rng = random.Random(seed)
    kinds = [OTHER, OTHER, OTHER, PEOPLE, PLACES, GOOD, BAD]
    return " ".join(rng.choice(rng.choice(kinds)) for _ in range(words))


LONG = sentence(99, 5000)
TEXTS = (
    "Anna lives in Berlin and works for Bilal.",
    "The cat sat on a mat; it was very good!",
    "awful, awful rain in Cairo today",
    "Chen saw Dario with friends in Tokyo, Oslo and Quito.",
    "Unbelievably dull.", "lovely", "a", "", " ", "\n\t ", "  two  spaces   between  words  ",
    "no-space,after:commas;here",
    "Anna-Eva O'Chen's house (blue)", "ANNA IN BERLIN", "annaberlin", "Berlin.Cairo", "e-mail: anna@berlin.example",
    "😀", "Anna 😀 lives 🏠 in Tokyo 🗼!", "👩‍👩‍👧‍👦 family", "安娜住在柏林。", "陈 lives in 东京 today",
    "آنا تعيش في برلين",
    "مرحبا Anna في القاهرة", "Übung macht Fårah größer", "cafe\u0301 in Oslo", "ﬁne ﬀ ligatures", "x²+y³=42",
    "\u200bzero\u200bwidth", "tab\tseparated\tAnna\tCairo", "line\nbreaks\r\nin Delhi", "a" * 300, "Eva " * 90,
    "[MASK] and [SEP] <mask> </s> in text", "## hash ##ing", "▁under ▁score", "1,234.56 in 2024-11-23",
    sentence(1, 40), sentence(2, 200), LONG,
)
"""40 texts."""

WINDOWED = (*TEXTS[:2], TEXTS[-2], " ".join(LONG.split()[:700]))
"""Texts that are read in windows."""

WORDS = (["Anna", "lives", "in", "Berlin", "."], ["unbelievably", "O'Chen", "friends", "Tokyo"], ["a"], [])
"""Texts that are lists of words."""

PAIRS = (
    ("Who lives in Berlin?", "Anna lives in Berlin and works for Bilal."), ("Who?", "Bilal was in Oslo."),
    ("Who lives in Berlin?", "The cat sat on a mat."), ("Who lives in Berlin?", ""), ("", "Anna"), ("Who?", "a"),
    ("Who lives in Berlin?", "陈 lives in 东京 today"), ("Who lives in Berlin?", sentence(3, 60)),
    ("Who lives in Berlin?", sentence(4, 300)), (sentence(5, 200), "Anna lives in Berlin."),
    (sentence(6, 120), sentence(7, 120)), ("Who 😀?", "Anna 😀 lives 🏠 in Tokyo 🗼!"), ("مرحبا", "آنا تعيش في برلين"),
    ("Who lives in Berlin?", "  Eva   lives  in  Berlin  "), ("Who lives in Berlin?", "Anna-Eva lives in (Berlin)."),
    ("Who lives in Berlin?", sentence(8, 30)), ("Who lives in Berlin?", "Anna " * 40), ("a", "[SEP] Anna </s>"),
)
"""Pairs of texts, and questions with the text that may answer them."""

MASKED = ("Anna {} in Berlin.", "The {} sat on a {}.", "{}", "陈 {} in 东京", "it was very {}!", "{} {} {}",
          "Unbelievably {} 😀 today")
"""Texts with masks in the places of {}."""
