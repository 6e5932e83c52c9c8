"""A mutant in a process that has imported everything already: the code of its function is exchanged in place."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType

from tests.provers.mutation.mutants import Mutant

#: File, qualified name and first line of a function's code.
Place = tuple[str, str, int]


class NotPlantedError(Exception):
    """The mutant cannot be put in place."""


def functions_below(folder: Path) -> dict[Place, list[FunctionType]]:
    """All functions that live in this process and come from files of this folder; also those that are decorated."""
    gc.unfreeze()  # What the CLI froze as it was imported is not told otherwise.
    found: defaultdict[Place, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{folder}/"):
            code = one.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(one)
    return found


def plant(mutant: Mutant, tree: ast.Module, path: Path, known: dict[Place, list[FunctionType]]) -> None:
    """Raises NotPlantedError; SyntaxError when what it makes is no Python."""
    targets = known.get((str(path), mutant.function, mutant.function_line))
    if not targets:
        raise NotPlantedError("no function of that place lives here")
    mutant.apply()
    whole = compile(tree, str(path), "exec", dont_inherit=True)
    code = _find(whole, mutant.function, mutant.function_line)
    codes: list[tuple[FunctionType, CodeType]] = []
    for function in targets:
        fitting = code
        if code.co_freevars != function.__code__.co_freevars:
            if code.co_freevars:
                raise NotPlantedError("it uses other variables of its surroundings")
            fitting = code.replace(co_freevars=function.__code__.co_freevars)
        codes.append((function, fitting))
    # Functions that it has made already, as checks of settings are.
    for (file, name, line), functions in known.items():
        if file == str(path) and name.startswith(f"{mutant.function}.<locals>."):
            with suppress(NotPlantedError):
                inner = _find(whole, name, line)
                codes += [(f, inner) for f in functions if f.__code__.co_freevars == inner.co_freevars]
    for function, fitting in codes:
        function.__code__ = fitting


def _find(code: CodeType, name: str, line: int) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name and constant.co_firstlineno == line:
                return constant
            if name.startswith(f"{constant.co_qualname}."):
                try:
                    return _find(constant, name, line)
                except NotPlantedError:
                    continue
    raise NotPlantedError("its code is not found")
