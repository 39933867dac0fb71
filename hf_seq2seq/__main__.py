"""`python -m hf_seq2seq`, so that launchers such as torchrun and accelerate can start the command."""

from hf_seq2seq.commands.start import main


if __name__ == "__main__":
    main()
