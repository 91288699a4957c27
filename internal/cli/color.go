package cli

import (
	"io"
	"os"
)

// The colours of text on terminals, by the numbers of ANSI's escape sequences.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// colored reports whether text for w may have colours: on a terminal, unless NO_COLOR is set (no-color.org) or the terminal
// has none.
func colored(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// paint returns a text in a colour, for a writer that may have colours.
func paint(w io.Writer, color, text string) string {
	if !colored(w) {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
