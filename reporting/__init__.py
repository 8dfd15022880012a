"""What a run tells about itself, and what two runs tell about each other: numbers, sentences, colours."""
