# untime.awk - removes what depends on time from the program's output: rates and times in prose; in JSON
# the members of certain names; in tables, Markdown and CSV the columns and rows of these names.

BEGIN {
    split("tokens_per_s p10_us p50_us p90_us p99_us max_us mean_us " \
          "us_per_token gb_per_s speedup predicted_speedup predicted_us " \
          "prefill_tokens_per_s load_ms peak_rss_bytes limit_tokens_per_s share_of_limit " \
          "bandwidth_gb_per_s flops_per_s cpu_share date note verdict " \
          "memory_available_bytes seconds", names, " ")
    split("p50 µs|p99 µs|µs/token|tokens/s|speed-up|predicted|GB/s|of limit|" \
          "prefill tok/s|peak RSS|note", shown, "|")
    for (i in names) {
        timed[names[i]] = 1
        members = members "|" names[i]
    }
    for (i in shown)
        timed[shown[i]] = 1
    member = "\"(" substr(members, 2) ")\": (\"[^\"]*\"|[^,}]*)"
}

# A line as long as this has the ids of a text: it has no times, and takes awk long.
length($0) > 10000 { print; next }

/^peak memory/ { next }

# bench warns of a busy machine, and explains its marks where a row has one.
/^WARNING: this run got/ { getline; next }
/a toss-up: it, or another, may be the fastest/ { next }

# With MEMORY=own the two programs may plan different amounts of memory.
memory == "own" && /^decode: memory: / { $0 = "decode: memory" }

# A row of seconds stands among convert's figures.
/^[ |]*seconds/ { $0 = "seconds" }

# The marks of bench's fastest rows (*), and of those that it cannot tell apart (~), depend on times.
/^(\| )?[*~]/ { sub(/[*~]/, " ") }

{
    gsub(member, "\"time\"")
    gsub(/ [0-9.]+ (tokens\/s|GB\/s|GFLOP\/s|ns|µs|ms|s)([ ,;]|$)/, " time ")
    line = $0
    if (line ~ /^ *\|/)
        gsub(/,/, ";", line)
    if (line ~ /^[^{[]*,"/) { # commas inside a quoted cell
        parts = split(line, quoted, /"/)
        line = quoted[1]
        for (i = 2; i <= parts; i++) {
            if (i % 2 == 0)
                gsub(/,/, ";", quoted[i])
            line = line "\"" quoted[i]
        }
    }
    sub(/^ *\|? */, "", line)
    n = split(line, cell, / *[|,] *|   */) # columns of a table have two spaces between them
}

n != columns { columns = 0 }

# A line of headings holds for the lines below it that have as many cells.
!columns {
    split("", blank)
    for (i = 1; i <= n; i++)
        if (cell[i] in timed) {
            blank[i] = 1
            columns = n
        }
}

!columns { print }

columns {
    for (i = 1; i <= n; i++)
        printf "%s ", i in blank ? "time" : cell[i] ~ /^:?-+:?$/ ? "-" : cell[i]
    print ""
}
