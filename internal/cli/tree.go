package cli

import (
	"context"
	"flag"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/options"
)

// commandName is the name of the program in help and pages.
const commandName = "tutti"

// Tree returns the commands with their flags as cobra knows them: for completion and for manual pages. Each command runs as
// under Main.
func Tree(c tutti.Components) *cobra.Command {
	p := &program{name: commandName, components: c, stdout: io.Discard, stderr: io.Discard}
	p.root = p.tree()
	p.declare(p.root)
	return p.root
}

// commandGroup is a heading of `tutti help`.
type commandGroup struct {
	title string
	rows  []command
}

// groups returns the commands below their headings.
func groups() []commandGroup {
	return []commandGroup{
		{"Serve and check models", repositoryCommands()},
		{"Talk to servers", requestCommands()},
		{"Measure and watch servers", measureCommands()},
		{"This machine and this program", machineCommands()},
	}
}

// tree returns the commands. They parse their own flags: the package flag takes -name as --name, and flags between
// arguments.
func (p *program) tree() *cobra.Command {
	root := &cobra.Command{
		Use: commandName + " COMMAND [flags]", Short: "Serve models and the ensembles made of them",
		Long:          "Tutti serves models and the ensembles made of them, as NVIDIA Triton does.",
		SilenceErrors: true, SilenceUsage: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: p.bare,
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { p.help(c) })
	for _, g := range groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for i := range g.rows {
			c := p.node(&g.rows[i], g.rows[i].name)
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Print the help of a command", DisableFlagParsing: true, RunE: helpOf,
		ValidArgsFunction: completeCommands,
	})
	return root
}

// node returns a row and the rows below it. full is the name of the command with those above it, for example "repo ls".
func (p *program) node(r *command, full string) *cobra.Command {
	c := &cobra.Command{
		Use: strings.TrimSpace(r.name + " " + r.usage), Short: r.summary, Long: strings.TrimSpace(r.summary + ".\n\n" + r.notes),
		DisableFlagParsing: true, SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true, Args: cobra.ArbitraryArgs,
		Annotations: map[string]string{rowName: full}, Hidden: r.hidden,
	}
	if len(r.examples) > 0 {
		c.Example = "  " + strings.Join(r.examples, "\n  ")
	}
	c.RunE = p.bare
	if r.run != nil {
		c.RunE = func(c *cobra.Command, args []string) error { return r.run(p, c.Context(), args) }
	}
	if r.complete != nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return r.complete(p, c, args), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for i := range r.commands {
		c.AddCommand(p.node(&r.commands[i], full+" "+r.commands[i].name))
	}
	return c
}

// rowName is the annotation with the name by which find finds the row of a command.
const rowName = "row"

// bare runs the program, or a command that has others below it, without the name of one.
func (p *program) bare(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || slices.Contains([]string{"--help", "-help", "-h"}, args[0]):
		return c.Help()
	case !c.HasParent() && slices.Contains([]string{"--version", "-version", "-v"}, args[0]):
		return find("version").run(p, c.Context(), args[1:])
	}
	for i := 0; i < len(args); i++ { // flags before a name, with their values, as cobra skips them
		if !strings.HasPrefix(args[i], "-") {
			return unknownCommand(c, args[i])
		}
		if !strings.Contains(args[i], "=") {
			i++
		}
	}
	return unknownCommand(c, args[0])
}

