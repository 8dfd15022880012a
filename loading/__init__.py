"""Files and names -> arrays and folders: checkpoints and downloads."""
