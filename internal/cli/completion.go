package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// shells are the shells for which completion is written.
func shells() []string { return []string{"bash", "zsh", "fish"} }

// completion prints the script that completes commands, flags and names in a shell.
func (p *program) completion(_ context.Context, args []string) error {
	rest, err := arguments(p.flags("completion"), args, 1, 1, "one shell")
	if err != nil {
		return err
	}
	switch rest[0] {
	case "bash":
		return p.root.GenBashCompletionV2(p.stdout, true)
	case "zsh":
		return p.root.GenZshCompletion(p.stdout)
	case "fish":
		return p.root.GenFishCompletion(p.stdout, true)
	}
	return usagef("unknown shell '%s', expected %s", rest[0], strings.Join(shells(), ", "))
}

// completeShells completes the name of a shell.
func completeShells(_ *program, _ *cobra.Command, args []string) (list []cobra.Completion) {
	if len(args) == 0 {
		list = shells()
	}
	return list
}
