"""Files and names -> arrays and folders: checkpoints, tokenizers, downloads, the command line."""
