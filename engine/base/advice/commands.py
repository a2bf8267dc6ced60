"""What becomes of the commands of other programs, and of their options."""

from __future__ import annotations

from collections.abc import Mapping

from ..other_names import OtherName, each, instead, same
from .calls import LOAD

MODEL, FILE = "MODEL", "FILE"
"""The places of the model, and of the file or the recordings behind it, which have no option here."""
_TALK = "engine chat MODEL is a talk, with the template of the model"
_TEXT = each({"--texts --sentences": same("--text")})
_LABELS = each({"--candidate-labels --labels": same("--candidate-label")})
_SEARCH = {"-n": same("--max-new-tokens"), "-s": same("--seed"), "--temp": same("--temperature")}
_LLAMA_CPP = {"-c": LOAD["n_ctx"], "--ctx-size": LOAD["n_ctx"], "-ngl": LOAD["n_gpu_layers"]}
_WRITES = "--{} writes it to standard output, and -o FILE to a file"

OPTIONS: Mapping[str, Mapping[str, OtherName]] = {
    "": each({
        "-m -hf --model --hf-repo": same(MODEL), "-t": same("--threads"), "-i --input": same(FILE),
        "--device": instead("without it the engine runs on CPUs; --backend cuda runs on an NVIDIA GPU", "cpu"),
        "-o": instead("the report goes to standard output; write > FILE at the end")}),
    "convert": each({
        "--outtype --quantization --quantize -q": same(
            "--precision", ("default", None), ("auto", None), ("int8_float32", "int8"), ("int8_bfloat16", "int8")),
        "--outfile": same("--output"), "-i --input": same(MODEL),
        "--output-dir": instead("-o takes the file to write, ending in .npz")}),
    "encode": {**_TEXT, **each({
        "--documents": same("--text"), "--normalize-embeddings": same("--normalize"),
        "-p": instead("--text TEXT gives the text itself, and --prompt what stands in front of each text")})},
    "embed": each({
        "-i": same("--input"), "--normalize-embeddings": same("--normalize"),
        "--dimensions --output-dimension": same("--truncate-dim"), "--candidate-labels": same("--candidate-label")}),
    "classify": {**_TEXT, **_LABELS, "-k": same("--top-k"),
                 "--return-all-scores": same("--top-k", (True, "0"), (False, "1"))},
    "tag": _TEXT,
    "answer": each({"-q": same("--question"), "-c --contexts": same("--context"), "-k": same("--top-k")}),
    "rank": each({"-q": same("--query"), "-d --documents --docs --passages --texts": same("--document"),
                  "-k": same("--top-k")}),
    "generate": {**_LLAMA_CPP, **_SEARCH, **each({
        "-cnv --conversation -sys --system-prompt --chat-template": instead(_TALK),
        "-p --prompts --text --texts": same("--prompt"),
        "-f --file": instead("the file is the second argument, without an option, and each line of it is a prompt")})},
    "chat": {**_LLAMA_CPP, **_SEARCH, **each({
        "-sys --system-prompt": same("--system"), "-p": same("--prompt"), "--chat-template-file": same("--template"),
        "--chat-template": instead("--template takes a file with the template"),
        "-cnv --conversation": instead("engine chat is a conversation; leave it out", True)})},
    "translate": {**_TEXT, **_SEARCH, **each({
        "-f --file": same(FILE), "--source-lang --from": same("--source-language"),
        "--target-lang --to": same("--target-language")})},
    "transcribe": each({
        "-f": same(FILE), "-l": same("--language", ("auto", None)), "--word-timestamps": same("--words"),
        "--output-dir": instead("--output takes the path of a file"),
        "--output-format": instead("--json, --srt and --vtt are the formats"),
        "-osrt": instead(_WRITES.format("srt")), "-ovtt": instead(_WRITES.format("vtt")),
        "-oj": instead(_WRITES.format("json")),
        "-otxt": instead("the text goes to standard output; -o FILE writes a file")}),
    "serve": each({
        "--model-id": same(MODEL), "--hostname": same("--host"), "-p": same("--port"), "--uds-path": same("--uds"),
        "--served-name --alias": same("--served-model-name"), "--payload-limit": same("--max-body-bytes"),
        "--engine": instead("--backend says what computes"),
        "--api-key": instead("a key in a command line is seen by all users of the machine; write it into a file, and "
                             "give --api-key-file, or set the variable ENGINE_API_KEY"),
        "--no-mmap": same("--memory", (True, "copy"), (False, "map")),
        "--disable-http2": instead("there is only HTTP/1.1", True),
        "--max-num-batched-tokens --batch-size -b -ub --ubatch-size":
            instead("--max-batch-tokens bounds what is computed at a time, in tokens"),
        "--max-num-seqs -np --parallel": same("--max-rows"),
        "--kv-cache-dtype -ctk --cache-type-k": instead("--cache says the precision of the keys and values"),
        "--max-concurrent-requests --max-queue":
            instead("requests are admitted by their tokens; --max-wait bounds how long the first answer waits"),
        "--max-client-batch-size --max-batch-requests":
            instead("a list of any length is served; --max-body-bytes bounds a request"),
        "--auto-truncate --default-prompt --default-prompt-name":
            instead("a request says it, in the fields truncate and prompt_name"),
        "--cors-allow-origin --allowed-origins --permissive-cors":
            instead("pages of other origins are refused; let a proxy allow them"),
        "--ssl-keyfile --ssl-certfile --ssl-key-file --ssl-cert-file":
            instead("let a proxy such as nginx or Caddy do TLS"),
        "--prometheus-port": instead("GET /metrics has them"),
        "--metrics --enable-metrics": instead("GET /metrics always has them", True),
        "--json-output": instead("the log is always lines of JSON on standard error", True),
        "--log-format --log-level": instead("the log is lines of JSON on standard error"),
        "--tokenization-workers --workers --num-workers":
            instead("--threads bounds the threads, and one process serves all clients"),
        "--embedding --embeddings --rerank --reranking --runner":
            instead("the files of the model say what it is for, or --kind does"),
        "--pooling --pooling-method": instead("the files of the model say how its tokens are pooled"),
        "--max-model-len --ctx-size -c":
            instead("the files of the model say how long a text may be, and --cache-tokens bounds the cache of a model "
                    "that writes texts"),
        "--chat-template --jinja --chat-template-file":
            instead("the template is that of the folder: chat_template.jinja, or tokenizer_config.json"),
        "--reasoning-parser --reasoning-format --enable-reasoning":
            instead("the template of the model says where its reasoning stands", True)}),
}
"""What becomes of the options of other programs, by our command; "" is for all. `ours` is an option of the command, or
`MODEL` or `FILE`; a name that ends with s gives an option that may come several times all texts behind it. These names
are no arguments of `CALLS`, or are other options than arguments. Each becomes ours only where the command has it."""

