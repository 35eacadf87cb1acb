# Converts results, one a line (part, step, place, result, seconds, log), to one Markdown table, with json=1 to one JSON document, and with list=1
# to the names of the logs of steps that fail in a mount only.
# Fails when a row fails in a mount and not natively, unless `known` (part, what, reason) says why no mount can do better.
BEGIN {
    FS = "\t"
    split("native shared exclusive none", places, " ")
    while (known != "" && (getline line < known) > 0)
        if (line !~ /^#/ && split(line, field, "\t") >= 3) reason[field[1] "\t" field[2]] = field[3]
}
{
    row = $1 "\t" $2
    if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
    result[row, $3] = $4
    time[row, $3] = $5
    logs[row, $3] = $6
}
function quoted(text) { gsub(/[\\"]/, "\\\\&", text); gsub(/[\001-\037]/, " ", text); return "\"" text "\"" }
function at(row, place) { return (row, place) in result ? result[row, place] : "–" }
function verdict(row,    i, worse, less) {
    for (i = 2; i <= 4; i++) {
        if (at(row, places[i]) == "FAIL") worse = 1
        if (at(row, places[i]) == "skip" && at(row, "native") == "ok") less = 1
    }
    if (at(row, "native") == "FAIL") return "fails natively too"
    if ((worse || less) && row in reason) return "known: " reason[row]
    if (worse || less) return "FAILS"
    if (at(row, "native") == "skip") return "cannot be done here"
    return "as native"
}
END {
    if (json) {
        printf "["
        for (i = 1; i <= rows; i++) {
            split(order[i], field, "\t")
            printf "%s\n  {\"program\": %s, \"what\": %s, \"verdict\": %s, \"results\": {", (i > 1 ? "," : ""), quoted(field[1]), quoted(field[2]), quoted(verdict(order[i]))
            separator = ""
            for (j = 1; j <= 4; j++) if (at(order[i], places[j]) != "–") {
                printf "%s\"%s\": {\"result\": \"%s\", \"seconds\": %d}", separator, places[j], tolower(at(order[i], places[j])), time[order[i], places[j]]
                separator = ", "
            }
            printf "}}"
        }
        print "\n]"
        exit 0
    }
    if (list) {
        for (i = 1; i <= rows; i++)
            for (j = 2; j <= 4; j++)
                if (verdict(order[i]) == "FAILS" && at(order[i], places[j]) != "ok" && at(order[i], places[j]) != "–") print logs[order[i], places[j]]
        exit 0
    }
    print "| program | what | native | cache=shared | cache=exclusive | cache=none | verdict |"
    print "| --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= rows; i++) {
        split(order[i], field, "\t")
        said = verdict(order[i])
        if (said == "FAILS") bad++
        printf "| %s | %s | %s | %s | %s | %s | %s |\n", field[1], field[2], at(order[i], "native"), at(order[i], "shared"), at(order[i], "exclusive"), at(order[i], "none"), said
    }
    printf "\n%d of %d rows fail in a mount and not natively.\n", bad, rows
    exit bad > 0
}
