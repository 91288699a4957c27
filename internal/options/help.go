package options

import (
	"fmt"
	"io"
	"strings"
)

const (
	helpWidth  = 110
	helpIndent = 40
)

// Help prints every option of serve by group. program is the command before them. For example: "tutti serve".
func Help(w io.Writer, program string) {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s --%s FOLDER [options]\n\n", program, flagRepository)
	wrap(&b, 0, 0, "An option is written --name=VALUE or --name VALUE. It may also be an environment variable, for example "+
		envPrefix+"HTTP_PORT for --http-port, or a key of the YAML file of --config. The command line takes precedence over the "+
		"environment, and the environment over the file. Options marked * may be repeated: as a list in the "+
		"file, and in the environment one per line, or separated by commas if their values contain none.")
	list := Flags()
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n%s:\n", g)
		for i := range list {
			if list[i].Group == g {
				list[i].describe(&b)
			}
		}
	}
	_, _ = io.WriteString(w, b.String())
}

// describe prints a flag with its argument and its help.
func (f *Flag) describe(b *strings.Builder) {
	head := "  --" + f.Name
	if f.Arg != "" {
		head += " <" + f.Arg + ">"
	}
	if f.Many {
		head += " *"
	}
	b.WriteString(head)
	used := len(head)
	if used >= helpIndent {
		b.WriteString("\n")
		used = 0
	}
	wrap(b, used, helpIndent, f.sentence())
}

func (f *Flag) sentence() string {
	s := f.Help
	if f.Default != "" {
		s += " (default " + f.Default + ")"
	}
	switch f.Class {
	case WithoutEffect:
		s += "; no effect: " + f.Why
	case Refused:
		s += "; " + f.Why
	case Honoured:
	}
	if f.Instead != "" {
		s += "; deprecated, use " + f.Instead
	}
	return s + "."
}

// wrap prints words in lines of helpWidth with an indent; used is the length of the text already on the first line.
func wrap(b *strings.Builder, used, indent int, text string) {
	b.WriteString(strings.Repeat(" ", max(0, indent-used)))
	at := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && at+1+len(word) > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		case i > 0:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	b.WriteString("\n")
}
