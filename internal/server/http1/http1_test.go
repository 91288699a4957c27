package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/http1"
)

// served is a server in a test.
type served interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

func settings(h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
}

// start serves until the test ends.
func start(tb testing.TB, s served) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	tb.Cleanup(func() {
		_ = s.Close() // it may be closed already
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("Serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

func dial(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr) //nolint:noctx // loopback
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		tb.Fatal(err)
	}
	return c.(*net.TCPConn) //nolint:forcetypeassert // it is
}

// mirror responds with everything that a handler sees of a request, in the way that the path selects.
func mirror(w http.ResponseWriter, r *http.Request) {
	var seen strings.Builder
	fmt.Fprintf(&seen, "%s %s %q %s %s %d %t %v\n", r.Method, r.URL, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.Close, r.TransferEncoding)
	for _, key := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&seen, "%s=%q\n", key, r.Header[key])
	}
	if strings.HasPrefix(r.URL.Path, "/duplex") {
		_ = http.NewResponseController(w).EnableFullDuplex() // both can
	}
	if r.URL.Path == "/duplex/flushed" {
		_, _ = io.WriteString(w, "soon")
		_ = http.NewResponseController(w).Flush() // the client is there
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
	if wrongLength(w, r.URL.Path) {
		return
	}
	if r.URL.Path == "/late" {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "soon") // the client is there
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
	if r.URL.Path != "/unread" {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(&seen, "%q %v\n", body, err)
	}
	text := seen.String()
	switch r.URL.Path {
	case "/sized":
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	case "/long":
		text = strings.Repeat(text, 400)
	case "/long/sized":
		text = strings.Repeat(text, 400)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Header().Set("Content-Type", "application/octet-stream")
	case "/nothing":
		w.WriteHeader(http.StatusNoContent)
	case "/twice":
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
	case "/odd":
		w.Header()["X-Odd"] = []string{"a\r\nInjected: yes", "b"}
		w.WriteHeader(599)
	case "/closes":
		w.Header().Set("Connection", "close")
	case "/empty":
		return
	case "/flushed":
		_, _ = io.WriteString(w, "at once ")      // the client is there
		_ = http.NewResponseController(w).Flush() // and takes it
	}
	for len(text) > 0 { // in pieces
		n := min(len(text), 3000)
		if _, err := io.WriteString(w, text[:n]); err != nil {
			return
		}
		text = text[n:]
	}
}

const last = "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

// conversations has what clients send, by name.
var conversations = map[string]string{
	"get":             "GET /sized HTTP/1.1\r\nHost: h:80\r\nUser-Agent: me\r\nAccept: */*\r\n\r\n",
	"post":            "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
	"lower case":      "POST /a/b HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\nx-trace:  1 2\t\r\n\r\nhello",
	"twice the same":  strings.Repeat("POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", 3),
	"changing":        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiPOST /b HTTP/1.1\r\nHost: i\r\nX: 1\r\nContent-Length: 3\r\n\r\nyou",
	"repeated field":  "GET /sized HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n",
	"unsized":         "GET /unsized HTTP/1.1\r\nHost: h\r\n\r\n",
	"long":            "GET /long HTTP/1.1\r\nHost: h\r\n\r\n",
	"long, sized":     "GET /long/sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"no content":      "GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n",
	"two statuses":    "GET /twice HTTP/1.1\r\nHost: h\r\n\r\n",
	"odd response":    "GET /odd HTTP/1.1\r\nHost: h\r\n\r\n",
	"server closes":   "GET /closes HTTP/1.1\r\nHost: h\r\n\r\n",
	"empty response":  "GET /empty HTTP/1.1\r\nHost: h\r\n\r\n",
	"flushed":         "GET /flushed HTTP/1.1\r\nHost: h\r\n\r\n",
	"body unread":     "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 6000\r\n\r\n" + strings.Repeat("x", 6000),
	"large body":      "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\n" + strings.Repeat("y", 90000),
	"response first":  "POST /late HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n" + strings.Repeat("z", 600000),
	"both at once":    "POST /duplex/flushed HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n" + strings.Repeat("z", 600000),
	"both, short":     "POST /duplex HTTP/1.1\r\nHost: h\r\nContent-Length: 600\r\n\r\n" + strings.Repeat("z", 600),
	"body not wanted": "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n" + strings.Repeat("z", 600000),
	"empty body":      "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
	"no length":       "POST /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"chunks":          "POST /sized HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"expects":         "POST /sized HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
	"query":           "GET /sized?a=b HTTP/1.1\r\nHost: h\r\n\r\n",
	"escapes":         "GET /si%7Aed HTTP/1.1\r\nHost: h\r\n\r\n",
	"absolute":        "GET http://h/sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"two slashes":     "GET //h/sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"head":            "HEAD /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"old":             "GET /sized HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
	"no host":         "GET /sized HTTP/1.1\r\nX: h\r\n\r\n",
	"two hosts":       "GET /sized HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
	"odd host":        "GET /sized HTTP/1.1\r\nHost: h/i\r\n\r\n",
	"two lengths":     "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
	"same lengths":    "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
	"bad length":      "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\nhi",
	"huge length":     "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
	"both framings":   "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"bare line feeds": "GET /sized HTTP/1.1\nHost: h\n\n",
	"folded":          "GET /sized HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
	"space in name":   "GET /sized HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n",
	"no name":         "GET /sized HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n",
	"odd value":       "GET /sized HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n",
	"high value":      "GET /sized HTTP/1.1\r\nHost: h\r\nX: \xc3\xa9\r\n\r\n",
	"no cache":        "GET /sized HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\n\r\n",
	"method":          "BREW /sized HTTP/1.1\r\nHost: h\r\n\r\n",
	"nonsense":        "\x16\x03\x01\x00",
	"long header":     "GET /sized HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n",
	"huge header":     "GET /sized HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 90000) + "\r\n\r\n",
	"many fields":     "GET /sized HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n",
	"close, plain":    "GET /unsized HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n",
	"keep":            "GET /sized HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n",
	"cut off":         "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\nhi",
}

