# awk -v way=WAY -f compare.awk EXPLAINED CONTROL FOUND: lines of a table that differ without a reason.
# EXPLAINED has rows `PATTERN` | WAYS | REASON. A pattern is of the call with its arguments, ` -> `, the
# answer of the control, ` => `, and the one found; `*` stands for anything.

function pattern(text) {
  sub(/^`/, "", text)
  sub(/`$/, "", text)
  gsub(/[][\\.^$(){}+?|]/, "\\\\&", text)
  gsub(/\*/, ".*", text)
  return "^" text "$"
}

function answer(line) { return substr(line, index(line, " -> ") + 4) }

FILENAME == ARGV[1] {
  split($0, part, / [|] /)
  count++
  name[count] = part[1]
  expected[count] = pattern(part[1])
  ways[count] = "," part[2] ","
  gsub(/ /, "", ways[count])
  next
}
FILENAME == ARGV[2] { control[FNR] = $0; rows = FNR; next }
{ seen = FNR }
control[FNR] != $0 {
  call = control[FNR]
  at = index(call, " -> ")
  if (at == 0 || substr($0, 1, at) != substr(call, 1, at)) text = call " => " $0
  else text = call " => " answer($0)
  for (i = 1; i <= count; i++)
    if (index(ways[i], "," way ",") && text ~ expected[i]) {
      used[i]++
      next
    }
  print "differs: " text
}
END {
  if (seen != rows) print "differs: " seen " lines and not " rows
  for (i in used) print "explained: " name[i]
}
