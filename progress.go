package tutti

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/table"
)

// progressOn returns a function that draws the progress of fetched models, a line per model, if w is a terminal.
// Otherwise it returns nil, and the log has the progress.
func progressOn(w io.Writer) func(model string, done, total int64) {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil { //nolint:gosec // file descriptors are small
		return nil
	}
	var mu sync.Mutex
	shown := map[string]int64{}
	return func(model string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		percent := 100 * done / max(1, total)
		if last, ok := shown[model]; ok && percent == last {
			return
		}
		shown[model] = percent
		end := ""
		if done >= total {
			end = "\n"
			delete(shown, model)
		}
		_, _ = fmt.Fprintf(f, "\r\x1b[Kfetching %s: %d%% of %.1f MB%s", model, percent, float64(total)/1e6, end)
	}
}

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
