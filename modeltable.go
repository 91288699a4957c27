package tutti

import (
	"io"
	"os"

	"github.com/tutti-server/tutti/internal/table"
)

// Width in characters of the statuses in the table of models: on a terminal, and in a log, where tools search for whole
// sentences.
const (
	terminalWidth = 100
	logWidth      = 500
)

// statusWidth returns the width of statuses in what is written to w.
func statusWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			return terminalWidth
		}
	}
	return logWidth
}

// modelTable returns the table of models that Triton, too, logs after the start.
func modelTable(list []ModelStatus, width int) string {
	rows := [][]string{{"Model", "Version", "Status"}}
	for _, m := range list {
		first, text := []string{m.Name, m.Version}, "READY"
		if m.Err != nil {
			text = "UNAVAILABLE: " + m.Err.Error()
		}
		for _, line := range table.Wrap(text, width) {
			rows, first = append(rows, append(first, line)), []string{"", ""}
		}
	}
	return table.Box(rows)
}
