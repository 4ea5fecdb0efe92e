"""Our Transformers against those of the library `transformers` and of torch.nn, with the same random weights."""

import logging

import pytest
import torch
from torch import nn

from didact.layers.recurrent.mamba import Mamba
from didact.models.text.bert import BERT, MaskedBERT
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.samplers.top_k_top_p import DecodingConfig, filter_logits

hf = pytest.importorskip("transformers", reason="transformers is not installed")
logging.getLogger("transformers").setLevel(logging.ERROR)

TOKEN_IDS = torch.tensor([[3, 14, 15, 9, 2, 6, 5], [5, 8, 9, 7, 9, 3, 2]])


def randomize_weights(model):
    """Large random numbers in every weight, so that a swapped or forgotten one shows."""
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model.eval()


def assert_same(actual, expected, index=slice(None)):
    torch.testing.assert_close(actual[index], expected[index], atol=1e-4, rtol=1e-4)


def test_gpt2_matches_transformers_with_weights_by_name():
    config = hf.GPT2Config(vocab_size=40, n_positions=12, n_embd=24, n_layer=3, n_head=4)
    reference = randomize_weights(hf.GPT2LMHeadModel(config))
    model = GPT(40, context_length=12, embed_dim=24, num_layers=3, num_heads=4).eval()
    state = {n.removeprefix("transformer."): t for n, t in reference.state_dict().items() if n != "lm_head.weight"}
    assert {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in model.state_dict().items()}
    model.load_state_dict(state)
    assert_same(model(TOKEN_IDS), reference(TOKEN_IDS).logits)


def test_gpt2_has_the_published_number_of_parameters():
    with torch.device("meta"):
        sizes = {name: sum(p.numel() for p in GPT(**keywords).parameters()) for name, keywords in {
            "124M": {"context_length": 1024, "embed_dim": 768, "num_layers": 12, "num_heads": 12},
            "355M": {"context_length": 1024, "embed_dim": 1024, "num_layers": 24, "num_heads": 16},
            "774M": {"context_length": 1024, "embed_dim": 1280, "num_layers": 36, "num_heads": 20},
            "1558M": {"context_length": 1024, "embed_dim": 1600, "num_layers": 48, "num_heads": 25},
        }.items()}
    assert sizes == {"124M": 124_439_808, "355M": 354_823_168, "774M": 774_030_080, "1558M": 1_557_611_200}


