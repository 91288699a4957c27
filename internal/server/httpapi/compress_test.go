package httpapi_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/httpapi"
)

func pack(tb testing.TB, coding, data string) string {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	default:
		w, _ = flate.NewWriter(&b, 5)
	}
	if _, err := io.WriteString(w, data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func unpack(tb testing.TB, encoding, data string) string {
	tb.Helper()
	var r io.Reader = strings.NewReader(data)
	var err error
	switch encoding {
	case "gzip":
		r, err = gzip.NewReader(r)
	case "deflate":
		r, err = zlib.NewReader(r)
	}
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// TestCompressedRequests sends the forms of gzip and deflate that client libraries produce.
func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	head, wantHead := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[4096],"datatype":"FP32","parameters":{"binary_data_size":16384}}]}`,
		output(`"datatype":"FP32","shape":[4096],"parameters":{"binary_data_size":16384}`)
	tail := strings.Repeat("\x00\x00\x80\x3f", 4096)
	for _, coding := range []string{"gzip", "zlib", "bare"} {
		for _, name := range []string{"gzip", "deflate", " GZIP"} {
			t.Run(coding+" as "+name, func(t *testing.T) {
				t.Parallel()
				url := "http://" + address + "/v2/models/"
				code, _, got := call(t, "POST", url+"echo/infer", []byte(pack(t, coding, goodInput)), "Content-Encoding", name)
				if code != http.StatusOK || got != goodAnswer {
					t.Errorf("JSON: status %d, response %s", code, got)
				}
				code, _, got = call(t, "POST", url+"echo/infer", []byte(pack(t, coding, head+tail)),
					"Content-Encoding", name, lengthHeader, strconv.Itoa(len(head)))
				if code != http.StatusOK || got != wantHead+tail {
					t.Errorf("binary: status %d, %d bytes", code, len(got))
				}
				code, _, got = call(t, "POST", url+"raw_bytes/infer", []byte(pack(t, coding, "hello")),
					"Content-Encoding", name, lengthHeader, "0")
				if code != http.StatusOK || !strings.HasSuffix(got, "hello") {
					t.Errorf("raw: status %d, response %s", code, got)
				}
			})
		}
	}
}

// shows: limits
func TestCompressedErrors(t *testing.T) {
	t.Parallel()
	address, _ := listen(t, func(set *httpapi.Settings) { set.MaxInput = 1 << 20 })
	whole := pack(t, "gzip", goodInput)
	const tooMuch = "Decompressed data size exceeds the maximum allowed value of 1048576 bytes. Use --http-max-input-size to increase the limit."
	binary := `{"inputs":[{"name":"X","shape":[4194304],"datatype":"UINT8","parameters":{"binary_data_size":4194304}}]}`
	tests := []struct {
		name, body, encoding, length string
		code                         int
		want                         string
	}{
		{"unknown", goodInput, "br", "", 501, "Unsupported compression type"},
		{"two", whole, "gzip, deflate", "", 501, "Unsupported compression type"},
		{"empty", "", "gzip", "", 400, "nothing to be decompressed"},
		{"cut", whole[:len(whole)-12], "gzip", "", 400, "failed to decompress the request: unexpected EOF"},
		{"one byte", "\x1f", "gzip", "", 400, "failed to decompress the request: unexpected EOF"},
		{"head only", whole[:5], "gzip", "", 400, "failed to decompress the request: unexpected EOF"},
		{"zlib head only", "\x78\x9c", "deflate", "", 400, "failed to decompress the request: unexpected EOF"},
		{"checksum", whole[:len(whole)-8] + "12345678", "gzip", "", 400, "failed to decompress the request: gzip: invalid checksum"},
		{"more behind", pack(t, "zlib", goodInput) + "x", "deflate", "", 400, "failed to decompress the request: data follows the compressed body"},
		{"not compressed", goodInput, "gzip", "", 400, "failed to decompress the request: flate: corrupt input before offset 9"},
		{"bomb", pack(t, "gzip", strings.Repeat(" ", 64<<20)), "gzip", "", 400, tooMuch},
		{"bomb behind a header", pack(t, "gzip", strings.Repeat(" ", 64<<20)), "gzip", "5000000", 400, tooMuch},
		{"raw bomb", pack(t, "gzip", strings.Repeat("\x00", 64<<20)), "gzip", "0", 400, tooMuch},
		{"tensor bomb", pack(t, "gzip", binary+strings.Repeat("\x00", 4<<20)), "gzip", strconv.Itoa(len(binary)), 400, tooMuch},
		{"long tensor", pack(t, "gzip", binary[:len(binary)-1]+" }x"), "gzip", strconv.Itoa(len(binary) + 1), 400, tooMuch},
		{"header length beyond", whole, "gzip", "1000", 400, "inference header size should be in range (0, 67), got: 1000"},
		{"additional data", pack(t, "gzip", goodInput+"x"), "gzip", "67", 400, "unexpected additional input data for model 'echo'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			header := []string{"Content-Encoding", tt.encoding}
			if tt.length != "" {
				header = append(header, lengthHeader, tt.length)
			}
			code, h, got := call(t, "POST", "http://"+address+inferPath, []byte(tt.body), header...)
			if want := `{"error":"` + tt.want + `"}`; code != tt.code || got != want {
				t.Errorf("got status %d, %s, want %d, %s", code, got, tt.code, want)
			}
			if accept := h.Get("Accept-Encoding"); (code == http.StatusNotImplemented) != (accept == "gzip, deflate") {
				t.Errorf("status %d, Accept-Encoding %q", code, accept)
			}
		})
	}
}

// TestAcceptEncoding requests compressed responses with every form of Accept-Encoding.
//
// shows: infer.compression
func TestAcceptEncoding(t *testing.T) {
	t.Parallel()
	address, _ := listen(t)
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[65536],"datatype":"FP32","parameters":{"binary_data_size":262144}}]}`
	tail := strings.Repeat("abcd", 65536)
	wantHead := output(`"datatype":"FP32","shape":[65536],"parameters":{"binary_data_size":262144}`)
	tests := []struct{ accept, want string }{
		{"", ""},
		{"gzip", "gzip"},
		{"deflate", "deflate"},
		{"identity", ""},
		{"gzip, deflate, br", "gzip"},
		{"deflate, gzip", "deflate"},
		{"gzip;q=0.5, deflate;q=0.8", "deflate"},
		{"GZIP;Q=0.9,deflate; q=0.8", "gzip"},
		{"gzip;q=0.5, identity", ""},
		{"gzip;q=0", ""},
		{"gzip;q=0, *", ""},
		{"identity;q=0, *", "gzip"},
		{"identity;q=0, gzip;q=0, *;q=0.1", "deflate"},
		{"*;q=0.1, gzip;q=0.2", "gzip"},
		{"*", ""},
		{"gzip;q=x", ""},
		{"gzip;q=NaN", ""},
		{"gzip;level=9;q=0.3", "gzip"},
		{";q=1,,", ""},
		{"br", ""},
	}
	for _, tt := range tests {
		t.Run(tt.accept, func(t *testing.T) {
			t.Parallel()
			url, vary := "http://"+address+inferPath, "Accept-Encoding"
			if tt.accept == "" {
				vary = ""
			}
			for _, in := range []struct{ body, length, want string }{
				{goodInput, "", goodAnswer},
				{head + tail, strconv.Itoa(len(head)), wantHead + tail},
			} {
				header := []string{"Accept-Encoding", tt.accept}
				if tt.accept == "" {
					header = nil
				}
				if in.length != "" {
					header = append(header, lengthHeader, in.length)
				}
				code, h, got := call(t, "POST", url, []byte(in.body), header...)
				if h.Get("Content-Encoding") != tt.want || h.Get("Vary") != vary {
					t.Fatalf("status %d, headers %v", code, h)
				}
				if n := h.Get(lengthHeader); in.length != "" && n != strconv.Itoa(len(wantHead)) {
					t.Errorf("JSON length %q, want that before compression, %d", n, len(wantHead))
				}
				if tt.want != "" && in.length != "" && len(got) > len(in.want)/2 {
					t.Errorf("%d bytes became %d", len(in.want), len(got))
				}
				if diff := cmp.Diff(in.want, unpack(t, tt.want, got)); diff != "" {
					t.Errorf("status %d (-want +got):\n%.500s", code, diff)
				}
			}
		})
	}
}
