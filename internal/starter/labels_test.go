package starter_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tutti-server/tutti/internal/starter"
)

// wide encodes a text in UTF-16 with a byte order mark, as PowerShell and editors of Windows do.
func wide(order binary.AppendByteOrder, text string) (data string) {
	var b []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// TestLabels checks that labels are read from the files and in the encodings that tools and editors write.
func TestLabels(t *testing.T) {
	t.Parallel()
	const lines = "zéro\n一\ntwo\n3\n4\n5\n6\n7\n8\n\U0001f600 nine\n"
	names := strings.Split(strings.TrimSpace(lines), "\n")
	quoted := `["` + strings.Join(names, `","`) + `"]`
	var numbered strings.Builder
	for i, name := range names {
		fmt.Fprintf(&numbered, "  %d: %s\n", i, name)
	}
	for name, text := range map[string]string{
		"unix.txt":    lines,
		"no-end.txt":  strings.TrimSpace(lines),
		"windows.txt": "\ufeff" + strings.ReplaceAll(lines, "\n", "\r\n"),
		"mac.txt":     strings.ReplaceAll(lines, "\n", "\r"),
		"utf16le.txt": wide(binary.LittleEndian, strings.ReplaceAll(lines, "\n", "\r\n")),
		"utf16be.txt": wide(binary.BigEndian, lines),
		"list.json":   quoted,
		"config.json": `{"id2label": {"0":"zéro","1":"一","2":"two","3":"3","4":"4","5":"5","6":"6","7":"7","8":"8","9":"😀 nine"}}`,
		"data.yaml":   "path: ../data\nnc: 10\nnames:\n" + numbered.String(),
		"list.yml":    "names: " + quoted + "\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := starter.Build(&starter.Options{Model: "testdata/fixed_batch.onnx", Labels: path, Dir: "x"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var found []string
		for _, folder := range r.Folders {
			for _, f := range folder.Files {
				if f.Path == "labels.txt" {
					found = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
				}
			}
		}
		if !slices.Equal(found, names) {
			t.Errorf("%s: found %q, want %q", name, found, names)
		}
	}
}
