package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/job"
)

// progress shows how far a job is: in one line that changes on a terminal, else a line for each tenth.
type progress struct {
	w        io.Writer
	terminal bool
	last     string
}

func newProgress(w io.Writer) *progress { return &progress{w: w, terminal: isTerminal(w)} }

// barWidth is the number of characters of a full bar.
const barWidth = 30

// show shows a job.
func (b *progress) show(st *job.Status) {
	done, total := st.Rows.Done+st.Rows.Failed, st.Rows.Total
	share := 0.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	words := []string{fmt.Sprintf("%s %3.0f%%", st.State, 100*share), fmt.Sprintf("%d of %d rows", done, total)}
	for _, w := range []string{rate(st), left(st), st.Reason} {
		if w != "" {
			words = append(words, w)
		}
	}
	if st.Rows.Failed > 0 {
		words = append(words, fmt.Sprintf("%d failed", st.Rows.Failed))
	}
	for _, p := range st.Problems {
		words = append(words, problem(&p))
	}
	line := strings.Join(words, ", ")
	if b.terminal {
		full := int(share * barWidth)
		fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), line)
		return
	}
	if step := fmt.Sprint(st.State, int(share*10), st.Reason, len(st.Problems)); step != b.last {
		b.last = step
		fmt.Fprintln(b.w, line)
	}
}

// end ends the line.
func (b *progress) end() {
	if b.terminal {
		fmt.Fprintln(b.w)
	}
}

// isTerminal reports whether w is a terminal, where a line can be replaced.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
