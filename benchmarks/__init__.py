"""One question a module, one command each: ``python -m benchmarks`` lists them."""
