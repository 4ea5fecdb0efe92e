"""Our Transformers beside those of the `transformers` library and of torch.nn, with the same random weights."""

import logging

import pytest
import torch
from torch import nn

from didact.layers.mamba import Mamba
from didact.models.bert import BERT, MaskedBERT
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.transformer import Transformer
from didact.objectives.writing import Manner, bounded

hf = pytest.importorskip("transformers", reason="transformers is not installed")
logging.getLogger("transformers").setLevel(logging.ERROR)

TOKENS = torch.tensor([[3, 14, 15, 9, 2, 6, 5], [5, 8, 9, 7, 9, 3, 2]])


def scrambled(model):
    """Every weight drawn anew and large, so that a swapped or forgotten one shows."""
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model.eval()


def same(ours, theirs, at=slice(None)):
    torch.testing.assert_close(ours[at], theirs[at], atol=1e-4, rtol=1e-4)


def test_gpt2_gives_the_same_logits_and_takes_the_weights_by_name():
    config = hf.GPT2Config(vocab_size=40, n_positions=12, n_embd=24, n_layer=3, n_head=4)
    theirs = scrambled(hf.GPT2LMHeadModel(config))
    ours = GPT(40, context=12, dim=24, layers=3, heads=4).eval()
    named = {n.removeprefix("transformer."): t for n, t in theirs.state_dict().items() if n != "lm_head.weight"}
    assert {n: t.shape for n, t in named.items()} == {n: t.shape for n, t in ours.state_dict().items()}
    ours.load_state_dict(named)
    same(ours(TOKENS), theirs(TOKENS).logits)


def test_gpt2_has_the_published_number_of_parameters():
    with torch.device("meta"):
        sizes = {name: sum(p.numel() for p in GPT(**keywords).parameters()) for name, keywords in {
            "124M": {"context": 1024, "dim": 768, "layers": 12, "heads": 12},
            "355M": {"context": 1024, "dim": 1024, "layers": 24, "heads": 16},
            "774M": {"context": 1024, "dim": 1280, "layers": 36, "heads": 20},
            "1558M": {"context": 1024, "dim": 1600, "layers": 48, "heads": 25},
        }.items()}
    assert sizes == {"124M": 124_439_808, "355M": 354_823_168, "774M": 774_030_080, "1558M": 1_557_611_200}


@pytest.mark.parametrize("tie", [True, False])
def test_llama_gives_the_same_logits_and_takes_the_weights_by_name(tie):
    config = hf.LlamaConfig(
        vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=12, rms_norm_eps=1e-5, rope_theta=500.0, tie_word_embeddings=tie,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    theirs = scrambled(hf.LlamaForCausalLM(config))
    ours = Llama(40, context=12, dim=24, layers=3, heads=4, groups=2, hidden=40, base=500.0, tie=tie).eval()
    named = {n: t for n, t in theirs.state_dict().items() if not (tie and n == "lm_head.weight")}
    assert named.keys() == ours.state_dict().keys()
    ours.load_state_dict(named)
    same(ours(TOKENS), theirs(TOKENS).logits)


def test_experts_are_mixtrals():
    config = hf.MixtralConfig(
        vocab_size=40, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=12, rms_norm_eps=1e-5, sliding_window=None,
        tie_word_embeddings=True, output_router_logits=True, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    theirs = scrambled(hf.MixtralForCausalLM(config))
    ours = Llama(40, context=12, dim=24, layers=2, heads=4, groups=2, hidden=20, experts=4)
    named = {n: t for n, t in theirs.state_dict().items() if n in ours.state_dict()}
    for i in range(2):
        moe = {n.rpartition("mlp.")[2]: t for n, t in theirs.state_dict().items() if n.startswith(f"model.layers.{i}.mlp.")}
        w1, w3 = moe["experts.gate_up_proj"].mT.chunk(2, dim=-1)             # theirs have the outputs first, ours the inputs
        own = {"router.weight": moe["gate.weight"], "w1": w1, "w3": w3, "w2": moe["experts.down_proj"].mT}
        named |= {f"model.layers.{i}.mlp.{n}": t for n, t in own.items()}
    ours.load_state_dict(named)
    expected = theirs(TOKENS)
    for training in (False, True):                                           # no token is turned away, in either
        same(ours.train(training)(TOKENS), expected.logits)
    balance = hf.models.mixtral.modeling_mixtral.load_balancing_loss_func
    for block, logits in zip(ours.model.layers, expected.router_logits, strict=True):
        torch.testing.assert_close(block.mlp.penalty, balance((logits,), 4, 2) / 2)    # theirs sums over both choices, ours is the mean


def bert_config(**more):
    return hf.BertConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, max_position_embeddings=12, **more
    )


SIZES = {"context": 12, "dim": 24, "layers": 3, "heads": 4, "hidden": 40}


def test_bert_gives_the_same_vectors_whatever_the_padding():
    theirs = scrambled(hf.BertModel(bert_config()))
    ours = BERT(40, **SIZES, pooler=True).eval()
    ours.load_state_dict(theirs.state_dict())
    tokens, segments = TOKENS.clone(), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    tokens[1, 4:] = 0
    there = tokens != 0
    expected = theirs(tokens, attention_mask=there.long(), token_type_ids=segments)
    h = ours(tokens, segments)
    same(h, expected.last_hidden_state, at=there)
    same(ours.pool(h), expected.pooler_output)


def test_bert_guesses_the_same_words():
    theirs = scrambled(hf.BertForMaskedLM(bert_config()))
    ours = MaskedBERT(40, **SIZES).eval()
    named = {n: t for n, t in theirs.state_dict().items() if not n.startswith("cls.predictions.decoder")}   # the tied matrix again
    assert named.keys() == ours.state_dict().keys()
    ours.load_state_dict(named)
    same(ours(TOKENS), theirs(TOKENS).logits)


def test_pieces_of_a_text_are_read_as_if_each_were_alone():
    theirs = scrambled(hf.BertForMaskedLM(bert_config()))
    ours = MaskedBERT(40, **SIZES).eval()
    ours.load_state_dict({n: t for n, t in theirs.state_dict().items() if n in ours.state_dict()})
    of = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 2]])
    said = ours(TOKENS, pieces=of)
    for x, y, row in zip(TOKENS, said, of, strict=True):
        for k in range(3):
            same(y[row == k], theirs(x[row == k][None]).logits[0])


