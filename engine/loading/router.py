"""Read the module Router of sentence-transformers, once called Asym: which modules a model runs for each task.

    <Router>/router_config.json     types: the class of each module by its folder; structure: the folders of each route;
                                    parameters: default_route, allow_empty_key, route_mappings

The route of a task is that of route_mappings for (task, "text"), (task, None), (None, "text") or (None, None), the
first that is there; or else the route with the task's name, or the one called "text".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..files.folder import ModelFolder
from .colbert import read_stanford
from .module_list import MODULES, Late, Modules, class_of, find_modules, read_entries
from .modules import Entry

ROUTER = ("Router", "Asym")
"""The names of the class: the present one, and the older one."""
CONFIGS = ("router_config.json", "config.json")     # the second one is the older name
_MAPPING = re.compile(r"\((?:None|'([^']*)'), (?:None|'([^']*)'|(\(.*\)))\)")
"""Matches a key of route_mappings: a task (group 1) and a modality (group 2), or several modalities (group 3)."""
_TEXT = "text"
_MOST_ROUTES = 16


@dataclass(frozen=True)
class Routes:
    """The modules that run for each task."""

    tasks: dict[str, Modules]
    default: Modules | None
    """The modules that run when a call names no task; None if a call must name one."""


def find_routes(folder: ModelFolder) -> Modules | Routes:
    """Return the modules of a model's folder, or with a Router the modules of each task.

    Raises `UnsupportedError` and `WeightsError`.
    """
    if not folder.has(MODULES):
        colbert = read_stanford(folder, CONFIGS[1])
        if colbert is None:
            return Modules(folder=folder, home=folder)
        return Late(folder=folder, home=folder, colbert=colbert)
    entries = read_entries(folder)
    places = [i for i, (kind, _) in enumerate(entries) if kind in ROUTER]
    if not places:
        return find_modules(folder, entries)
    if len(places) > 1:
        raise UnsupportedError(f"{folder.label(MODULES)}: there are {len(places)} modules Router; one is supported")
    place = places[0]
    structure, parameters, config = _read_router(entries[place][1])
    # The modules of a route take the place of the Router among the modules of the folder.
    routes = {name: find_modules(folder, [*entries[:place], *modules, *entries[place + 1 :]])
              for name, modules in structure.items()}
    return _by_task(routes, parameters, config)


def module_folders(folder: ModelFolder) -> list[Entry]:
    """Return the class and the folder of each module, and of each module of a Router; raises `WeightsError`."""
    entries = read_entries(folder)
    routed = [modules for kind, home in entries if kind in ROUTER for modules in _read_router(home)[0].values()]
    return [*entries, *(entry for modules in routed for entry in modules)]


def _read_router(folder: ModelFolder) -> tuple[dict[str, list[Entry]], dict[str, Any], str]:
    """Return (modules of each route, parameters, name of their file for messages) of a Router's folder."""
    name = next((name for name in CONFIGS if folder.has(name)), CONFIGS[0])
    values, config = folder.read_object(name), folder.label(name)
    types, structure, parameters = (values.get(key) for key in ("types", "structure", "parameters"))
    if not (isinstance(types, dict) and isinstance(structure, dict) and isinstance(parameters, dict)
            and 1 <= len(structure) <= _MOST_ROUTES and all(isinstance(kind, str) for kind in types.values())
            and all(isinstance(paths, list) and all(isinstance(path, str) and path in types for path in paths)
                    for paths in structure.values())):
        raise WeightsError(f"{config}: expected types, structure and parameters of 1 to {_MOST_ROUTES} routes, each a "
                           f"list of modules that types names, not {shown(values)}")
    return {route: [(class_of(types[path]), folder.folder(path, name)) for path in paths]
            for route, paths in structure.items()}, parameters, config


def _by_task(routes: dict[str, Modules], parameters: dict[str, Any], config: str) -> Routes:
    """Return the modules of each task. routes: by name. parameters: of the Router. config: its file, for messages."""
    stated = parameters.get("route_mappings") or {}
    mappings = {}
    for key, route in stated.items() if isinstance(stated, dict) else [(shown(stated), None)]:
        matched = _MAPPING.fullmatch(key)
        if matched is None or not isinstance(route, str) or route not in routes:
            raise WeightsError(f"{config}: route_mappings must map pairs of a task and a modality, such as "
                               f"\"('query', 'text')\", to {listed(routes)}, not {shown(key)} to {shown(route)}")
        if matched[3] is None:      # a mapping of several modalities together is never one of texts
            mappings[matched[1], matched[2]] = routes[route]

    def route_of(task: str | None) -> Modules | None:
        """Return the modules of a task by the order in the docstring of this file; None if no route fits."""
        keys = [(task, _TEXT), (task, None), (None, _TEXT), (None, None)]
        return next((mappings[key] for key in keys if key in mappings), routes.get(task or "", routes.get(_TEXT)))

    # A mapping of (None, "text") or (None, None) is for the tasks of encode_query and encode_document, too.
    named = dict.fromkeys([*(task for task, _ in mappings if task is not None), *routes, "query", "document"])
    tasks = {task: modules for task in named if (modules := route_of(task)) is not None}
    default = parameters.get("default_route")
    if default is not None and (not isinstance(default, str) or default not in routes):
        raise WeightsError(f"{config}: default_route must be one of {listed(routes)}, not {shown(default)}")
    if default is None and parameters.get("allow_empty_key", True):
        default = next(iter(routes))
    return Routes(tasks, route_of(None) or (None if default is None else routes[default]))