@pytest.mark.parametrize("tie", [True, False])
def test_llama_matches_transformers_with_weights_by_name(tie):
    config = hf.LlamaConfig(
        vocab_size=40,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=12,
        rms_norm_eps=1e-5,
        rope_theta=500.0,
        tie_word_embeddings=tie,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    reference = randomize_weights(hf.LlamaForCausalLM(config))
    model = Llama(
        40,
        context_length=12,
        embed_dim=24,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        ffn_dim=40,
        base=500.0,
        tie_weights=tie,
    ).eval()
    state = {n: t for n, t in reference.state_dict().items() if not (tie and n == "lm_head.weight")}
    assert state.keys() == model.state_dict().keys()
    model.load_state_dict(state)
    assert_same(model(TOKEN_IDS), reference(TOKEN_IDS).logits)


def test_llama_with_experts_matches_mixtral():
    config = hf.MixtralConfig(
        vocab_size=40,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=12,
        rms_norm_eps=1e-5,
        sliding_window=None,
        tie_word_embeddings=True,
        output_router_logits=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    reference = randomize_weights(hf.MixtralForCausalLM(config))
    model = Llama(
        40, context_length=12, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=20, num_experts=4
    )
    state = {n: t for n, t in reference.state_dict().items() if n in model.state_dict()}
    for i in range(2):
        moe = {
            n.rpartition("mlp.")[2]: t
            for n, t in reference.state_dict().items()
            if n.startswith(f"model.layers.{i}.mlp.")
        }
        # the library has the outputs first, ours the inputs
        w1, w3 = moe["experts.gate_up_proj"].mT.chunk(2, dim=-1)
        expert_state = {"router.weight": moe["gate.weight"], "w1": w1, "w3": w3, "w2": moe["experts.down_proj"].mT}
        state |= {f"model.layers.{i}.mlp.{n}": t for n, t in expert_state.items()}
    model.load_state_dict(state)
    expected = reference(TOKEN_IDS)
    for training in (False, True):                                           # no token is dropped, in either
        assert_same(model.train(training)(TOKEN_IDS), expected.logits)
    balance = hf.models.mixtral.modeling_mixtral.load_balancing_loss_func
    for block, logits in zip(model.model.layers, expected.router_logits, strict=True):
        # the library sums over both choices, ours is the mean
        torch.testing.assert_close(block.mlp.auxiliary_loss, balance((logits,), 4, 2) / 2)


def make_bert_config(**options):
    return hf.BertConfig(
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=12,
        **options,
    )


BERT_OPTIONS = {"context_length": 12, "embed_dim": 24, "num_layers": 3, "num_heads": 4, "ffn_dim": 40}


def test_bert_with_padding_matches_transformers():
    reference = randomize_weights(hf.BertModel(make_bert_config()))
    model = BERT(40, **BERT_OPTIONS, pooler=True).eval()
    model.load_state_dict(reference.state_dict())
    tokens, segments = TOKEN_IDS.clone(), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    tokens[1, 4:] = 0
    is_token = tokens != 0
    expected = reference(tokens, attention_mask=is_token.long(), token_type_ids=segments)
    h = model(tokens, segments)
    assert_same(h, expected.last_hidden_state, index=is_token)
    assert_same(model.pool(h), expected.pooler_output)


def test_masked_bert_matches_transformers():
    reference = randomize_weights(hf.BertForMaskedLM(make_bert_config()))
    model = MaskedBERT(40, **BERT_OPTIONS).eval()
    # the tied matrix again
    state = {n: t for n, t in reference.state_dict().items() if not n.startswith("cls.predictions.decoder")}
    assert state.keys() == model.state_dict().keys()
    model.load_state_dict(state)
    assert_same(model(TOKEN_IDS), reference(TOKEN_IDS).logits)


def test_masked_bert_reads_segments_like_transformers_reads_them_alone():
    reference = randomize_weights(hf.BertForMaskedLM(make_bert_config()))
    model = MaskedBERT(40, **BERT_OPTIONS).eval()
    model.load_state_dict({n: t for n, t in reference.state_dict().items() if n in model.state_dict()})
    segment_index = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 2]])
    logits = model(TOKEN_IDS, pieces=segment_index)
    for x, y, row in zip(TOKEN_IDS, logits, segment_index, strict=True):
        for k in range(3):
            assert_same(y[row == k], reference(x[row == k][None]).logits[0])


def test_bert_attention_maps_match_transformers():
    reference = randomize_weights(hf.BertModel(make_bert_config(attn_implementation="eager")))
    model = BERT(40, **BERT_OPTIONS, pooler=True).eval()
    model.load_state_dict(reference.state_dict())
    assert_same(
        model.attention_maps(TOKEN_IDS), torch.stack(reference(TOKEN_IDS, output_attentions=True).attentions, dim=1)
    )


def pack_attention_weights(q, k, v, out):
    """Three affine layers packed into one, and the output projection."""
    return {
        "in_proj_weight": torch.cat([q.weight, k.weight, v.weight]),
        "in_proj_bias": torch.cat([q.bias, k.bias, v.bias]),
        "out_proj.weight": out.weight,
        "out_proj.bias": out.bias,
    }


