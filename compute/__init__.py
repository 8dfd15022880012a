"""The array module, products of few rows with many weights, and threads that share them."""
