"""Wrong calls: each is one line with what came and what to do, exit code 2, no traceback, no file changed."""

import errno
import os
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from didact.cli.main import main
from helpers import data_zoo

ROW = "size=1,colour=red"

CASES = [  # the call, what the message says of the input, and what of the remedy
    # verbs, recipes, options
    ("trian mlp", "'trian'", "did you mean 'train'?"),
    ("--jsn", "--jsn", "see didact --help"),
    ("train", "expects a recipe's name first", "`didact list`"),
    ("train --steps 3", "expects a recipe's name first", "`didact list`"),
    ("train mpl", "no recipe named 'mpl'", "did you mean 'mlp'?"),
    ("train mpl --json", "no recipe named 'mpl'", "did you mean 'mlp'?"),
    ("train mlp extra", "extra argument (extra)", "see didact train mlp --help"),
    ("train mlp --hiden 3", "--hiden", "--hidden"),
    ("train mlp --no-data", "--no-data", "--data"),
    ("train mlp --graph yes", "extra argument (yes)", "--help"),
    ("show", "expects a recipe's name first", "`didact list`"),
    ("show mpl", "'mpl'", "did you mean 'mlp'?"),
    ("show mlp --data nowhere.csv", "nowhere.csv", "no such file"),
    ("list --dta", "--dta", "Did you mean"),
    ("list mlp", "extra argument (mlp)", "see didact list --help"),
    ("doctor me", "extra argument (me)", "see didact doctor --help"),
    ("check C4.88", "'C4.88'", "did you mean 'C4.8'?"),
    ("check --kind pronted", "'pronted'", "did you mean"),
    ("reproduce 1.66", "no table named '1.66'", "did you mean '1.6'?"),
    ("reproduce --save", "--save expects a table", "didact reproduce 1.6 --save"),
    ("reproduce 6.11 --seeds 0", "0 is not in the range", "see didact reproduce --help"),
    ("reproduce 6.11 --device gpu", "got 'gpu'", "auto, cpu, cuda"),
    ("search", "Missing argument 'QUERY'", "see didact search --help"),
    ("search king note.txt --model nowhere", "no run named 'nowhere'", "under runs"),
    ("search king --model note.txt", "expected a word and its numbers", "note.txt, line 1"),
    ("train word2vec --data iris", "'iris' is table", "give a .txt file"),
    ("train word2vec --window 17", "got 17", "from 1 to 16"),
    ("train word2vec --probe kng", "named 'kng'", "did you mean 'king'?"),
    ("train text_rnn --embeddings nowhere", "no word vectors at nowhere", "give glove, a text file"),
    # values of the wrong type, out of bounds, or too large for any machine
    ("train mlp --hidden", "'--hidden' requires an argument", "--help"),
    ("train mlp --hidden ten", "got 'ten'", "--hidden expects int"),
    ("train mlp --hidden 1.5", "got '1.5'", "--hidden expects int"),
    ("train mlp --hidden 0", "got 0", "at least 1"),
    ("train mlp --hidden -5", "got -5", "at least 1"),
    ("train mlp --hidden 64,-5", "got -5", "at least 1"),
    ("train mlp --hidden 99999999999999999999", "got 99999999999999999999", "--hidden expects int"),
    ("train mlp --hidden 100000000000", "too large", "choose smaller sizes"),
    ("train mlp --hidden 100000,1000000000000", "too large", "choose smaller sizes"),
    ("train mlp --lr 0", "got 0", "more than 0"),
    ("train mlp --lr -1", "got -1", "more than 0"),
    ("train mlp --lr nan", "got nan", "--lr expects float"),
    ("train mlp --lr inf", "got inf", "--lr expects float"),
    ("train mlp --lr 1e30", "got 1e+30", "more than 0, in size below 2^63 = 9.22e+18"),
    ("train mlp --lr fast", "got 'fast'", "--lr expects float"),
    ("train mlp --lr ''", "got ''", "--lr expects float"),
    ("train mlp --dropout 1.5", "got 1.5", "from 0 to 0.95"),
    ("train mlp --weight-decay -1", "got -1", "at least 0"),
    ("train mlp --momentum 2", "got 2", "from 0 to 0.9999"),
    ("train mlp --ema 1", "got 1", "from 0 to 0.99999"),
    ("train mlp --patience 0", "got 0", "at least 1"),
    ("train mlp --clip-norm 0", "got 0", "more than 0"),
    ("train mlp --epochs 0", "got 0", "at least 1"),
    ("train mlp --epochs 1.5", "got '1.5'", "--epochs expects int"),
    ("train mlp --steps -3", "got -3", "at least 1"),
    ("train mlp --epochs 5 --steps 7", "got --epochs 5 and --steps 7", "one of --epochs, --steps, --budget"),
    ("train mlp --budget 5m --steps 7", "got --steps 7 and --budget 300", "leave one"),
    ("train mlp --budget soon", "expects time as 90s, 5m or 1h", "got 'soon'"),
    ("train approximate --epochs 5 --steps 7", "got --epochs 5 and --steps 7", "one of --epochs, --steps, --budget"),
    ("train mlp --batch-size 0", "got 0", "at least 1"),
    ("train mlp --batch-size -8", "got -8", "at least 1"),
    ("train mlp --seed -1", "got -1", "at least 0"),
    ("train mlp --split-seed 99999999999999999999", "got 99999999999999999999", "--split-seed expects int"),
    (
        "train mlp --data python_topics",
        "recipe 'mlp' is for binary or multiclass or multilabel or regression targets",
        "are language",
    ),
    ("sweep mlp dropout=0,0.0", "dropout=0 is given twice in 'dropout=0,0.0'", "--seeds"),
    ("train mlp --accumulate 0", "got 0", "at least 1"),
    ("train mlp --save-every 0", "got 0", "more than 0"),
    ("train mlp --data pics --size 0", "got 0", "from 1 to 4096"),
    ("train mlp --data pics --size 1000000", "got 1000000", "from 1 to 4096"),
    ("train bagging --members 1000000000", "got 1000000000", "from 1 to 1000"),
    ("train mlp --data own.csv --norm batch --batch-size 1", "batches of 1 leave a single one", "raise --batch-size"),
    (
        "train mlp --data own.csv --norm batch --batch-size 8 --accumulate 8",
        "batches of 8 in 8 micro-batches",
        "lower --accumulate",
    ),
    # names of other things
    ("train mlp --device gpu", "got 'gpu'", "auto, cpu, cuda"),
    ("train mlp --device meta", "got 'meta'", "auto, cpu, cuda"),
    ("train mlp --device ''", "got ''", "--device expects"),
    ("train mlp --precision fp64", "'fp64'", "did you mean 'fp16'?"),
    ("train mlp --precision fp16 --optimizer sam", "--precision fp16", "use bf16"),
    ("train mlp --optimizer adm", "'adm'", "did you mean 'adam'?"),
    ("train mlp --optimizer nesterov --momentum 0", "got 0", "without momentum it is sgd"),
    ("train mlp --schedule cosin", "'cosin'", "did you mean 'cosine'?"),
    ("train mlp --activation rel", "'rel'", "did you mean 'relu'?"),
    ("train mlp --init xavier", "'xavier'", "did you mean 'xavier_normal'?"),
    ("train mlp --balance heavy", "'heavy'", "choose from: none, over, under, weights"),
    ("train mlp --loss hubert", "'hubert'", "did you mean 'huber'?"),
    ("train mlp --loss huber", "got 'huber'", "'auto' chooses by the task"),
    ("train mlp --augment spin", "'spin'", "choose from: affine, crop"),
    ("train mlp --data iris --augment flip", "'iris' is table", "is for images"),
    ("train mlp --data pics --augment mixup", "'pics' are binary", "several classes"),
    ("train mlp --data diabetes --balance weights", "'diabetes' are regression", "is for classes"),
    ("train mlp --data diabetes --label-smoothing 0.1", "these are regression", "leave it out"),
    # recipes that refuse the data
    ("train approximate --data iris", "'iris' are multiclass", "choose other data or another recipe"),
    ("train realnvp --data digits --num-scales 4", "got 8×8", "choose at most 3"),
    ("train realnvp --data digits --network plain --num-scales 2", "got --num-scales 2", "plain has a single scale"),
    ("train realnvp --num-scales 2", "got --num-scales 2", "'moons' is a table"),
    ("train realnvp --data pics --size 1", "1×1 pixels", "at least 2×2 pixels"),
    ("train realnvp --data lone", "'lone' holds 1 examples", "need at least 3"),
    ("train semi_supervised --data single", "only one class folder", "at least two"),
    ("train pixelrnn --data iris", "'iris' is table", "choose other data or another recipe"),
    ("train pixelrnn --levels 1", "got 1", "from 2 to 256"),
    ("train pixelrnn --data few", "too few of: 'a' (2), 'b' (1)", "add some"),
    ("train pixelcnn --kernel-size 4", "got 4", "must be odd"),
    ("train vqvae_prior --from nowhere", "'nowhere'", "choose from"),
    ("train vqvae_prior --from runs/mlp/digits", "which trained mlp", "a run of vqvae"),
    ("train vqvae_prior --autoencoder vae", "'vae'", "did you mean 'vqvae'?"),
    ("train vqvae_prior --autoencoder codebook_size=8", "'codebook_size=8'", "vqvae"),
    ("train approximate --data pics", "'pics' is images", "choose other data or another recipe"),
    (
        "train dropout_weight_decay --data texts.csv --text review",
        "'texts' is text",
        "choose other data or another recipe",
    ),
    ("train uncertain_regression --data own.csv", "'own' are binary", "choose other data or another recipe"),
    # data that are not there, or not what they seem
    ("train mlp --data iriss", "'iriss'", "did you mean 'iris'?"),
    ("train mlp --data ''", "got ''", "--data expects"),
    ("train mlp --data nowhere.csv", "nowhere.csv", "no such file or folder"),
    ("train mlp --data nowhere.csv --json", "nowhere.csv", "no such file or folder"),
    ("train mlp --data nowhere/table", "nowhere/table", "no such file or folder"),
    ("train mlp --data gone.csv", "gone.csv", "no such file or folder"),
    ("train mlp --data folder.csv", "folder.csv holds 0 images", "<class>/<image>.png"),
    ("train mlp --data table.xlsx", "table.xlsx is damaged, or not an Excel workbook", "put a whole one in its place"),
    ("train detection --data all.coco.json", "all.coco.json holds annotations of images", "give the folder"),
    ("train mlp --data other.json", "other.json expects a list of records", "got an object with a"),
    ("train mlp --data note.txt", "note.txt", "save it as CSV"),
    ("train mlp --data /dev/null", "/dev/null is a pipe or a device", "give a file"),
    ("train mlp --data https://example.org/t.csv", "https://example.org/t.csv is a web", "curl -LO"),
    ("train mlp --data s3://bucket/t.parquet", "s3://bucket/t.parquet is a web", "aws s3 cp 's3://bucket/t.parquet' ."),
    ("train mlp --data gs://bucket/t.csv", "gs://bucket/t.csv is a web", "gcloud storage cp"),
    ("train mlp --data hdfs://host/t.csv?x=1", "hdfs://host/t.csv?x=1 is a web", "then --data t.csv"),
    ("train cnn --data hf://datasets/a/b", "hf://datasets/a/b is a web", "hf download"),
    ("train mlp --data iris --target species", "got --target species", "'iris' is a known dataset"),
    ("train mlp --data iris --size 8", "got --size 8", "'iris' is a known dataset"),
    ("train mlp --data own.csv --size 8", "got --size 8", "own.csv is a table"),
    ("train mlp --data pics --text a", "got --text a", "pics is a folder of images"),
    # texts
    ("train char_rnn --data note.txt", "note.txt holds 13 characters", "needs at least 1281"),
    ("train char_rnn --data latin.txt", "latin.txt is not UTF-8 text (byte 3)", "save it as UTF-8"),
    ("train char_rnn --data note.txt --target y", "got --target y", "note.txt is running text"),
    ("train char_rnn --data iris", "'iris' is table", "give a text file (.txt, .md) or a folder of them"),
    ("train char_rnn --context-length 100000", "shorter than a context of 100000 tokens", "choose a smaller one"),
    ("train char_rnn --cell lstn", "'lstn'", "did you mean 'lstm'?"),
    ("train text_rnn --data python_topics", "are language", "give a CSV file with --text COLUMN"),
    ("train text_rnn --augment swpa", "'swpa'", "did you mean 'swap'?"),
    ("train text_rnn --max-length 0", "got 0", "from 1 to 1000"),
    ("train seq2seq --data verdicts", "'verdicts' is text", "choose other data"),
    # tables
    ("train mlp --data empty.csv", "empty.csv is empty", "expected a line of column names"),
    ("train mlp --data blank.csv", "blank.csv is empty", "expected a line of column names"),
    ("train mlp --data mark.csv", "mark.csv is empty", "expected a line of column names"),
    ("train mlp --data header.csv", "header.csv has column names but no rows", "expected"),
    ("train mlp --data binary.csv", "binary.csv is not a text file", "save it as CSV in UTF-8"),
    ("train mlp --data truncated.csv.gz", "truncated.csv.gz is damaged or cut short", "put a whole one in its place"),
    ("train mlp --data not-packed.csv.gz", "not-packed.csv.gz is damaged or cut short", "put a whole one in its place"),
    ("train mlp --data ragged.csv", "line 3 of ragged.csv has 4 fields", "needs quotation marks"),
    ("train mlp --data short.csv", "line 3 of short.csv has 2 fields", "the first line names 3 columns"),
    ("train mlp --data delimiter.csv", "only one column, 'a b y'", "separated by"),
    ("train mlp --data quote.csv", "quote.csv", "quotation mark"),
    ("train mlp --data headless.csv", "got numbers: 5.1", "must name the columns"),
    ("train mlp --data twins.csv", "two columns named 'a'", "give each its own name"),
    ("train mlp --data own.csv --target solt", "'solt'", "did you mean 'sold'?"),
    (
        "train mlp --data own.csv --target colour --task number",
        "'colour' holds 'blue' in line 2",
        "leave it out, or choose another column",
    ),
    (
        "train mlp --data own.csv --target size,sold --task classes",
        "--target size,sold names several",
        "leave out --task classes",
    ),
    ("train mlp --data own.csv --task numbr", "'numbr'", "did you mean 'number'?"),
    ("train mlp --data iris --task number", "got --task number", "'iris' is a known dataset"),
    ("train mlp --data pics --task classes", "got --task classes", "pics is a folder of images"),
    ("train mlp --data one-class.csv", "'cat' in every row", "at least two classes"),
    ("train mlp --data constant.csv", "'3.5' in every row", "at least two"),
    ("train mlp --data rare.csv", "'owl' (1)", "add some or leave the class out"),
    ("train mlp --data two-rows.csv", "2 examples", "at least 3"),
    ("train mlp --data no-target.csv", "no value in any of the 12 rows", "choose another with --target"),
    ("train mlp --data gaps.csv", "missing in 11 of 13 rows, first in line 4", "at least 3"),
    ("train mlp --data nan-column.csv", "column 'a' is empty", "can be learned from"),
    ("train mlp --data infinite.csv", "got inf in line 14", "finite numbers"),
    ("train mlp --data infinite-target.csv", "got '-inf' in line 42", "must be finite"),
    ("train mlp --data words.csv", "got 'many' in line 42", "must be a number"),
    ("train mlp --data names.csv", "40 texts in 40 rows", "choose another with --target"),
    ("train mlp --data identifiers.csv", "free text", "--text name"),
    ("train mlp --data texts.csv --text revue", "'revue'", "did you mean 'review'?"),
    ("train mlp --data texts.csv --text mood --target mood", "the same column, 'mood'", "choose another"),
    ("train mlp --data wordless.csv --text review --tokens words", "column 'review'", "choose another with --text"),
    # images
    ("train mlp --data zero", "zero/a/0.png is empty (0 bytes)", "replace it"),
    ("train mlp --data cut", "cut/a/0.png cannot be read", "replace it"),
    ("train mlp --data fake", "fake/a/0.png cannot be read", "replace it"),
    ("train mlp --data hollow", "hollow/c holds no image", "add some or delete it"),
    ("train mlp --data single", "only one class folder, 'a'", "at least two"),
    ("train mlp --data loose", "3 images but no class folders", "expected loose/<class>/<image>"),
    ("train mlp --data few", "'a' (2), 'b' (1)", "needs 3 examples"),
    # where runs are written
    ("train mlp --data own.csv --runs own.csv", "own.csv/mlp", "--runs"),
    ("train mlp --data own.csv --runs /proc/nowhere", "/proc/nowhere", "--runs"),
    ("train mlp --data own.csv --runs ''", "got ''", "--runs expects"),
    # runs that are not there, not whole, or not what they were
    ("resume", "Missing argument 'RUN'", "see didact resume --help"),
    ("resume nowhere", "'nowhere'", "choose from: latest, mlp/cut"),
    ("resume latest --runs nowhere", "no run under nowhere", "train one first"),
    ("resume pics", "pics is not a run", "run.json"),
    ("resume hollow-run", "hollow-run is not a run", "run.json"),
    ("resume own.csv", "'own.csv'", "choose from: latest"),
    ("resume runs/mlp/table", "runs/mlp/table is finished", "didact train mlp --hidden 4"),
    ("resume damaged/no-state", "state.safetensors is missing", "train anew"),
    ("resume damaged/cut-state", "cut-state/state.safetensors cannot be read", "damaged"),
    ("resume damaged/garbled-state", "garbled-state/state.safetensors cannot be read", "damaged"),
    ("resume damaged/no-tree", "no-tree/state.safetensors holds no state", "train anew"),
    ("resume damaged/bad-tree", "bad-tree/state.safetensors holds no state", "train anew"),
    ("resume damaged/void-tree", "void-tree/state.safetensors does not fit", "damaged or of another run"),
    (
        "resume damaged/other-state",
        "other-state/state.safetensors does not fit recipe 'mlp'",
        "damaged or of another run",
    ),
    ("resume damaged/no-best", "no-best/model.safetensors is missing", "train anew"),
    ("resume damaged/no-indices-cut", "indices.safetensors is missing", "train anew"),
    ("resume damaged/other-data", "no column 'sold'", "choose from: a, b, price"),
    ("evaluate tabel", "'tabel'", "did you mean 'mlp/table'?"),
    ("evaluate e", "2 runs end in 'e'", "mlp/price, mlp/table"),
    ("evaluate runs/mlp/table --device gpu", "got 'gpu'", "auto, cpu, cuda"),
    ("evaluate damaged/no-facts", "no-facts is not a run", "run.json"),
    ("evaluate damaged/garbled-facts", "garbled-facts/run.json cannot be read", "train anew"),
    ("evaluate damaged/cut-facts", "cut-facts/run.json cannot be read", "train anew"),
    ("evaluate damaged/empty-facts", "empty-facts/run.json cannot be read", "train anew"),
    ("evaluate damaged/listed-facts", "run.json: it must be an object, got [1, 2]", "train anew"),
    ("evaluate damaged/few-facts", "run.json lacks arguments, data", "train anew"),
    ("evaluate damaged/strange-recipe", "'mpl'", "did you mean 'mlp'?"),
    ("evaluate damaged/strange-argument", "--hiden", "did you mean 'hidden'?"),
    ("evaluate damaged/bad-argument", "got 'lots'", "--dropout expects float"),
    ("evaluate damaged/bad-settings", "bad-settings/run.json: settings must be an object, got 'none'", "train anew"),
    ("evaluate damaged/bad-seed", "got 'one'", "--seed expects int"),
    ("evaluate damaged/bad-data", "'encoder'", "train anew"),
    ("evaluate damaged/bad-source", "does not say where its data", "damaged"),
    ("evaluate damaged/moved-data", "moved.csv", "no such file"),
    ("evaluate damaged/changed-data", "own.csv has changed", "train anew"),
    ("evaluate damaged/no-model", "no-model/model.safetensors is missing", "train anew"),
    ("evaluate damaged/empty-model", "empty-model/model.safetensors cannot be read", "damaged"),
    ("evaluate damaged/cut-model", "cut-model/model.safetensors cannot be read", "damaged"),
    ("evaluate damaged/garbled-model", "garbled-model/model.safetensors cannot be read", "damaged"),
    ("evaluate damaged/other-model", "other-model/model.safetensors does not fit recipe 'mlp'", "of another run"),
    ("evaluate damaged/void-model", "void-model/model.safetensors does not fit", "of another run"),
    ("evaluate damaged/nan-model", "not finite numbers", "train anew"),
    ("evaluate damaged/no-indices", "indices.safetensors is missing", "train anew"),
    ("evaluate damaged/cut-indices", "indices.safetensors cannot be read", "damaged"),
    ("evaluate damaged/few-indices", "lacks validation, test", "train anew"),
    ("evaluate damaged/wild-indices", "'own' now holds 60 examples", "changed"),
    ("evaluate runs/mlp/cut", "no model yet", "didact resume runs/mlp/cut"),
    # inputs to predict
    ("predict", "Missing argument 'RUN'", "--help"),
    ("predict runs/mlp/digits", "Missing argument 'INPUTS...'", "--help"),
    ("predict nowhere pics/a/0.png", "'nowhere'", "choose from: latest"),
    ("predict runs/mlp/digits missing.png", "no image at missing.png", "expected a file"),
    ("predict runs/mlp/digits own.csv", "own.csv cannot be read", "replace it"),
    ("predict runs/mlp/digits zero/a/0.png", "0 bytes", "replace it"),
    ("predict runs/mlp/digits hollow/c", "hollow/c holds no image", ".png"),
    ("predict runs/mlp/digits 'a good film'", "no image at a good film", "expected a file"),
    ("predict runs/mlp/digits pics/a/0.png --mc-passes -1", "-1 is not in the range", "'--mc-passes'"),
    ("predict runs/mlp/digits pics/a/0.png --mc-passes many", "'many'", "'--mc-passes'"),
    ("predict runs/mlp/digits pics/a/0.png --output drawn", "--output drawn", "predicts none; leave it out"),
    (
        "predict runs/mlp/digits pics/a/0.png --num-samples 1000000000000",
        "1000000000000 is not in the range",
        "'--num-samples'",
    ),
    ("predict runs/mlp/plain size=1,colour=red --mc-passes 5", "--mc-passes 5", "train with --dropout"),
    ("predict runs/mlp/table pics/a/0.png", "got 'pics/a/0.png'", "expected a CSV file"),
    ("predict runs/mlp/table missing.csv", "cannot read missing.csv", "No such file"),
    ("predict runs/mlp/table other-columns.csv", "lacks the column 'size', 'colour'", "choose from: shade, width"),
    ("predict runs/mlp/table header.csv", "no rows", "expected"),
    ("predict runs/mlp/table size=1", "lacks the column 'colour'", "may be left empty"),
    ("predict runs/mlp/table size=big,colour=red", "got 'big'", "expects a number"),
    ("predict runs/mlp/table size=inf,colour=red", "got inf", "finite"),
    ("predict runs/mlp/table hello", "got 'hello'", "a row as 'column=value,…'"),
    ("predict runs/mlp/table '{'", "got '{'", "must be JSON"),
    ("""predict runs/mlp/table '{"size": 1, "colour": ["red"]}'""", "got ['red']", "expects one value"),
    ("predict runs/mlp/texts --from missing.txt", "missing.txt", "expected UTF-8 text"),
    ("predict runs/mlp/texts --from own.csv", "no column 'review'", "choose from: colour, size, sold"),
    ("predict runs/mlp/texts --from pics/a/0.png", "pics/a/0.png", "expected UTF-8 text"),
    ("predict runs/mlp/texts --from /nowhere.txt", "/nowhere.txt: No such file", "expected UTF-8 text"),
    ("predict runs/mlp/table --from own.png", "own.png", "No such file"),
    ("predict runs/mlp/texts ''", "got ''", "expected a text"),
    (f"predict damaged/no-model {ROW}", "model.safetensors is missing", "train anew"),
    (f"predict damaged/cut-model {ROW}", "model.safetensors cannot be read", "damaged"),
    (f"predict damaged/nan-model {ROW} --json", "not finite numbers", "train anew"),
    (f"predict runs/mlp/cut {ROW}", "no model yet", "didact resume runs/mlp/cut"),
    # reports
    ("report", "Missing argument 'RUN…'", "--help"),
    ("report nowhere", "'nowhere'", "choose from: latest"),
    ("report runs/mlp/table nowhere", "'nowhere'", "choose from: latest"),
    ("report damaged/garbled-facts", "run.json cannot be read", "train anew"),
    ("report damaged/cut-test", "test.safetensors cannot be read", "damaged"),
    ("report runs/mlp/table --output page.html", "--output page.html", "several runs"),
    ("report runs/mlp/table runs/mlp/price --output pics", "cannot write pics", "--output"),
    # sweeps
    ("sweep", "expects a recipe's name first", "`didact list`"),
    ("sweep mlp", "has no grid of its own", "lr=1e-4,1e-3"),
    ("sweep mlp lr=", "got 'lr='", "lr=value,value…"),
    ("sweep mlp lrr=1,2", "--lrr", "did you mean 'lr'?"),
    ("sweep mlp lr=slow,fast", "got 'slow'", "--lr expects float"),
    ("sweep mlp lr=1e-3,-1", "got -1", "more than 0"),
    ("sweep mlp lr=1e-3,,1e-2", "got ''", "--lr expects float"),
    ("sweep mlp lr=1e-3 lr=1e-2", "given twice", "lr=value,value…"),
    ("sweep mlp lr=1e-3,1e-2 --lr 0.5", "--lr 0.5", "give it once"),
    ("sweep mlp seed=0,1", "seed cannot be an axis", "--seeds"),
    ("sweep mlp runs=a,b", "runs cannot be an axis", "one folder"),
    ("sweep mlp lr=1e-3 --seeds 0", "got 0", "from 1 to 1000"),
    ("sweep mlp lr=1e-3 --seeds 1000000000000", "got 1000000000000", "from 1 to 1000"),
    ("sweep mlp lr=1e-3,1e-2 --data own.csv --metric accurcy", "'accurcy'", "did you mean 'accuracy'?"),
    ("sweep mlp lr=1e-3,1e-2 --data nowhere.csv --json", "nowhere.csv", "no such file"),
    ("sweep mlp lr=1e-3,1e-2 --data own.csv --runs own.csv", "cannot write own.csv", "--runs"),
    ("sweep mlp augment=flip,spin", "'spin'", "choose from: affine"),
    ("sweep mlp batch_size=32,1 --norm batch --data own.csv", "batches of 1 leave a single one", "raise --batch"),
    ("sweep mlp epochs=1,2 --steps 3", "got --epochs 1 and --steps 3", "one of --epochs, --steps, --budget"),
    ("sweep approximate width", "extra argument (width)", "see didact sweep approximate --help"),
]


