"""``python -m dslda``: the command line where no program of that name is on the path."""

from dslda.cli import main

if __name__ == "__main__":
    main()
