"""SmolLM2-135M-Instruct answers by the template in its GGUF file."""

import pytest

import engine

from ..tools import smollm2


def test_the_template_of_a_gguf_file():
    if not smollm2.FILE.exists():
        pytest.skip(smollm2.MISSING)
    with engine.load(smollm2.FILE, threads=1) as model:
        question = [{"role": "user", "content": "What is the capital of France?"}]
        continued = model.chat([*question, {"role": "assistant", "content": "The capital is"}],
                               continue_final_message=True, max_new_tokens=8)
        prompt = model.apply_chat_template(question)
    assert continued.message["content"] == "The capital is Paris, France."
    assert prompt == ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
                      "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
