# Words that only a running system knows; all others, and all where there is no whim, come of the function above.
functions[_whim_defined]=$functions[_whim]
_whim() {
    local found entry
    local -a typed values shown
    typed=("${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}")
    if ! found=$("${typed[1]}" complete-words -- "${typed[@]}" 2>/dev/null); then
        _whim_defined "$@"
        return
    fi
    for entry in "${(@f)found}"; do
        [[ -n $entry ]] || continue
        values+=("${entry%%$'\t'*}")
        shown+=("${entry/$'\t'/  -- }")
    done
    (( $#values )) && compadd -d shown -a values
}

