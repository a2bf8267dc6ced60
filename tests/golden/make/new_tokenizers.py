"""Make the golden files of tokenizers whose ids are those of transformers 5: the folders `tokenizers.OF_VERSION_5`."""

from tests.golden.make.tokenizers import OF_VERSION_5, main

if __name__ == "__main__":
    main([*OF_VERSION_5])
