# Loops, pipelines, arrays, arithmetic, here-documents, traps, jobs, and `read` from a fifo.
set -u
rounds=$1
mkfifo -m 600 fifo
declare -A counts
total=0
trap 'echo "caught"; total=$((total + 1000))' USR1

for ((round = 1; round <= rounds; round++)); do
    # A pipeline of which each member is a subshell or a program.
    sum=$(seq 1 200 | while read -r n; do echo $((n * round)); done | awk '{ s += $1 } END { print s }')
    total=$((total + sum))

    # One process writes into a fifo while the shell reads from it, line by line.
    (for ((i = 0; i < 300; i++)); do echo "line $i of $round"; done >fifo) &
    writer=$!
    lines=0
    while IFS=' ' read -r word number _ which; do
        lines=$((lines + number % 7 + which))
        counts[$word]=$((${counts[$word]:-0} + 1))
    done <fifo
    wait "$writer"
    echo "round $round: writer $?, $lines lines, sum $sum"

    # Work of the shell's own, without any child.
    value=$round
    for ((i = 0; i < 4000; i++)); do value=$(((value * 1103515245 + 12345) % 2147483648)); done
    echo "value $value"

    sort <<<"$(printf '%s\n' delta alpha "c$round" bravo)" | tr '\n' ' '
    echo
    cat >>journal <<END
round $round
total $total
END
    if ((round % 3 == 0)); then
        kill -USR1 $$
    fi
    (exit $((round % 5)))
    echo "status $?"
done
rm fifo
echo "total $total, ${counts[line]} lines in all"
sha256sum journal | cut -d' ' -f1
exit 7
