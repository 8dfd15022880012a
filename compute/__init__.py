"""The array module, and products of few rows with many weights."""
