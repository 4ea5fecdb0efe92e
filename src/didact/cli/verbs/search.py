"""didact search QUERY [FILE]"""

import click

from didact.cli.options import JSON_OPTION, print_result


@click.command("search")
@click.argument("query")
@click.argument("file", required=False)
@click.option(
    "--model",
    default=None,
    help="minilm (sentences), glove (words), a run of word2vec, or a text file of vectors  "
    "[default: the first that is installed; glove for words]",
)
@click.option("-n", "--n", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Answers.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@JSON_OPTION
def command(query: str, file: str | None, model: str | None, n: int, device: str, runs: str, as_json: bool) -> None:
    """The lines of FILE nearest in meaning to QUERY; without a file, the words nearest to a word or to "king - man
    + woman"."""
    from didact.cli.recipes import load_recipes
    from didact.errors import UsageError
    from didact.inference.search import load_text_embedder, load_word_vectors, nearest_words, read_lines, search

    load_recipes()
    if file is not None:
        lines = read_lines(file)
        matches = search(query, lines, load_text_embedder(model, runs=runs, device=device), n=n)
    elif model == "minilm":
        raise UsageError(
            "minilm reads sentences, not single words: give a FILE whose lines are searched, or --model glove"
        )
    else:
        matches = [
            {"word": word, "score": similarity}
            for word, similarity in nearest_words(query, load_word_vectors(model or "glove", runs=runs), n=n)
        ]

    def show() -> None:
        for row in matches:
            text = f"{row['line']:>6}  {row['text']}" if file is not None else row["word"]
            click.echo(f"{row['score']:.3f}  {text}")

    print_result({"query": query, "file": file, "model": model, "found": matches}, as_json, show)