def test_encoder_decoder_matches_marian():
    config = hf.MarianConfig(
        vocab_size=40,
        decoder_vocab_size=40,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=16,
        pad_token_id=0,
        share_encoder_decoder_embeddings=True,
        static_position_embeddings=True,
    )
    reference = randomize_weights(hf.MarianMTModel(config))
    model = Transformer(40, 40, embed_dim=24, num_layers=2, num_heads=4, ffn_dim=40, context_length=16).eval()
    state = {"source.weight": reference.model.shared.weight, "target.weight": reference.model.shared.weight}
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(reference.model, stack).layers):
            parts = {
                f"self_attn.{n}": t
                for n, t in pack_attention_weights(*get_attention_projections(layer.self_attn)).items()
            }
            norms = [layer.self_attn_layer_norm, layer.final_layer_norm]
            if stack == "decoder":
                parts |= {
                    f"multihead_attn.{n}": t
                    for n, t in pack_attention_weights(*get_attention_projections(layer.encoder_attn)).items()
                }
                norms.insert(1, layer.encoder_attn_layer_norm)
            modules = {"linear1": layer.fc1, "linear2": layer.fc2} | {
                f"norm{k}": norm for k, norm in enumerate(norms, 1)
            }
            parts |= {f"{n}.{w}": getattr(m, w) for n, m in modules.items() for w in ("weight", "bias")}
            state |= {f"{stack}.{i}.{n}": t for n, t in parts.items()}
    model.load_state_dict(state)
    # the library has all sines before all cosines
    model.positions.table.copy_(reference.model.encoder.embed_positions.weight.detach())
    source, target = TOKEN_IDS.clone(), TOKEN_IDS.flip(0)[:, :5]
    source[1, 4:] = 0
    reference.model.decoder.embed_positions.weight.data.copy_(reference.model.encoder.embed_positions.weight)
    expected = (
        reference(source, attention_mask=(source != 0).long(), decoder_input_ids=target).logits
        - reference.final_logits_bias
    )
    assert_same(model(source, target), expected)


def get_attention_projections(a):
    return a.q_proj, a.k_proj, a.v_proj, a.out_proj


def test_encoder_decoder_layers_match_torch():
    torch.manual_seed(0)
    x, memory = torch.randn(2, 7, 24), torch.randn(2, 5, 24)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    keywords = {"dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoderLayer(24, 4, 40, **keywords)
    decoder = nn.TransformerDecoderLayer(24, 4, 40, **keywords)
    model = Transformer(9, 9, embed_dim=24, num_layers=1, num_heads=4, ffn_dim=40, dropout=0.0)
    model.encoder[0].load_state_dict(encoder.state_dict())
    model.decoder[0].load_state_dict(decoder.state_dict())
    attention_mask = mask[:, None, None]
    assert_same(model.encoder[0](memory, attention_mask), encoder(memory, src_key_padding_mask=~mask))
    causal = ~torch.ones(7, 7, dtype=torch.bool).tril()
    assert_same(
        model.decoder[0](x, memory, attention_mask), decoder(x, memory, tgt_mask=causal, memory_key_padding_mask=~mask)
    )


def test_filter_logits_matches_transformers():
    torch.manual_seed(0)
    logits = torch.randn(20, 50)
    expected = hf.TopPLogitsWarper(0.8)(
        None, hf.TopKLogitsWarper(30)(None, hf.TemperatureLogitsWarper(0.7)(None, logits.clone()))
    )
    torch.testing.assert_close(filter_logits(logits, DecodingConfig(temperature=0.7, top_k=30, top_p=0.8)), expected)


@torch.no_grad()
def test_mamba_matches_transformers_with_weights_by_name():
    config = hf.MambaConfig(
        vocab_size=9, hidden_size=32, state_size=5, num_hidden_layers=1, conv_kernel=4, expand=2, use_mambapy=False
    )
    reference, model, x = (
        randomize_weights(hf.MambaModel(config).layers[0].mixer),
        Mamba(32, state_dim=5),
        torch.randn(2, 11, 32),
    )
    model.load_state_dict(reference.state_dict())
    assert_same(model(x), reference(x))
    first_output, state = model.forward_from_state(x[:, :6], model.initial_state(2))
    assert_same(torch.cat([first_output, model.forward_from_state(x[:, 6:], state)[0]], 1), reference(x))
