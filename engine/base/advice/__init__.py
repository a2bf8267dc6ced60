"""The one table of the names that other libraries and programs have: what means the same here, or what to do instead.

The libraries are transformers, llama-cpp-python, CTranslate2, faster-whisper, openai-whisper, fastembed,
sentence-transformers, FlagEmbedding, torch and the API of OpenAI; the programs are llama.cpp, whisper.cpp, vLLM,
text-embeddings-inference and those of these libraries. Calls, attributes, the command line and the tables of
docs/coming-from.md are answered from it.

calls.py        the arguments of functions       commands.py     commands, and their options
attributes.py   what objects do not have
"""