// unknownCommand returns the error for a command that does not exist.
func unknownCommand(c *cobra.Command, name string) error {
	if strings.HasPrefix(name, "-") {
		return usagef("unexpected '%s', expected a command: '%s help' lists them", name, commandName)
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	full := strings.TrimPrefix(c.CommandPath()+" "+name, commandName+" ")
	return usagef("there is no command '%s'%s", full, meant("", name, names))
}

// meant returns the end of an error that names the most similar of names, empty if none is similar.
func meant(prefix, name string, names []string) string {
	if near := config.Nearest(name, names, len(name)/3+1); near != "" {
		return ", did you mean '" + prefix + near + "'?"
	}
	return ""
}

// helpOf is the command help.
func helpOf(c *cobra.Command, args []string) error {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	at := c.Root()
	for _, name := range args {
		i := slices.IndexFunc(at.Commands(), func(sub *cobra.Command) bool { return sub.Name() == name })
		if i < 0 {
			return unknownCommand(at, name)
		}
		at = at.Commands()[i]
	}
	return at.Help()
}

// completeCommands completes the arguments of help.
func completeCommands(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	at, _, err := c.Root().Find(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []cobra.Completion
	for _, sub := range at.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// declare declares the flags of a command, and of those below it, so that cobra parses, completes and documents them.
func (p *program) declare(c *cobra.Command) {
	c.DisableFlagParsing = false
	p.mirror(c)
	for _, sub := range c.Commands() {
		p.declare(sub)
	}
}

// mirror declares the flags of one command.
func (p *program) mirror(c *cobra.Command) {
	full := c.Annotations[rowName]
	switch r := find(full); {
	case full == "serve" || full == "worker":
		for _, f := range options.Flags() {
			declareOption(c.Flags(), &f)
			if len(f.Values) > 0 {
				_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Values, cobra.ShellCompDirectiveNoFileComp)) // it is declared
			}
		}
	case r.run != nil:
		fs := p.describe(r)
		fs.VisitAll(func(f *flag.Flag) {
			declareFlag(c.Flags(), fs, f)
		})
		fs.VisitAll(func(f *flag.Flag) { completeFlag(c, f.Name, f.Value) })
	}
}

// describe returns the flags of a command, which it declares before it reads its arguments. Nothing else runs.
func (p *program) describe(r command) *flag.FlagSet {
	found := flag.NewFlagSet(r.name, flag.ContinueOnError)
	q := *p
	q.described = func(fs *flag.FlagSet) { found = fs }
	_ = r.run(&q, context.Background(), []string{"--help"}) // which is flag.ErrHelp
	return found
}

// declareFlag declares a flag of the package flag. One of a single letter that shares its value with another is its short
// form.
func declareFlag(to *pflag.FlagSet, fs *flag.FlagSet, f *flag.Flag) {
	short := len(f.Name) == 1
	if short && slices.ContainsFunc(flagsOf(fs), func(other *flag.Flag) bool { return len(other.Name) > 1 && other.Value == f.Value }) {
		return
	}
	g := pflag.PFlagFromGoFlag(f)
	for _, other := range flagsOf(fs) {
		if len(other.Name) == 1 && other.Value == f.Value {
			g.Shorthand = other.Name
		}
	}
	if repeated, ok := f.Value.(*list); ok {
		g.Value = listValue{g.Value, repeated}
	}
	if g.DefValue == "false" {
		g.NoOptDefVal = "true"
	}
	to.AddFlag(g)
}

// listValue is the value of a flag that may be repeated, for completion.
type listValue struct {
	pflag.Value

	list *list
}

// GetSlice returns the values.
func (v listValue) GetSlice() []string { return *v.list }

// flagsOf returns all flags of a set.
func flagsOf(fs *flag.FlagSet) (list []*flag.Flag) {
	fs.VisitAll(func(f *flag.Flag) { list = append(list, f) })
	return list
}

// declareOption declares an option of serve.
func declareOption(to *pflag.FlagSet, f *options.Flag) {
	g := &pflag.Flag{Name: f.Name, Usage: f.Help, DefValue: f.Default, Value: optionValue(f.Arg), Hidden: f.Class != options.Honoured}
	if f.Many {
		g.Value = repeatedValue{optionValue(f.Arg)}
	}
	if f.Arg == "" {
		g.NoOptDefVal = "true"
	}
	to.AddFlag(g)
}

// optionValue is the value of an option of serve, for completion and pages, which do not read it.
type optionValue string

func (optionValue) String() string { return "" }

// Set accepts any value.
func (optionValue) Set(string) error { return nil }

// Type returns the word for the value.
func (v optionValue) Type() string { return string(v) }

// repeatedValue is the value of an option that may be repeated.
type repeatedValue struct{ optionValue }

// GetSlice makes cobra complete the option again.
func (repeatedValue) GetSlice() []string { return nil }

// plainUsage removes the quotes around the word for the value from the description of each flag: completion prints it as it is.
func plainUsage(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, sub := range c.Commands() {
		plainUsage(sub)
	}
}
