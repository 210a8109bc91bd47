# bash completion for decode. It asks the program's help which commands and options there are.

# _decode_options DECODE COMMAND - prints a line for each option: its names; the name of its value, which a
# flag lacks; and the values, where these are a few words. Semicolons stand between them.
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
    # bash cuts --name=value into three words.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    # bash completes names of files where this makes no replies.
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
