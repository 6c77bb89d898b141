"""The rules of the tree: who may import whom, and that everything is packaged and documented."""

import ast
import re
import runpy
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "core", "kernels", "profiles", "samples")
RECIPE = "profiles.recipe"  # makes models: it may touch transformers and weights itself
COMPOSED = "core.methods.both"  # made of two others
# `longctx` as the name of a package to install: on the Python index it is another project's.
INSTALLERS = re.compile(
    r"(?<![.\w])longctx\[\w"
    r"|\b(?:pip3?|pipx|uv|llm)\b[^\n`#;&|]*\b(?:install|add|inject|run|wheel|download|upgrade)\b"
    r"[^\n`#;&|]*[ '\"]longctx(?![-\w./:])"
    r"|\buvx (?:--from )?longctx\b(?!-)"
)
# The rooms of core, lowest first: each imports of itself and of those before it.
ROOMS = (
    *(
        "common",
        "sources",
        "profile",
        "model",
        "contracts",
        "tokens",
        "dense",
        "reader",
        "store",
        "kv",
    ),
    *("methods", "passages", "retrieve", "decode", "engine", "ingest", "ask", "report"),
    *("measure", "api"),
)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    named = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    return {name: ast.parse(file.read_text("utf-8")) for name, file in named.items()}


@cache
def imports(name: str, top_level_only: bool = False) -> frozenset[str]:
    """What a module imports, ours without the leading `longctx.`."""
    package = name.split(".")[:-1]
    tree = modules()[name]
    nodes = tree.body if top_level_only else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return frozenset(item.removeprefix("longctx.") for item in found)


def in_folder(folder: str) -> list[str]:
    return [name for name in modules() if name.startswith(folder + ".")]


def test_kernels_import_nothing_of_ours():
    for name in in_folder("kernels"):
        assert not {i for i in imports(name) if i.split(".")[0] in ("cli", "core", "profiles")}


def test_only_one_another_import_triton_kernels():
    """Where Triton is not installed, all else is imported: a kernel is loaded when it is wanted."""
    kernels = {name for name in modules() if imports(name) & {"triton", "kernels.launch"}}
    assert {"kernels.attention_mass", "kernels.similarity_max", "kernels.topk_scan"} <= kernels
    for name in set(modules()) - kernels:
        assert not imports(name) & kernels, name


def test_every_kernel_has_a_definition_that_registers_it_and_stands_in_the_door():
    definitions = {name for name in in_folder("kernels") if name.endswith("_ref")}
    assert {f"{name.removesuffix('_ref')}" for name in definitions} <= {*modules()}
    offered = imports("kernels.door")
    for name in definitions:
        registered = {
            node.name
            for node in modules()[name].body
            if isinstance(node, ast.FunctionDef)
            and any(ast.unparse(d) == "operation" for d in node.decorator_list)
        }
        assert registered, name
        assert {f"{name}.{one}" for one in registered} <= offered, name


def test_core_does_not_know_the_command_line():
    for name in in_folder("core"):
        assert not {i for i in imports(name) if i.split(".")[0] in ("cli", "rich", "typer")}, name


def test_every_file_of_core_stands_in_a_room():
    rooms = {path.name for path in (ROOT / "core").iterdir() if path.name != "__pycache__"}
    assert rooms == {*ROOMS, "__init__.py"}


