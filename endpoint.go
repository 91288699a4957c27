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

// service serves one protocol. Serve and Shutdown are called at most once each, concurrently.
type service interface {
	// Serve accepts connections until Shutdown, and then returns nil. It owns l.
	Serve(l net.Listener) error
	// Shutdown stops accepting and waits for running requests until ctx is done.
	Shutdown(ctx context.Context) error
}

// endpoint is a service with its socket. Its phases: listen, start, stop; stop may be called in each of them.
type endpoint struct {
	// title is the name in the log, in Triton's words.
	title    string
	config   options.Endpoint
	socket   *socket
	service  service
	listener net.Listener
	done     chan struct{} // closed when Serve has returned
	err      error         // returned by Serve
}

// listen starts to queue connections, which are accepted after start.
func (e *endpoint) listen() (err error) {
	e.listener, err = e.socket.listen()
	return err
}

// address returns the configured address with the port that the socket has, empty before listen and for nil.
func (e *endpoint) address() string {
	if e == nil || e.listener == nil {
		return ""
	}
	_, port, _ := net.SplitHostPort(e.listener.Addr().String())
	return net.JoinHostPort(e.config.Address, port)
}

// start serves in the background until stop.
func (e *endpoint) start() {
	e.done = make(chan struct{})
	go func() {
		e.err = e.service.Serve(e.listener)
		close(e.done)
	}()
}

// started reports whether start was called.
func (e *endpoint) started() bool { return e.done != nil }

// stop ends the service.
func (e *endpoint) stop(ctx context.Context) error {
	if !e.started() {
		if e.listener == nil {
			return e.socket.close()
		}
		return e.listener.Close()
	}
	err := e.service.Shutdown(ctx)
	<-e.done
	return errors.Join(err, e.err)
}

// metricsService serves the metrics to Prometheus.
type metricsService struct{ http http.Server }

var _ service = (*metricsService)(nil)

const (
	metricsPath   = "/metrics"
	scrapeTimeout = 10 * time.Second
)

// newMetricsService returns the service of m. Every other path than /metrics has an empty response, as in Triton.
func newMetricsService(m *telemetry.Metrics) *metricsService {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle(metricsPath, telemetry.Handler(m, r))
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	return &metricsService{http.Server{Handler: mux, ReadHeaderTimeout: scrapeTimeout}}
}

func (e *metricsService) Serve(l net.Listener) error {
	if err := e.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *metricsService) Shutdown(ctx context.Context) error { return e.http.Shutdown(ctx) }