@pytest.fixture(scope="module")
def zoo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data_zoo.build_zoo(folder)
    return folder


@pytest.fixture
def workdir(zoo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(zoo_folder)
    monkeypatch.delenv("DIDACT_DATA", raising=False)
    return zoo_folder


def read_error_line(capsys: pytest.CaptureFixture[str], *, after_progress: bool = False) -> str:
    """The error message, which must be a single line on stderr; a training that started may have printed before."""
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert err.endswith("\n") and (after_progress or len(lines) == 1), err
    assert [line for line in lines if line.startswith("didact: ")] == lines[-1:], err
    assert "Traceback" not in err
    return lines[-1]


def test_cases_are_many_and_unique():
    calls = [words for words, _, _ in CASES]
    assert len(set(calls)) == len(calls) >= 70


@pytest.mark.parametrize(("words", "expected", "hint"), CASES, ids=[case[0] for case in CASES])
def test_wrong_call_gives_one_line_and_exit_code_2_and_changes_no_file(workdir, capsys, words, expected, hint):
    before = data_zoo.fingerprint_files(workdir)
    assert main(shlex.split(words)) == 2
    line = read_error_line(capsys)
    assert expected in line and hint in line, line
    after = data_zoo.fingerprint_files(workdir)
    assert after == before, {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}


@pytest.mark.parametrize(("variable", "value", "words", "expected", "hint"), [
    ("DIDACT_RESIDENT_BYTES", "lots", "train mlp --data pics", "got 'lots'", "expects a number of bytes"),
    ("DIDACT_DATA", "spoilt", "train mlp --data mnist", "train-images-idx3-ubyte", "replace it"),
])
def test_bad_environment_variable_is_refused(workdir, capsys, monkeypatch, variable, value, words, expected, hint):
    monkeypatch.setenv(variable, value)
    before = data_zoo.fingerprint_files(workdir)
    assert main(shlex.split(words)) == 2
    line = read_error_line(capsys)
    assert expected in line and hint in line, line
    assert data_zoo.fingerprint_files(workdir) == before


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_unavailable_device_is_refused(workdir, capsys, monkeypatch, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert main(["train", "mlp", "--device", device]) == 2
    line = read_error_line(capsys)
    assert f"--device {device}" in line and "use --device cpu" in line


def list_run_folders() -> set[Path]:
    return set(Path("runs").glob("*/*"))


def test_full_disk_at_the_first_write_leaves_no_folder(workdir, capsys):
    """A limit on the size of files, set by the operating system: run.json does not fit, and no folder stays behind."""
    before, limits = data_zoo.fingerprint_files(workdir), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        code = main(shlex.split("train mlp --data own.csv"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    line = read_error_line(capsys)
    assert code == 2 and "run.json" in line and "free space" in line, line
    assert data_zoo.fingerprint_files(workdir) == before


def test_run_resumes_after_a_full_disk(workdir, capsys, monkeypatch):
    """The disk is full when the first checkpoint is written; existing files stay, and the run resumes afterwards."""
    before, runs_before, fsync = data_zoo.fingerprint_files(workdir), list_run_folders(), os.fsync

    def fsync_or_fail(descriptor: int) -> None:
        if any(
            Path(f"/proc/self/fd/{descriptor}").readlink().match(f"{folder}/.state.*")
            for folder in list_run_folders() - runs_before
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_or_fail)
    assert main(shlex.split("train mlp --data own.csv --epochs 2 --hidden 4")) == 2
    line = read_error_line(capsys, after_progress=True)
    assert "No space left on device" in line and "free space" in line, line
    monkeypatch.setattr(os, "fsync", fsync)
    (run,) = list_run_folders() - runs_before
    assert not list(run.glob(".*.tmp"))
    assert main(["resume", str(run)]) == 0
    shutil.rmtree(run)
    assert data_zoo.fingerprint_files(workdir) == before


@pytest.fixture
def non_root(workdir):
    """Someone who is not root, whom permissions do not bind: files that may not be read or written are so for him."""
    modes = {path: path.stat().st_mode for path in (workdir, workdir / "locked", workdir / "secret.csv")}
    for path, mode in zip(modes, (0o755, 0o555, 0o000), strict=True):
        path.chmod(mode)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield
    if is_root:
        os.seteuid(0)
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.parametrize(("words", "expected", "hint"), [
    ("train mlp --data digits --runs locked", "cannot write locked/mlp", "--runs"),
    ("train mlp --data secret.csv", "cannot read secret.csv (Permission denied)", "check its permissions"),
])
def test_missing_permission_is_refused(non_root, capsys, words, expected, hint):
    assert main(shlex.split(words)) == 2
    line = read_error_line(capsys)
    assert expected in line and hint in line, line


@pytest.mark.parametrize(
    "words", ["trian", "train mlp --hidden 0 --json", "evaluate damaged/garbled-model", "train mlp --data ragged.csv"]
)
def test_shell_call_gives_the_same_line(workdir, words):
    process = subprocess.run([sys.executable, "-m", "didact", *shlex.split(words)], capture_output=True, text=True)
    assert process.returncode == 2 and process.stdout == ""
    assert process.stderr.startswith("didact: ") and process.stderr.count("\n") == 1


def test_bug_keeps_its_traceback(workdir, monkeypatch):
    """Only what was foreseen becomes a line; anything else keeps its traceback and ends in exit code 1."""
    def raise_error(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("didact.training.prepare.load", raise_error)
    with pytest.raises(RuntimeError, match="ours"):
        main(["train", "mlp"])


def test_closed_stdout_is_no_error():
    """`didact list | head -1`: what is written after that reaches nobody, and nothing is wrong."""
    process = subprocess.Popen([sys.executable, "-m", "didact", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 0 and process.stderr.read() == b""
    process.stderr.close()
