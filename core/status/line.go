package status

import "strings"

// Line returns a text on one line, for logs and tables: its lines are trimmed and joined
// by "; ", or by a space behind a colon.
//
//	"ValueError: no table\n\nAt:\n  model.py(4): initialize\n" -> "ValueError: no table; At: model.py(4): initialize"
func Line(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case b.Len() == 0:
		case strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}
