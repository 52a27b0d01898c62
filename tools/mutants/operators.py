"""Small mistakes that can be planted in a line of C++, found in the text alone."""
import dataclasses
import hashlib
import re

FOLDERS = ("ops", "nn", "optim", "comm", "parallel", "train", "checkpoint", "data", "formats")
LITERAL = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?:.|\n)*?\*/')
NUMBER = r"(?<![\w.])%s(?![\w.])"
# A pattern, its replacement and the name of the mistake. Binary operators have spaces around them, which
# clang-format ensures, so that `<` of templates, `*` of pointers and `&&` of references do not match.
SWAPS = [(name, re.compile(pattern), new) for name, pattern, new in (
    ("boundary", r"(?<= )<(?= )", "<="), ("boundary", r"(?<= )<=(?= )", "<"), ("boundary", r"(?<= )>(?= )", ">="),
    ("boundary", r"(?<= )>=(?= )", ">"), ("equality", r"(?<= )==(?= )", "!="), ("equality", r"(?<= )!=(?= )", "=="),
    ("arithmetic", r"(?<= )\+(?= )", "-"), ("arithmetic", r"(?<= )-(?= )", "+"), ("arithmetic", r"(?<= )\*(?= )", "/"),
    ("arithmetic", r"(?<= )/(?= )", "*"), ("arithmetic", r"(?<= )%(?= )", "/"), ("arithmetic", r"(?<= )\+=(?= )", "-="),
    ("arithmetic", r"(?<= )-=(?= )", "+="), ("arithmetic", r"(?<= )\*=(?= )", "/="), ("arithmetic", r"(?<= )/=(?= )", "*="),
    ("logic", r"(?<= )&&(?= )", "||"), ("logic", r"(?<= )\|\|(?= )", "&&"), ("logic", r"(?<=[ (])!(?=[\w(])", ""),
    ("logic", r"\btrue\b", "false"), ("logic", r"\bfalse\b", "true"),
    ("sign", r"(?<=[(=,?:] )-(?=[\w(])|(?<=\()-(?=[\w(])|(?<=return )-(?=[\w(])", ""),
    ("extremum", r"\bstd::min\b", "std::max"), ("extremum", r"\bstd::max\b", "std::min"),
    ("jump", r"\bbreak(?=;)", "continue"), ("jump", r"\bcontinue(?=;)", "break"),
    ("constant", NUMBER % r"\d+", lambda m: str(int(m[0], 10) + 1) if m[0][0] != "0" or m[0] == "0" else m[0]),
    ("constant", NUMBER % r"[1-9]\d*", lambda m: str(int(m[0]) - 1)),
    ("constant", NUMBER % r"\d+\.\d*(?:e-?\d+)?f?|" + NUMBER % r"\d+e-?\d+f?", lambda m: "(2 * %s)" % m[0] if float(m[0].rstrip("f")) else "1.0f"),
)]
CONDITION = re.compile(r"\b(?:if|while) \((.*)\)(?= \{$| [\w*(:\[\]>.-]+.*;$|$)")
STATEMENT = re.compile(r"^\s*(?!return\b|delete\b|using\b|else\b|throw\b|case\b|default\b|co_)[\w:.\->\[\]*]+"
                       r"(?:(?:<[^;]*>)?\(.*\)|(?:\[.*\])?(?: [-+*/|&%]?= .*|\+\+|--)|\(.*\)\.\w+\(.*\));$")
LEAVE = re.compile(r"^(\s*(?:if \(.*\) |else )?)((?:return|throw)\b.*;)$")
# Lines whose meaning is a text, a declaration or a table.
SKIPPED = re.compile(r"^\s*#|static_assert|fmt::|\blog\b.*\(|^\s*(?:template|using|namespace|typedef|friend|enum|class|extern)\b|operator\W|"
                     r"\bconcept\b|__attribute__|= (?:delete|default);")


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    line: int  # from 0
    text: str  # the line without the spaces at its ends
    nth: int  # 0 for the first line with this text in the file
    operator: str
    column: int  # in the stripped text
    old: str
    new: str

    @property
    def key(self):
        return (self.file, self.text, self.nth, self.operator, self.column, self.new)

    @property
    def id(self):
        return hashlib.sha256(repr(self.key).encode()).hexdigest()[:8]

    def apply(self, source):
        """Returns the text of the file with the mistake in it."""
        lines = source.split("\n")
        indent = lines[self.line].index(self.text)
        at = indent + self.column
        assert lines[self.line][at:at + len(self.old)] == self.old, self
        lines[self.line] = lines[self.line][:at] + self.new + lines[self.line][at + len(self.old):]
        return "\n".join(lines)


def blank(source):
    """Returns the source with comments and the inside of literals replaced by as many spaces; # stands for quotes."""
    def spaces(match):
        text = match[0]
        inner = re.sub(r"[^\n]", " ", text)
        return inner if text.startswith("/") else "#" + inner[1:-1] + "#"
    return LITERAL.sub(spaces, source)


def balanced(text):
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))


def mistakes(code, before):
    """Yields (operator, begin, end, new) for a line of code without literals; {} in `new` stands for the old text.

    `before` is the code line before it."""
    if SKIPPED.search(code) or len(re.findall(r"\d+", code)) >= 8:
        return
    usable = code.find("#") if re.search(r"\bINGOT_CHECK|Error|fail\(", code) and "#" in code else len(code)
    for name, pattern, new in SWAPS:
        for match in pattern.finditer(code[:usable]):
            text = new(match) if callable(new) else new
            is_of_texts = match[0] in ("+", "+=") and "#" in code[max(match.start() - 2, 0):match.end() + 2]
            if text != match[0] and not is_of_texts:
                yield name, *match.span(), text
    condition = CONDITION.search(code)
    if condition and balanced(condition[1]) and not re.search(r";|\w = ", condition[1]):
        yield "negation", *condition.span(1), "!({})"
    begins = not before or before[-1] in ";{}:" or before.endswith(("else", ")"))
    if begins and STATEMENT.match(code) and balanced(code):
        yield "deletion", len(code) - len(code.lstrip()), len(code), ";"
    leave = LEAVE.match(code)
    if begins and leave and balanced(code) and (leave[1].strip() or leave[2] == "return;" or leave[2].startswith("throw")):
        yield "deletion", *leave.span(2), ";"


def mutants_of(file, source):
    """Returns the mutants of each line, as a list of lists."""
    if re.search(r"^// Generated by ", source, re.M):
        return []
    result, seen, before, continued = [], {}, "", False
    for number, (line, code) in enumerate(zip(source.split("\n"), blank(source).split("\n"))):
        code = code.rstrip()
        is_directive = continued or code.lstrip().startswith("#")
        continued = is_directive and line.endswith("\\")
        text = line.strip()
        if not code.strip() or line.lstrip().startswith("#") or is_directive and continued:
            continue
        nth = seen.get(text, 0)
        seen[text] = nth + 1
        indent = len(line) - len(line.lstrip())
        found = [Mutant(file, number, text, nth, name, begin - indent, line[begin:end], new.replace("{}", line[begin:end]))
                 for name, begin, end, new in mistakes(code, before)]
        before = code
        if found:
            result.append(found)
    return result


def sample(per_line, seed):
    """One mutant of each line, in an order that depends on the seed and the line's own text alone."""
    def hashed(mutant, *more):
        return int(hashlib.sha256(repr((seed, mutant.file, mutant.text, mutant.nth, *more)).encode()).hexdigest()[:15], 16)
    chosen = [found[hashed(found[0], "operator") % len(found)] for found in per_line]
    return sorted(chosen, key=hashed)
