package jsontext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/jsontext"
)

func TestAppend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, plain, valid string }{
		{"", `""`, `""`},
		{`a"b\c/`, `"a\"b\\c/"`, `"a\"b\\c/"`},
		{"\b\f\n\r\t", `"\b\f\n\r\t"`, `"\b\f\n\r\t"`},
		{"\x00\x1b\x7f", "\"\\u0000\\u001B\x7f\"", "\"\\u0000\\u001B\x7f\""},
		{"<é€😀>", `"<é€😀>"`, `"<é€😀>"`},
		{"a\xff\xfeb", "\"a\xff\xfeb\"", "\"a\ufffd\ufffdb\""},
	} {
		if got := string(jsontext.Append([]byte("x"), tt.in)); got != "x"+tt.plain {
			t.Errorf("Append(%q) = %s, want x%s", tt.in, got, tt.plain)
		}
		if got := string(jsontext.AppendValid([]byte("x"), tt.in)); got != "x"+tt.valid {
			t.Errorf("AppendValid(%q) = %s, want x%s", tt.in, got, tt.valid)
		}
		if got := string(jsontext.AppendValid(nil, []byte(tt.in))); got != tt.valid {
			t.Errorf("AppendValid(%q) of bytes = %s, want %s", tt.in, got, tt.valid)
		}
	}
}

// FuzzAppend reads what was written back with encoding/json.
func FuzzAppend(f *testing.F) {
	f.Add("")
	f.Add("a\"\\\x01\x7f\u2028é\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		if err := json.Unmarshal(jsontext.AppendValid(nil, s), &back); err != nil || back != string([]rune(s)) {
			t.Errorf("%q is read back as %q, error %v", s, back, err)
		}
		if utf8.ValidString(s) && string(jsontext.Append(nil, s)) != string(jsontext.AppendValid(nil, []byte(s))) {
			t.Errorf("Append and AppendValid differ on %q", s)
		}
	})
}

func TestAllocs(t *testing.T) {
	b, s := make([]byte, 0, 256), strings.Repeat("é\n", 20)
	bytes := []byte(s)
	if n := testing.AllocsPerRun(100, func() {
		b = jsontext.Append(b[:0], s)
		b = jsontext.AppendValid(b[:0], s)
		b = jsontext.AppendValid(b[:0], bytes)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
