"""A tiny cross-encoder in ONNX: the more of a query's tokens a text repeats, the lower its
score.
"""

import shutil
from pathlib import Path

import numpy
import onnx
from fastembed.common.model_description import ModelSource
from fastembed.rerank.cross_encoder import TextCrossEncoder
from onnx import TensorProto, helper, numpy_helper

from langchain_lookup_knowledge.l1.models.embeddings import TOKENIZER_FOLDER

NAME = "tests/contrary-cross-encoder"
TOKENS, SIZE = 30_522, 64


def _model() -> onnx.ModelProto:
    """Return a model as BERT's are called: it sums an embedding of each segment, and negates their
    product.
    """
    table = numpy.random.default_rng(7).standard_normal((TOKENS, SIZE)).astype("float32")
    table[:1000] = 0  # padding, the special tokens, and single characters
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["types", "last"], ["is_text"]),
        helper.make_node("Mul", ["tokens", "is_text"], ["text_tokens"]),
        helper.make_node("ReduceSum", ["text_tokens", "second"], ["text"], keepdims=0),
        helper.make_node("ReduceSum", ["tokens", "second"], ["both"], keepdims=0),
        helper.make_node("Sub", ["both", "text"], ["query"]),
        helper.make_node("Mul", ["query", "text"], ["product"]),
        helper.make_node("ReduceSum", ["product", "second"], ["likeness"], keepdims=1),
        helper.make_node("Neg", ["likeness"], ["logits"]),
    ]
    shape = ["batch", "sequence"]
    graph = helper.make_graph(
        nodes,
        "contrary",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "token_type_ids")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(numpy.array([2]), "last"),
            numpy_helper.from_array(numpy.array([1]), "second"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_cross_encoder(cache: Path) -> str:
    """Put the model where FastEmbed keeps those that it has fetched, and return its name."""
    folder = cache / NAME.rsplit("/", maxsplit=1)[-1]
    shutil.copytree(TOKENIZER_FOLDER, folder)
    onnx.save(_model(), folder / "model.onnx")
    if NAME not in {model["model"] for model in TextCrossEncoder.list_supported_models()}:
        TextCrossEncoder.add_custom_model(
            NAME, sources=ModelSource(url="http://127.0.0.1:9/none"), model_file="model.onnx"
        )
    return NAME
