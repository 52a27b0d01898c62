# Turns the plain comments of a header into Doxygen's: the first ones are about the file, a comment on lines of its own
# is about what follows it, and a comment behind code is about that code.
function escaped(text) {
  gsub(/[\\@<>#%$&"]/, "\\\\&", text)
  return text
}
NR == 1 && /^\/\// { print "/// @file"; print "///" }
/^ *\/\// {
  at = index($0, "//")
  print substr($0, 1, at - 1) "///" escaped(substr($0, at + 2))
  next
}
/[;,{}(] +\/\/ / && !/"[^"]*\/\/ / {
  match($0, / +\/\/ /)
  print substr($0, 1, RSTART - 1) "  ///< " escaped(substr($0, RSTART + RLENGTH))
  next
}
{ print }
