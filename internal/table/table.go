// Package table formats text in columns and lines of limited width.
package table

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

func widths(rows [][]string) []int {
	var list []int
	for _, row := range rows {
		for c, cell := range row {
			if c == len(list) {
				list = append(list, 0)
			}
			list[c] = max(list[c], utf8.RuneCountInString(cell))
		}
	}
	return list
}

func spaces(cell string, n int) string {
	return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(cell)))
}

// Box returns rows with lines around them. The first row is the heading.
func Box(rows [][]string) string {
	wide := widths(rows)
	var b strings.Builder
	line := func() {
		for _, n := range wide {
			b.WriteString("+" + strings.Repeat("-", n+2))
		}
		b.WriteString("+\n")
	}
	line()
	for i, row := range rows {
		for c, cell := range row {
			b.WriteString("| " + cell + spaces(cell, wide[c]) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			line()
		}
	}
	line()
	return strings.TrimSuffix(b.String(), "\n")
}

// Right prints rows as columns, all but the first flush right, each row after indent.
func Right(w io.Writer, indent string, rows [][]string) {
	wide := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(indent)
		for c, cell := range row {
			if c == 0 {
				b.WriteString(cell + spaces(cell, wide[c]))
			} else {
				b.WriteString("  " + spaces(cell, wide[c]) + cell)
			}
		}
		b.WriteString("\n")
	}
	_, _ = io.WriteString(w, b.String())
}

// Left prints rows as columns, flush left. The first row is the heading. It omits a column that is empty below its
// heading, but for the first.
func Left(w io.Writer, rows [][]string) {
	wide, used := widths(rows), widths(rows[1:])
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for c, cell := range row {
			if c == 0 || c < len(used) && used[c] > 0 {
				line.WriteString(cell + spaces(cell, wide[c]) + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, _ = io.WriteString(w, b.String())
}

// Wrap breaks a text at spaces into lines of at most width characters. A longer word, for example a path, has its
// own line.
func Wrap(text string, width int) []string {
	var lines []string
	for part := range strings.Lines(text) {
		line := ""
		for word := range strings.FieldsSeq(part) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines, line = append(lines, line), word
			}
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Count returns a number and a word, which gets an s unless the number is 1. For example, "2 models".
func Count(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}
