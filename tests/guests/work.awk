# Reads a text several times; fields, arrays, a command's output, and files that it writes.
BEGIN {
    for (round = 1; round <= rounds; round++) {
        delete count
        total = 0
        while ((getline line < ARGV[1]) > 0) {
            if (++seen % 4 != round % 4)
                continue
            fields = split(line, field, " ")
            total += field[1] % 1009
            for (i = 2; i <= fields; i++)
                count[field[i]]++
        }
        close(ARGV[1])
        n = asorti(count, names)
        text = ""
        for (i = 1; i <= n; i++)
            text = text " " names[i] "=" count[names[i]]
        print "round " round ": " total text
        print round, total >> "journal"
        if (round % 3 == 0) {
            "wc -l < journal" | getline lines
            close("wc -l < journal")
            print "journal has " lines " lines"
        }
        fflush("journal")
    }
    exit 5
}
