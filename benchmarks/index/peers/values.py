"""Questions as SQL over tables of the searched values."""

from __future__ import annotations

from benchmarks.index.workload import SEVERAL, Question


def sql_of(question: Question, like: str) -> tuple[str, list[object]]:
    where: list[str] = ["true"]
    values: list[object] = []
    for name, term in question.terms:
        if name in SEVERAL:
            where.append("event_id in (select event_id from several where field = ? and term = ?)")
            values += [name, term]
        else:
            where.append(f"{name.replace('.', '_')} = ?")
            values.append(term)
    for name, term in question.without:
        where.append(
            f"{name.replace('.', '_')} is not ?" if like == "like" else f"{name.replace('.', '_')} is distinct from ?"
        )
        values.append(term)
    if question.any_of:
        marks = ",".join("?" * len(question.any_of))
        where.append(f"event_id in (select event_id from several where field = ? and term in ({marks}))")  # noqa: S608
        values += [question.any_of[0][0], *(term for _, term in question.any_of)]
    if question.prefix:
        name, text = question.prefix
        where.append(f"{name} >= ? and {name} < ?")
        values += [text, text[:-1] + chr(ord(text[-1]) + 1)]
    if question.suffix:
        where.append(f"{question.suffix[0]} like ?")
        values.append("%" + question.suffix[1])
    if question.times:
        where.append("event_time between ? and ?")
        values += question.times
    return " and ".join(where), values
