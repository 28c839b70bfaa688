"""Files of web servers that tell little and send no parts."""

from __future__ import annotations

import gzip
import http.server
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import check_first_records, list_files, whole_files
from tests.helpers.files import json_lines

pytest.importorskip("aiohttp")

FIELDS = Fields(text="text")
N = 3000


@contextmanager
def server(body: bytes, *, tells_size: bool, lost: int = 0) -> Iterator[str]:
    """The address of a server without ranges that sends the same bytes for any path, but for those that are lost."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            if tells_size:
                self.send_header("Content-Length", str(len(body) + lost))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            with suppress(ConnectionError):  # the reader may have seen enough
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


@pytest.mark.parametrize("tells_size", [True, False])
@pytest.mark.parametrize(("ending", "compress"), [("", bytes), (".gz", gzip.compress)])
def test_large_files_of_servers_without_ranges_are_read(
    tells_size: bool, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    lines = json_lines({"text": f"{i} " + "word " * 500} for i in range(N))
    assert len(lines) > 6 << 20
    with server(compress(lines), tells_size=tells_size) as address:
        found = list_files(f"{address}/r.jsonl{ending}?download=1")
        check_first_records(found, FIELDS)
        ((piece, _),) = whole_files(found, n_terms=0)
        assert [record["text"].split()[0] for _, record in piece.records(FIELDS)] == list(map(str, range(N)))


@pytest.mark.parametrize("tells_size", [True, False])
def test_parquet_of_servers_without_ranges_is_read_from_a_copy(tells_size: bool) -> None:
    texts = [f"{i} {i * i:x}" * 200 for i in range(N)]
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), stream, compression="none", use_dictionary=False)
    assert len(stream.getvalue()) > 5 << 20
    with server(stream.getvalue(), tells_size=tells_size) as address:
        url = f"{address}/r.parquet"
        with pytest.raises(InputError) as error:
            check_first_records(list_files(url), FIELDS)
        assert error.value.place == url
        assert "simplecache::" in error.value.remedy[0]
        copied = list_files(f"simplecache::{url}")
        check_first_records(copied, FIELDS)
        ((piece, _),) = whole_files(copied, n_terms=0)
        assert [record["text"] for _, record in piece.records(FIELDS)] == texts


@pytest.mark.parametrize("ending", ["jsonl", "csv", "jsonl.gz"])
def test_an_answer_that_breaks_off_is_an_error_of_its_file(ending: str) -> None:
    lines = b"text\nword\n" if ending == "csv" else json_lines([{"text": "word"}] * 9)
    with server(gzip.compress(lines) if ending == "jsonl.gz" else lines, tells_size=True, lost=99) as address:
        ((piece, _),) = whole_files(list_files(f"{address}/r.{ending}"), n_terms=0)
        with pytest.raises(InputError) as error:
            list(piece.records(FIELDS))
        assert error.value.place == f"{address}/r.{ending}"


def test_archives_of_servers_without_ranges_are_read_from_a_copy() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("r.jsonl", json_lines([{"text": "word"}] * 9))
    with server(stream.getvalue(), tells_size=True) as address:
        with pytest.raises(InputError) as error:
            list_files(f"zip://r.jsonl::{address}/r.zip")
        assert "simplecache::" in error.value.remedy[0]
        ((piece, _),) = whole_files(list_files(f"zip://r.jsonl::simplecache::{address}/r.zip"), n_terms=0)
        assert len(list(piece.records(FIELDS))) == 9
