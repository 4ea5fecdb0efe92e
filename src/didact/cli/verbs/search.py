"""didact search QUERY [FILE]"""

import click

from didact.cli.options import DEVICE_OPTION, JSON_OPTION, RUNS_OPTION, print_result
from didact.cli.terminal import echo


@click.command("search")
@click.argument("query")
@click.argument("file", required=False)
@click.option(
    "--model",
    help="minilm (sentence embeddings), glove (word vectors), a run of word2vec, or a text file of word vectors  "
    "[default: the first one installed; glove for words]",
)
@click.option("-n", "--n", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Number of results.")
@DEVICE_OPTION
@RUNS_OPTION
@JSON_OPTION
def command(query: str, file: str | None, model: str | None, n: int, device: str, runs: str, as_json: bool) -> None:
    """Semantic search: the lines of FILE nearest in meaning to QUERY; without a file, the words nearest to a word or
    to "king - man + woman"."""
    from didact.cli.recipes import load_recipes
    from didact.errors import UsageError
    from didact.inference.search import load_text_embedder, load_word_vectors, nearest_words, read_lines, search

    load_recipes()
    if file is not None:
        lines = read_lines(file)
        matches = search(query, lines, load_text_embedder(model, runs=runs, device=device), n=n)
    elif model == "minilm":
        raise UsageError("minilm embeds sentences, not single words: give a FILE to search, or --model glove")
    else:
        matches = [
            {"word": word, "score": similarity}
            for word, similarity in nearest_words(query, load_word_vectors(model or "glove", runs=runs), n=n)
        ]

    def show() -> None:
        for row in matches:
            text = f"{row['line']:>6}  {row['text']}" if file is not None else row["word"]
            echo(f"{row['score']:.3f}  {text}")

    print_result({"query": query, "file": file, "model": model, "matches": matches}, as_json, show)