def test_the_docs_list_the_rooms_in_their_order():
    tree = re.findall(r"^      (\w+)/ ", (ROOT / "README.md").read_text("utf-8"), re.M)
    table = re.findall(r"^\| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M)
    assert tuple(tree) == tuple(table) == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_of_those_below_it_alone(room):
    allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    for name in in_folder(f"core.{room}"):
        ours = {i.split(".")[1] for i in imports(name) if i.startswith("core.")}
        assert ours <= allowed, f"{name} imports {ours - allowed}"


@pytest.mark.parametrize("folder", ["core.methods", "core.decode.policies"])
def test_methods_and_policies_do_not_import_one_another(folder):
    for name in in_folder(folder):
        others = {i for i in imports(name) if i.startswith(f"{folder}.")}
        assert name == COMPOSED or not others, name


def test_only_the_adapter_touches_a_transformers_model():
    models = ("transformers.AutoModel", "transformers.PreTrained", "transformers.Attention")
    shapes = "core.model.gguf.skeleton"  # makes one without memory, for its parameters' shapes
    may = {"core.model.adapter", "core.model.load", shapes, *in_folder(RECIPE)}
    for name in {*modules()} - may:
        named = {node.attr for node in ast.walk(modules()[name]) if isinstance(node, ast.Attribute)}
        touched = imports(name) | {f"transformers.{attr}" for attr in named}
        assert not {i for i in touched if i.startswith(models)}, name


def test_transformers_as_a_whole_is_taken_from_one_place():
    """It is prepared there; and a type checker does not read the code of all its models."""
    for name in {*modules()} - {*in_folder("profiles")}:
        assert "transformers" not in imports(name), name


def test_only_the_store_opens_store_files():
    named = {"core.store.durable", "core.store.shard_writer"}
    named |= {"core.model.merge", "core.model.plain"}
    named |= {"core.dense.weights", "core.reader.weights"}
    for name in {*modules()} - {*named, *in_folder(RECIPE)}:
        assert not {i for i in imports(name) if i.startswith("safetensors")}, name


def test_only_the_program_that_parses_imports_what_parses():
    names = ("archive", "made", "packed", "zipped", "markup", "patterns", "parsing", "program")
    names += ("asides", "letters", "mail", "office", "opendocument", "sheets")
    parsing = {f"core.sources.{name}" for name in names}
    assert parsing <= set(modules())
    for name in {*modules()} - parsing - {*in_folder("core.sources.formats")}:
        assert not imports(name) & parsing, name


def test_nothing_but_the_recipe_imports_the_recipe():
    for name in {*modules()} - {*in_folder(RECIPE)}:
        assert not {i for i in imports(name) if i.startswith(RECIPE)}, name


def test_only_the_evaluation_reads_held_out_frames():
    evaluation = {*in_folder(f"{RECIPE}.evaluation")}
    reading = {"core.measure.eval.frames", "core.measure.niah.heldout"}
    assert reading <= set(modules())
    for name in {*in_folder(f"{RECIPE}.data"), *in_folder(f"{RECIPE}.training")}:
        assert not imports(name) & (evaluation | reading), name
        assert not {i for i in imports(name) if i.startswith("core.measure.niah")}, name
        source = (ROOT / name.replace(".", "/")).with_suffix(".py").read_text("utf-8")
        assert "heldout-frames" not in source, name


def test_only_what_prints_knows_rich():
    for name in set(modules()) - {"cli.render", "cli.progress", "cli.grids"}:
        assert not {i for i in imports(name) if i.split(".")[0] == "rich"}, name


def test_help_loads_no_model_libraries():
    heavy = {"torch", "transformers", "numpy", "tokenizers", "safetensors"}
    for name in in_folder("cli"):
        assert not {i.split(".")[0] for i in imports(name, top_level_only=True)} & heavy, name


def test_names_in_commands_are_quoted_in_one_place():
    """Of an f-string with a command of ours, whatever is filled in behind that."""
    verbs = "ask|export|find|import|ingest|rename|rm|show|verify"
    for name, tree in modules().items():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
            parts = [
                part.value if isinstance(part, ast.Constant) else f"\0{ast.unparse(part.value)}"
                for part in node.values
            ]
            for command in re.findall(rf"longctx (?:{verbs})\b[^`]*", "".join(parts)):
                filled = re.findall(r"\0(\w+)", command)
                assert {*filled} <= {"pasting"}, f"{name}: {command}"


def test_nobody_asks_which_method_it_has():
    methods = {name.rpartition(".")[2] for name in in_folder("core.methods")}
    for name, tree in modules().items():
        compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.Match)]
        constants = {
            c.value for node in compared for c in ast.walk(node) if isinstance(c, ast.Constant)
        }
        assert not constants & methods, name


def test_there_are_no_import_cycles():
    edges = {name: {i for i in imports(name) if i in modules()} for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in edges[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())


def test_every_folder_with_python_files_is_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {name.rpartition(".")[0] for name in modules()}
    packaged = {p.removeprefix("longctx.") for p in project["tool"]["setuptools"]["packages"]}
    assert project["tool"]["setuptools"]["package-dir"] == {"longctx": "."}
    made = {folder for folder in folders if f"{folder}.".startswith(f"{RECIPE}.")}
    assert not made & packaged
    assert folders - made <= packaged


def test_what_is_made_from_the_registries_is_not_stale():
    for file, text in runpy.run_path(str(ROOT / "docs" / "blocks.py"))["made"]().items():
        assert (ROOT / file).read_text("utf-8") == text, f"{file}: run `make docs`"


def test_no_text_gives_an_installer_the_name_of_another_project():
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in {*listed.split("\0")} - {"", "tests/test_layout.py"}:
        text = (
            (ROOT / file).read_bytes().decode("utf-8", "ignore") if (ROOT / file).is_file() else ""
        )
        if "longctx" in text:
            assert not INSTALLERS.search(text), f"{file}: {INSTALLERS.search(text)[0]}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Run: pip install 'longctx[serve]'.", True),
        ("needs longctx[mcp]", True),
        ("python -m pip install --upgrade longctx", True),
        ("uv tool install longctx", True),
        ("uv add 'longctx>=0.2'", True),
        ("uvx --from longctx longctx ask", True),
        ("pipx inject llm longctx", True),
        ("pipx inject longctx-reader mcp", False),
        ("pip install '.[serve]' && longctx serve", False),
        ("pip uninstall longctx longctx-reader", False),
        ("`pip install .`, then `longctx ask`", False),
        ("told.longctx['a']", False),
    ],
)
def test_the_name_of_another_project_is_found_in_a_text(text, names):
    assert bool(INSTALLERS.search(text)) == names
