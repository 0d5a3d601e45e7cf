"""`python -m kubeshard` is the command `kubeshard`."""

from kubeshard.cli import main

if __name__ == "__main__":
    main()