COMMANDS: Mapping[str, OtherName] = each({
    "talk conversation conversational": same("chat"),
    "complete completion text-generation": same("generate"),
    "run cli": instead("engine generate MODEL --prompt TEXT and engine chat MODEL do it"),
    "download pull get": same("fetch"),
    "env environment": same("doctor"),
    "quantize export save": instead("engine convert MODEL out.npz does it"),
    "vectorize": same("encode"),
    "embeddings embedding sentence-similarity feature-extraction":
        instead("engine encode MODEL FILE -o vectors.npy does it"),
    "rerank reranking": same("rank"),
    "ner token-classification": same("tag"),
    "text-classification sentiment-analysis zero-shot-classification": same("classify"),
    "predict": instead("engine classify MODEL FILE does it"),
    "qa question-answering": same("answer"),
    "translation text2text-generation": same("translate"),
    "summarize summarization": instead("engine translate MODEL FILE does it"),
    "asr whisper automatic-speech-recognition": same("transcribe"),
    "speech": instead("engine transcribe MODEL RECORDING does it"),
    "benchmark speed": same("bench"),
    "version": same("--version"),
    "help": same("--help"),
    "server v2 text-embeddings-router": same("serve"),
    "start api": instead("engine serve MODEL does it"),
})
"""What becomes of the commands of other command lines."""