def test_the_attention_maps_of_bert_are_theirs():
    theirs = scrambled(hf.BertModel(bert_config(attn_implementation="eager")))
    ours = BERT(40, **SIZES, pooler=True).eval()
    ours.load_state_dict(theirs.state_dict())
    same(ours.attention_maps(TOKENS), torch.stack(theirs(TOKENS, output_attentions=True).attentions, dim=1))


def pack(q, k, v, out):
    """Three affine layers as the one that holds all, and the fourth."""
    return {
        "in_proj_weight": torch.cat([q.weight, k.weight, v.weight]), "in_proj_bias": torch.cat([q.bias, k.bias, v.bias]),
        "out_proj.weight": out.weight, "out_proj.bias": out.bias,
    }


def test_the_transformer_of_2017_is_marian():
    config = hf.MarianConfig(
        vocab_size=40, decoder_vocab_size=40, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, activation_function="relu", scale_embedding=True,
        max_position_embeddings=16, pad_token_id=0, share_encoder_decoder_embeddings=True, static_position_embeddings=True,
    )
    theirs = scrambled(hf.MarianMTModel(config))
    ours = Transformer(40, 40, dim=24, layers=2, heads=4, hidden=40, context=16).eval()
    named = {"source.weight": theirs.model.shared.weight, "target.weight": theirs.model.shared.weight}
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(theirs.model, stack).layers):
            parts = {f"self_attn.{n}": t for n, t in pack(*attention_of(layer.self_attn)).items()}
            norms = [layer.self_attn_layer_norm, layer.final_layer_norm]
            if stack == "decoder":
                parts |= {f"multihead_attn.{n}": t for n, t in pack(*attention_of(layer.encoder_attn)).items()}
                norms.insert(1, layer.encoder_attn_layer_norm)
            modules = {"linear1": layer.fc1, "linear2": layer.fc2} | {f"norm{k}": norm for k, norm in enumerate(norms, 1)}
            parts |= {f"{n}.{w}": getattr(m, w) for n, m in modules.items() for w in ("weight", "bias")}
            named |= {f"{stack}.{i}.{n}": t for n, t in parts.items()}
    ours.load_state_dict(named)
    ours.positions.table.copy_(theirs.model.encoder.embed_positions.weight.detach())   # theirs has all sines before all cosines
    source, target = TOKENS.clone(), TOKENS.flip(0)[:, :5]
    source[1, 4:] = 0
    theirs.model.decoder.embed_positions.weight.data.copy_(theirs.model.encoder.embed_positions.weight)
    expected = theirs(source, attention_mask=(source != 0).long(), decoder_input_ids=target).logits - theirs.final_logits_bias
    same(ours(source, target), expected)


def attention_of(a):
    return a.q_proj, a.k_proj, a.v_proj, a.out_proj


def test_the_layers_of_the_transformer_are_those_of_torch():
    torch.manual_seed(0)
    x, memory = torch.randn(2, 7, 24), torch.randn(2, 5, 24)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    keywords = {"dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoderLayer(24, 4, 40, **keywords)
    decoder = nn.TransformerDecoderLayer(24, 4, 40, **keywords)
    ours = Transformer(9, 9, dim=24, layers=1, heads=4, hidden=40, dropout=0.0)
    ours.encoder[0].load_state_dict(encoder.state_dict())
    ours.decoder[0].load_state_dict(decoder.state_dict())
    there = mask[:, None, None]
    same(ours.encoder[0](memory, there), encoder(memory, src_key_padding_mask=~mask))
    causal = ~torch.ones(7, 7, dtype=torch.bool).tril()
    same(ours.decoder[0](x, memory, there), decoder(x, memory, tgt_mask=causal, memory_key_padding_mask=~mask))


def test_bounds_agree_with_transformers():
    torch.manual_seed(0)
    logits = torch.randn(20, 50)
    theirs = hf.TopPLogitsWarper(0.8)(None, hf.TopKLogitsWarper(30)(None, hf.TemperatureLogitsWarper(0.7)(None, logits.clone())))
    torch.testing.assert_close(bounded(logits, Manner(temperature=0.7, top_k=30, top_p=0.8)), theirs)


@torch.no_grad()
def test_mamba_gives_the_same_and_takes_the_weights_by_name():
    config = hf.MambaConfig(vocab_size=9, hidden_size=32, state_size=5, num_hidden_layers=1, conv_kernel=4, expand=2, use_mambapy=False)
    theirs, ours, x = scrambled(hf.MambaModel(config).layers[0].mixer), Mamba(32, state=5), torch.randn(2, 11, 32)
    ours.load_state_dict(theirs.state_dict())
    same(ours(x), theirs(x))
    first, state = ours.after(x[:, :6], ours.start(2))
    same(torch.cat([first, ours.after(x[:, 6:], state)[0]], 1), theirs(x))
