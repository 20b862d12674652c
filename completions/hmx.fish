function __hmx_completion
    set -lx _HMX_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    set -l words (commandline -opc)
    $words[1]
end

complete --command hmx --no-files --arguments '(__hmx_completion get-args)' --condition '__hmx_completion is-args'
