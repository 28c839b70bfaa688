"""One module and one command per question: ``python -m benchmarks`` lists them."""
