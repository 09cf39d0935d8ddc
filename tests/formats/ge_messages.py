# SPDX-License-Identifier: Apache-2.0
"""GraphDef, ModelDef and the others as classes of google.protobuf, compiled by protoc from ge_graph.proto."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

__all__ = ["message_class", "parse_text", "print_text"]


def _pool() -> descriptor_pool.DescriptorPool:
    folder = Path(__file__).parent
    with tempfile.NamedTemporaryFile(suffix=".pb") as out:
        command = ["protoc", f"-I{folder}", f"--descriptor_set_out={out.name}", str(folder / "ge_graph.proto")]
        subprocess.run(command, check=True, timeout=60)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _pool()


def message_class(name: str) -> Any:
    """ "GraphDef" -> its class."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"ge.proto.{name}"))


def parse_text(text: str, name: str) -> Any:
    """Raises text_format.ParseError on a field or enumerator that the proto does not have."""
    return text_format.Parse(text, message_class(name)())


def print_text(message: Any) -> str:
    return text_format.MessageToString(message, as_utf8=False)
