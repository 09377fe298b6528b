"""Local graphs in words: edges grouped by what they share, rules of a world, a graph as a small matrix."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool

from elden.factors import ACTION, Factors
from elden.worlds.labels import Rule

EACH_OTHER = "each other"


def off_diagonal(graph: Bool[np.ndarray, "dst src"]) -> Bool[np.ndarray, "dst src"]:
    """The graph without the edges of variables on their own past."""
    others: np.ndarray = graph & (np.eye(*graph.shape) == 0)
    return others


def edge_groups(factors: Factors, graph: Bool[np.ndarray, "dst src"]) -> list[tuple[list[str], list[str]]]:
    """The off-diagonal edges as (children, parents), children with the same parents together.

    Children that depend on the same things and on one another form a group too; the last parent is then "each
    other". The action comes first among the parents.
    """
    names = factors.variable_names
    parents = {i: frozenset(np.flatnonzero(row).tolist()) for i, row in enumerate(off_diagonal(graph)) if row.any()}
    groups = []
    while parents:
        first, own = next(iter(parents.items()))
        alike = [i for i in parents if parents[i] == own]
        mutual = [i for i in parents if parents[i] | {i} == own | {first}]
        group = mutual if len(mutual) > len(alike) else alike
        outside = sorted(own - set(group), key=lambda source: (source != len(names), source))
        words = [ACTION if source == len(names) else names[source] for source in outside]
        groups.append(([names[i] for i in group], [*words, *([EACH_OTHER] if group is mutual else [])]))
        parents = {i: row for i, row in parents.items() if i not in group}
    return groups


def compact(names: Iterable[str]) -> str:
    """Variables with those of one entity drawn together: "action, fish.x,y"."""
    words = []
    for entity, run in itertools.groupby(names, key=lambda name: name.split(".")[0]):
        variables = [name.split(".")[1] for name in run if "." in name]
        words.append(f"{entity}.{','.join(variables)}" if variables else entity)
    return ", ".join(words)


def edge_lines(factors: Factors, graph: Bool[np.ndarray, "dst src"], *, short: bool = False) -> list[str]:
    """One line per group of edges: "fish.x, fish.y <- action, agent.x"; short ones read "fish.x,y <- action, ..."."""
    join = compact if short else ", ".join
    return [f"{join(children)} <- {join(parents)}" for children, parents in edge_groups(factors, graph)]


def rule_lines(factors: Factors, rules: Sequence[Rule]) -> list[tuple[str, str]]:
    """The rules of a world as (events, edges), those that say the same of different things together.

    In "goto:{fish,sink}" the braces list the things, and `{1}` in the edges stands for the chosen one, being the
    first word after the event's type.
    """
    merged: dict[tuple[tuple[str, ...], str], list[list[str]]] = defaultdict(list)
    for rule in rules:
        words = rule.event.split(":")
        slots = {word: f"{{{i}}}" for i, word in enumerate(words) if i > 0 and _is_slot(factors, rule, word)}
        template = tuple(slots.get(word, word) for word in words)
        merged[template, _edges(factors, rule, slots)].append(words)
    return [_merge(template, edges, members) for (template, edges), members in merged.items()]


def _is_slot(factors: Factors, rule: Rule, word: str) -> bool:
    """Whether a word of the event is an entity, or the variable of the rule's only child."""
    return word in factors.entity_names or [word] == [child.split(".")[1] for child in rule.children]


def _edges(factors: Factors, rule: Rule, slots: dict[str, str]) -> str:
    def fill(name: str, *, variable_too: bool) -> str:
        entity, dot, variable = name.partition(".")
        return slots.get(entity, entity) + dot + (slots.get(variable, variable) if variable_too else variable)

    children = [fill(child, variable_too=True) for child in rule.children]
    order = sorted(set(rule.parents), key=(ACTION, *factors.variable_names).index)
    parents = [fill(parent, variable_too=False) for parent in order]
    return f"{compact(children)} <- {compact(parents) or 'nothing'}{' (not itself)' if rule.cuts_self else ''}"


def _merge(template: tuple[str, ...], edges: str, members: list[list[str]]) -> tuple[str, str]:
    """One event for all members: a slot with several words lists them, one with a single word is filled."""
    words = []
    for index in range(len(template)):
        found = list(dict.fromkeys(member[index] for member in members))
        if len(found) == 1:
            edges = edges.replace(f"{{{index}}}", found[0])
        words.append(found[0] if len(found) == 1 else f"{{{','.join(_ranges(found))}}}")
    return ":".join(words), edges


def _ranges(words: Sequence[str]) -> list[str]:
    """The words with numbered runs drawn together: wood0, wood1, wood2 is wood0-2."""
    runs = itertools.groupby(words, key=lambda word: word.rstrip("0123456789"))
    ranges = []
    for stem, run in runs:
        numbers = [word[len(stem) :] for word in run]
        counted = numbers == [str(int(numbers[0] or 0) + k) for k in range(len(numbers))]
        if len(numbers) > 1 and counted:
            ranges.append(f"{stem}{numbers[0]}-{numbers[-1]}")
        else:
            ranges += [f"{stem}{number}" for number in numbers]
    return ranges


def matrix_lines(rows: Sequence[str], graph: Bool[np.ndarray, "dst src"]) -> list[str]:
    """A graph `[dst, src]` as text: a row per child, a column per parent, the action last.

    Args:
        rows: Names of the children, which are the first columns too.
        graph: The edges.
    """
    columns = [*map(str, range(len(rows))), "A"]
    margin = max(map(len, rows)) + 1
    digits = max(map(len, columns))
    lines = []
    for place in range(digits):
        head = "".join(column.rjust(digits)[place] for column in columns)
        lines.append(" " * (margin + digits + 1) + head)
    for i, name in enumerate(rows):
        marks = "".join(_mark(bool(edge), i == j) for j, edge in enumerate(graph[i]))
        lines.append(f"{name.rjust(margin - 1)} {str(i).rjust(digits)} {marks}")
    return lines


def _mark(edge: bool, diagonal: bool) -> str:
    if diagonal:
        return "\\" if edge else "o"
    return "█" if edge else "·"
