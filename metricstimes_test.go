package tutti

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// pipes is a listener of connections in memory.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, http.ErrServerClosed
	}
	return c, nil
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestMetricsTimes checks that the metrics port ends connections whose client sends nothing: of a request, and after a response.
func TestMetricsTimes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sent string
		most time.Duration
	}{
		"no request":     {"", scrapeTimeout},
		"half a request": {"GET / HTTP/1.1\r\nHost: h\r\n", scrapeTimeout},
		"half a body":    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx", scrapeTimeout},
		"idle":           {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", scrapeIdle},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newMetricsService(telemetry.NewMetrics(), nil)
				l := pipes{make(chan net.Conn)}
				served := make(chan error)
				go func() { served <- s.Serve(l) }()
				client, server := net.Pipe()
				l.conns <- server
				begin := time.Now()
				go func() { _, _ = io.WriteString(client, tt.sent) }()
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took > tt.most+5*time.Second {
					t.Errorf("the connection ended after %v, expected about %v", took, tt.most)
				}
				close(l.conns)
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
