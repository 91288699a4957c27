package tutti

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
)

// columnWidths returns the width in characters of each column.
func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for c, cell := range row {
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// pad fills s with spaces up to n characters.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// writeColumns prints rows as columns, all but the first flush right, indented.
func writeColumns(w io.Writer, indent string, rows [][]string) {
	widths := columnWidths(rows)
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(indent)
		for c, cell := range row {
			if c == 0 {
				b.WriteString(pad(cell, widths[c]))
			} else {
				b.WriteString("  " + strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell)) + cell)
			}
		}
		b.WriteString("\n")
	}
	_, _ = io.WriteString(w, b.String())
}

// writeTable prints rows as columns that begin below their heading, which is the first
// row. A column that is empty but for its heading is left out.
func writeTable(w io.Writer, rows [][]string) {
	widths := columnWidths(rows)
	used := columnWidths(rows[1:])
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for c, cell := range row {
			if c == 0 || c < len(used) && used[c] > 0 {
				line.WriteString(pad(cell, widths[c]) + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, _ = io.WriteString(w, b.String())
}

// wrap breaks a text into lines of at most width characters at its spaces. A longer word,
// a path for example, has a line of its own.
func wrap(text string, width int) []string {
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

const (
	shortElements = 6  // of a tensor that shorten shows
	shortRunes    = 60 // of a text that shorten shows
)

// shorten returns a tensor's type, shape and first elements.
func shorten(t *client.Tensor) string {
	return fmt.Sprintf("%s %s %s", t.DType, brackets(t.Shape, len(t.Shape)), strings.ReplaceAll(shortData(t), "\n", `\n`))
}

func shortData(t *client.Tensor) string {
	switch t.DType {
	case tensor.Bytes:
		list, err := t.Strings()
		if err != nil {
			return err.Error()
		}
		texts := make([]string, len(list))
		for i, s := range list {
			texts[i] = shortText(s)
		}
		return brackets(texts, shortElements)
	case tensor.FP32:
		list, _ := client.Values[float32](t)
		texts := make([]string, len(list))
		for i, x := range list {
			texts[i] = strconv.FormatFloat(float64(x), 'g', 4, 32)
		}
		return brackets(texts, shortElements)
	case tensor.Int32:
		list, _ := client.Values[int32](t)
		return brackets(list, shortElements)
	case tensor.Int64:
		list, _ := client.Values[int64](t)
		return brackets(list, shortElements)
	default:
		return fmt.Sprintf("%d bytes", len(t.Data))
	}
}

// shortText quotes a text, or tells the size of what is none.
func shortText(s string) string {
	if !utf8.ValidString(s) {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	if r := []rune(s); len(r) > shortRunes {
		s = string(r[:shortRunes]) + "..."
	}
	return strconv.Quote(s)
}

// brackets lists the first most elements.
func brackets[T any](list []T, most int) string {
	var b strings.Builder
	b.WriteString("[")
	for i, x := range list {
		if i > 0 {
			b.WriteString(",")
		}
		if i == most {
			fmt.Fprintf(&b, " ... %d in all", len(list))
			break
		}
		fmt.Fprint(&b, x)
	}
	return b.String() + "]"
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds a value.
func (l *list) Set(s string) error {
	if s == "" {
		return errors.New("expected a value, got none")
	}
	*l = append(*l, s)
	return nil
}
