"""Recurrent layers.

    cells          one step of an RNN, LSTM and GRU, by its equations
    recurrent      stacked and bidirectional layers on fused kernels, their state, initialization
    mamba          selective state-space layer, with a parallel scan
    xlstm          sLSTM and mLSTM
    mixer_stack    stacks of Mamba or xLSTM blocks with the interface of recurrent layers
    row_lstm       an LSTM over the rows of an image
"""

from didact.layers.recurrent.cells import gru_step, lstm_step, rnn_step, unroll_cell
from didact.layers.recurrent.mamba import Mamba, scan, selective_scan
from didact.layers.recurrent.mixer_stack import SequenceMixerStack
from didact.layers.recurrent.recurrent import Bidirectional, Recurrent, RecurrentState, chrono_init_, make_recurrent
from didact.layers.recurrent.row_lstm import RowLSTM
from didact.layers.recurrent.xlstm import MLSTM, SLSTM

__all__ = [
    "MLSTM", "SLSTM", "Bidirectional", "Mamba", "Recurrent", "RecurrentState", "RowLSTM", "SequenceMixerStack",
    "chrono_init_", "gru_step", "lstm_step", "make_recurrent", "rnn_step", "scan", "selective_scan", "unroll_cell",
]  # fmt: skip
