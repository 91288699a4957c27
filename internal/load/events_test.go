package load_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/load"
)

// chunked is a response of server-sent events in chunks that end where the texts do.
func chunked(status string, chunks ...string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + status + "\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, c := range append(chunks, "") {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
	}
	return b.String()
}

// TestEvents checks that each event is counted, wherever its chunks end, and that an error ends them.
func TestEvents(t *testing.T) {
	t.Parallel()
	const one, two = "data: {\"model_name\":\"m\",\"model_version\":\"1\",\"Y\":1}\n\n", "data: {\"Y\":[2,3],\"S\":\"x\"}\n\n"
	for _, tt := range []struct {
		name, response string
		n              int
		err            string
	}{
		{"an event a chunk", chunked("200 OK", one, two), 2, ""},
		{"split events", chunked("200 OK", one+two[:3], two[3:9], two[9:]), 2, ""},
		{"joined events", chunked("200 OK", one+one+two), 3, ""},
		{"lines of other systems", chunked("200 OK", strings.ReplaceAll(one+two, "\n", "\r\n")), 2, ""},
		{"comments and types", chunked("200 OK", ": alive\n\nevent: token\nid: 7\n", two), 1, ""},
		{"without chunks", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(one+two), one+two), 2, ""},
		{"none", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, ""},
		{"an error after two", chunked("200 OK", one, two, "data: {\"error\":\"it broke\"}\n\n"), 2, "it broke"},
		{"an error at once", chunked("400 Bad Request", "data: {\"error\":\"it is wrong\"}\n\n"), 0, "status 400: it is wrong"},
		{"a refusal", "HTTP/1.1 503 Busy\r\nContent-Length: 16\r\n\r\n{\"error\":\"later\"}", 0, "status 503: "},
		{"cut off", strings.TrimSuffix(chunked("200 OK", one), "0\r\n\r\n"), 1, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := load.Request{Model: "m", Inputs: []load.Tensor{load.Floats("X", []int64{1, 2}, []float32{1, 2})}}
			g, err := load.Dial(load.Target{HTTP: listen(t, tt.response)}, load.Events, []load.Request{r}, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			c, before := g.Clients[0].(load.Streaming), time.Now()
			err = c.Do(0)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want an error with '%s'", err, tt.err)
			}
			n, first := c.Responses()
			if n != tt.n || n > 0 && (first.Before(before) || first.After(time.Now())) {
				t.Errorf("%d responses, the first at %v, want %d", n, first.Sub(before), tt.n)
			}
			if tt.err != "" || n == 0 {
				return
			}
			got, err := c.Outputs()
			want := []load.Output{{Name: "S", Strings: []string{"x"}}, {Name: "Y", Floats: []float64{2, 3}}}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v, outputs (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestFirstEvent checks that the first event is seen when it comes. Between it and the last one the server writes more than sockets hold, so
// that it goes on only when the client has read the first.
func TestFirstEvent(t *testing.T) {
	t.Parallel()
	sent := make(chan time.Time, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("data: {}\n\n"))
		_ = http.NewResponseController(w).Flush()
		comment := []byte(":" + strings.Repeat(" ", 1<<20) + "\n")
		for range 32 {
			_, _ = w.Write(comment)
		}
		sent <- time.Now()
		_, _ = w.Write([]byte("data: {}\n\n"))
	}))
	defer s.Close()
	r := load.Request{Model: "m", Inputs: []load.Tensor{load.Bytes("X", []int64{1}, []byte("a"))}}
	g, err := load.Dial(load.Target{HTTP: strings.TrimPrefix(s.URL, "http://")}, load.Events, []load.Request{r}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c := g.Clients[0].(load.Streaming)
	if err := c.Do(0); err != nil {
		t.Fatal(err)
	}
	if n, first := c.Responses(); n != 2 || !first.Before(<-sent) {
		t.Errorf("%d responses, the first at %v", n, first)
	}
}

// TestGenerateMessages checks the body of a request to generate_stream, and the inputs that it cannot have.
func TestGenerateMessages(t *testing.T) {
	t.Parallel()
	r := load.Request{Model: "a b", Version: "3", Inputs: []load.Tensor{
		load.Floats("X", []int64{1, 2}, []float32{1, 2.5}), load.Bytes("T", []int64{1, 1}, []byte("é")), load.Floats("E", []int64{0}, nil),
	}}
	message, err := r.Generate()
	head, body, _ := strings.Cut(string(message), "\r\n\r\n")
	if want := `{"E":[],"T":["é"],"X":[1,2.5]}`; err != nil || body != want || !strings.HasPrefix(head, "POST /v2/models/a%20b/versions/3/generate_stream HTTP/1.1\r\n") {
		t.Errorf("%v, %s\n%s\nwant %s", err, head, body, want)
	}
	for want, in := range map[string]load.Tensor{
		"input 'X' has the shape [2 3], and generate_stream takes values and lists only": load.Floats("X", []int64{2, 3}, make([]float32, 6)),
		"input 'B' has bytes that are not text in UTF-8":                                 load.Bytes("B", []int64{1}, []byte{0xff}),
		"the datatype FP8": {Name: "F", Datatype: "FP8", Shape: []int64{1}, Data: []byte{1}},
	} {
		_, err := (&load.Request{Model: "m", Inputs: []load.Tensor{in}}).Generate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with '%s'", err, want)
		}
	}
	_, err = load.Dial(load.Target{HTTP: "127.0.0.1:1", Sequences: load.Sequences{Length: 2}}, load.Events, []load.Request{r}, 1)
	if err == nil || errors.Unwrap(err) != nil {
		t.Errorf("sequences over events: %v", err)
	}
}