// result is a response as a client sees it.
type result struct {
	Status string
	Header http.Header
	Length int64
	Coding []string
	Close  bool
	Body   string
	Err    string
}

// talk sends everything at once and returns the responses.
func talk(tb testing.TB, addr, sent string) (all []result) {
	tb.Helper()
	c := dial(tb, addr)
	go func() {
		_, _ = io.WriteString(c, sent) // a server may have had enough
		_ = c.CloseWrite()
	}()
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it is read
		resp.Header.Del("Date")
		got := result{resp.Status, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close, string(body), fmt.Sprint(err)}
		all = append(all, got)
	}
}

// TestAsNetHTTP checks that a client gets the same responses as from net/http.
func TestAsNetHTTP(t *testing.T) {
	t.Parallel()
	here, there := start(t, http1.New(settings(mirror))), start(t, settings(mirror))
	for name, sent := range conversations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{sent + last, sent, sent + sent + last} {
				if diff := cmp.Diff(talk(t, there, text), talk(t, here, text)); diff != "" {
					t.Errorf("%.200q (-net/http +here):\n%s", text, diff)
				}
			}
		})
	}
}

func FuzzAsNetHTTP(f *testing.F) {
	for _, sent := range conversations {
		if len(sent) < 4000 {
			f.Add(sent, uint16(len(sent)))
		}
	}
	here, there := start(f, http1.New(settings(mirror))), start(f, settings(mirror))
	f.Fuzz(func(t *testing.T, sent string, cut uint16) {
		sent = sent[:min(len(sent), int(cut))] + last
		if diff := cmp.Diff(talk(t, there, sent), talk(t, here, sent)); diff != "" {
			t.Errorf("%q (-net/http +here):\n%s", sent, diff)
		}
	})
}

// TestPieces sends heads in two pieces.
func TestPieces(t *testing.T) {
	t.Parallel()
	addr := start(t, http1.New(settings(mirror)))
	c := dial(t, addr)
	r := bufio.NewReader(c)
	text := "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
	for cut := 1; cut < len(text); cut += 7 {
		if _, err := io.WriteString(c, text[:cut]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text[cut:]); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it is read
		if err != nil || !bytes.Contains(body, []byte(`"hello"`)) {
			t.Errorf("cut at %d: %q, %v", cut, body, err)
		}
	}
}

// TestClientLeaves checks that a disconnect cancels a request, however long it runs.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
	} {
		came, ended := make(chan struct{}), make(chan error, 1)
		addr := start(t, http1.New(settings(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			close(came)
			<-r.Context().Done()
			ended <- errors.Join(err, r.Context().Err())
		})))
		c := dial(t, addr)
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		<-came
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

