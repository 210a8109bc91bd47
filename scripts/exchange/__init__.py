"""What import.py and export.py are made of, a module a subject:

guard       the process that a script's work is done in
process     how a script ends: statuses, messages, signals, the limit on memory
files       inputs that are regular files, outputs that are replaced as a whole
program     what is asked of decode
families    the families of transformers, a row each
shapes      what a config of transformers says of a model and its tensors
stores      the files of a folder that hold weights (safetensors)
torchfile   PyTorch's files, read without PyTorch
weights     tensors of files by GGUF's names
binaries    files of llama2.c and llm.c
vocabulary  tokens, their types and GGUF's keys, from tokenizer.json, tables of characters
spm         and from SentencePiece's files
ids         the cuts of byte-level tokenizers; token ids compared with decode's
folder      a GGUF model as a folder of transformers

Only guard, process and files are read before the arguments are: `--help` needs none of the packages.
"""
