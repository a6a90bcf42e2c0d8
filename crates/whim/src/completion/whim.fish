
# Words that only a running system knows; all others come of the lines above.
function __whim_words_here
    # A quote that is open is the shell's, which closes it.
    set -l typed (commandline -opc) (commandline -ct | string replace --regex -- '^[\'"]' '')
    set -l found ($typed[1] complete-words -- $typed 2>/dev/null)
    or return 1
    set -g __whim_words
    for word in $found
        # Of --option=word the shell wants the word.
        set -a __whim_words (string replace --regex -- '^--[a-z-]+=' '' $word)
    end
    return 0
end
complete -c whim -n __whim_words_here -f -a '$__whim_words'
