package dataset

import (
	"os"
	"slices"
	"strings"
)

// SetPartFile replaces the file that a part is written to.
func SetPartFile(p *Part, f *os.File) { p.to.w = f }

// Canonical returns a JSON value in its canonical form.
func Canonical(text string) string { return string(appendCanonical(nil, []byte(text))) }

// FormatRows returns the begins of the rows of a table of the formats.
func FormatRows() (rows []string) {
	for name, f := range formats() {
		files := strings.Join(f.extensions(), " ")
		if f.byOffset() {
			files += ", also with .gz or .zst"
		}
		written := "no"
		if slices.Contains(outputs, name) {
			written = "yes"
		}
		rows = append(rows, "| `"+name+"` | "+files+" | yes | "+written+" |")
	}
	return rows
}

// Decimal reads a number by the short way; ok is false for one that it leaves to strconv.
func Decimal(text string) (v float32, ok bool) {
	v, end := decimal([]byte(text), 0)
	return v, end == len(text) && end > 0
}
