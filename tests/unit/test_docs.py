"""What the documentation says is what the code does: names, ranges, defaults, examples, links."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from gateway import refusal
from ops.cli import app
from ops.schema import FILE, protocol_schema
from shared import settings
from shared.keys import STAGES, Keys
from shared.protocol import CLIENT_ADAPTER, SERVER_ADAPTER, ClientMessage, ServerMessage, SessionOptions

ROOT = Path(__file__).parents[2]
README, ARCHITECTURE, PROTOCOL, SUBSCRIBING = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "ARCHITECTURE.md", "docs/protocol.md", "docs/subscribing.md")
)
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "docs/protocol.md",
    ROOT / "docs/subscribing.md",
    *sorted((ROOT / "ops/decisions").glob("*.md")),
]
# A path of ours in backticks: it has a folder or an extension we use, and nothing that is filled in by the reader.
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|lua|toml|yml))`")


def section(page: str, heading: str) -> str:
    return re.split(r"\n##+ ", page.split(f" {heading}\n", 1)[1])[0]


def rows(text: str) -> dict[str, list[str]]:
    """Cells of table rows whose first cell is in backticks, by it."""
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {cells[0].split("`")[1]: cells[1:] for cells in lines}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def examples(page: str) -> list[str]:
    return [line for block in blocks(page, "json") for line in block.splitlines()]


def types(union) -> set[str]:
    return {member.model_fields["type"].default for member in members(union)}


def members(union) -> list[type]:
    parts = get_args(union)
    return (
        [kind for part in parts for kind in members(part)]
        if parts
        else [union]
        if hasattr(union, "model_fields")
        else []
    )


def values(schema: dict) -> str:
    """A field's possible values, as the option table writes them."""
    if schema["type"] == "boolean":
        return "`true`, `false`"
    if schema["type"] == "integer":
        return f"{schema['minimum']}–{schema['maximum']}"  # noqa: RUF001 - a dash between numbers
    return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))


def test_the_schema_file_is_the_one_generated_from_the_models():
    assert FILE.read_text(encoding="utf-8") == protocol_schema(), "run: python -m ops.schema"


def test_the_option_table_has_every_option_with_its_range_and_default():
    documented = {name: cells[:2] for name, cells in rows(section(PROTOCOL, "Connecting")).items()}

    assert documented == {
        name: [values(schema), f"`{json.dumps(schema['default']).strip(chr(34))}`"]
        for name, schema in SessionOptions.model_json_schema()["properties"].items()
    }


def test_every_example_message_is_valid_and_every_type_has_one():
    client_side = section(PROTOCOL, "What you send")
    sent = [CLIENT_ADAPTER.validate_json(line) for line in examples(client_side)]
    received = [SERVER_ADAPTER.validate_json(line) for line in examples(PROTOCOL.replace(client_side, ""))]

    assert {message.type for message in sent} == types(ClientMessage)
    assert {message.type for message in received} == types(ServerMessage)


def test_the_table_of_control_messages_has_every_one():
    assert set(rows(section(PROTOCOL, "What you send"))) == types(ClientMessage)


def test_every_close_code_that_the_gateway_sends_is_explained():
    codes = {value for name, value in vars(refusal).items() if name.startswith("CLOSE_")}
    explained = {int(code) for code in re.findall(r"^\| (1\d{3}) \|", PROTOCOL, re.MULTILINE)}

    # 1009 is uvicorn's.
    assert codes - {1001} <= explained <= codes | {1009}


def test_the_settings_table_has_every_variable_with_its_default():
    expected = {}
    for kind in vars(settings).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, settings.BaseSettings)
            and kind is not settings.BaseSettings
        ):
            for name, field in kind.model_fields.items():
                variable = field.alias or f"{kind.model_config['env_prefix']}{name.upper()}"
                value = str(field.default).lower() if isinstance(field.default, bool) else field.default
                expected[variable] = "none" if value in {"", None} else f"`{value}`"

    assert {name: cells[0] for name, cells in rows(section(README, "Your own Redis")).items()} == expected


def test_variables_named_anywhere_exist():
    known = set(rows(section(README, "Your own Redis")))
    named = {
        (page.name, name) for page in PAGES for name in re.findall(r"SCRIBE_[A-Z_]+[A-Z]", page.read_text())
    }

    assert {(page, name) for page, name in named if name not in known} == set()


def test_decisions_named_anywhere_exist():
    there = {path.name[:4] for path in (ROOT / "ops/decisions").glob("*.md")}
    folders = (ROOT / name for name in ("gateway", "workers", "shared", "ops", "docs", "tests"))
    pages = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".md", ".py", ".lua"}
    ]
    text = "".join(path.read_text(encoding="utf-8") for path in [*pages, *ROOT.glob("*.md")])
    named = re.findall(r"\bdecisions?[ /](\d{4})\b", text)

    assert len(set(named)) > 5
    assert set(named) <= there


def test_the_table_of_commands_has_every_command():
    commands = {
        f"streamscribe {command.name or command.callback.__name__}" for command in app.registered_commands
    } | {f"streamscribe {group.name}" for group in app.registered_groups}

    assert set(rows(section(README, "Use it"))) == commands


def test_the_table_of_keys_has_every_key():
    keys = Keys()
    names = [
        *keys.session_keys("<sid>"),
        keys.channel("<sid>"),
        keys.deployment(),
        keys.probe(),
        keys.dead(0),
        keys.open_sessions(0),
        keys.access(),
        keys.seats("<owner>"),
        keys.heard("<owner>", "<day>"),
    ]
    names += [key for stage in STAGES for key in (keys.ready(0, stage), keys.workers(stage))]
    stages = "|".join(STAGES)
    named = {
        re.sub(
            rf"(state|ready|workers):(?:{stages})$",
            r"\1:<stage>",
            re.sub(r"use:[0-9a-f]{32}", "use:<owner>", re.sub(r"p\d\d", "pNN", n)),
        )
        for n in names
    }

    assert set(rows(section(ARCHITECTURE, "Keys"))) == named


def test_every_script_is_named():
    scripts = {path.name for path in (ROOT / "shared/scripts").glob("*.lua")}

    assert set(re.findall(r"`(\w+\.lua)`", section(ARCHITECTURE, "Tokens and the fenced commit"))) == scripts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    named = [name for name in PATH.findall(text) if not name.startswith(".")]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    missing += [
        name
        for name in named
        if not any((base / name).exists() for base in (ROOT, page.parent, ROOT / "shared/scripts"))
    ]

    assert missing == []


def test_the_seven_files_exist_and_are_read_in_ten_minutes():
    steps = re.findall(r"^(\d)\. `([^`]+)`: \S", section(README, "Read the code"), re.MULTILINE)
    lines = sum(len((ROOT / file).read_text().splitlines()) for _, file in steps)

    assert [number for number, _ in steps] == list("1234567")
    assert lines < 1_000


def test_python_examples_compile():
    for page in (README, PROTOCOL, SUBSCRIBING):
        for code in blocks(page, "python"):
            compile(code, "example", "exec")
