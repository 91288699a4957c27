package tutti

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
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
