"""didact search QUERY [FILE]"""

import click

from didact.cli.words import AS_JSON, answer


@click.command("search")
@click.argument("query")
@click.argument("file", required=False)
@click.option("--model", default=None, help="minilm (sentences), glove (words), a run of word2vec, or a text file of vectors  "
              "[default: the first that is installed; glove for words]")
@click.option("-n", "--n", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Answers.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(query: str, file: str | None, model: str | None, n: int, device: str, runs: str, as_json: bool) -> None:
    """The lines of FILE nearest in meaning to QUERY; without a file, the words nearest to a word or to "king - man + woman"."""
    from didact.cli.catalogue import catalogue
    from didact.errors import UsageError
    from didact.samplers.search import lines_of, reader, search, vectors, words_near

    catalogue()
    if file is not None:
        lines = lines_of(file)
        found = search(query, lines, reader(model, runs=runs, device=device), n=n)
    elif model == "minilm":
        raise UsageError("minilm reads sentences, not single words: give a FILE whose lines are searched, or --model glove")
    else:
        found = [{"word": word, "score": like} for word, like in words_near(query, vectors(model or "glove", runs=runs), n=n)]

    def show() -> None:
        for row in found:
            where = f"{row['line']:>6}  {row['text']}" if file is not None else row["word"]
            click.echo(f"{row['score']:.3f}  {where}")

    answer({"query": query, "file": file, "model": model, "found": found}, as_json, show)
