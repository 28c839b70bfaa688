"""``python -m benchmarks [COMMAND]``: answer a question and print a table for the documentation."""

from __future__ import annotations

import argparse
import importlib

# Command: the question it answers. The module of the same name offers `add_arguments(parser)` and
# `main(arguments)`.
COMMANDS = {
    "movie_reviews": "how well does each method predict the stars of held-out movie reviews, at what cost?",
    "paper_study": "what of the paper's studies reproduces, by the number of topics?",
    "prediction": "how well does each method predict held-out responses of every kind, with which topics, at what cost?",
    "coverage": "how many held-out responses lie in the intervals of default fits?",
    "coefficients": "how many intervals of coefficients hold the true ones of simulated corpora?",
    "probabilities": "how well are the probabilities of classes by default fits calibrated?",
    "alpha": "which alpha gives coefficients that intervals cover, distinct topics and good predictions?",
    "class_cost": "what does an E-step with C classes cost beside one with a normal response?",
    "e_step": "how fast is the E-step beside a bare LDA kernel?",
    "dask_overhead": "how much CPU time does Dask add to a fit?",
    "out_of_core": "does a corpus larger than the workers' memory train as fast as one that fits?",
    "flat": "do memory and time of iterations and fits stay flat, and how fast are 10,000 partitions submitted?",
    "rounds": "how busy do the rounds of conditional training keep 50 workers, and what would fewer of them cost?",
    "soak": "do fits end with the same bits while workers are killed at random?",
    "wide_vocabulary": "does an iteration of very many topics and terms run on this machine, in what memory?",
    "scoring": "how many documents a second are scored, from text to Parquet, and in what memory?",
    "time_to_r2": "how many CPU seconds does each topic model need to reach a given predictive R2?",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Answer one question, or all in turn, which takes hours."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, question in COMMANDS.items():
        module = importlib.import_module(f"benchmarks.{name}")
        module.add_arguments(commands.add_parser(name, help=question, description=module.__doc__))
    chosen = parser.parse_args().command
    for name in [chosen] if chosen else COMMANDS:
        arguments = parser.parse_args(None if chosen else [name])
        importlib.import_module(f"benchmarks.{name}").main(arguments)


if __name__ == "__main__":  # child processes of a benchmark import this module again
    main()
