"""Search the lines of a file with the vectors of `engine serve MODEL`: give its address, a query and the file."""

import base64
import json
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np


def ask(url, texts, input_type, tries=5):
    """Return the vectors of texts, float32 [n, dimensions]; a server that has too much to do is asked again."""
    body = json.dumps({"input": texts, "input_type": input_type, "encoding_format": "base64", "truncate": True})
    request = Request(f"{url}/v1/embeddings", body.encode(), {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=60) as answer:
            rows = json.load(answer)["data"]
    except HTTPError as error:
        if error.code not in (429, 503) or not tries:
            raise SystemExit(error.read().decode()) from None
        time.sleep(int(error.headers["retry-after"] or 1))
        return ask(url, texts, input_type, tries - 1)
    return np.array([np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in rows])


def search(url, query, texts, count=3):
    """Return the nearest texts, each with its similarity."""
    scores = ask(url, texts, "search_document") @ ask(url, [query], "search_query")[0]
    return [(float(scores[i]), texts[i]) for i in np.argsort(-scores)[:count]]


if __name__ == "__main__":
    for score, text in search(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text(encoding="utf-8").splitlines()):
        print(f"{score:.3f}  {text}")
