"""What is reported about a run, and about two runs compared: numbers, sentences, colours."""
