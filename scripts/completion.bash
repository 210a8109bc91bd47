# bash completion for decode, which asks the program's help what there is.

# _decode_options DECODE COMMAND - a line of each option: its names; what its value is called, nothing of
# a flag; what the value may be, if that is one of a few words
_decode_options() {
    "$1" "$2" --help --all 2>/dev/null | awk '
    function put() {
        sub(/.*[(;] *one of /, "", said) ? sub(/[;)].*/, "", said) : said = ""
        if (names)
            print names ";" value ";" said
        names = said = ""
    }
    /^  (-., |    )--/ {
        put()
        names = " " $1 ($1 ~ /,$/ ? " " $2 : "")
        value = /^  (-., |    )--[a-z0-9-]+ [^ ]/ ? $(1 + split(names, words, " ")) : ""
        sub(",", "", names)
    }
    !NF || /^[^ ]/ { put() }
    /^Of all commands/ { exit }
    { said = said " " $0 }'
    printf '%s\n' ' -h --help;;' ' -q --quiet;;' ' -v --verbose;;' ' -m --model;FILE;'
}

_decode() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local commands names value choices options=
    COMPREPLY=()
    commands=$("$program" help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$word"))
        return
    fi
    # --name=value is three words
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    # Where there are no replies, bash completes names of files.
    while IFS=';' read -r names value choices; do
        options+=$names
        [[ $value && " $names " == *" $before "* ]] || continue
        [[ $value =~ ^(FILE|MODEL|OUT|TEXT) ]] || compopt +o default 2>/dev/null
        COMPREPLY=($(compgen -W "${choices//,/}" -- "$word"))
        return
    done < <(_decode_options "$program" "${COMP_WORDS[1]}")
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ ${COMP_WORDS[1]} == help ]]; then
        COMPREPLY=($(compgen -W "$commands" -- "$word"))
    fi
}

complete -o default -F _decode decode
