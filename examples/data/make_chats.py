#!/usr/bin/env python3
"""Writes a small set of chats, for docs/fine-tuning.md: questions about days, months, numbers and opposites.

    examples/data/make_chats.py FOLDER

FOLDER/chats.jsonl has every question in six wordings, and half of the chats have a second question. FOLDER/held_out.jsonl asks
the same in a wording that chats.jsonl has not. FOLDER/tasks.jsonl asks with four choices (docs/tasks.md, multiple_choice), in the
text that the chat template zephyr makes of a question.
"""
import json
import pathlib
import random
import sys

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
OPPOSITES = "day night good evil light darkness heaven earth life death first last young old rich poor high low left right".split()
WORDINGS = ["What is {}?", "Tell me {}.", "Do you know {}?", "Please name {}.", "I want to know {}.", "Say {}."]
HELD_OUT = "Can you tell me {}?"


def facts():
    """Returns (what is asked, the answer, the kind of the answer)."""
    for kind, words in ("day", DAYS), ("month", MONTHS), ("number", NUMBERS):
        for before, after in zip(words, words[1:]):
            yield f"the {kind} after {before}", after, words
            yield f"the {kind} before {after}", before, words
    for one, other in zip(OPPOSITES[::2], OPPOSITES[1::2]):
        yield f"the opposite of {one}", other, OPPOSITES
        yield f"the opposite of {other}", one, OPPOSITES


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder, chance, every = pathlib.Path(sys.argv[1]), random.Random(1), list(facts())
    folder.mkdir(parents=True, exist_ok=True)

    def turns(wording, fact):
        return [{"role": "user", "content": wording.format(fact[0])}, {"role": "assistant", "content": f"It is {fact[1]}."}]

    def write(name, records):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    chats = [turns(wording, fact) for wording in WORDINGS for fact in every]
    chats = [chat + turns(chance.choice(WORDINGS), chance.choice(every)) if i % 2 else chat for i, chat in enumerate(chats)]
    chance.shuffle(chats)
    write("chats.jsonl", ({"messages": chat} for chat in chats))
    write("held_out.jsonl", ({"messages": turns(HELD_OUT, fact)} for fact in every))
    tasks = []
    for asked, answer, words in every:
        choices = chance.sample([word for word in words if word != answer and word not in asked], 3) + [answer]
        chance.shuffle(choices)
        query = f"<|user|>\nWhat is {asked}?\n<|assistant|>\nIt is"
        tasks.append({"query": query, "choices": [f"{choice}." for choice in choices], "gold": choices.index(answer)})
    write("tasks.jsonl", tasks)


if __name__ == "__main__":
    main()
