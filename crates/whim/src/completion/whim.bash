
# The command of a program that is to be run, whose name is the word of this number.
_whim_program() {
    local number=$1 last=$2
    COMPREPLY=()
    if declare -F _command_offset >/dev/null; then
        # A word may be several to the shell, as at a colon.
        _command_offset $((COMP_CWORD - (${#typed[@]} - 1 - number)))
    elif [[ $number == $((${#typed[@]} - 1)) && $last != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$last")
    fi
}

# Words that only a running system knows; all others, and all where there is no whim, come of the function above.
_whim_words() {
    local line=${COMP_LINE:0:COMP_POINT} found word
    local -a typed
    # A space behind a backslash is a part of its word.
    # shellcheck disable=SC2162
    read -a typed <<<"$line"
    if [[ $line == *[[:space:]] ]]; then
        typed+=("")
    fi
    local last=${typed[${#typed[@]} - 1]}
    # A quote that is open is the shell's, which puts it back and closes it.
    if [[ $last == [\'\"]* && ${last:1} != *[\'\"]* ]]; then
        last=${last:1}
        typed[${#typed[@]} - 1]=$last
    fi
    found=$("$1" complete-words -- "${typed[@]}" 2>/dev/null)
    case $? in
    0) ;;
    3)
        # Left to the shell, which knows how names are quoted.
        COMPREPLY=()
        return
        ;;
    4)
        _whim_program "$found" "$2"
        return
        ;;
    *)
        _whim "$@"
        return
        ;;
    esac
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
