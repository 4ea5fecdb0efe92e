"""A small client of pyright's language server: where is the name at this place defined?"""

import json
import os
import subprocess
import threading
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import unquote, urlparse


class Server:
    def __init__(self, root: Path, python: str, pyright: str):
        self.root = root
        self.python = python
        self.process = subprocess.Popen(
            ["node", f"{pyright}/langserver.index.js", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd=root, env={**os.environ, "NODE_OPTIONS": "--max-old-space-size=6000"})
        self.number = 0
        self.answers: dict[int, Queue] = {}
        self.lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()
        self.request("initialize", {
            "processId": os.getpid(), "rootUri": root.as_uri(),
            "workspaceFolders": [{"uri": root.as_uri(), "name": "root"}],
            "capabilities": {"workspace": {"configuration": True, "workspaceFolders": True}, "textDocument": {"definition": {"linkSupport": False}}}})
        self.notify("initialized", {})

    def settings(self, section: str | None) -> Any:
        analysis = {"typeCheckingMode": "off", "diagnosticMode": "openFilesOnly", "autoSearchPaths": False, "indexing": False,
                    "extraPaths": [str(self.root / "src"), str(self.root / "tests"), str(self.root / "benchmarks"), str(self.root / "tools")]}
        whole = {"python": {"pythonPath": self.python, "analysis": analysis}, "pyright": {"disableLanguageServices": False}}
        for part in (section or "").split("."):
            whole = whole.get(part, {}) if part else whole
        return whole

    def _listen(self) -> None:
        out = self.process.stdout
        while True:
            length = 0
            while (line := out.readline().strip()):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not length:
                return
            message = json.loads(out.read(length))
            if "method" in message and "id" in message:
                if message["method"] == "workspace/configuration":
                    result = [self.settings(item.get("section")) for item in message["params"]["items"]]
                else:
                    result = None
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
            elif "id" in message:
                self.answers.pop(message["id"]).put(message)

    def _write(self, message: dict) -> None:
        raw = json.dumps(message).encode()
        with self.lock:
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
            self.process.stdin.flush()

    def send(self, method: str, params: dict) -> Queue:
        with self.lock:
            self.number += 1
            number = self.number
            self.answers[number] = queue = Queue()
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return queue

    def request(self, method: str, params: dict) -> Any:
        answer = self.send(method, params).get(timeout=300)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")

    def notify(self, method: str, params: dict) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def open(self, path: Path) -> None:
        self.notify("textDocument/didOpen", {"textDocument": {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}})

    def close(self, path: Path) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})

    def definitions(self, path: Path, places: list[tuple[int, int]]) -> list[list[tuple[str, int, int]]]:
        """For each (line from 1, column from 0) the (file, line, column) where it is defined."""
        queues = [self.send("textDocument/definition", {"textDocument": {"uri": path.as_uri()}, "position": {"line": line - 1, "character": column}})
                  for line, column in places]
        found = []
        for queue in queues:
            answer = queue.get(timeout=600)
            result = answer.get("result") or []
            result = [result] if isinstance(result, dict) else result
            found.append([(unquote(urlparse(r["uri"]).path), r["range"]["start"]["line"] + 1, r["range"]["start"]["character"]) for r in result])
        return found
