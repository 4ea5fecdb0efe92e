"""One file per command of `didact`, named like it; each defines `command`, a click command.

    list, show, doctor                           what there is
    train, resume, sweep                         training
    evaluate, report, predict, sample, explain, search
                                                 what is done with a run
    compare, graph, gradcheck                    the NumPy engine
    check, reproduce                             the claims of the courses

Commands of recipes (train, show, sweep, compare) parse the recipe's own options, which its signature defines.
"""

__all__: list[str] = []
