package http1_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// TestFields reads header fields as they came, which net/http does not know.
func TestFields(t *testing.T) {
	t.Parallel()
	addr := start(t, http1.New(settings(func(w http.ResponseWriter, r *http.Request) {
		known := http1.Fields(r, func(name, value string) { _, _ = io.WriteString(w, name+"=<"+value+"> ") })
		if !known {
			_, _ = io.WriteString(w, "unknown; "+r.Header.Get("My_A"))
			return
		}
		_, _ = io.WriteString(w, "header "+r.Header.Get("my_a"))
	})))
	const blanks = "my_A:  x \t\r\nmy_b:\ty\r\nMY_A: z \r\nmy_c: \r\n"
	for _, tt := range []struct{ name, head, want string }{
		{"blanks", blanks, "my_A=<x \t> my_b=<y> MY_A=<z > my_c=<> header x"},
		{"the same again", blanks, "my_A=<x \t> my_b=<y> MY_A=<z > my_c=<> header x"},
		{"other blanks", "my_A: x\r\nmy_b: y \r\n", "my_A=<x> my_b=<y > header x"},
		{"none", "", "header "},
		{"by net/http", "My_A: x \r\nTransfer-Encoding: chunked\r\n", "unknown; x"},
	} {
		body := ""
		if strings.Contains(tt.head, "chunked") {
			body = "0\r\n\r\n"
		}
		sent := "POST / HTTP/1.1\r\nHost: h\r\n" + tt.head + "\r\n" + body
		for _, r := range talk(t, addr, sent+sent) {
			if r.Body != tt.want {
				t.Errorf("%s: got %q, want %q", tt.name, r.Body, tt.want)
			}
		}
	}
}
