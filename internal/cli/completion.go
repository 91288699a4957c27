package cli

import (
	"context"
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-server/tutti/internal/monitor"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/starter"
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
		if err := p.root.GenBashCompletionV2(p.stdout, true); err != nil {
			return err
		}
		_, err := io.WriteString(p.stdout, bareBash)
		return err
	case "zsh":
		return p.root.GenZshCompletion(p.stdout)
	case "fish":
		return p.root.GenFishCompletion(p.stdout, true)
	}
	return usagef("unknown shell '%s', expected %s", rest[0], strings.Join(shells(), ", "))
}

// bareBash replaces a function of cobra's script, which needs the package bash-completion: images and small machines have none. Without it
// the words are those of the line up to the cursor, without regard to quotes, so that those with : and = stay whole.
const bareBash = `
__tutti_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local line="${COMP_LINE:0:COMP_POINT}"
    read -ra words <<<"$line"
    if [[ "$line" == *[[:space:]] ]]; then
        words+=("")
    fi
    cword=$((${#words[@]} - 1))
    cur="${words[cword]}"
    prev="${words[cword > 0 ? cword - 1 : 0]}"
}
`

// completeShells completes the name of a shell.
func completeShells(_ *program, _ *cobra.Command, args []string) (list []cobra.Completion) {
	if len(args) == 0 {
		list = shells()
	}
	return list
}

// completeRuntimes completes the name of a runtime.
func completeRuntimes(_ *program, _ *cobra.Command, args []string) (list []cobra.Completion) {
	for _, r := range runtimes.List() {
		if len(args) == 0 {
			list = append(list, cobra.CompletionWithDesc(r.Name, r.Title))
		}
	}
	return list
}

// completeTime is the time in which a server must answer while a user waits for completions.
const completeTime = time.Second

// completeModels completes the name of a model of the server of the flags or of the context.
func completeModels(_ *program, c *cobra.Command, args []string) []cobra.Completion {
	if len(args) > 0 {
		return nil
	}
	set, connect := flag.NewFlagSet("", flag.ContinueOnError), &connection{}
	server := urlFlag(set, "")
	connect.flags(set)
	c.Flags().Visit(func(f *pflag.Flag) { // which cobra has parsed
		switch v := f.Value.(type) {
		case listValue:
			for _, s := range *v.list {
				_ = set.Set(f.Name, s)
			}
		default:
			_ = set.Set(f.Name, v.String())
		}
	})
	if _, err := parse(set, nil); err != nil {
		return nil
	}
	m, err := connect.dial(*server)
	if err != nil {
		return nil
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(c.Context(), completeTime)
	defer cancel()
	index, err := m.Index(ctx)
	if err != nil {
		return nil
	}
	names := make([]string, len(index))
	for i := range index {
		names[i] = index[i].Name
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeFlag completes the value of a flag that has few.
func completeFlag(c *cobra.Command, name string, value flag.Value) {
	var complete cobra.CompletionFunc
	switch v := value.(type) {
	case *contextFlag:
		complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeContexts(nil, nil, nil), cobra.ShellCompDirectiveNoFileComp
		}
	case *output:
		complete = cobra.FixedCompletions(v.formats, cobra.ShellCompDirectiveNoFileComp)
	default:
		if values := flagValues(c.Annotations[rowName], name); values != nil {
			complete = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			break
		}
		if c.Flags().Lookup("url") == nil || name != "model" && name != "against-model" {
			return
		}
		complete = func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeModels(nil, c, nil), cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = c.RegisterFlagCompletionFunc(name, complete) // which fails for a flag that is not declared
}

// flagValues returns the values of a flag of a command that accepts few, nil for others.
func flagValues(command, flag string) []string {
	switch command + " --" + flag {
	case "init --kind":
		return starter.Kinds()
	case "bench --protocol":
		return benchProtocols()
	case "top --sort":
		return monitor.Columns()
	}
	return nil
}
