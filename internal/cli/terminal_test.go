package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// terminal returns a terminal of some columns, and what is written to it.
func terminal(t *testing.T, columns uint16) (tty *os.File, written *bufio.Reader) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { _ = control.Close() })
	fd := int(control.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return tty, bufio.NewReader(control)
}

// TestColors checks that there are colours on terminals only, and not with NO_COLOR.
func TestColors(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	run := func() string {
		tty, written := terminal(t, 80)
		if code := Main(t.Context(), []string{"tutti", "dance"}, tty, tty, tutti.Components{}); code != exitUsage {
			t.Errorf("the exit status is %d", code)
		}
		line, err := written.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if line := run(); !strings.HasPrefix(line, "\x1b[31merror:\x1b[0m there is no command") {
		t.Errorf("on a terminal the error is %q", line)
	}
	t.Setenv("NO_COLOR", "1")
	if line := run(); !strings.HasPrefix(line, "error: there is no command") {
		t.Errorf("with NO_COLOR the error is %q", line)
	}
	t.Setenv("NO_COLOR", "")
	var b bytes.Buffer
	if Main(t.Context(), []string{"tutti", "dance"}, &b, &b, tutti.Components{}); !strings.HasPrefix(b.String(), "error: there is no command") {
		t.Errorf("without a terminal the error is %q", &b)
	}
}

// TestTinyTerminal checks that a line that changes fits in a narrow terminal, and that nothing is shown without one.
func TestTinyTerminal(t *testing.T) {
	for _, columns := range []uint16{1, 2, 10, 200} {
		tty, written := terminal(t, columns)
		line := &liveLine{w: tty, terminal: isTerminal(tty)}
		line.transfer(&runtimes.Archive{Size: 100e6}, 25e6)
		fmt.Fprintln(tty)
		text, err := written.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text, "\r\x1b[K"), "\r\n")
		if columns > 1 && len(text) > int(columns)-1 || columns == 200 && !strings.HasSuffix(text, "]  25% of 100.0 MB") {
			t.Errorf("in %d columns the line is %q", columns, text)
		}
		for _, name := range []string{"help", "infer"} {
			var b bytes.Buffer
			out := tty
			done := make(chan struct{})
			go func() { // the terminal holds few bytes
				defer close(done)
				for !strings.Contains(b.String(), "END") {
					c, err := written.ReadByte()
					if err != nil {
						return
					}
					b.WriteByte(c)
				}
			}()
			if code := Main(t.Context(), []string{"tutti", name, "--help"}, out, out, tutti.Components{}); code != 0 {
				t.Errorf("%s --help in %d columns: status %d", name, columns, code)
			}
			fmt.Fprintln(tty, "END")
			<-done
			if !strings.Contains(b.String(), "Usage:") {
				t.Errorf("%s --help in %d columns is %q", name, columns, &b)
			}
		}
	}
	var b bytes.Buffer
	line := &liveLine{w: &b, terminal: isTerminal(&b)}
	line.transfer(&runtimes.Archive{Size: 1}, 1)
	if line.transfer(nil, -1); b.Len() > 0 {
		t.Errorf("without a terminal the progress is %q", &b)
	}
}
