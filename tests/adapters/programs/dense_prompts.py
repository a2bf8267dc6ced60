"""Put prompts in front of texts, by name and as a text."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2", prompts={"question": "Question: ", "passage": "Passage: "},
                            default_prompt_name="question")
texts = ["How deep is the lake?"]
print(model.prompts["question"], model.default_prompt_name)
print(model.encode(texts), model.encode(texts, prompt_name="passage"), model.encode(texts, prompt="Lake: "))
print(model.encode_query(texts), model.encode_document(texts))