// TestSlowResponses checks that watching for a disconnect disturbs neither a long request nor one that is pipelined behind it.
func TestSlowResponses(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	addr := start(t, http1.New(settings(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-goOn:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, r.URL.Path) // the client is there
	})))
	c := dial(t, addr)
	r := bufio.NewReader(c)
	for i := range 5 {
		first, second := fmt.Sprintf("/%d", i), fmt.Sprintf("/%d/more", i)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", first)
		time.AfterFunc(50*time.Millisecond, func() {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", second)
			goOn <- struct{}{}
			goOn <- struct{}{}
		})
		for _, want := range []string{first, second} {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it is read
			if err != nil || string(body) != want {
				t.Errorf("got %q, %v; want %q", body, err, want)
			}
		}
	}
}

// TestPanic checks that the panic of a handler closes its connection and is logged.
func TestPanic(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	said := make(chan struct{})
	set := settings(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("no " + r.URL.Path)
	})
	set.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(writes(func(b []byte) { text.Write(b); close(said) }), nil), slog.LevelWarn)
	addr := start(t, http1.New(set))
	for _, path := range []string{"/abort", "/luck"} {
		if got := talk(t, addr, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"+last); len(got) != 0 {
			t.Errorf("responded %v", got)
		}
	}
	<-said
	if got := text.String(); !strings.Contains(got, "no /luck") || strings.Contains(got, "abort") || !strings.Contains(got, "http1_test.go") {
		t.Errorf("log: %s", got)
	}
}

type writes func(b []byte)

func (w writes) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// TestShutdown checks that Shutdown completes requests in progress, closes idle connections and accepts no new ones.
func TestShutdown(t *testing.T) {
	t.Parallel()
	came, goOn := make(chan struct{}, 2), make(chan struct{})
	s := http1.New(settings(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			came <- struct{}{}
			<-goOn
		}
		_, _ = io.WriteString(w, "done") // the client is there
	}))
	addr := start(t, s)
	idle, busy, begun := dial(t, addr), dial(t, addr), dial(t, addr)
	fmt.Fprint(idle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	idleReader := bufio.NewReader(idle)
	resp, err := http.ReadResponse(idleReader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it is read
	fmt.Fprint(busy, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	fmt.Fprint(begun, "GET /slow?by=net/http HTTP/1.1\r\nHost: h\r\n\r\n")
	<-came
	<-came
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	if _, err := idleReader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v", err)
	}
	close(goOn)
	for _, c := range []*net.TCPConn{busy, begun} {
		got, err := io.ReadAll(c)
		if err != nil || !bytes.HasSuffix(got, []byte("done")) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", addr); err == nil { //nolint:noctx // loopback
		_ = c.Close()
		t.Error("still accepts")
	}
}

// TestShutdownInTime checks that Shutdown ends with its context although a handler still runs.
func TestShutdownInTime(t *testing.T) {
	t.Parallel()
	came, goOn := make(chan struct{}), make(chan struct{})
	s := http1.New(settings(func(http.ResponseWriter, *http.Request) { close(came); <-goOn }))
	addr := start(t, s)
	fmt.Fprint(dial(t, addr), "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-came
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	close(goOn)
}

// TestTimes checks the timeouts for a client that sends nothing, or half a body.
func TestTimes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Server){
		"nothing":        func(s *http.Server) { s.ReadHeaderTimeout = 20 * time.Millisecond },
		"between":        func(s *http.Server) { s.IdleTimeout = 20 * time.Millisecond },
		"half of a body": func(s *http.Server) { s.ReadTimeout = 20 * time.Millisecond },
	} {
		set := settings(mirror)
		change(set)
		c := dial(t, start(t, http1.New(set)))
		switch name {
		case "between":
			fmt.Fprint(c, "GET /sized HTTP/1.1\r\nHost: h\r\n\r\n")
		case "half of a body":
			fmt.Fprint(c, "POST /sized HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAllocs checks that a request costs no allocation.
func TestAllocs(t *testing.T) {
	length, kind, response, into := []string{"2"}, []string{"text/plain"}, []byte("ok"), make([]byte, 64)
	addr := start(t, http1.New(settings(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := r.Body.Read(into); err != nil {
				break
			}
		}
		w.Header()["Content-Length"], w.Header()["Content-Type"] = length, kind
		_, _ = w.Write(response) // the client is there
	})))
	c := dial(t, addr)
	request := []byte("POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
	buf := make([]byte, 4096)
	n := testing.AllocsPerRun(2000, func() {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(buf); err != nil || !bytes.HasSuffix(buf[:n], response) {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}
