
# Words that only a running system knows; all others, and all where there is no whim, come of the function above.
_whim_words() {
    local line=${COMP_LINE:0:COMP_POINT} found word
    local -a typed
    read -ra typed <<<"$line"
    if [[ $line == *[[:space:]] ]]; then
        typed+=("")
    fi
    local last=${typed[${#typed[@]} - 1]}
    # A quote that is open is the shell's, which puts it back and closes it.
    if [[ $last == [\'\"]* && ${last:1} != *[\'\"]* ]]; then
        last=${last:1}
        typed[${#typed[@]} - 1]=$last
    fi
    if ! found=$("$1" complete-words -- "${typed[@]}" 2>/dev/null); then
        _whim "$@"
        return
    fi
    # Where there are no words, names of files are none either.
    compopt +o default +o bashdefault 2>/dev/null
    # The last word may be several to the shell, as at a colon, and it wants the rest of the last one of those alone.
    local kept=${last%"$2"}
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        if [[ -n $word ]]; then
            COMPREPLY+=("${word#"$kept"}")
        fi
    done <<<"$found"
    return 0
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _whim_words -o nosort -o bashdefault -o default whim
else
    complete -F _whim_words -o bashdefault -o default whim
fi
