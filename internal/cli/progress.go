package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/internal/runtimes"
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
		fmt.Fprint(b.w, "\r\x1b[K"+cut(b.w, bar(share)+" "+line))
		return
	}
	if step := fmt.Sprint(st.State, int(share*10), st.Reason, len(st.Problems)); step != b.last {
		b.last = step
		fmt.Fprintln(b.w, line)
	}
}

// bar returns a bar of which a share is full.
func bar(share float64) string {
	full := int(max(0, min(1, share)) * barWidth)
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
}

// cut shortens a line so that a terminal does not break it, which could not be replaced then.
func cut(w io.Writer, line string) string {
	room := columns(w) - 1
	if runes := []rune(line); room > 0 && len(runes) > room {
		return string(runes[:room])
	}
	return line
}

// transfer shows how much of an archive has arrived; -1 removes the line.
func (l *liveLine) transfer(a *runtimes.Archive, bytes int64) {
	if bytes < 0 {
		l.end()
		return
	}
	share := float64(bytes) / float64(max(a.Size, 1))
	l.show(fmt.Sprintf("%s %3.0f%% of %.1f MB", bar(share), 100*min(1, share), float64(a.Size)/1e6))
}

// end ends the line.
func (b *progress) end() {
	if b.terminal {
		fmt.Fprintln(b.w)
	}
}

// isTerminal reports whether w is a terminal, where a line can be replaced.
func isTerminal(w io.Writer) bool {
	f, ok := original(w).(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
