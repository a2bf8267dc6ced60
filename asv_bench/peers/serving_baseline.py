"""The server that people write themselves: FastAPI, ONNX Runtime and tokenizers, which answers /v1/embeddings.

    python -m peers.serving_baseline MODEL.onnx TOKENIZER.json THREADS PORT
"""

import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

model, tokenizer_json, threads, port = sys.argv[1:5]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
names = {one.name: np.int32 if "int32" in one.type else np.int64 for one in session.get_inputs()}
tokenizer = Tokenizer.from_file(tokenizer_json)
tokenizer.enable_truncation(256)
tokenizer.enable_padding()
app = FastAPI()


class Asked(BaseModel):
    input: str | list[str]
    model: str = "model"


@app.post("/v1/embeddings")
def embeddings(asked: Asked):  # FastAPI runs it on a thread of its own
    found = tokenizer.encode_batch([asked.input] if isinstance(asked.input, str) else asked.input)
    ids, mask = (np.array([getattr(one, name) for one in found]) for name in ("ids", "attention_mask"))
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    tokens = session.run(None, {name: values[name].astype(kind) for name, kind in names.items()})[0]
    vectors = (tokens * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return {"object": "list", "model": asked.model, "usage": {"prompt_tokens": int(mask.sum())},
            "data": [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(vectors)]}


uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
