package tutti

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// service answers one protocol on a socket.
type service interface {
	// Serve accepts connections until Shutdown, and then returns nil.
	Serve(l net.Listener) error
	// Shutdown stops accepting and waits for the requests at hand until ctx is over.
	Shutdown(ctx context.Context) error
}

// front is a service with its socket.
type front struct {
	// title is what the log calls it, in Triton's words.
	title    string
	endpoint options.Endpoint
	socket   *socket
	service  service
	listener net.Listener
	done     chan struct{} // closed when Serve has returned
	err      error         // what it returned
}

// listen begins to take connections, which wait until start.
func (f *front) listen() (err error) {
	f.listener, err = f.socket.listen()
	return err
}

// address is what the service listens on: the address that was asked for, with the
// port that it got.
func (f *front) address() string {
	_, port, _ := net.SplitHostPort(f.listener.Addr().String())
	return net.JoinHostPort(f.endpoint.Address, port)
}

// start serves until stop.
func (f *front) start() {
	f.done = make(chan struct{})
	go func() {
		f.err = f.service.Serve(f.listener)
		close(f.done)
	}()
}

// stop ends the service; it is safe when listen or start never came.
func (f *front) stop(ctx context.Context) error {
	if f.done == nil {
		if f.listener == nil {
			return f.socket.close()
		}
		return f.listener.Close()
	}
	err := f.service.Shutdown(ctx)
	<-f.done
	return errors.Join(err, f.err)
}

// exporter answers scrapes.
type exporter struct{ http http.Server }

var _ service = (*exporter)(nil)

const (
	metricsPath   = "/metrics"
	scrapeTimeout = 10 * time.Second
)

// newExporter returns the service of the metrics. What is not /metrics has an empty
// answer, as in Triton.
func newExporter(m *telemetry.Metrics) *exporter {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle(metricsPath, telemetry.Handler(m, r))
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	return &exporter{http.Server{Handler: mux, ReadHeaderTimeout: scrapeTimeout}}
}

func (e *exporter) Serve(l net.Listener) error {
	if err := e.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *exporter) Shutdown(ctx context.Context) error { return e.http.Shutdown(ctx) }
