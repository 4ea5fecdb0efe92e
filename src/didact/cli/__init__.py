"""The command line: parses arguments, calls the library and prints; it holds no logic of its own.

    main              the entry point, and the list of commands
    verbs/            one file per command
    other_names       verbs of other tools, and the command to type instead
    options           options of the command line from a recipe's signature; --json and other shared options
    recipes           the recipe's name as first argument
    progress          progress of a training; sweep_progress: of many
    sample_images     the image half of `didact sample`; sample_text: its text half
    terminal, console printing, with control characters escaped

Nothing here imports torch at module level: `didact --help` answers at once.
"""

__all__: list[str] = []
