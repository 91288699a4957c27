package cli

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/table"
)

// The width of help: of the terminal, within these limits, and plainWidth where there is none.
const (
	plainWidth = 110
	minWidth   = 40
	maxWidth   = 140
)

// width returns the width of text for w.
func width(w io.Writer) int {
	n := columns(w)
	if n == 0 {
		return plainWidth
	}
	return max(minWidth, min(maxWidth, n))
}

// columns returns the number of columns of a terminal, 0 if w is none.
func columns(w io.Writer) int {
	f, ok := original(w).(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// help prints the help of a command.
func (p *program) help(c *cobra.Command) {
	full := c.Annotations[rowName]
	if full == "serve" || full == "worker" {
		p.serverHelp(commandName+" "+full, full)
		return
	}
	if c.DisableFlagParsing {
		p.mirror(c)
	}
	var b strings.Builder
	wide := width(p.stdout)
	writeText(&b, wide, c.Long)
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", strings.TrimSpace(strings.TrimSuffix(c.CommandPath(), c.Name())+c.Use))
	if c.HasAvailableSubCommands() {
		writeCommands(&b, wide, c)
	}
	if !c.HasParent() {
		b.WriteString("\nFlags:\n  -h, --help      print this help\n  -v, --version   print the version of this program\n")
	}
	own, server := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Name == "help":
		case connectionFlag(f.Name):
			server.AddFlag(f)
		default:
			own.AddFlag(f)
		}
	})
	writeFlags(&b, "Flags", own, wide)
	writeFlags(&b, "Flags for the connection to the server", server, wide)
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	switch {
	case !c.HasParent():
		b.WriteString("\n'tutti help COMMAND' prints the flags and examples of a command.\n" + exitHelp)
	case c.HasAvailableSubCommands():
		fmt.Fprintf(&b, "\n'tutti help %s COMMAND' prints the flags and examples of a command.\n", full)
	}
	_, _ = io.WriteString(p.stdout, b.String())
}

// serverHelp prints the help of serve or worker. program is the command as it was typed.
func (p *program) serverHelp(program, name string) {
	options.ShortHelp(p.stdout, program)
	_, _ = fmt.Fprintf(p.stdout, "\nExamples:\n  %s\n", strings.Join(find(name).examples, "\n  "))
}

// writeText writes paragraphs. It breaks the lines of those that are wider than the terminal.
func writeText(b *strings.Builder, wide int, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if len(line) <= wide || strings.HasPrefix(line, " ") {
			b.WriteString(line + "\n")
			continue
		}
		b.WriteString(strings.Join(table.Wrap(line, wide), "\n") + "\n")
	}
}

// writeCommands writes the commands below c, under their headings.
func writeCommands(b *strings.Builder, wide int, c *cobra.Command) {
	longest := 0
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			longest = max(longest, len(sub.Name()))
		}
	}
	write := func(title string, is func(*cobra.Command) bool) {
		heading := "\n" + title + "\n"
		for _, sub := range c.Commands() {
			if !is(sub) || !sub.IsAvailableCommand() {
				continue
			}
			b.WriteString(heading)
			heading = ""
			for i, line := range table.Wrap(sub.Short, max(minWidth/2, wide-longest-4)) {
				name := sub.Name()
				if i > 0 {
					name = ""
				}
				fmt.Fprintf(b, "  %-*s  %s\n", longest, name, line)
			}
		}
	}
	for _, g := range c.Groups() {
		write(g.Title, func(sub *cobra.Command) bool { return sub.GroupID == g.ID })
	}
	write(cmp.Or(map[bool]string{true: "Commands:"}[len(c.Groups()) == 0], "Help:"), func(sub *cobra.Command) bool { return sub.GroupID == "" })
}

func writeFlags(b *strings.Builder, title string, fs *pflag.FlagSet, wide int) {
	if fs.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s:\n%s", title, fs.FlagUsagesWrapped(wide))
	}
}

// flags returns the flag set of a command, whose --help prints the row of the command in commands and the flags. name is
// that of the command with those above it, for example "repo ls".
func (p *program) flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(commandName+" "+name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		if p.described != nil {
			p.described(fs)
			return
		}
		if c, _, err := p.root.Find(strings.Fields(name)); err == nil {
			_ = c.Help() // which is p.help
		}
	}
	return fs
}
