package tutti

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnchanged keeps its hands off whatever a file's mapping has besides the file.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	const smaps = `00400000-00402000 r-xp 00002000 fe:00 13615234                           /a program
Size:                  8 kB
Anonymous:             0 kB
00402000-00404000 r--p 00004000 fe:00 13615234                           /a program
Anonymous:             4 kB
00404000-00406000 rw-p 00006000 fe:00 13615234                           /a program
Anonymous:             0 kB
00406000-00408000 r--s 00006000 fe:00 13615234                           /a program
Anonymous:             0 kB
00408000-0040a000 r--p 00000000 fe:00 1                                  /a library
Anonymous:             0 kB
0040a000-0040c000 r--p 00000000 00:00 0
Anonymous:             0 kB
x-y r--p 00000000 fe:00 1                                  /a program
Anonymous:             0 kB
0040c000-0040d000 r--p 00008000 fe:00 13615234                           /a program
Anonymous:             0 kB
`
	got, err := unchanged(strings.NewReader(smaps), "/a program")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]mapping{{0x400000, 0x2000, true}, {0x40c000, 0x1000, false}}, got, cmp.AllowUnexported(mapping{})); d != "" {
		t.Errorf("mappings (-want +got):\n%s", d)
	}
}

// TestForgetStart goes on afterwards.
func TestForgetStart(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/smaps"); err != nil {
		t.Skip(err)
	}
	if err := forgetStart(); err != nil {
		t.Error(err)
	}
}
