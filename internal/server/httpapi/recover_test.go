package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// broken panics at requests with the id "broken".
type broken struct{ *servertest.Echo }

// Submit panics before it submits the request.
func (b broken) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if req.ID == "broken" {
		panic("no such defect")
	}
	b.Echo.Submit(ctx, req, sink)
}

// half writes a part of its response before it panics.
type half struct{}

func (half) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
	panic("half a page")
}

// TestPanics lets handlers panic: the response is 500 if it has not begun, the log has the stack, and other requests are served.
//
// shows: recovery
func TestPanics(t *testing.T) {
	t.Parallel()
	var out logtest.Buffer
	address, _ := listen(t, func(s *httpapi.Settings) {
		s.Alloc = tensor.NewPool() // a request that panics is not released
		s.Infer, s.UI, s.Log = broken{s.Infer.(*servertest.Echo)}, half{}, slog.New(slog.NewTextHandler(&out, nil))
	})
	c := dial(t, address)
	post := func(id string) {
		body := `{"id":"` + id + `","inputs":[{"name":"X","datatype":"FP32","shape":[1],"data":[1]}]}`
		c.send("POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	}
	post("fine")
	if code, body, _ := c.response(); code != http.StatusOK {
		t.Fatalf("a request gave %d %s", code, body)
	}
	post("broken")
	code, body, closing := c.response()
	if code != http.StatusInternalServerError || body != `{"error":"POST /v2/models/echo/infer failed: panic: no such defect"}` || !closing {
		t.Errorf("a panic gave %d %s, closing %v", code, body, closing)
	}
	c = dial(t, address)
	c.send("GET /ui/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if all, _ := io.ReadAll(c.r); bytes.Contains(all, []byte("500")) || bytes.HasSuffix(all, []byte("0\r\n\r\n")) {
		t.Errorf("half a response was ended as a whole one: %d bytes, %q last", len(all), all[max(0, len(all)-20):])
	}
	c = dial(t, address)
	post("fine")
	if code, body, _ := c.response(); code != http.StatusOK {
		t.Errorf("after the panics: %d %s", code, body)
	}
	for _, want := range []string{"level=ERROR", "path=/v2/models/echo/infer", "httpapi_test.broken.Submit", "httpapi_test.half.ServeHTTP"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &out)
		}
	}
}
