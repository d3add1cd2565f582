"""`.venv/bin/python docs/demo_svg.py`: run `streamscribe demo` in a terminal of its own and write docs/demo.svg from it.

The picture plays once, at the speed it was recorded from the moment the fleet is ready, and stays on the last
screen; viewers that do not animate SVG show that screen.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from html import escape
from itertools import groupby
from pathlib import Path

COLUMNS, ROWS = 112, 40
ADVANCE, LINE, MARGIN = 8.4, 18, 16  # pixels, for a font of 14
STYLES = {"1": "b", "2": "d", "3": "i"}  # bold, dim, italic
TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([^\x1b]|\x1b(?!\[))")
Cell = tuple[str, str]  # class, character


def record(command: list[str]) -> list[tuple[float, str]]:
    """(seconds since its start, output) pairs of a command in a pseudo-terminal. Exits if the command fails."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, os.environ | {"TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    start, pieces = time.monotonic(), []
    try:
        while data := os.read(terminal, 1 << 16):
            pieces.append((time.monotonic() - start, data))
    except OSError:  # Linux's end of file on a terminal whose program is gone
        pass
    if os.waitpid(child, 0)[1]:
        sys.exit(b"".join(data for _, data in pieces).decode())
    # A character may be torn between two reads, but not a line: rich writes those whole.
    return [(at, data.decode("utf-8", "replace")) for at, data in pieces]


def lines_over_time(pieces: list[tuple[float, str]]) -> list[tuple[int, float, float | None, list[Cell]]]:
    """(row, from, until, cells) of everything each row showed. Knows what rich sends, no more."""
    rows: dict[int, tuple[float, list[Cell]]] = {}
    shown = []
    row, style = 0, ""

    def replace(cells: list[Cell], at: float) -> None:
        since, old = rows.get(row, (at, []))
        if old and since < at:
            shown.append((row, since, at, old))
        rows[row] = (at, cells)

    for at, text in pieces:
        for code, command, character in TOKEN.findall(text):
            if command == "m":
                style = STYLES.get(code, "")
            elif command == "K":
                replace([], at)
            elif command == "A":
                row -= int(code or 1)
            elif character == "\n":
                row += 1
            elif character and character != "\r":
                replace([*rows.get(row, (at, []))[1], (style, character)], at)
    return shown + [(row, since, None, cells) for row, (since, cells) in rows.items() if cells]


def svg(lines: list[tuple[int, float, float | None, list[Cell]]], start: float) -> str:
    """The picture; time 0 is `start` in the recording."""
    height = (max(row for row, *_ in lines) + 1) * LINE + 2 * MARGIN
    width = COLUMNS * ADVANCE + 2 * MARGIN
    body = []
    for row, since, until, cells in sorted(lines):
        begin = max(since - start, 0)
        if until is None:
            hidden, timing = (
                "",
                f"<set attributeName='visibility' to='hidden' begin='0s' dur='{begin:.2f}s'/>"
                if begin
                else "",
            )
        elif until > start:
            lasts = until - start - begin
            hidden = " visibility='hidden'"
            timing = f"<set attributeName='visibility' to='visible' begin='{begin:.2f}s' dur='{lasts:.2f}s'/>"
        else:
            continue
        runs = (
            (style, escape("".join(c for _, c in run)))
            for style, run in groupby(cells, key=lambda cell: cell[0])
        )
        spans = "".join(f"<tspan class='{style}'>{text}</tspan>" if style else text for style, text in runs)
        y, length = MARGIN + (row + 0.75) * LINE, len(cells) * ADVANCE
        body.append(f"<text x='{MARGIN}' y='{y}' textLength='{length:.1f}'{hidden}>{spans}{timing}</text>")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height}' width='{width:.0f}'>\n"
        "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;white-space:pre}"
        ".b{font-weight:bold}.i{font-style:italic}.d{fill:#7d8590}</style>\n"
        "<rect width='100%' height='100%' rx='8' fill='#16181d'/>\n" + "\n".join(body) + "\n</svg>\n"
    )


if __name__ == "__main__":
    recorded = record([str(Path(sys.executable).with_name("streamscribe")), "demo"])
    ready = next(at for at, text in recorded if "ready:" in text)
    picture = svg(lines_over_time(recorded), ready - 0.5)
    Path(__file__).with_name("demo.svg").write_text(picture, encoding="utf-8")
