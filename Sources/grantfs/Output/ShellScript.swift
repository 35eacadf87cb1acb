/// The shell's part of completion. It asks the program for the candidates each time, so the script never gets outdated.
struct ShellScript {
    let shell: String
    let text: String

    static let all = [bash, zsh, fish]

    /// bash splits words at `=` (COMP_WORDBREAKS), so they are joined again, and the part before the last break is cut off the
    /// candidates.
    static let bash = ShellScript(
        shell: "bash",
        text: #"""
            # bash completion for grantfs
            _grantfs() {
                local current=${COMP_WORDS[COMP_CWORD]} words=() index word kind line
                for ((index = 1; index <= COMP_CWORD; index++)); do
                    word=${COMP_WORDS[index]}
                    if [[ $word == = && ${#words[@]} -gt 0 ]]; then
                        words[-1]+==
                    elif [[ ${#words[@]} -gt 0 && ${words[-1]} == *= && ${COMP_WORDS[index - 1]} == = ]]; then
                        words[-1]+=$word
                    else
                        words+=("$word")
                    fi
                done
                [[ $current == = ]] && current=
                local last=${words[-1]-} quote=
                case $current in \'* | \"*) quote=${current:0:1} ;; esac
                local cut=${last%"$current"}
                # As the program reads it: without quotes.
                last=${cut}$(printf '%s' "${current#"$quote"}" | sed 's/\\\(.\)/\1/g')
                [[ ${#words[@]} -gt 0 ]] && words[-1]=$last || words=("")
                COMPREPLY=()
                {
                    read -r kind
                    case $kind in
                        files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${current#"$quote"}") ;;
                        directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "${current#"$quote"}") ;;
                        commands) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
                        words)
                            while IFS=$'\t' read -r line _; do
                                line=${line#"$cut"}
                                [[ $line == *= ]] && compopt -o nospace
                                if [[ $quote ]]; then COMPREPLY+=("$quote$line$quote"); else COMPREPLY+=("$(printf '%q' "$line")"); fi
                            done
                            ;;
                    esac
                } < <("${COMP_WORDS[0]}" complete -- "${words[@]}" 2>/dev/null)
            }
            complete -F _grantfs grantfs

            """#)

    static let zsh = ShellScript(
        shell: "zsh",
        text: #"""
            #compdef grantfs
            # zsh completion for grantfs
            _grantfs() {
                local -a lines values shown
                local kind line
                lines=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
                kind=$lines[1]
                case $kind in
                    files) _files ;;
                    directories) _files -/ ;;
                    commands) _command_names -e ;;
                    words)
                        for line in "${(@)lines[2,-1]}"; do
                            values+=("${line%%$'\t'*}")
                            shown+=("${line%%$'\t'*}  ${line#*$'\t'}")
                        done
                        compadd -l -d shown -S '' -- "${(@M)values:#*=}"
                        compadd -l -d shown -a -- values
                        ;;
                esac
            }
            if [[ $funcstack[1] == _grantfs ]]; then _grantfs "$@"; else compdef _grantfs grantfs; fi

            """#)

    static let fish = ShellScript(
        shell: "fish",
        text: #"""
            # fish completion for grantfs
            function __grantfs_complete
                set -l before (commandline -opc)
                set -l typed (commandline -ct)
                set -l lines ($before[1] complete -- $before[2..-1] $typed 2>/dev/null)
                switch "$lines[1]"
                    case files
                        __fish_complete_path $typed
                    case directories
                        __fish_complete_directories $typed
                    case commands
                        __fish_complete_command
                    case words
                        printf '%s\n' $lines[2..-1]
                end
            end
            complete -c grantfs -f -a '(__grantfs_complete)'

            """#)
}
