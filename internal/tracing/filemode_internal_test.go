package tracing

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFileMode checks that trace files, which may have the tensors of clients, are for the server's user only.
func TestFileMode(t *testing.T) {
	t.Parallel()
	f := &file{name: filepath.Join(t.TempDir(), "trace")}
	f.write([]byte("{}"))
	f.writeIndexed([]byte("{}"))
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{f.name, f.name + ".0"} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v; want mode 0600", st, err)
		}
	}
}
