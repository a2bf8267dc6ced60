"""Turn text into token ids, and token ids into text."""
